"""The history store: events written per second, the time of each query beside many events, and how fast it grows."""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.insight.cost.allocation import DEFAULT_LABELS, CostHour, CostKind, CostOwner
from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind, KueueEvent
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import EVERYTHING
from gpuconsole.services.recording import HistoryPipeline
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import queries
from gpuconsole.store.recorder import Opening, Recorder, losses
from gpuconsole.store.schema import open_for_reading
from tests.tools.bench.report import Report, cpu, median

EVENTS, QUICK_EVENTS = 10_000_000, 1_000_000
BATCH = 10_000
"""Events of one write: those of a second."""
START = 490_000 * HOUR
QUEUES = tuple(f"team-{number}" for number in range(20))
OWNERS = 200
"""Owners of costs in each hour of a month."""
PREEMPTIONS = 500
"""Preemptions that a screen lists."""


def history(report: Report) -> None:
    """Fill a history by its recorder, then ask what screens and reports ask."""
    events = QUICK_EVENTS if report.quick else EVENTS
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(
            Path(folder) / "history.db",
            Opening(version="bench", mode="LIVE", source="bench"),
            wall=lambda: START,
            interval=1e6,
            capacity=2 * BATCH,
        )
        _write_events(report, recorder, events)
        _write_month(recorder)
        _ask(report, partial(losses, recorder), "lost work by queue and workload")
        recorder.close()
        with closing(open_for_reading(recorder.path)) as db:
            step = 7 * DAY // events
            _ask(report, partial(queries.of_workload, db, 1, _workload(events // 20)), "of a workload in the middle")
            _ask(report, partial(queries.of_workload, db, 1, _workload(3)), "of one of the oldest workloads")
            _ask(report, partial(queries.preemptions, db, 1, PREEMPTIONS), f"the newest {PREEMPTIONS:,} preemptions")
            _ask(report, partial(queries.preemption_count, db, 1, queries.ENDLESS), "number of preemptions")
            _ask(report, partial(queries.last_hour, db, 1, START + events * step, queries.ENDLESS), "the last hour")
            middle = START + events // 2 * step
            kinds = (HistoryEventKind.PREEMPTED, HistoryEventKind.NODE_DOWN)
            _ask(report, partial(queries.marks, db, 1, kinds, middle, middle + 3 * HOUR), "marks of three hours")
            _ask(report, partial(queries.events_until, db, 1, middle, 1000), "1,000 events until a time")
            month = START, START + 30 * DAY
            _ask(
                report,
                partial(queries.samples, db, 1, *month, span=HOUR, kind=SeriesKind.QUEUE, name=QUEUES[3]),
                "a queue for a month",
            )
            day = START, START + DAY
            _ask(
                report,
                partial(queries.samples, db, 1, *day, span=MINUTE, kind=SeriesKind.QUEUE, name=QUEUES[3]),
                "a queue for a day, by the minute",
            )
            _ask(
                report,
                partial(queries.samples, db, 1, START, START + HOUR, span=MINUTE),
                "all queues for an hour, by the minute",
            )
            _ask(report, partial(queries.cost_sums, db, 1, *month), "costs of a month by owner", bar=1.0)
            _ask(report, partial(queries.cost_hours, db, 1, *month), "costs of a month by owner and hour", bar=1.0)


def growth(report: Report) -> None:
    """Record the default fixture for an hour of wall-clock time at speed 60, written each second."""
    simulation = open_simulation(OpenRequest(files=(), traces_preemptions=True)).simulation
    with tempfile.TemporaryDirectory() as folder:
        opening = Opening(version="bench", mode="SIM", source="default")
        recorder = Recorder(Path(folder) / "history.db", opening, wall=lambda: START, interval=1e6)
        pipeline = HistoryPipeline(recorder, Prices(), DEFAULT_LABELS, SimPolicy)
        before, wrote = recorder.path.stat().st_size, 0.0
        seconds = 600 if report.quick else 3600
        for _ in range(seconds):
            simulation.advance(simulation.now + 60 * SECOND)
            events = simulation.drain()
            recorder.record([event for event in events if isinstance(event, HistoryEvent)])
            pipeline.add(events, simulation.now, EVERYTHING)
            wrote += cpu(recorder.flush)
        recorder.prune()
        grown = (recorder.path.stat().st_size - before) * 3600 / seconds
        report.size(f"growth of a history in an hour, from {seconds} s", grown, bar=None if report.quick else 3e6)
        report.time("  evaluating and writing the events of a second", wrote / seconds)
        recorder.close()


def _ask(report: Report, query: Callable[[], object], name: str, bar: float = 0.050) -> None:
    report.time(f"  query: {name}", median(query, 9), bar=bar)


def _write_events(report: Report, recorder: Recorder, events: int) -> None:
    stream = _events(7 * DAY // events)
    written, waited = 0, 0.0
    while written < events:
        batch = list(itertools.islice(stream, BATCH))
        before = time.perf_counter()
        recorder.record(batch)
        recorder.flush()
        waited += time.perf_counter() - before
        written += len(batch)
    size = recorder.path.stat().st_size
    rate = written / waited
    report.rate(f"events written, {written:,} of them", rate, "wall clock")
    report.fact("  at least 10,000 a second", f"{rate:,.0f} a second", right=rate >= 10_000)
    report.size("  file of these events", size)


def _workload(number: int) -> str:
    return f"{QUEUES[number % len(QUEUES)]}/job-{number}"


def _events(step: Time) -> Iterator[HistoryEvent]:
    """Ten events for each workload, interleaved with those of others; every tenth workload is preempted."""
    clock = itertools.count(START, step)
    for group in itertools.count(step=50):
        for stage in range(10):
            for number in range(group, group + 50):
                yield _event(next(clock), number, stage)


def _event(now: Time, number: int, stage: int) -> HistoryEvent:
    workload, queue = _workload(number), QUEUES[number % len(QUEUES)]
    what = HistoryEventKind
    match stage:
        case 0:
            return HistoryEvent(time=now, what=what.SUBMITTED, workload=workload, queue=queue, gpus=8)
        case 1 | 2 | 3:
            message = f"insufficient unused quota for nvidia.com/gpu in flavor a100, {number % 7 + stage} more needed"
            told = (KueueEvent(workload, "Pending", message, warning=True),)
            return HistoryEvent(
                time=now, what=what.PENDING, workload=workload, queue=queue, reason="NoFit", message=message, told=told
            )
        case 4:
            told = (
                KueueEvent(workload, "Admitted", f"Admitted by ClusterQueue {queue}, wait time was {number % 99}s"),
            )
            return HistoryEvent(
                time=now, what=what.ADMITTED, workload=workload, queue=queue, gpus=8, waited=9 * SECOND, told=told
            )
        case 5:
            pod = f"{workload}-{number % 13}-abcde"
            return HistoryEvent(time=now, what=what.POD_BOUND, workload=workload, pod=pod, queue=queue, node="a100-07")
        case 6:
            return HistoryEvent(time=now, what=what.STARTED, workload=workload, queue=queue, gpus=8, waited=SECOND)
        case 7 if number % 10 == 0:
            return HistoryEvent(
                time=now,
                what=what.PREEMPTED,
                workload=workload,
                queue=queue,
                by=_workload(number + 7),
                by_queue=QUEUES[(number + 7) % len(QUEUES)],
                reason="InCohortReclamation",
                message="Preempted to accommodate a workload (UID: 06479f84-504f-bc00-3187-d2bdca324128)",
                gpus=8,
            )
        case 8 if number % 10 == 0:
            return HistoryEvent(
                time=now, what=what.EVICTED, workload=workload, queue=queue, reason="Preempted", lost_gpu_seconds=900.0
            )
        case 9 if number % 10 == 0:
            return HistoryEvent(time=now, what=what.REQUEUED, workload=workload, queue=queue, reason="Preempted")
        case 7:
            return HistoryEvent(time=now, what=what.FINISHED, workload=workload, queue=queue, gpus=8)
        case _:
            return HistoryEvent(time=now, what=what.NODE_CHANGED, node=f"a100-{number % 99}", message="cordoned")


def _write_month(recorder: Recorder) -> None:
    """Costs of 30 days by the hour, and time series of 30 days by the hour, of which one day by the minute."""
    owners = [CostOwner(kind=CostKind.WORKLOAD, workload=_workload(number), gpu_type="l4") for number in range(OWNERS)]
    for hour in range(30 * 24):
        start = START + hour * HOUR
        recorder.add_costs(
            [CostHour(owner=owner, hour=start, gpu_seconds=3600.0 + hour, used_usd=0.81 + hour / 7) for owner in owners]
        )
        for minute in range(60 if hour < 24 else 1):
            recorder.add_samples(_samples(start + minute * MINUTE))
        recorder.flush()


def _samples(now: Time) -> Samples:
    wave = now // MINUTE % 97
    queues = tuple(
        QueueSample(kind=SeriesKind.QUEUE, name=name, flavor=flavor, nominal=64.0, used=wave / 2, wait_p95=wave * 1.37)
        for name in QUEUES
        for flavor in ("", "a100", "l4")
    )
    gpus = (GpuSample(gpu_type="l4", total=512, allocated=float(wave), idle=0.0, unhealthy=0.0),)
    return Samples(time=now, span=MINUTE, queues=queues, gpus=gpus, cost_hourly=414.72)
