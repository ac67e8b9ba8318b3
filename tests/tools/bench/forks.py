"""Forks and Snapshots of a small and of a big cluster, and what the big one takes in memory."""

import gc
import os
from pathlib import Path

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.commands import Submit
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.tools import load
from tests.tools.bench.carrying import START
from tests.tools.bench.report import Report, cpu, median

SIZES = ((1_000, 24), (10_000, 1_000), (100_000, 5_000))
LARGEST = 100_000


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


def forks(report: Report) -> None:
    """Forks of a small and of a big cluster."""
    for workloads, nodes in SIZES:
        before = resident()
        made = simulation(workloads, nodes)
        gc.collect()
        taken = resident() - before
        gc.freeze()
        bar = 0.005 if workloads == LARGEST else None
        report.time(f"fork, {workloads:,} workloads, {nodes:,} nodes", median(made.fork, 15), bar=bar)
        report.time(f"  freeze into a Snapshot after one more second, {workloads:,}", freezing(made))
        if workloads == LARGEST:
            report.size("  memory that it took to make that state", taken, bar=300 * 2**20)
        gc.unfreeze()


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def freezing(made: Simulation) -> float:
    made.advance(made.now + SECOND)
    return cpu(made.snapshot)
