"""Laws that hold whatever happens: forks, replays, saves, owners of GPUs, quota, and the books of work."""

from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.commands import Delete, Submit
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.conditions import is_deactivated
from gpuconsole.scheduling.kueue.messages import without_amounts
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED
from tests.support.random_simulations import LIVES, UNFORCED_LIVES, Deed, cluster, contents, live
from tests.support.sim_cluster import GPU, START, USUAL, job

LIFE = list[tuple[Span, Deed]]
POLICIES = st.sampled_from([USUAL, replace(USUAL, latencies=MEASURED)])
"""Controllers that take no time, and those of a real control plane."""
law = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fresh(policy: SimPolicy = USUAL) -> Simulation:
    return Simulation.from_objects(cluster(), policy=policy, seed=3, start=START)


@law
@given(POLICIES, LIVES, LIVES)
def test_a_fork_runs_like_the_original_and_never_touches_it(policy: SimPolicy, before: LIFE, after: LIFE) -> None:
    original = fresh(policy)
    live(original, before)
    fork = original.fork()
    still = contents(original.snapshot())
    waiting = original.fork().drain()
    live(fork, after)
    fork.advance(fork.now + HOUR)
    assert contents(original.snapshot()) == still
    assert original.fork().drain() == waiting
    live(original, after)
    original.advance(original.now + HOUR)
    assert contents(original.snapshot()) == contents(fork.snapshot())
    assert original.drain() == fork.drain()


@law
@given(POLICIES, LIVES, LIVES)
def test_a_fork_to_look_ahead_with_goes_the_way_of_the_original(policy: SimPolicy, before: LIFE, after: LIFE) -> None:
    original = fresh(policy)
    live(original, before)
    known = [workload.key for workload in original.snapshot().workloads.all()]
    asked = known[::2]
    quieter = original.forecast_fork(asked)
    for simulation in (original, quieter):
        live(simulation, after)
        simulation.advance(simulation.now + HOUR)
        simulation.show_inadmissible(workload.key for workload in simulation.snapshot().workloads.all())
    deaf = {*known} - {*asked}
    assert _but_for_amounts(quieter.snapshot(), deaf) == _but_for_amounts(original.snapshot(), deaf)
    lines, fewer = _lines(original.drain()), _lines(quieter.drain())
    assert [line for line in lines if line.what is not HistoryEventKind.PENDING] == [
        line for line in fewer if line.what is not HistoryEventKind.PENDING
    ]
    assert set(fewer) <= set(lines)


def test_a_fork_to_look_ahead_with_says_why_a_workload_waits_that_has_the_name_of_a_deleted_one() -> None:
    original, larger_than_all_quota = fresh(), Submit((job("a", "red", gpus=9),))
    original.submit(larger_than_all_quota)
    original.advance(original.now + MINUTE)
    original.submit(Delete("jobs", "Job/red/a"))
    original.advance(original.now + MINUTE)
    fork = original.forecast_fork(())
    for simulation in (original, fork):
        simulation.submit(larger_than_all_quota)
        simulation.advance(simulation.now + MINUTE)
        simulation.show_inadmissible(simulation.snapshot().workloads)
    [waits] = fork.snapshot().workloads.all()
    assert "maximum capacity" in waits.conditions[0].message
    assert contents(fork.snapshot())["objects"] == contents(original.snapshot())["objects"]


def _lines(events: list[Event]) -> list[HistoryEvent]:
    return [event for event in events if isinstance(event, HistoryEvent)]


def _but_for_amounts(snapshot: Snapshot, deaf: set[str]) -> list[Object]:
    """All objects; of conditions neither how much is missing nor since when; of the deaf not why they wait."""
    return [_heard(thing, deaf) if isinstance(thing, Workload) else thing for thing in snapshot.objects()]


def _heard(workload: Workload, deaf: set[str]) -> Workload:
    conditions = tuple(map(_but_for_amount, workload.conditions))
    if workload.key not in deaf or workload.reserved:
        return replace(workload, conditions=conditions)
    kept = tuple(one for one in conditions if one.type != "QuotaReserved")
    return replace(workload, conditions=kept, resource_requests=())


def _but_for_amount(condition: Condition) -> Condition:
    return replace(condition, message=without_amounts(condition.message), since=0)


@law
@given(POLICIES, LIVES, LIVES)
def test_a_saved_simulation_goes_on_as_the_original_does(policy: SimPolicy, before: LIFE, after: LIFE) -> None:
    original = fresh(policy)
    live(original, before)
    loaded = Simulation.load(original.save())
    assert contents(loaded.snapshot()) == contents(original.snapshot())
    for simulation in (original, loaded):
        live(simulation, after)
        simulation.advance(simulation.now + HOUR)
    assert loaded.drain() == original.drain()


@law
@given(POLICIES, LIVES)
def test_the_state_from_the_events_is_the_state(policy: SimPolicy, deeds: LIFE) -> None:
    simulation = fresh(policy)
    live(simulation, deeds)
    simulation.advance(simulation.now + 10 * MINUTE)
    state = ClusterState(START)
    for event in simulation.drain():
        state.apply(event)
    rebuilt, own = state.freeze(), simulation.snapshot()
    assert list(rebuilt.objects()) == list(own.objects())
    assert rebuilt.recent == own.recent


