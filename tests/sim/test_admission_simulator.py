"""Admission alone: decisions take effect at once, a fork goes its own way, and what is followed is known."""

from gpuconsole.model.events import Admit, Applied, Deleted, Preempt, Refuse
from gpuconsole.scheduling.kueue.conditions import EVICTED
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.scheduling.kueue.entry import EntryStatus
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from tests.insight.test_unblock import after
from tests.support.kueue_cluster import LOWER, World, queue, workload
from tests.support.snapshots import ORG, ORG_QUEUES, waiting, world

OLD, NEW = workload("old", "q", 4, created=1), workload("new", "q", 4, created=2, priority=9)


def test_a_cycle_evicts_and_the_next_one_admits() -> None:
    rehearsal = after(queue("q", 4, within=LOWER), OLD)
    rehearsal.apply(NEW)
    refused, preempted = sorted(rehearsal.run_cycle(), key=lambda decision: decision.workload)
    assert (type(refused), type(preempted)) == (Refuse, Preempt)
    assert not rehearsal.workloads["team/old"].reserved
    (admitted,) = rehearsal.run_cycle()
    assert isinstance(admitted, Admit)
    assert rehearsal.workloads["team/new"].admitted
    assert [type(decision) for decision in rehearsal.run_cycle()] == [Refuse]
    assert rehearsal.run_cycle() == []


def test_a_victim_keeps_its_quota_until_its_release_is_applied_if_asked() -> None:
    cluster = World(queue("q", 4, within=LOWER), victims_keep_quota=True)
    cluster.run(OLD, admitted=True)
    cluster.run(NEW)
    victim = cluster.workloads["old"]
    assert (victim.reserved, victim.is_true(EVICTED)) == (True, True)
    assert "new" not in cluster.running
    cluster.release()
    cluster.settle()
    assert (cluster.workloads["old"].reserved, cluster.workloads["new"].admitted) == (False, True)


def test_a_fork_leaves_the_original_alone() -> None:
    rehearsal = after(queue("q", 4), OLD, NEW)
    fork = rehearsal.fork()
    fork.finish("team/old")
    fork.requeue_inadmissible()
    fork.run_cycle()
    assert [r.workloads["team/new"].reserved for r in (rehearsal, fork)] == [False, True]
    assert rehearsal.session.available("q", "f", "nvidia.com/gpu") == 0


def test_what_would_become_of_a_workload_is_told_wherever_it_stands() -> None:
    rehearsal = after(queue("q", 8), OLD, workload("big", "q", 8), workload("small", "q", 4, created=3))
    fork = after(queue("q", 8), OLD)
    for arrival in (workload("first", "q", 4, created=2), workload("second", "q", 4, created=3)):
        fork.apply(arrival)
    assert [entry.request.workload.name for entry in fork.session.examine_cycle(fork.now)] == ["first"]
    (entry,) = fork.session.examine_cycle(fork.now, "team/second")
    assert (entry.request.workload.name, entry.status) == ("second", EntryStatus.ASSUMED)
    assert [place.workload.name for place in fork.session.pending_workloads("q")] == ["first", "second"]
    assert rehearsal.session.examine_cycle(rehearsal.now, "team/nobody") == []


def test_what_is_followed_is_known_as_if_it_had_been_told_at_once() -> None:
    late = waiting("late", "prod/lq", 4)
    followed = AdmissionSimulator.from_snapshot(world([*ORG_QUEUES]), DEFAULT)
    for thing in (*ORG[len(ORG_QUEUES) :], late, waiting("gone", "prod/lq", 1)):
        followed.apply_event(Applied(followed.now, thing))
    followed.apply_event(Deleted(followed.now, "workloads", "prod/gone"))
    told = AdmissionSimulator.from_snapshot(world([*ORG, late]), DEFAULT)
    assert followed.workloads == told.workloads
    for one in (followed, told):
        one.requeue_inadmissible()
    assert followed.run_cycle() == told.run_cycle()
