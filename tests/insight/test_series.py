"""Time series: levels are those of the screens, counts and waits those of the events, hours keep what minutes say."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.overview import gpu_totals, waiting
from gpuconsole.insight.series import (
    OTHER,
    REASONS_KEPT,
    WAITS_KEPT,
    GpuSample,
    QueueSample,
    Samples,
    SeriesKind,
    SeriesSampler,
    hourly,
)
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import PodPhase
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import Quota
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.sim.engine import Simulation
from tests.support.random_simulations import LIVES, Deed, cluster, live
from tests.support.sim_cluster import START as SIM_START
from tests.support.sim_cluster import USUAL
from tests.support.snapshots import ORG, START, cluster_queue, cohort, node, pod, world
from tests.support.snapshots import waiting as pending_workload

PRICES = Prices()
law = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_a_second_sample_of_a_minute_has_the_counts_of_both() -> None:
    sampler = SeriesSampler()
    for event in (admitted(SECOND), happened(HistoryEventKind.EVICTED, reason="Preempted")):
        sampler.note(event)
    first = sampler.sample(world(ORG, START), PRICES)
    for event in (admitted(3 * SECOND), happened(HistoryEventKind.EVICTED, reason="Preempted")):
        sampler.note(event)
    again = sampler.sample(world(ORG, START + 40 * SECOND), PRICES, replaces=True)
    later = sampler.sample(world(ORG, START + MINUTE), PRICES)
    assert [one.time for one in (first, again, later)] == [START, START, START + MINUTE]
    counts = [(one.queues[0].admitted, one.queues[0].evicted, one.evictions) for one in (first, again, later)]
    assert counts == [(1, 1, {"Preempted": 1}), (2, 2, {"Preempted": 2}), (0, 0, {})]
    assert row(again, SeriesKind.QUEUE, "cq-prod").admitted == 2


def sampled(snapshot: Snapshot, events: Iterable[HistoryEvent] = ()) -> Samples:
    sampler = SeriesSampler()
    for event in events:
        sampler.note(event)
    return sampler.sample(snapshot, PRICES)


def happened(what: HistoryEventKind, queue: str = "cq-prod", at: Time = START, **more: object) -> HistoryEvent:
    return HistoryEvent(time=at, what=what, queue=queue, **more)  # type: ignore[arg-type]


def admitted(waited: Span, queue: str = "cq-prod", at: Time = START) -> HistoryEvent:
    return happened(HistoryEventKind.ADMITTED, queue, at, waited=waited)


def row(found: Samples, kind: SeriesKind, name: str = "", flavor: str = "") -> QueueSample:
    (only,) = (one for one in found.queues if (one.kind, one.name, one.flavor) == (kind, name, flavor))
    return only


def test_a_sample_has_the_cluster_then_cohorts_and_queues_with_their_flavors_then_flavors() -> None:
    queues: dict[str, dict[str, Any]] = {
        "cq-prod": {"nominal": 16.0, "used": 8.0, "lent": 4.0},
        "cq-research": {"nominal": 8.0, "used": 12.0, "borrowed": 4.0},
    }
    total: dict[str, Any] = {"nominal": 24.0, "used": 20.0, "borrowed": 4.0, "lent": 4.0}
    expected = [
        QueueSample(kind=SeriesKind.CLUSTER, name="", **total),
        QueueSample(kind=SeriesKind.COHORT, name="org-cohort", **total),
        QueueSample(kind=SeriesKind.COHORT, name="org-cohort", flavor="a100", **total),
    ]
    for name, levels in queues.items():
        expected.append(QueueSample(kind=SeriesKind.QUEUE, name=name, **levels))
        expected.append(QueueSample(kind=SeriesKind.QUEUE, name=name, flavor="a100", **levels))
    expected.append(QueueSample(kind=SeriesKind.FLAVOR, name="a100", **total))
    found = sampled(world(ORG, START + 40 * SECOND))
    assert found == Samples(time=START, span=MINUTE, queues=tuple(expected))


def test_pending_workloads_and_their_gpus_are_counted_by_queue_and_cohort() -> None:
    wants = (
        pending_workload("a", "prod/lq", 4),
        pending_workload("b", "prod/lq", 2),
        pending_workload("c", "no/lq", 1),
    )
    found = sampled(world((*ORG, *wants)))
    counts = {(one.kind, one.name): (one.pending, one.pending_gpus) for one in found.queues if not one.flavor}
    assert counts == {
        (SeriesKind.CLUSTER, ""): (3, 7.0),
        (SeriesKind.COHORT, "org-cohort"): (2, 6.0),
        (SeriesKind.QUEUE, "cq-prod"): (2, 6.0),
        (SeriesKind.QUEUE, "cq-research"): (0, 0.0),
        (SeriesKind.FLAVOR, "a100"): (0, 0.0),
    }


def test_events_count_in_their_queue_and_all_cohorts_above_it_until_the_next_sample() -> None:
    parents = (cohort("org-cohort", parent="site"), cohort("site"), cluster_queue("other", "site", Quota(1)))
    snapshot, sampler = world((*ORG, *parents)), SeriesSampler()
    for event in (
        admitted(SECOND),
        happened(HistoryEventKind.PREEMPTED, "cq-research", workload="research/rlhf"),
        happened(HistoryEventKind.EVICTED, "cq-research", workload="research/rlhf", reason="Preempted"),
        happened(HistoryEventKind.EVICTED, "other", workload="a/b", reason="NodeFailures"),
        happened(HistoryEventKind.EVICTED, "cq-research", pod="a/p", reason="a pod's queue of another scheduler"),
        happened(HistoryEventKind.SUBMITTED, "cq-prod"),
    ):
        sampler.note(event)
    found = sampler.sample(snapshot, PRICES)
    counts = {one.name: (one.admitted, one.preempted, one.evicted) for one in found.queues if not one.flavor}
    assert counts == {
        "": (1, 1, 3),
        "site": (1, 1, 2),
        "org-cohort": (1, 1, 1),
        "other": (0, 0, 1),
        "cq-prod": (1, 0, 0),
        "cq-research": (0, 1, 1),
        "a100": (0, 0, 0),
    }
    assert found.evictions == {"Preempted": 1, "NodeFailures": 1, "a pod's queue of another scheduler": 1}
    later = sampler.sample(snapshot, PRICES)
    assert later.evictions == {}
    assert [(one.admitted, one.preempted, one.evicted) for one in later.queues] == [(0, 0, 0)] * len(later.queues)


def test_waits_are_those_of_workloads_admitted_in_the_hour_before_the_sample() -> None:
    sampler = SeriesSampler()
    for minutes in range(101):
        sampler.note(admitted(minutes * MINUTE, "cq-prod" if minutes % 2 else "cq-research"))
    found = sampler.sample(world(ORG, START + HOUR - 1), PRICES)
    assert (row(found, SeriesKind.CLUSTER).wait_p50, row(found, SeriesKind.CLUSTER).wait_p95) == (50 * 60, 95 * 60)
    assert row(found, SeriesKind.COHORT, "org-cohort").wait_p95 == 95 * 60
    assert row(found, SeriesKind.QUEUE, "cq-prod").wait_p50 == 50 * 60
    assert row(found, SeriesKind.QUEUE, "cq-prod", "a100").wait_p50 is None
    assert row(sampler.sample(world(ORG, START + HOUR), PRICES), SeriesKind.CLUSTER).wait_p50 is None


def test_waits_and_reasons_are_bounded() -> None:
    sampler = SeriesSampler()
    for number in range(3 * WAITS_KEPT):
        sampler.note(admitted(0 if number < 2 * WAITS_KEPT else HOUR))
        sampler.note(happened(HistoryEventKind.EVICTED, reason=f"Reason{number}\x1b[2J"))
    found = sampler.sample(world(ORG), PRICES)
    assert row(found, SeriesKind.QUEUE, "cq-prod").wait_p50 == 3600
    assert row(found, SeriesKind.QUEUE, "cq-prod").admitted == 3 * WAITS_KEPT
    assert len(found.evictions) == REASONS_KEPT + 1
    assert found.evictions[OTHER] == 3 * WAITS_KEPT - REASONS_KEPT
    assert not any("\x1b" in reason for reason in found.evictions)


def test_gpus_are_counted_by_type_with_the_utilization_of_those_that_pods_run_on() -> None:
    telemetry = NodeTelemetry(
        name="a",
        time=START,
        lasts=90 * SECOND,
        devices=tuple(MeasuredDevice(gpu=index) for index in range(8)),
        columns={GpuMetric.UTILISATION: (20.0, 40.0, *(0.0,) * 6)},
    )
    nodes = (node("a"), node("b", ready=False), node("c", 4, labels={}), node("d", 0))
    found = sampled(world((*nodes, pod("p", "a", (0, 1), started=START), telemetry)))
    assert found.gpus == (
        GpuSample(gpu_type="a100-80gb", total=16, allocated=2.0, idle=6.0, unhealthy=8.0, utilization=30.0),
        GpuSample(gpu_type=OTHER, total=4, allocated=0.0, idle=4.0, unhealthy=0.0),
    )
    assert found.cost_hourly == pytest.approx(16 * 2.21 + 4 * 2.00)


def test_without_kueue_the_cluster_has_its_gpus_and_namespaces_are_the_queues() -> None:
    found = sampled(world((node("a"), pod("p", "a", (0, 1)), pod("q", wants=3, phase=PodPhase.PENDING))))
    assert found.queues == (
        QueueSample(kind=SeriesKind.CLUSTER, name="", nominal=8.0, used=2.0, pending=1, pending_gpus=3.0),
        QueueSample(kind=SeriesKind.NAMESPACE, name="team", nominal=8.0, used=2.0, pending=1, pending_gpus=3.0),
    )


@law
@given(LIVES)
def test_queues_sum_up_to_flavors_and_the_borrowed_is_the_lent(life: list[tuple[Span, Deed]]) -> None:
    simulation, sampler = Simulation.from_objects(cluster(), policy=USUAL, seed=3, start=SIM_START), SeriesSampler()
    counted: Counter[HistoryEventKind] = Counter()
    for span, deed in life:
        live(simulation, [(span, deed)])
        events = simulation.drain()
        for event in events:
            sampler.note(event)
        snapshot = simulation.snapshot()
        found = sampler.sample(snapshot, PRICES)
        check_levels(found, snapshot)
        counted = Counter(event.what for event in events if isinstance(event, HistoryEvent))
        total = row(found, SeriesKind.CLUSTER)
        kinds = (HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
        assert (total.admitted, total.preempted, total.evicted) == tuple(counted[kind] for kind in kinds)
        assert sum(found.evictions.values()) == total.evicted


def check_levels(found: Samples, snapshot: Snapshot) -> None:
    queues = [one for one in found.queues if one.kind is SeriesKind.QUEUE and one.flavor]
    for flavor in (one for one in found.queues if one.kind is SeriesKind.FLAVOR):
        of_flavor = [one for one in queues if one.flavor == flavor.name]
        assert sum(one.used for one in of_flavor) == flavor.used
        assert sum(one.nominal for one in of_flavor) == flavor.nominal
        assert sum(one.borrowed for one in of_flavor) == flavor.borrowed
        assert sum(one.lent for one in of_flavor) == flavor.lent
    for one in queues:
        alone = not snapshot.cluster_queues[one.name].cohort
        assert one.borrowed == (0 if alone else max(0, one.used - one.nominal))
        assert 0 <= one.lent <= max(0, one.nominal - one.used)
    for each in (one for one in found.queues if one.kind is SeriesKind.COHORT):
        assert each.lent <= each.borrowed
        if each.used <= each.nominal:
            assert each.lent == each.borrowed
    gpus, total, pending = gpu_totals(snapshot), row(found, SeriesKind.CLUSTER), waiting(snapshot)
    states = ("total", "allocated", "idle", "unhealthy")
    sums = [sum(getattr(one, state) for one in found.gpus) for state in states]
    assert sums == [gpus.total, gpus.in_use, gpus.idle, gpus.faulty]
    assert (total.pending, total.pending_gpus) == (pending.in_all, sum(pending.units.values()))


AMOUNTS = st.integers(0, 100).map(float)
COUNTS = st.integers(0, 50)
WAITS = st.one_of(st.none(), AMOUNTS)
QUEUES = st.builds(
    QueueSample,
    kind=st.sampled_from([SeriesKind.QUEUE, SeriesKind.COHORT]),
    name=st.sampled_from("ab"),
    flavor=st.sampled_from(["", "x"]),
    nominal=AMOUNTS,
    used=AMOUNTS,
    borrowed=AMOUNTS,
    lent=AMOUNTS,
    pending=COUNTS,
    pending_gpus=AMOUNTS,
    wait_p50=WAITS,
    wait_p95=WAITS,
    admitted=COUNTS,
    preempted=COUNTS,
    evicted=COUNTS,
)
GPUS = st.builds(
    GpuSample,
    gpu_type=st.sampled_from(["a100", "h100"]),
    total=COUNTS,
    allocated=AMOUNTS,
    idle=AMOUNTS,
    unhealthy=AMOUNTS,
    utilization=st.one_of(st.none(), AMOUNTS),
)
MINUTES = st.lists(
    st.builds(
        Samples,
        time=st.just(START),
        span=st.just(MINUTE),
        queues=st.lists(QUEUES, unique_by=lambda one: (one.kind, one.name, one.flavor)).map(tuple),
        gpus=st.lists(GPUS, unique_by=lambda one: one.gpu_type).map(tuple),
        evictions=st.dictionaries(st.sampled_from(["Preempted", "NodeFailures"]), COUNTS),
        cost_hourly=AMOUNTS,
    ),
    min_size=1,
    max_size=6,
).map(lambda found: [replace(one, time=START + at * MINUTE) for at, one in enumerate(found)])


@law
@given(MINUTES)
def test_an_hour_keeps_the_counts_and_has_the_means_of_the_levels(minutes: list[Samples]) -> None:
    hour = hourly(minutes)
    assert (hour.time, hour.span) == (START // HOUR * HOUR, HOUR)
    identities = {(one.kind, one.name, one.flavor) for minute in minutes for one in minute.queues}
    assert {(one.kind, one.name, one.flavor) for one in hour.queues} == identities
    for one in hour.queues:
        parts = [q for m in minutes for q in m.queues if (q.kind, q.name, q.flavor) == (one.kind, one.name, one.flavor)]
        for count in ("admitted", "preempted", "evicted"):
            assert getattr(one, count) == sum(getattr(part, count) for part in parts)
        for level in ("nominal", "used", "borrowed", "lent", "pending_gpus"):
            assert getattr(one, level) * len(parts) == pytest.approx(sum(getattr(part, level) for part in parts))
        for wait in ("wait_p50", "wait_p95"):
            assert getattr(one, wait) == max((w for p in parts if (w := getattr(p, wait)) is not None), default=None)
    for gpu in hour.gpus:
        samples = [g for minute in minutes for g in minute.gpus if g.gpu_type == gpu.gpu_type]
        for level in ("allocated", "idle", "unhealthy"):
            assert getattr(gpu, level) * len(samples) == pytest.approx(sum(getattr(part, level) for part in samples))
        measured = [(g.utilization, g.allocated) for g in samples if g.utilization is not None]
        if gpu.utilization is not None and (weight := sum(weight for _, weight in measured)):
            assert gpu.utilization * weight == pytest.approx(sum(value * part for value, part in measured))
        assert (gpu.utilization is None) == (not measured)
    reasons = sum((Counter(minute.evictions) for minute in minutes), Counter[str]())
    assert +Counter(hour.evictions) == +reasons
    assert hour.cost_hourly * len(minutes) == pytest.approx(sum(minute.cost_hourly for minute in minutes))


def test_an_hour_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="without samples"):
        hourly([])
