"""The engine that is kept from look to look foresees what a whole simulation decides at that moment."""

from typing import Any

from hypothesis import given, settings
from msgspec.structs import replace

from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction, Forecaster, assigned, forecast
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import Applied, HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import RequeueState, Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.random_simulations import LIVES, cluster
from tests.support.snapshots import ORG, ORG_QUEUES, START, node, pod, waiting, world

POLICY = SimPolicy()


def simulated(snapshot: Snapshot) -> dict[str, Any]:
    """Who is admitted in which cycle with what, who waits and why, and who makes room, by a whole simulation."""
    simulation = Simulation.from_snapshot(snapshot, policy=POLICY, seed=0)
    victims = {
        line.workload: line.by
        for line in simulation.drain()
        if isinstance(line, HistoryEvent) and line.what is HistoryEventKind.PREEMPTED
    }
    found: dict[str, Any] = {key: ("preempted", by) for key, by in victims.items()}
    after = simulation.snapshot()
    for before in snapshot.workloads.all():
        if before.reserved or before.finished or not before.active:
            continue
        workload = after.workloads[before.key]
        said = workload.condition("QuotaReserved")
        if workload.reserved and workload.admission is not None and said is not None:
            found[before.key] = (said.since - snapshot.time + 1, assigned(workload.admission))
        else:
            mine = sorted(victim for victim, by in victims.items() if by == before.key)
            found[before.key] = (said.message if said is not None else "", mine)
    return found


def foreseen(told: Forecast) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in told.prospects.items():
        match one.fate:
            case ForecastAction.PREEMPTED:
                found[key] = ("preempted", one.by)
            case ForecastAction.ADMITTED:
                found[key] = (one.cycle, one.given)
            case _:
                found[key] = (one.message, sorted(one.victims))
    return found


def undone(snapshot: Snapshot) -> Snapshot:
    """The cluster with every other reservation taken back: what Kueue is about to decide."""
    state = ClusterState(snapshot.time)
    taken = {w.key for w in [w for w in snapshot.workloads.all() if w.reserved and not w.finished][::2]}
    for thing in snapshot.objects():
        if isinstance(thing, Workload) and thing.key in taken:
            state.apply(Applied(snapshot.time, replace(thing, conditions=(), admission=None, checks=())))
        elif not (isinstance(thing, Pod) and thing.workload in taken):
            state.apply(Applied(snapshot.time, thing))
    return state.freeze()


@given(LIVES)
@settings(max_examples=25)
def test_quota_alone_decides_what_the_whole_simulation_decides(life: Any) -> None:
    simulation = Simulation.from_objects(cluster(), policy=POLICY, seed=1, start=START)
    for span, deed in life:
        simulation.advance(simulation.now + span)
        deed(simulation)
        for seen in (simulation.snapshot(), undone(simulation.snapshot())):
            assert foreseen(forecast(seen, POLICY)) == simulated(seen)


def test_what_only_might_have_been_is_forgotten() -> None:
    snapshot = world([*ORG, node("n1"), pod("llm-0", "n1", gpus=(0,), workload="research/rlhf")])
    supposed = world([*ORG, waiting("owner", "prod/lq", 8, priority=10_000)])
    foreseer = Forecaster()
    first = foreseer.forecast(snapshot, POLICY)
    assert foreseer.forecast(supposed, POLICY, supposed=True) == forecast(supposed, POLICY)
    assert foreseer.forecast(snapshot, POLICY) == first


def test_what_is_gone_is_taken_into_account() -> None:
    foreseer = Forecaster()
    fits = waiting("next", "prod/lq", 12)
    full = world([*ORG, fits])
    assert foreseer.forecast(full, POLICY).prospects["prod/next"].fate is ForecastAction.WAITS
    free = world([*ORG_QUEUES, fits])
    assert foreseer.forecast(free, POLICY) == forecast(free, POLICY)
    assert foreseer.forecast(free, POLICY).prospects["prod/next"].fate is ForecastAction.ADMITTED


def test_a_backoff_ends_though_nothing_was_told() -> None:
    foreseer = Forecaster()
    sent_back = waiting("again", "prod/lq", 8, requeue=RequeueState(at=START + MINUTE))
    objects = [*ORG_QUEUES, sent_back]
    assert foreseer.forecast(world(objects), POLICY).prospects["prod/again"].fate is ForecastAction.WAITS
    later = world(objects, START + MINUTE)
    assert foreseer.forecast(later, POLICY).prospects["prod/again"].fate is ForecastAction.ADMITTED


def test_other_rules_are_followed_from_the_next_look_on() -> None:
    foreseer = Forecaster()
    snapshot = world([*ORG_QUEUES, waiting("next", "prod/lq", 8)])
    assert foreseer.forecast(snapshot, POLICY).prospects.keys() == {"prod/next"}
    assert foreseer.forecast(snapshot, SimPolicy(kueue=None)).prospects == {}
