"""A cluster that is followed from Snapshot to Snapshot is known as one that is told whole."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cluster import Pod
from gpuconsole.model.cooperative import run_to_end
from gpuconsole.model.events import Applied, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.live_base import LiveBase
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED, RunTimes
from gpuconsole.sim.world import World
from tests.sim.test_laws import LIFE, fresh
from tests.support.adopted_clusters import as_live
from tests.support.autoscaled_clusters import KARPENTER
from tests.support.random_simulations import LIVES, live
from tests.support.sim_cluster import USUAL, job, start, submit, two_teams

POLICIES = {
    "Kueue": USUAL,
    "Kueue with fair sharing": SimPolicy(kueue=KueueConfig(fair_sharing=True)),
    "kube-scheduler alone": SimPolicy(kueue=None),
    "Volcano": SimPolicy(kueue=None, placement=VolcanoPolicy()),
    "KAI": SimPolicy(kueue=None, placement=KaiPolicy()),
    "Karpenter": SimPolicy(capacity=KARPENTER),
}


class Sight:
    """What an observer sees of a cluster, Snapshot by Snapshot: what did not change is the same object. Mutates.

    Kueue does not say whether pods run, unless it waits for them.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[type[Object], str], Object] = {}

    def of(self, simulation: Simulation) -> Snapshot:
        snapshot = as_live(simulation)
        state = ClusterState(snapshot.time)
        seen = {}
        for thing in map(_without_readiness, snapshot.objects()):
            key = type(thing), thing.key
            known = self._known.get(key)
            seen[key] = known if known == thing else thing
            state.apply(Applied(snapshot.time, seen[key]))
        self._known = seen
        return state.freeze()


def _without_readiness(thing: Object) -> Object:
    if not isinstance(thing, Workload):
        return thing
    return replace(thing, conditions=tuple(one for one in thing.conditions if one.type != "PodsReady"))


def on(footing: LiveBase) -> Simulation:
    return run_to_end(Simulation.from_live_base(footing))


def told(snapshot: Snapshot, policy: SimPolicy) -> LiveBase:
    footing = LiveBase(policy, seed=1)
    run_to_end(footing.update(snapshot))
    return footing


def future(simulation: Simulation) -> tuple[list[Object], list[Event], list[Object]]:
    """The cluster, and what comes in an hour; which GPUs pods have, and since when all run, is guessed and left out."""
    now = [_unguessed(thing) for thing in simulation.snapshot().objects()]
    simulation.advance(simulation.now + HOUR)
    events = [Applied(e.time, _unguessed(e.object)) if isinstance(e, Applied) else e for e in simulation.drain()]
    return now, events, [_unguessed(thing) for thing in simulation.snapshot().objects()]


def _unguessed(thing: Object) -> Object:
    if isinstance(thing, Workload):
        return replace(thing, conditions=tuple(map(_ready_sometime, thing.conditions)))
    return replace(thing, gpus=()) if isinstance(thing, Pod) else thing


def _ready_sometime(condition: Condition) -> Condition:
    return replace(condition, since=0) if condition.type == "PodsReady" else condition


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(life=LIVES)
def test_a_cluster_that_is_followed_has_the_future_of_one_that_is_told_whole(policy: SimPolicy, life: LIFE) -> None:
    cluster, sight, footing = fresh(policy), Sight(), LiveBase(policy, seed=1)
    for deed in life:
        live(cluster, [deed])
        run_to_end(footing.update(sight.of(cluster)))
        on(footing)
    cluster.advance(cluster.now + MINUTE)
    snapshot = sight.of(cluster)
    run_to_end(footing.update(snapshot))
    assert future(on(footing)) == future(on(told(snapshot, policy)))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(life=LIVES)
def test_who_waits_is_not_told_why_and_everything_else_is_decided_as_if(policy: SimPolicy, life: LIFE) -> None:
    cluster, sight = fresh(policy), Sight()
    live(cluster, life)
    snapshot = sight.of(cluster)
    quiet = on(told(snapshot, policy))
    quiet.advance(quiet.now)
    quiet.drain()
    telling = Simulation.from_snapshot(snapshot, policy=policy, seed=1)
    telling.drain()
    assert _deaf(quiet.snapshot()) == _deaf(telling.snapshot())
    lines = []
    for simulation in (quiet, telling):
        simulation.advance(simulation.now + HOUR)
        happened = (event for event in simulation.drain() if isinstance(event, HistoryEvent))
        lines.append([line for line in happened if line.what is not HistoryEventKind.PENDING])
    assert lines[0] == lines[1]
    assert _deaf(quiet.snapshot()) == _deaf(telling.snapshot())


def _deaf(snapshot: Snapshot) -> list[Object]:
    """All objects; of those that wait not why."""
    return [_not_told(thing) if isinstance(thing, Workload) else thing for thing in snapshot.objects()]


def _not_told(workload: Workload) -> Workload:
    kept = tuple(one for one in workload.conditions if one.type != "QuotaReserved")
    return (
        workload if workload.reserved else replace(workload, conditions=kept, resource_requests=(), inadmissible=False)
    )


