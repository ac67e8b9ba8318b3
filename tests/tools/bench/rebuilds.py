"""Time travel: write the change log of a big cluster, and rebuild the cluster at random times of it."""

from functools import partial
from random import Random
from statistics import median
from time import process_time

from gpuconsole.model.change_log import ChangeBatch, ChangeLogWriter, Checkpoint, rebuild
from gpuconsole.model.clock import SECOND
from gpuconsole.model.state import ClusterState
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report, cpu

WORKLOADS, NODES = 10_000, 5_000
STEP = 10 * SECOND
MINUTES = 30


def rebuilds(report: Report) -> None:
    """Record a cluster of 10,000 workloads for half an hour, every 10 s, and rebuild it at random times."""
    made = simulation(WORKLOADS, NODES)
    snapshot = made.snapshot()
    writer = ChangeLogWriter(ClusterState.of(snapshot, snapshot.recent))
    streams: list[tuple[Checkpoint, list[ChangeBatch]]] = []
    count, took, size = 0, 0.0, 0
    begun = made.now
    for _ in range(6 * (5 if report.quick else MINUTES)):
        made.advance(made.now + STEP)
        events = made.drain()
        count += len(events)
        before = process_time()
        writer.add(events)
        checkpoint, batch = writer.flush()
        took += process_time() - before
        if checkpoint is not None:
            streams.append((checkpoint, []))
        if batch is not None:
            streams[-1][1].append(batch)
            size += len(batch.data)
    random, times = Random(1), []
    for _ in range(max(5, 2 * report.runs)):
        at = random.randrange(begun, made.now)
        checkpoint, batches = next(stream for stream in reversed(streams) if stream[0].time <= at)
        times.append(cpu(partial(rebuild, checkpoint, batches, at)))
    end = made.snapshot()
    pods, bound = len(end.pods), sum(one.reserved for one in end.workloads.all())
    name = f"rebuild {len(end.workloads):,} workloads ({bound:,} admitted), {pods:,} pods, {NODES:,} nodes"
    report.time(name, median(times), "at random times", bar=1.0)
    report.time("  slowest", max(times), bar=1.0)
    report.time("  change log: write a change", took / max(1, count), f"{count:,} changes, {size / 1e6:.1f} MB")
    report.fact("  checkpoints", " ".join(f"{len(one.data) / 1e6:.1f} MB" for one, _ in streams))
