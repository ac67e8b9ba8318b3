"""Measure what the console promises: `make bench` (or `python -m tests.tools.bench engine fork keys`).

Every figure is the median of several runs in one process, in CPU time where no wall clock is asked for, and stands
beside its ratio to a calibration loop of the same run, so that machines compare. Key-to-paint figures are wall-clock
times in a real pseudo-terminal: they mean little on a busy machine, so its load is printed.
"""

import gc
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from msgspec.structs import replace

from gpuconsole.model import snapshot as snapshots
from gpuconsole.model.clock import SECOND, parse_time
from gpuconsole.model.commands import Submit
from gpuconsole.model.decisions import Admit, Preempt, Refuse
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import Session
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.tools import load
from tests.tools.pty_console import PtyConsole

RUNS = 5
START = parse_time("2026-01-05T08:00:00Z")
COMMAND = Path(sys.executable).with_name("gpuconsole")
COLUMNS, LINES = 120, 36
ROUNDS = 30
PRESSES = (
    ("changing the screen", "1", "Last hour"),
    ("changing the screen", "2", "COHORT"),
    ("moving the cursor", "j", r" 2/\d"),
    ("moving the cursor", "j", r" 3/\d"),
    ("moving the cursor", "g", r" 1/\d"),
    ("changing the screen", "3", "WORKLOAD"),
    ("going to an end", "G", r" (\d+)/\1\b"),
    ("going to an end", "g", r" 1/\d"),
    ("opening a filter and typing into it", "/þ", "þ"),
)
"""What is pressed, in turn, and what is painted then and not before. Rows of queues keep their places, so the place of
the cursor tells what a key did even while data comes."""


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    before = time.process_time()
    work()
    return time.process_time() - before


def median(work: Callable[[], object], runs: int = RUNS) -> float:
    """Median CPU seconds of several calls."""
    return statistics.median(cpu(work) for _ in range(runs))


def calibrate() -> float:
    """CPU seconds of a fixed amount of plain Python: a million look-ups and additions."""

    def loop() -> None:
        table = {i: i for i in range(1000)}
        total = 0
        for i in range(1_000_000):
            total += table[i % 1000]

    return median(loop)


class Report:
    """Prints figures, each with its ratio to the calibration loop."""

    def __init__(self) -> None:
        self.loop = calibrate()
        load1 = os.getloadavg()[0]
        print(f"calibration loop {self.loop * 1000:.1f} ms CPU · {os.cpu_count()} cores · load {load1:.1f}")

    def time(self, name: str, seconds: float, note: str = "") -> None:
        print(f"{name:<64} {seconds * 1000:>10.3f} ms   {seconds / self.loop:>9.4f} loops   {note}", flush=True)

    def rate(self, name: str, per_second: float, note: str = "") -> None:
        print(f"{name:<64} {per_second:>10.0f} /s   {per_second * self.loop:>9.2f} a loop  {note}", flush=True)

    def size(self, name: str, count: int) -> None:
        print(f"{name:<64} {count / 2**20:>10.1f} MiB", flush=True)


class Cluster:
    """A Session whose decisions are carried out at once, as the API server and the controllers would. Mutates."""

    def __init__(self, pending: Iterable[Workload], queues: int, cohorts: int, nominal: int) -> None:
        self.session, self.now = Session(KueueConfig()), START
        self.workloads: dict[str, Workload] = {}
        self.running: deque[str] = deque()
        for thing in load.queues(queues, cohorts, nominal):
            self.session.apply(thing, self.now)
        for workload in pending:
            self._put(workload)

    def _put(self, workload: Workload) -> None:
        self.workloads[workload.key] = workload
        self.session.apply(workload, self.now)

    def cycle(self) -> None:
        """One scheduling cycle with its consequences."""
        self.now += SECOND
        self.session.wake(self.now)
        for decision in self.session.run_cycle(self.now):
            workload = self.workloads[decision.workload]
            match decision:
                case Admit():
                    self._put(conditions.admit(conditions.reserve(workload, decision.admission, self.now), self.now))
                    self.running.append(workload.key)
                case Preempt():
                    self._put(
                        conditions.release(
                            conditions.evict(workload, "Preempted", decision.message, self.now, decision.rule), self.now
                        )
                    )
                    self.running.remove(workload.key)
                case Refuse():
                    self._put(conditions.take_refusal(workload, decision, self.now))

    def finish(self, count: int) -> None:
        """The longest-running workloads end."""
        for _ in range(min(count, len(self.running))):
            workload = self.workloads[self.running.popleft()]
            self._put(conditions.finish(workload, "Succeeded", "done", self.now))