def test_what_nobody_says_of_pods_is_written_down_once_and_forgotten_when_the_cluster_says_something_else() -> None:
    cluster, sight, footing = start(two_teams()), Sight(), LiveBase(USUAL, seed=1)
    submit(cluster, job("one", gpus=2, pods=2), job("two", gpus=1))
    shown = sight.of(cluster)
    run_to_end(footing.update(shown))
    assert {*map(type, written(footing))} == {Pod, Workload}
    known = on(footing).snapshot()
    assert written(footing) == []
    assert list(footing.completed_snapshot().objects()) == list(known.objects())
    first = next(iter(shown.pods.all()))
    said = replace(first, labels={**first.labels, "said": "since"})
    state = ClusterState.of(shown, ())
    state.apply(Applied(shown.time, said))
    run_to_end(footing.update(state.freeze()))
    assert footing.completed_snapshot().pods[first.key] is said
    assert {thing.key for thing in written(footing)} == {first.key, known.pods[first.key].workload}
    assert on(footing).snapshot().pods[first.key] == replace(known.pods[first.key], labels=said.labels)


def written(footing: LiveBase) -> list[Object]:
    """What is written down where a simulation begins, before anything is decided."""
    return [event.object for event in run_to_end(footing.start_world()).events if isinstance(event, Applied)]


LATENT = SimPolicy(latencies=MEASURED)


def undecided(*jobs: Job) -> Snapshot:
    """A cluster in which Kueue has not tried these jobs yet."""
    cluster = start(two_teams())
    submit(cluster, *jobs)
    known = cluster.snapshot()
    state = ClusterState(known.time)
    for thing in known.objects():
        match thing:
            case Workload():
                state.apply(Applied(known.time, replace(thing, conditions=(), admission=None)))
            case Job():
                state.apply(Applied(known.time, replace(thing, suspended=True)))
            case Pod():
                pass
            case _:
                state.apply(Applied(known.time, thing))
    return state.freeze()


@pytest.mark.parametrize(
    ("pending", "submitted", "admitted"),
    [
        ([("first", 4, ""), ("second", 4, "")], 4, ["first", "urgent"]),
        ([("first", 4, "")], 8, ["first"]),
    ],
    ids=["the second cycle tries it", "the first cycle has begun without it"],
)
def test_a_submission_to_a_live_cluster_comes_after_one_cycle(
    pending: list[tuple[str, int, str]], submitted: int, admitted: list[str]
) -> None:
    jobs = [job(name, gpus=gpus, priority_class=priority) for name, gpus, priority in pending]
    simulation = on(told(undecided(*jobs), USUAL)).fork()
    submit(simulation, job("urgent", gpus=min(4, submitted), pods=max(1, submitted // 4), priority_class="high"))
    holding = [one.owner.rpartition("/")[2] for one in simulation.snapshot().workloads.all() if one.reserved]
    assert sorted(holding) == admitted


def test_the_quota_of_a_job_is_released_after_the_job_controller_has_counted_its_pods() -> None:
    cluster = start(two_teams(), LATENT)
    submit(cluster, replace(job("one", gpus=4, duration=MINUTE), rules=BatchRules(completions=1)))
    pod = next(iter(cluster.snapshot().pods.all()), None)
    while pod is None or not pod.done:
        cluster.run_next_moment()
        pod = next(iter(cluster.snapshot().pods.all()), None)
    succeeded = cluster.snapshot()
    assert not any(one.finished for one in succeeded.workloads.all())
    for simulation in (cluster, on(told(as_live(cluster), LATENT))):
        simulation.drain()
        simulation.advance(simulation.now + 5 * SECOND)
        (finished,) = [
            e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.FINISHED
        ]
        assert SECOND < finished.time - pod.finished < 3 * SECOND


@given(since=st.integers(0, 100), elapsed=st.integers(0, 100 * SECOND), typical=st.booleans())
def test_what_has_not_come_yet_comes_later(since: int, elapsed: int, typical: bool) -> None:
    world = World(LATENT, 0, since * SECOND + elapsed, ClusterState())
    world.has_typical_latencies = typical
    drawn = since * SECOND + world.draw_latency("job_suspend", "status_update", of=("a",))
    due = world.draw_due_time(since * SECOND, "job_suspend", "status_update", of=("a",))
    assert due > world.now
    if drawn > world.now and not typical:
        assert due == drawn
    if drawn > world.now and typical:
        assert drawn <= due <= drawn + SECOND


def test_one_run_on_a_live_cluster_has_typical_latencies_and_further_runs_draw_them() -> None:
    base = on(told(start(two_teams(), LATENT).snapshot(), LATENT))
    further = (base.fork_with_latency_run(1), base.estimating_fork(RunTimes(), 1))
    for simulation, typical in [(base.fork(), True), *((one, False) for one in further)]:
        drawn = {simulation._world.draw_latency("status_update", of=(number,)) for number in range(5)}
        assert (drawn == {MEASURED.status_update.p50}) is typical
