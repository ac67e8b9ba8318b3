"""The whole console on a terminal, in front of a cluster: how soon it, its keys and its events are painted."""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import msgspec

from tests.support import api_documents
from tests.support.api_server import ApiServer, Document
from tests.tools.pty_console import PtyConsole

COMMAND = Path(sys.executable).with_name("gpuconsole")
RATE = 1_000
"""Events a second of the recorded stream."""
BATCH = 20
STYLING = r"\x1b\[[\d;]*m"
PRESSES = (
    ("2", "COHORT"),
    ("4", "GPUs in use"),
    ("3", "WORKLOAD"),
    ("G", r" ([\d,]+)/\1\b"),
    ("g", r" 1/\d"),
    ("1", "Last hour"),
)
"""What is pressed, in turn, and what is painted then and not before."""

Line = Callable[[str, float, str, float | None], None]


@contextmanager
def painted(kubeconfig: Path, *options: str) -> Iterator[PtyConsole]:
    """A console of its own process, with a state folder of its own."""
    with tempfile.TemporaryDirectory(prefix="painted-") as folder:
        arguments = ["run", "--live", "--read-only", "--kubeconfig", str(kubeconfig), *options]
        with PtyConsole([str(COMMAND), *arguments], 140, 40, {"GPUCONSOLE_STATE_DIR": folder}) as console:
            yield console


def opening(kubeconfig: Path, context: str, workloads: int, line: Line) -> None:
    """From the command to something useful, and to all Workloads."""
    began = time.perf_counter()
    with painted(kubeconfig, "--context", context) as console:
        console.wait(rf"▸ ({STYLING})*crowd-\d")
        line("console: first useful screen after", time.perf_counter() - began, "s", 3)
        console.write("3")
        console.wait(rf" \d+/{workloads:,}\b|/{workloads}\b", 120)
        line("console: all Workloads painted after", time.perf_counter() - began, "s", 15)
        console.settle(5)
        line("console: memory with its worker", console.memory() / 1e6, "MB", 600)


