"""Key press to painted screen, in a real pseudo-terminal: wall-clock times, which mean little on a busy machine."""

import os
import statistics
import sys
import tempfile
from pathlib import Path
from random import Random

from gpuconsole.model import snapshot as snapshots
from gpuconsole.model.clock import SECOND
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report
from tests.tools.pty_console import PtyConsole

COMMAND = Path(sys.executable).with_name("gpuconsole")
COLUMNS, LINES = 120, 36
WIDE = 200
"""Columns at which the workloads table shows when each should start, which the worker process computes."""
ROUNDS = 30
PRESSES = (
    ("changing the screen", "1", "Last hour"),
    ("changing the screen", "2", "COHORT"),
    ("moving the cursor", "j", r" 2/\d"),
    ("moving the cursor", "j", r" 3/\d"),
    ("moving the cursor", "g", r" 1/\d"),
    ("changing the screen", "5", "DOMAIN"),
    ("changing the screen", "9", "POOL"),
    ("changing the screen", "3", r"pending|running|finished"),
    ("going to an end", "G", r"(?<!\d)(\d+)/\1\b"),
    ("going to an end", "g", r" 1/\d"),
    ("opening a filter and typing into it", "/þ", "þ"),
)
"""What is pressed, in turn, and what is painted then and not before. Rows of queues keep their places, so the place of
the cursor tells what a key did even while data comes."""


def keys(report: Report) -> None:
    """Key press to painted screen: the default fixture at ×1000, 10,000 workloads, then ten times that many."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        latencies(report, "default fixture ×1000", ["run", "--speed", "1000"], folder)
        big = ["run", "--snapshot", _cluster(folder, 10_000, 1_000)]
        name = "10,000 workloads, 1,000 nodes × 8"
        latencies(report, name, big, folder)
        latencies(report, f"{name}, during a what-if", big, folder, ahead=True)
        latencies(report, f"{name}, with the column of starts", big, folder, columns=WIDE)
        huge = ["run", "--snapshot", _cluster(folder, 100_000, 5_000)]
        latencies(report, "100,000 workloads, 5,000 nodes × 8, during a what-if", huge, folder, ahead=True)


def _cluster(folder: str, workloads: int, nodes: int) -> str:
    """The file of a made-up cluster."""
    file = Path(folder) / f"{workloads}.json"
    made = simulation(workloads, nodes)
    # All came at once; a cluster that operators look at has sorted that out.
    made.advance(made.now + 600 * SECOND)
    file.write_bytes(snapshots.encode(made.snapshot()))
    return str(file)


def latencies(
    report: Report, name: str, arguments: list[str], folder: str, *, ahead: bool = False, columns: int = COLUMNS
) -> None:
    """Press all keys, round by round; with `ahead` while an hour of a what-if is computed, begun anew each round."""
    random = Random(1)
    with PtyConsole([str(COMMAND), *arguments], columns, LINES, {"GPUCONSOLE_STATE_DIR": folder}) as console:
        started = console.wait("SIM ×", 300)
        console.settle(3)
        if ahead:
            _prepare_what_if(console)
        taken: dict[str, list[float]] = {kind: [] for kind, _, _ in PRESSES}
        for _ in range(ROUNDS // 3 if report.quick else ROUNDS):
            if ahead:
                console.latency("7", "WHAT-IF")
                console.write("\r")
                console.wait("Esc cancels")
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


def _prepare_what_if(console: PtyConsole) -> None:
    """One more of the first workload, to be tried."""
    for keys, painted in (("3", "pending|running|finished"), ("i", "resubmit"), ("\r", "to run")):
        console.write(keys)
        console.wait(painted)
        console.settle(1)
