"""Laws of clusters that grow and shrink: forks and saves go on alike, money and lost work add up, budgets hold."""

from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import cost_report, pools
from gpuconsole.insight.preemption.history import lost_by
from gpuconsole.model.autoscaling import NodeGroup, NodePool
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.cluster import Pod, PodDisruptionBudget, PodPhase
from gpuconsole.model.commands import Command, FailNode, Finish, InterruptSpot, Submit
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import JobPhase
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import ScalingGroup, SpotPolicy
from tests.support.autoscaled_clusters import EITHER, KARPENTER, groups, job, policy, pool
from tests.support.random_simulations import contents
from tests.support.sim_cluster import GPU, START

Deed = tuple[Span, Callable[[Simulation], None]]
law = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BUDGET = PodDisruptionBudget(namespace="ml", name="keep", selector=LabelSelector({"app": "kept"}), min_available="1")
SPANS = st.sampled_from([SECOND, 20 * SECOND, MINUTE, 4 * MINUTE, 11 * MINUTE, 50 * MINUTE])
RECLAIMED = SpotPolicy(interruptions=2000, critical=50)
AUTOSCALED = {
    "karpenter": replace(policy(KARPENTER), spot=RECLAIMED),
    "cluster-autoscaler": replace(
        groups(
            ScalingGroup(name="spot", type="s.4", capacity_type="spot", max_size=3),
            ScalingGroup(name="sure", type="t.1", max_size=4, initial_size=1, labels={"sure": "yes"}),
        ),
        spot=RECLAIMED,
    ),
}
every = pytest.mark.parametrize("name", AUTOSCALED)


def fresh(name: str) -> Simulation:
    things: list[Object] = [BUDGET]
    if name == "karpenter":
        things += [
            pool("both", EITHER, consolidate_after="1m", weight=5, limits={"nvidia.com/gpu": 12}),
            pool("rest", consolidate_after="5m", expire_after=HOUR, consolidation_policy="WhenEmpty"),
        ]
    return Simulation.from_objects(things, policy=AUTOSCALED[name], seed=3, start=START)


def _submitted(number: int, gpus: int, pods: int, minutes: int, kept: bool) -> Callable[[Simulation], None]:
    def deed(simulation: Simulation) -> None:
        labels = {"app": "kept"} if kept else {}
        made = job(
            f"j{simulation.now % 10**12}-{number}",
            gpus,
            pods=pods,
            duration=minutes * MINUTE,
            checkpoint=7 * MINUTE if number % 2 else None,
            priority=60 if number % 3 == 0 else 0,
            labels=labels,
        )
        simulation.submit(Submit((made,)))

    return deed


def _about(table: str, number: int, make: Callable[[str], Command]) -> Callable[[Simulation], None]:
    def deed(simulation: Simulation) -> None:
        keys = list(getattr(simulation.snapshot(), table))
        if keys:
            simulation.submit(make(keys[number % len(keys)]))

    return deed


def _changed(number: int) -> Callable[[Simulation], None]:
    """A pool asks for another type from now on: its nodes drift."""

    def deed(simulation: Simulation) -> None:
        known: list[NodePool] = list(simulation.snapshot().node_pools.all())
        for one in known[number % 2 :][:1]:
            types = ("t.1", "t.4") if number % 3 else ("s.1", "s.4", "t.4")
            wanted = ("node.kubernetes.io/instance-type", "In", types)
            simulation.submit(Submit((replace(one, requirements=(*one.requirements[:1], wanted)),)))

    return deed


NUMBERS = st.integers(0, 9)
SUBMITTED = st.builds(
    _submitted, NUMBERS, st.sampled_from([1, 1, 2, 4]), st.integers(1, 3), st.sampled_from([3, 20, 90]), st.booleans()
)
DEEDS = st.one_of(
    SUBMITTED,
    SUBMITTED,
    SUBMITTED,
    st.builds(_about, st.just("nodes"), NUMBERS, st.just(InterruptSpot)),
    st.builds(_about, st.just("nodes"), NUMBERS, st.just(FailNode)),
    st.builds(_about, st.just("jobs"), NUMBERS, st.just(Finish)),
    st.builds(_changed, NUMBERS),
)
LEFT_ALONE = st.one_of(SUBMITTED, SUBMITTED, st.builds(_about, st.just("nodes"), NUMBERS, st.just(InterruptSpot)))
"""Nobody ends work by order."""
LIVES = st.lists(st.tuples(SPANS, DEEDS), min_size=1, max_size=10)


def live(simulation: Simulation, deeds: list[Deed]) -> None:
    for span, deed in deeds:
        simulation.advance(simulation.now + span)
        deed(simulation)


@every
@law
@given(LIVES, LIVES)
def test_forks_and_saves_go_on_as_the_original_does(name: str, before: list[Deed], later: list[Deed]) -> None:
    original = fresh(name)
    live(original, before)
    twins = [original.fork(), Simulation.load(original.save())]
    still = contents(original.snapshot())
    for twin in twins:
        live(twin, later)
        twin.advance(twin.now + 2 * HOUR)
    assert contents(original.snapshot()) == still
    live(original, later)
    original.advance(original.now + 2 * HOUR)
    events = original.drain()
    assert [twin.drain() == events for twin in twins] == [True, True]


