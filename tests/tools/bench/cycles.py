"""Scheduling cycles: 30 heads with 15,000 workloads pending, in flat cohorts and under hierarchical fair sharing."""

import gc
from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, Cohort
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.tools import load
from tests.tools.bench.carrying import START, Cluster
from tests.tools.bench.report import Report, cpu

QUEUES, PENDING, CYCLES = 30, 15_000, 300


def cycles(report: Report) -> None:
    """Heads of 30 ClusterQueues in 5 flat cohorts, then in a tree of cohorts under fair sharing."""
    flat = Cluster(load.queues(QUEUES, 5, 64), _pending(), KueueConfig())
    _measure(report, flat, f"cycles, {QUEUES} ClusterQueues, {PENDING:,} pending", bars=(0.008, 0.030))
    tree = Cluster(_in_tree(load.queues(QUEUES, 5, 64)), _pending(), KueueConfig(fair_sharing=True))
    _measure(
        report, tree, f"hierarchical fair sharing, {QUEUES} ClusterQueues, {PENDING:,} pending", bars=(0.025, None)
    )


def _pending() -> list[Workload]:
    return [replace(w, created=START + w.created // 100) for w in load.workloads(PENDING, spread=QUEUES)]


def _in_tree(things: list[Object]) -> Iterator[Object]:
    """Five cohorts of unequal weight below two, those below one root."""
    yield Cohort(name="root")
    for number in range(2):
        yield Cohort(name=f"half-{number}", parent="root", fair_weight=1.0 + number)
    for number in range(5):
        yield Cohort(name=f"cohort-{number}", parent=f"half-{number % 2}", fair_weight=1.0 + number)
    for thing in things:
        yield replace(thing, fair_weight=1.0 + ord(thing.name[-1]) % 3) if isinstance(thing, ClusterQueue) else thing


def _measure(report: Report, cluster: Cluster, name: str, *, bars: tuple[float, float | None]) -> None:
    for _ in range(30):
        cluster.cycle()
    gc.collect()
    gc.freeze()
    taken = []
    for _ in range(CYCLES // 3 if report.quick else CYCLES):
        cluster.finish_oldest(15)
        taken.append(cpu(cluster.cycle))
    gc.unfreeze()
    taken.sort()
    report.rate(name, len(taken) / sum(taken), f"{QUEUES} heads a cycle")
    report.time("  a cycle, median", taken[len(taken) // 2], bar=bars[0])
    report.time("  a cycle, 99th percentile", taken[len(taken) * 99 // 100], bar=bars[1])