class Stream:
    """A recorded stream of watch events, told over and over at an even rate. Mutates; runs in a thread."""

    def __init__(self, api: ApiServer, lines: Sequence[bytes], wanted: int = RATE) -> None:
        self._api = api
        self._lines = lines
        self._wanted = wanted
        """Events a second."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self.told = 0
        self.began = 0.0

    def __enter__(self) -> "Stream":
        self.began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def rate(self) -> float:
        """Events a second so far."""
        return self.told / (time.monotonic() - self.began)

    def _tell(self) -> None:
        while not self._ended.wait(max(0.0, self.began + self.told / self._wanted - time.monotonic())):
            batch = [self._lines[(self.told + n) % len(self._lines)] for n in range(BATCH)]
            tell(self._api, b"".join(batch))
            self.told += BATCH


def tell(api: ApiServer, lines: bytes) -> None:
    """Send lines to everybody who watches Workloads."""
    with api.lock:
        for plural, watcher in api.watchers:
            if plural == "workloads":
                watcher.put(lines)


def streaming(nodes: int, pods: int, workloads: int, rounds: int, line: Line) -> None:
    """Keys and events while a recorded stream of a thousand events a second comes in."""
    with tempfile.TemporaryDirectory(prefix="stream-") as folder:
        api = ApiServer(Path(folder))
        try:
            _fill(api, nodes, pods, workloads)
            with painted(api.kubeconfig) as console:
                console.write("3")
                console.wait(rf"/{workloads:,}\b|/{workloads}\b", 120)
                with Stream(api, _recorded(workloads)) as stream:
                    console.settle(3)
                    line("stream: key to paint, p95", _p95(_keys(console, rounds)) * 1000, "ms", 100)
                    line("stream: event to pixel, p95", _p95(_pixels(console, api, rounds)) * 1000, "ms", 500)
                    line("stream: events a second", stream.rate, "/s", None)
                line("stream: memory with its worker", console.memory() / 1e6, "MB", 600)
        finally:
            api.close()


def trying(nodes: int, pods: int, workloads: int, rounds: int, line: Line) -> None:
    """What-ifs on a cluster whose quota is used up, while those who wait are told again and again why."""
    with tempfile.TemporaryDirectory(prefix="trying-") as folder:
        api = ApiServer(Path(folder))
        try:
            _fill(api, nodes, pods, workloads, quota=pods)
            with painted(api.kubeconfig) as console:
                console.write("3")
                console.wait(rf"/{workloads:,}\b|/{workloads}\b", 120)
                with Stream(api, _recorded(workloads, pods), RATE // 10) as stream:
                    line("stream: what-if, ⏎ to first answer, p95", _p95(_answers(console, rounds)) * 1000, "ms", 300)
                    line("stream: events a second", stream.rate, "/s", None)
                line("stream: memory with its worker", console.memory() / 1e6, "MB", None)
        finally:
            api.close()


def _answers(console: PtyConsole, rounds: int) -> list[float]:
    """From the key that runs a what-if until it is painted who has to go; the next run gives it up."""
    console.latency("7", "WHAT-IF")
    console.latency("a", "drain node")
    console.latency("d", "node-0000")
    console.latency("\r", "drain node node-0000")
    console.settle(10)
    taken = []
    for _ in range(rounds * 2):
        taken.append(console.latency("\r", "because of it"))
        console.settle(1.5)
    return taken


def _keys(console: PtyConsole, rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        for key, pattern in PRESSES:
            console.settle(0.15)
            taken.append(console.latency(key, pattern))
    return taken


def _pixels(console: PtyConsole, api: ApiServer, rounds: int) -> list[float]:
    """From a change of the only Workload that passes the filter until its new priority is painted."""
    console.write("3")
    console.settle(0.5)
    console.write("/pixel")
    console.settle(0.5)
    console.write("\r")
    console.settle(0.5)
    taken = []
    for number in range(rounds * 2):
        tell(api, _event(_workload("pixel", 70_000 + number), 900_000_000 + number))
        taken.append(console.wait(f"{70_000 + number}", 10))
        console.settle(0.1)
    return taken


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20)[-1]


def _fill(api: ApiServer, nodes: int, pods: int, workloads: int, quota: int | None = None) -> None:
    """A cluster all of whose Workloads wait; with a `quota` those run that pods stand for, and use it up."""
    for number in range(nodes):
        api.put("nodes", api_documents.node(f"node-{number:04}"))
    for name in ("cq-a", "cq-b"):
        api.put("clusterqueues", api_documents.cluster_queue(name, nodes * 8 if quota is None else quota))
    if quota is not None:
        api.put("namespaces", {"metadata": {"name": "team"}})
        api.put("resourceflavors", {"metadata": {"name": "a100"}, "spec": {"nodeLabels": {"type": "a100"}}})
    api.put("localqueues", api_documents.local_queue("lq", "cq-a"))
    for number in range(workloads - 1):
        runs = quota is not None and number < pods
        api.put("workloads", _running(number) if runs else _workload(f"train-{number:05}", number % 7))
    api.put("workloads", _workload("pixel", 1))
    for number in range(pods):
        pod = api_documents.pod(f"train-{number:05}", 1, node=f"node-{number % nodes:04}")
        pod["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": f"train-{number:05}"}
        pod["status"]["startTime"] = f"2026-01-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00Z"
        api.put("pods", pod)


def _workload(name: str, priority: int) -> Document:
    workload = api_documents.workload(name)
    workload["metadata"]["uid"] = f"uid-{name}"
    workload["spec"]["priority"] = priority
    return workload


def _running(number: int) -> Document:
    """A Workload of one GPU that is admitted."""
    conditions = [api_documents.condition(name, True, name) for name in ("QuotaReserved", "Admitted")]
    admission = api_documents.admission("cq-a", gpus=1)
    document = api_documents.workload(f"train-{number:05}", *conditions, gpus=1, admission=admission)
    document["metadata"]["uid"] = f"uid-train-{number:05}"
    return document


def _recorded(workloads: int, first: int = 0) -> list[bytes]:
    """Ten seconds of changes: conditions of Workloads that wait, from the `first` on, as Kueue rewrites them."""
    waiting = workloads - 1 - first
    return [_event(_refused(first + number % waiting, number), 500_000 + number) for number in range(10 * RATE)]


def _refused(workload: int, number: int) -> Document:
    document = _workload(f"train-{workload:05}", workload % 7)
    message = f"couldn't assign flavors to pod set main: insufficient unused quota, {number} more needed"
    document["status"]["conditions"] = [api_documents.condition("QuotaReserved", False, "Pending", message)]
    return document


def _event(document: Document, version: int) -> bytes:
    document["metadata"]["resourceVersion"] = str(version)
    return msgspec.json.encode({"type": "MODIFIED", "object": document}) + b"\n"