@law
@given(POLICIES, LIVES)
def test_the_same_seed_gives_the_same_log_however_time_is_cut(policy: SimPolicy, deeds: LIFE) -> None:
    whole, cut, stepped = fresh(policy), fresh(policy), fresh(policy)
    for simulation in (whole, cut, stepped):
        live(simulation, deeds)
    end = whole.now + 20 * MINUTE
    whole.advance(end)
    while cut.now < end:
        cut.advance(min(end, cut.now + 13 * SECOND))
    while stepped.next_time is not None and stepped.next_time <= end:
        stepped.run_next_moment()
    events = whole.drain()
    assert cut.drain() == events
    assert stepped.drain()[: len(events)] == events


@law
@given(POLICIES, LIVES)
def test_no_gpu_has_two_owners_and_no_node_more_pods_than_room(policy: SimPolicy, deeds: LIFE) -> None:
    simulation = fresh(policy)
    for deed in deeds:
        live(simulation, [deed])
        owners: Counter[tuple[str, int]] = Counter()
        asked: Counter[str] = Counter()
        snapshot = simulation.snapshot()
        for pod in snapshot.pods.all():
            if pod.node and not pod.done:
                owners.update((pod.node, index) for index in pod.gpus)
                asked[pod.node] += pod.template.requests.get(GPU, 0)
                assert len(pod.gpus) == pod.template.requests.get(GPU, 0)
        assert max(owners.values(), default=0) <= 1
        assert all(amount <= 4 for amount in asked.values())
        assert all(index < 4 for _, index in owners)


@law
@given(POLICIES, LIVES)
def test_admissions_never_use_more_than_the_cohort_has(policy: SimPolicy, deeds: LIFE) -> None:
    simulation = fresh(policy)
    for deed in deeds:
        before = _used(simulation.snapshot())
        live(simulation, [deed])
        after = simulation.snapshot()
        used = _used(after)
        for queues in _families(after):
            quota = sum(after.cluster_queues[name].quotas()["a100", GPU].nominal for name in queues)
            # Less quota evicts nobody, and a borrower that leaves keeps what it holds: then usage only falls.
            assert sum(used[name] for name in queues) <= max(quota, sum(before[name] for name in queues))


def _used(snapshot: Snapshot) -> Counter[str]:
    """ClusterQueue → GPUs that it holds; of a workload that was deactivated Kueue knows nothing any more."""
    used: Counter[str] = Counter()
    for workload in snapshot.workloads.all():
        holds = workload.reserved and not workload.finished and not is_deactivated(workload)
        if workload.admission is not None and holds:
            used[workload.admission.cluster_queue] += workload.gpus
    return used


def _families(snapshot: Snapshot) -> list[list[str]]:
    """The ClusterQueues that share a cohort, and each that has none."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for queue in snapshot.cluster_queues.all():
        families[queue.cohort or f"alone: {queue.name}"].append(queue.name)
    return list(families.values())


@law
@given(POLICIES, LIVES)
def test_counts_of_crews_are_those_of_their_pods(policy: SimPolicy, deeds: LIFE) -> None:
    simulation = fresh(policy)
    for deed in deeds:
        live(simulation, [deed])
        loaded = Simulation.load(simulation.save())
        for crew in loaded._world.groups.values():
            pods = [loaded._world.pod(key) for key in crew.pods]
            there = [pod for pod in pods if pod is not None and not pod.done]
            assert crew.existing == len(there)
            assert crew.terminating == sum(1 for pod in there if pod.deleted)
            assert crew.running == sum(1 for pod in there if pod.node and not pod.deleted)
            assert crew.with_started_containers == sum(1 for pod in there if pod.started and not pod.deleted)


@law
@given(POLICIES, UNFORCED_LIVES)
def test_work_done_and_work_lost_are_the_time_that_was_run(policy: SimPolicy, deeds: LIFE) -> None:
    simulation = fresh(policy)
    live(simulation, deeds)
    simulation.advance(simulation.now + 2 * HOUR)
    ran, lost = _books(simulation.drain())
    snapshot = simulation.snapshot()
    for workload in snapshot.workloads.all():
        job = snapshot.jobs.get(workload.owner)
        if job is not None and job.phase is JobPhase.SUCCEEDED and job.duration is not None:
            gpus = sum(part.requests.get(GPU, 0) for part in job.pod_sets)
            assert ran[workload.key] * gpus == pytest.approx(job.duration / SECOND * gpus + lost[workload.key])


def _books(events: list[Event]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds run and GPU-seconds lost, by workload."""
    ran: dict[str, float] = defaultdict(float)
    lost: dict[str, float] = defaultdict(float)
    started: dict[str, int] = {}
    for line in events:
        if not isinstance(line, HistoryEvent):
            continue
        if line.what is HistoryEventKind.STARTED:
            started[line.workload] = line.time
        elif line.what in (
            HistoryEventKind.EVICTED,
            HistoryEventKind.POD_EVICTED,
            HistoryEventKind.POD_FAILED,
            HistoryEventKind.FINISHED,
        ):
            if line.workload in started:
                ran[line.workload] += (line.time - started.pop(line.workload)) / SECOND
            lost[line.workload] += line.lost_gpu_seconds
    return ran, lost