def engine(report: Report) -> None:
    """Scheduling cycles of 30 heads with 15,000 workloads pending."""
    pending = [replace(w, created=START + w.created // 100) for w in load.workloads(15_000, spread=30)]
    cluster = Cluster(pending, queues=30, cohorts=5, nominal=64)
    for _ in range(30):
        cluster.cycle()
    gc.collect()
    cycles = []
    for _ in range(300):
        cluster.finish(15)
        cycles.append(cpu(cluster.cycle))
    cycles.sort()
    report.rate("cycles, 30 ClusterQueues, 15,000 pending", len(cycles) / sum(cycles), "30 heads a cycle")
    report.time("  a cycle, median", cycles[len(cycles) // 2])
    report.time("  a cycle, 99th percentile", cycles[len(cycles) * 99 // 100])


def simulation(workloads: int, nodes: int, queues: int = 100) -> Simulation:
    """A made-up cluster with most of its GPUs taken and the rest of the workloads waiting."""
    made = Simulation.from_objects(
        [*load.queues(queues, 10, nodes * 8 // queues), *load.nodes(nodes)], policy=SimPolicy(), seed=1, start=START
    )
    jobs = [replace(w, created=START) for w in load.workloads(workloads, spread=queues, hours=24)]
    made.submit(Submit(tuple(jobs)))
    made.advance(START + 60 * SECOND)
    made.drain()
    return made


def fork(report: Report) -> None:
    """Forks of a small and of a big cluster."""
    for workloads, nodes in ((1_000, 24), (10_000, 1_000), (100_000, 5_000)):
        made = simulation(workloads, nodes)
        gc.collect()
        gc.freeze()
        report.time(f"fork, {workloads:,} workloads, {nodes:,} nodes", median(made.fork, 15))
        report.time(f"  freeze into a Snapshot after one more second, {workloads:,}", freezing(made))
        gc.unfreeze()


def freezing(made: Simulation) -> float:
    made.advance(made.now + SECOND)
    return cpu(made.snapshot)


def keys(report: Report) -> None:
    """Key press to painted screen: the default fixture at ×1000, then 10,000 workloads on 1,000 nodes."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        latencies(report, "default fixture ×1000", ["run", "--speed", "1000"], folder)
        file = Path(folder) / "big.json"
        made = simulation(10_000, 1_000)
        # All came at once; a cluster that operators look at has sorted that out.
        made.advance(made.now + 600 * SECOND)
        file.write_bytes(snapshots.encode(made.snapshot()))
        latencies(report, "10,000 workloads, 1,000 nodes × 8", ["run", "--snapshot", str(file)], folder)


def latencies(report: Report, name: str, arguments: list[str], folder: str) -> None:
    random = Random(1)
    with PtyConsole([str(COMMAND), *arguments], COLUMNS, LINES, {"GPUCONSOLE_STATE_DIR": folder}) as console:
        started = console.wait("SIM ×")
        console.settle(3)
        taken: dict[str, list[float]] = {kind: [] for kind, _, _ in PRESSES}
        for _ in range(ROUNDS):
            for kind, key, painted in PRESSES:
                console.settle(random.uniform(0.05, 0.4))
                taken[kind].append(console.latency(key, painted))
            for _ in range(2):
                console.write("\x1b")
                console.settle(0.3)
        print(f"{name}: first screen after {started:.2f} s, load {os.getloadavg()[0]:.1f}")
        for what, times in taken.items():
            times.sort()
            report.time(f"  {what}, median", statistics.median(times), "wall")
            report.time(f"  {what}, 95th percentile", times[len(times) * 95 // 100], "wall")
        every = sorted(time for times in taken.values() for time in times)
        report.time("  any key to painted, median", statistics.median(every), "wall")
        report.time("  any key to painted, 95th percentile", every[len(every) * 95 // 100], "wall")
        report.size("  memory, console and worker", console.memory())


PARTS = {"engine": engine, "fork": fork, "keys": keys}


def main() -> int:
    report = Report()
    for name in sys.argv[1:] or PARTS:
        PARTS[name](report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
