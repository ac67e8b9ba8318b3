"""Speed and manners on a real API server with a big cluster: `make bench-live`.

Prints what was measured beside what is aimed at; figures depend on the machine and on what else runs on it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

import httpx

from tests.controlplane import build
from tests.live import crowd, painting
from tests.live.controlplane import NO_NODE_LIFECYCLE, ControlPlane
from tests.live.identities import READER, SETUP
from tests.live.processes import Program, free_ports
from tests.live.seeing import Seeing

MINUTE = 60.0
WRITERS = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.live.bench", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--rest", type=float, default=MINUTE, help="seconds at rest (default: 60; 600 is thorough)")
    parser.add_argument("--only-recorder", action="store_true", help="measure the recorder only")
    parser.add_argument("--rounds", type=int, default=10, help="of keys and events on the screen (default: 10)")
    options = parser.parse_args()
    if not build.is_built():
        print("The control plane is not built: `make controlplane` does that", file=sys.stderr)
        return 1
    with ControlPlane(controllers=NO_NODE_LIFECYCLE, heartbeats=False) as plane:
        began = time.monotonic()
        crowd.fill(plane, nodes=options.nodes, pods=options.pods, workloads=options.workloads)
        # Nobody looks after the nodes: they need no heartbeats, and the machine belongs to what is measured.
        plane.kwok.kill()
        plane.scheduler.kill()
        plane.controller_manager.kill()
        line("cluster filled in", time.monotonic() - began, "s")
        warm(plane, options)
        if options.only_recorder:
            recording(plane)
            return 0
        attempt(lambda: painting.opening(plane.kubeconfig(READER), READER.name, options.workloads, against))
        spent = time.process_time()
        with Seeing(plane.kubeconfig(READER)) as seeing:
            opening(plane, seeing, options, spent)
            changes(plane, seeing)
            rest(plane, seeing, options.rest)
            restart(plane, seeing)
        attempt(lambda: recording(plane))
        for program in plane.programs:
            if program.pid is not None:
                line(f"{program.name} holds", program.resident / 1e6, "MB")
    attempt(lambda: painting.streaming(options.nodes, options.pods, options.workloads, options.rounds, against))
    attempt(lambda: painting.trying(options.nodes, options.pods, 2 * options.workloads, options.rounds, against))
    return 0


def line(what: str, value: float, unit: str, aim: str = "") -> None:
    print(f"  {what:44} {value:10.1f} {unit:4} {f'(aim: {aim})' if aim else ''}", flush=True)


def against(what: str, value: float, unit: str, bar: float | None) -> None:
    """A line with its bar, and which side of it the value is on."""
    told = "" if bar is None else f"under {bar:g}: {'yes' if value < bar else 'NO'}; load {os.getloadavg()[0]:.1f}"
    line(what, value, unit, told)


def attempt(measure: Callable[[], None]) -> None:
    """Measure, and go on with the rest where that does not come to an end."""
    try:
        measure()
    except (TimeoutError, RuntimeError) as error:
        print(f"  not measured: {error}", flush=True)


def warm(plane: ControlPlane, options: argparse.Namespace) -> None:
    """An API server that has run for a while has all objects in memory: wait until this one has."""
    workloads = "/apis/kueue.x-k8s.io/v1beta2/workloads"
    wanted = {"/api/v1/nodes": options.nodes, "/api/v1/pods": options.pods, workloads: options.workloads}
    for path, count in wanted.items():
        since(time.monotonic(), lambda: len(plane.api().items(f"{path}?resourceVersion=0")) == count)  # noqa: B023


def opening(plane: ControlPlane, seeing: Seeing, options: argparse.Namespace, spent: float) -> None:
    """How long until something useful is shown, and until all is."""
    useful = since(seeing.began, lambda: len(seeing.snapshot().cluster_queues) and len(seeing.snapshot().nodes))
    line("first nodes and queues after", useful, "s")

    def whole() -> bool:
        shown = seeing.snapshot()
        wanted = options.nodes, options.pods, options.workloads
        return (len(shown.nodes), len(shown.pods), len(shown.workloads)) == wanted and not seeing.health.loading

    against("complete after", since(seeing.began, whole), "s", 15)
    line("CPU of this process until then", time.process_time() - spent, "s")
    log = plane.audit.requests(READER.user)
    asked = [request.verb for request in log]
    line("LISTs (pages)", asked.count("list"), "")
    line("watches", asked.count("watch"), "")
    line("memory of this process, the bench included", resident() / 1e6, "MB")


def changes(plane: ControlPlane, seeing: Seeing) -> None:
    """From a change on the API server to the state, one by one and then as fast as they come."""
    api, delays = plane.api(SETUP), []
    for value in range(40):
        sent = time.monotonic()
        crowd.touch(api, value, value)
        delays.append(since(sent, lambda value=value: _touched(seeing, value) == str(value), pause=0.002))  # type: ignore[misc]
    line("change to state, median", median(delays) * 1000, "ms")
    against("change to state, p95", quantiles(delays, n=20)[-1] * 1000, "ms", 500)
    before, began = seeing.events, time.monotonic()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: crowd.touch(api, number, -1), range(1_000)))
    since(began, lambda: seeing.events - before >= 1_000)
    line("watch events", (seeing.events - before) / (time.monotonic() - began), "/s", "100 and more")


def rest(plane: ControlPlane, seeing: Seeing, seconds: float) -> None:
    """What is asked of the API server while nothing happens."""
    log = plane.audit.skip()
    time.sleep(seconds)
    asked = list(log.requests(READER.user))
    against("requests a minute at rest", len(asked) * MINUTE / seconds, "", 10)
    against("LISTs at rest", sum(request.verb == "list" for request in asked), "", 1)


def restart(plane: ControlPlane, seeing: Seeing) -> None:
    """The API server is killed and comes back."""
    log = plane.audit.skip()
    plane.restart_apiserver()
    ready = time.monotonic()
    crowd.touch(plane.api(SETUP), 1, 99)
    try:
        healthy = since(ready, lambda: _touched(seeing, 1) == "99" and not seeing.health.lost, limit=60)
    except TimeoutError as error:
        print(f"  right again after /readyz: {error}")
    else:
        against("right again after /readyz", healthy, "s", 10)
    asked = list(log.requests(READER.user))
    line("requests after the restart", len(asked), "")
    line("LISTs after the restart", sum(request.verb == "list" for request in asked), "")


def recording(plane: ControlPlane, seconds: float = MINUTE) -> None:
    """Memory and CPU of a recorder without a screen, at rest and while Workloads change."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        options = ["--live", "--kubeconfig", str(plane.kubeconfig(READER)), "--context", READER.name]
        state = f"GPUCONSOLE_STATE_DIR={folder}"
        command = ["env", state, "MALLOC_ARENA_MAX=2", sys.executable, "-m", "gpuconsole", "record", *options]
        recorder = Program("record", [*command, "--metrics", f"127.0.0.1:{port}"], Path(folder))
        recorder.start()
        try:
            began = time.monotonic()
            since(began, lambda: _answer(port, "/-/ready") == 200, pause=0.5)
            line("recorder: ready after", time.monotonic() - began, "s")
            time.sleep(10)
            spent, began = cpu_of(recorder), time.monotonic()
            time.sleep(seconds / 2)
            used = 100 * (cpu_of(recorder) - spent) / (time.monotonic() - began)
            line("recorder: CPU at rest, of a core", used, "%")
            spent, began, api = cpu_of(recorder), time.monotonic(), plane.api(SETUP)
            number = 0
            with ThreadPoolExecutor(WRITERS) as pool:
                while (passed := time.monotonic() - began) < seconds:
                    due = min(round(passed * RECORDED) - number, RECORDED)
                    list(pool.map(lambda one: crowd.touch(api, one % 1_000, one), range(number, number + due)))
                    number += due
                    time.sleep(0.05)
            passed = time.monotonic() - began
            line("recorder: events sent", number / passed, "/s", f"{RECORDED}")
            against("recorder: CPU at this rate, of a core", 100 * (cpu_of(recorder) - spent) / passed, "%", 5)
            against("recorder: memory", recorder.resident / 1e6, "MB", 150)
            for _ in range(2):
                began = time.monotonic()
                _answer(port, "/metrics")
                line("recorder: a scrape of its metrics takes", time.monotonic() - began, "s")
            line("recorder: memory with metrics", recorder.resident / 1e6, "MB")
        finally:
            recorder.kill()


RECORDED = 100
"""Events a second while a recorder is measured."""


def _answer(port: int, path: str) -> int:
    """Status of a request to a recorder; 0 if it does not respond yet."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60, trust_env=False).status_code
    except httpx.HTTPError:
        return 0


def cpu_of(program: Program) -> float:
    """Seconds of CPU time that a program has used."""
    fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _touched(seeing: Seeing, workload: int) -> str | None:
    shown = seeing.snapshot().workloads.get(crowd.key(workload))
    return shown.annotations.get("touched") if shown is not None else None


def since(began: float, so: Callable[[], object], *, pause: float = 0.05, limit: float = 180) -> float:
    """Seconds from then until something is so."""
    while not so():
        if time.monotonic() - began > limit:
            raise TimeoutError(f"not so after {limit:.0f} s")
        time.sleep(pause)
    return time.monotonic() - began


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


if __name__ == "__main__":
    sys.exit(main())