@every
@law
@given(LIVES)
def test_it_does_not_matter_how_time_is_cut(name: str, deeds: list[Deed]) -> None:
    whole, cut = fresh(name), fresh(name)
    for simulation in (whole, cut):
        live(simulation, deeds)
    end = whole.now + HOUR
    whole.advance(end)
    while cut.now < end:
        cut.advance(min(end, cut.now + 17 * SECOND))
    assert cut.drain() == whole.drain()


@every
@law
@given(LIVES)
def test_money_adds_up(name: str, deeds: list[Deed]) -> None:
    """What the pools cost is, machine by machine, its price for as long as it was there."""
    simulation = fresh(name)
    live(simulation, deeds)
    simulation.advance(simulation.now + HOUR)
    rows = pools(simulation.snapshot())
    assert sum(row.spent for row in rows) == pytest.approx(_paid(simulation.drain(), simulation.now))
    paid = cost_report(simulation.snapshot(), Prices(), {})
    for parts in paid.by.values():
        assert sum(part.hourly for part in parts) == pytest.approx(paid.hourly)
    for row in rows:
        assert 0 <= row.idle_hourly <= row.hourly + 1e-9
        assert 0 <= row.used <= row.gpus
        assert row.launched - row.gone == row.nodes + row.starting + row.leaving


def _paid(events: list[Event], now: int) -> float:
    """USD by the comings and goings of machines alone."""
    present: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    total = 0.0
    for event in events:
        if isinstance(event, Applied) and isinstance(event.object, NodeGroup):
            there = {one.name: (one.price, one.launched) for one in event.object.instances}
            for gone in present[event.object.name].keys() - there.keys():
                price, launched = present[event.object.name][gone]
                total += price * (event.time - launched) / HOUR
            present[event.object.name] = there
    return total + sum(p * (now - launched) / HOUR for group in present.values() for p, launched in group.values())


@every
@law
@given(st.lists(st.tuples(SPANS, LEFT_ALONE), min_size=1, max_size=10))
def test_work_done_and_work_lost_are_the_time_that_was_run(name: str, deeds: list[Deed]) -> None:
    simulation = fresh(name)
    live(simulation, deeds)
    simulation.advance(simulation.now + 3 * HOUR)
    events = simulation.drain()
    ran, lost = _books(events)
    for one in simulation.snapshot().jobs.all():
        if one.phase is JobPhase.SUCCEEDED and one.duration is not None:
            gpus = sum(part.requests.get(GPU, 0) for part in one.pod_sets)
            assert ran[one.key] * gpus == pytest.approx(one.duration / SECOND * gpus + lost[one.key])
    lines = [event for event in events if isinstance(event, HistoryEvent)]
    assert sum(work.gpu_hours for work in lost_by(lines).values()) == pytest.approx(sum(lost.values()) / 3600)


def _books(events: list[Event]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds run and GPU-seconds lost, by job."""
    ran: dict[str, float] = defaultdict(float)
    lost: dict[str, float] = defaultdict(float)
    started: dict[str, int] = {}
    for line in events:
        if not isinstance(line, HistoryEvent):
            continue
        if line.what is HistoryEventKind.STARTED:
            started[line.workload] = line.time
        elif line.what in (HistoryEventKind.EVICTED, HistoryEventKind.POD_FAILED, HistoryEventKind.FINISHED):
            key = line.workload if line.what is HistoryEventKind.FINISHED else f"Job/{line.pod.rpartition('-')[0]}"
            if key in started:
                ran[key] += (line.time - started.pop(key)) / SECOND
            lost[key] += line.lost_gpu_seconds
    return ran, lost


@every
@law
@given(LIVES)
def test_nothing_is_drained_against_a_budget(name: str, deeds: list[Deed]) -> None:
    """One of the pods that the budget keeps runs whenever another one is taken from its node."""
    simulation = fresh(name)
    live(simulation, deeds)
    simulation.advance(simulation.now + 2 * HOUR)
    running: dict[str, bool] = {}
    for event in simulation.drain():
        match event:
            case Applied(_, Pod() as pod) if pod.template.labels.get("app") == "kept":
                running[pod.key] = pod.phase is PodPhase.RUNNING and not pod.deleted
            case Deleted(_, "pods", key):
                running.pop(key, None)
            case HistoryEvent(what=HistoryEventKind.EVICTED, pod=key, reason=reason) if (
                running.get(key) and reason != "Preempted"
            ):
                assert sum(running.values()) >= 2


@every
@law
@given(LIVES)
def test_no_machine_is_forgotten(name: str, deeds: list[Deed]) -> None:
    """Every node belongs to a machine that has started, and every such machine has its node."""
    simulation = fresh(name)
    for deed in deeds:
        live(simulation, [deed])
        snapshot = simulation.snapshot()
        started = {one.name for group in snapshot.node_groups.all() for one in group.instances if one.ready is not None}
        assert started == set(snapshot.nodes)


@every
@law
@given(LIVES)
def test_when_all_work_is_done_only_what_has_to_stay_stays(name: str, deeds: list[Deed]) -> None:
    simulation = fresh(name)
    live(simulation, deeds)
    simulation.advance(simulation.now + 12 * HOUR)
    snapshot = simulation.snapshot()
    pods = [pod for pod in snapshot.pods.all() if not pod.done]
    ready = [node for node in snapshot.nodes.all() if node.ready]
    if not pods:
        assert len(ready) <= 0 if name == "karpenter" else len(ready) <= 1
