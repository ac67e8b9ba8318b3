"""batch/v1 Jobs: each pod works for itself, so many at once, until enough pieces of work are done."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Delete, FailNode, FailPod, Finish, SetActive
from gpuconsole.model.events import Applied
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs.batch import COMPLETION_INDEX as INDEX
from gpuconsole.model.objects import Object
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.adoption import FAILURES
from gpuconsole.sim.engine import Simulation
from tests.support.job_manifests import job, pod, read
from tests.support.sim_cluster import START, UNQUEUED, key_of, log, nodes, run, start, submit, two_teams
from tests.support.sim_cluster import pod as lone

POD_LINES = ("pending", "pod-bound")


def waves(*documents: Any, count: int = 2) -> Simulation:
    """Nodes of four GPUs, no queues, and these jobs."""
    simulation = start(nodes(count), UNQUEUED)
    submit(simulation, *read(*documents))
    return simulation


def the(simulation: Simulation, name: str = "sweep") -> Job:
    return simulation.snapshot().jobs[f"Job/red/{name}"]


def pods_of(simulation: Simulation) -> dict[str, str]:
    return {pod.name: pod.phase.value for pod in simulation.snapshot().pods.all()}


def test_pods_come_in_waves_until_all_pieces_are_done() -> None:
    simulation = waves(job("sweep", 2, 5))
    simulation.advance(START + 20 * MINUTE)
    assert pods_of(simulation) == {
        "sweep-0": "Succeeded",
        "sweep-1": "Succeeded",
        "sweep-2": "Running",
        "sweep-3": "Running",
    }
    assert the(simulation).batch.completed == "0-1"
    assert run(simulation, HOUR) == ["0:00 started Job/red/sweep", "60:00 finished Job/red/sweep"]
    assert (the(simulation).phase, the(simulation).batch.completed) == (JobPhase.SUCCEEDED, "0-4")


def test_pods_of_earlier_waves_go_with_their_job() -> None:
    deleted = waves(job("sweep", 2, 5))
    deleted.schedule_commands(START + 50 * MINUTE, Delete("jobs", "Job/red/sweep"))
    deleted.advance(START + HOUR)
    assert pods_of(deleted) == {}
    expired = waves(job("sweep", 2, 5, ttlSecondsAfterFinished=600))
    expired.advance(START + HOUR + 9 * MINUTE)
    assert set(pods_of(expired)) == {"sweep-0", "sweep-1", "sweep-2", "sweep-3", "sweep-4"}
    expired.advance(START + HOUR + 10 * MINUTE)
    assert (pods_of(expired), list(expired.snapshot().jobs.all())) == ({}, [])


def test_finished_pods_of_all_waves_are_kept_for_a_while() -> None:
    simulation = start(nodes(2), replace(UNQUEUED, keep_finished=HOUR))
    submit(simulation, *read(job("sweep", 2, 5)))
    simulation.advance(START + HOUR + 59 * MINUTE)
    assert len(pods_of(simulation)) == 5
    simulation.advance(START + 2 * HOUR)
    assert pods_of(simulation) == {}


def test_a_wave_ends_as_a_whole() -> None:
    simulation = waves(job("sweep", 4, 8, notes={"duration": "1h"}))
    simulation.advance(START + 30 * MINUTE - SECOND)
    simulation.drain()
    simulation.advance(START + 30 * MINUTE)
    changes = [event.object for event in simulation.drain() if isinstance(event, Applied)]
    pods = [(thing.name, thing.phase.value) for thing in changes if isinstance(thing, Pod)]
    assert pods[:4] == [(f"sweep-{index}", "Succeeded") for index in range(4)]


def test_a_template_says_how_long_each_pod_takes() -> None:
    simulation = waves(job("sweep", 2, 5, template=pod(restart="Never", duration="5m")))
    assert run(simulation, HOUR) == ["0:00 started Job/red/sweep", "15:00 finished Job/red/sweep"]


def test_pods_that_find_no_node_wait_while_the_others_work() -> None:
    simulation = waves(job("sweep", 6, 6), count=1)
    assert run(simulation, 3 * HOUR) == ["0:00 started Job/red/sweep", "120:00 finished Job/red/sweep"]


def test_pods_of_a_gang_work_only_together() -> None:
    simulation = waves(job("sweep", 6, 6, notes={"duration": "1h", "gang": "true"}), count=1)
    assert run(simulation, 3 * HOUR) == ["0:00 gang-waiting Job/red/sweep"]


def test_a_pod_that_fails_is_made_again_and_begins_anew_while_the_others_go_on() -> None:
    simulation = waves(job("sweep", 2, 2))
    simulation.schedule_commands(START + 30 * MINUTE, FailPod("red/sweep-1"))
    assert run(simulation, 2 * HOUR) == [
        "0:00 started Job/red/sweep",
        "30:00 pod-failed red/sweep-1 lost 1800s Error",
        "90:10 finished Job/red/sweep",
    ]
    assert the(simulation).failures == 1


def test_checkpoints_are_each_pods_own() -> None:
    simulation = waves(job("sweep", 2, 2, notes={"duration": "1h", "checkpoint_interval": "10m"}))
    simulation.schedule_commands(START + 35 * MINUTE, FailPod("red/sweep-1"))
    assert run(simulation, 2 * HOUR) == [
        "0:00 started Job/red/sweep",
        "35:00 pod-failed red/sweep-1 lost 300s Error",
        "65:10 finished Job/red/sweep",
    ]


def test_a_job_gives_up_after_its_last_failure() -> None:
    simulation = waves(job("sweep", 2, 2, backoffLimit=1))
    simulation.schedule_commands(START + MINUTE, FailPod("red/sweep-0"))
    simulation.schedule_commands(START + 2 * MINUTE, FailPod("red/sweep-0"))
    lines = run(simulation, HOUR)
    assert lines[-1] == "2:00 failed Job/red/sweep"
    assert the(simulation).phase is JobPhase.FAILED
    assert pods_of(simulation) == {"sweep-0": "Failed"}


def test_indexes_fail_for_themselves_where_each_has_its_own_limit() -> None:
    own: dict[str, Any] = {"completionMode": "Indexed", "backoffLimitPerIndex": 0}
    simulation = waves(job("sweep", 2, 3, **own))
    simulation.schedule_commands(START + MINUTE, FailPod("red/sweep-0"))
    # The hour of three pieces by two is half an hour each; the third one waits for the back-off.
    assert run(simulation, 2 * HOUR)[-1] == "31:10 failed Job/red/sweep"
    status = the(simulation).batch
    assert (status.completed, status.failed) == ("1-2", "0")


def test_too_many_failed_indexes_end_the_job() -> None:
    own: dict[str, Any] = {"completionMode": "Indexed", "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    simulation = waves(job("sweep", 2, 4, **own))
    simulation.schedule_commands(START + MINUTE, FailPod("red/sweep-0"))
    assert run(simulation, 2 * HOUR)[-1] == "1:00 failed Job/red/sweep"


EVICTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
FATAL = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}


def test_pods_that_are_evicted_count_as_failed() -> None:
    simulation = waves(job("sweep", 2, 2, backoffLimit=0))
    simulation.schedule_commands(START + MINUTE, FailNode("n1"))
    assert run(simulation, HOUR)[-1] == "1:00 failed Job/red/sweep"


def test_a_failure_policy_may_ignore_that() -> None:
    simulation = waves(job("sweep", 2, 2, backoffLimit=0, podFailurePolicy={"rules": [EVICTED]}))
    simulation.schedule_commands(START + MINUTE, FailNode("n1"))
    assert run(simulation, 2 * HOUR)[-1] == "61:00 finished Job/red/sweep"
    assert the(simulation).failures == 0


def test_a_failure_policy_may_end_the_job_at_once() -> None:
    simulation = waves(job("sweep", 2, 2, podFailurePolicy={"rules": [FATAL]}))
    simulation.schedule_commands(START + MINUTE, FailPod("red/sweep-0"))
    simulation.advance(START + HOUR)
    ended = [event for event in simulation.drain() if getattr(event, "what", "") == "failed"]
    assert [event.message for event in ended] == [  # type: ignore[union-attr]
        "Container main for pod red/sweep-0 failed with exit code 1 matching FailJob rule at index 0"
    ]


def test_a_success_policy_ends_a_job_when_enough_is_done() -> None:
    own: dict[str, Any] = {"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    simulation = waves(job("sweep", 2, 4, **own))
    assert run(simulation, 2 * HOUR)[-1] == "30:00 finished Job/red/sweep"


def test_a_job_may_be_active_for_so_long_only() -> None:
    simulation = waves(job("sweep", 2, 4, activeDeadlineSeconds=600))
    assert run(simulation, HOUR) == ["0:00 started Job/red/sweep", "10:00 failed Job/red/sweep"]


def test_who_takes_over_a_cluster_ends_what_has_been_active_for_too_long() -> None:
    simulation = waves(job("sweep", 2, 4, activeDeadlineSeconds=600))
    simulation.advance(START + 4 * MINUTE)
    assert run(adopted(simulation), HOUR) == ["10:00 failed Job/red/sweep"]


def test_of_what_began_long_before_the_cluster_was_taken_over_the_time_is_up_at_once() -> None:
    simulation = waves(job("sweep", 2, 4, activeDeadlineSeconds=600))
    simulation.advance(START + 4 * MINUTE)
    begun = replace(the(simulation), batch=replace(the(simulation).batch, since=START - HOUR))
    assert run(adopted(simulation, begun), HOUR) == ["4:00 failed Job/red/sweep"]


def test_who_takes_over_a_cluster_counts_the_failures_that_the_pods_of_an_index_tell() -> None:
    """One pod took the place of a failed one, and its index may fail once."""
    simulation = waves(job("sweep", 2, 2, completionMode="Indexed", backoffLimitPerIndex=1))
    simulation.advance(START + MINUTE)
    told = [
        replace(pod, labels={**pod.labels, INDEX: str(pod.index)}, annotations={FAILURES: str(1 - pod.index)})
        for pod in simulation.snapshot().pods.all()
    ]
    twin = adopted(simulation, *told)
    for name in ("sweep-0", "sweep-1"):
        twin.schedule_commands(START + 2 * MINUTE, FailPod(f"red/{name}"))
    twin.advance(START + 3 * MINUTE)
    assert (the(twin).batch.failed, the(twin).batch.failures) == ("0", {"0": 2, "1": 1})


def adopted(simulation: Simulation, *changed: Object) -> Simulation:
    """Who goes on from what a simulation shows, with these objects in the place of its own."""
    snapshot = simulation.snapshot()
    state = ClusterState(snapshot.time)
    for thing in (*snapshot.objects(), *changed):
        state.apply(Applied(snapshot.time, thing))
    return Simulation.from_snapshot(state.freeze(), policy=simulation.policy, seed=1)


def test_a_job_goes_some_time_after_its_end_with_its_pods() -> None:
    simulation = waves(job("sweep", 2, 4, ttlSecondsAfterFinished=60))
    simulation.advance(START + HOUR + 59 * SECOND)
    assert sorted(pods_of(simulation)) == ["sweep-0", "sweep-1", "sweep-2", "sweep-3"]
    simulation.advance(START + HOUR + 60 * SECOND)
    assert (pods_of(simulation), list(simulation.snapshot().jobs)) == ({}, [])


def test_a_job_is_suspended_and_goes_on() -> None:
    simulation = waves(job("sweep", 2, 4, notes={"duration": "1h", "checkpoint_interval": "1m"}))
    simulation.schedule_commands(START + 10 * MINUTE, SetActive("red/sweep", False))
    simulation.schedule_commands(START + 20 * MINUTE, SetActive("red/sweep", True))
    assert run(simulation, 2 * HOUR) == [
        "0:00 started Job/red/sweep",
        "10:00 evicted Job/red/sweep Suspended",
        "20:00 started Job/red/sweep",
        "70:00 finished Job/red/sweep",
    ]


def test_without_completions_no_pod_is_made_again_after_the_first_success() -> None:
    simulation = waves(job("sweep", 2))
    simulation.schedule_commands(START + HOUR - MINUTE, Delete("pods", "red/sweep-1"))
    lines = run(simulation, 3 * HOUR)
    # The deleted pod begins anew and needs its hour; the job waits for it.
    assert lines[-1] == "119:30 finished Job/red/sweep"
    assert the(simulation).batch.completed == "0-1"


def test_a_job_can_be_finished_by_command() -> None:
    simulation = waves(job("sweep", 2, 4))
    simulation.schedule_commands(START + MINUTE, Finish("red/sweep"))
    assert run(simulation, HOUR) == ["0:00 started Job/red/sweep", "1:00 finished Job/red/sweep"]


def test_kueue_gets_back_what_the_last_wave_does_not_need() -> None:
    simulation = start(two_teams())
    submit(simulation, *read(job("sweep", 4, 6, queue="lq")))
    simulation.advance(START + 40 * MINUTE)
    workload = simulation.snapshot().workloads[key_of(simulation, "red/sweep")]
    assert workload.reclaimable == {"main": 2}
    assert simulation.session is not None
    submit(simulation, *read(job("small", 2, 2, queue="lq")))
    assert [line for line in log(simulation.drain()) if "small" in line] == [
        "40:00 admitted red/small",
        "40:00 started red/small",
    ]


def test_an_evicted_job_keeps_the_pieces_that_are_done() -> None:
    simulation = start(two_teams())
    submit(simulation, *read(job("sweep", 4, 8, queue="lq")))
    simulation.schedule_commands(START + 40 * MINUTE, SetActive(key_of(simulation, "red/sweep"), False))
    simulation.schedule_commands(START + 50 * MINUTE, SetActive(key_of(simulation, "red/sweep"), True))
    lines = run(simulation, 3 * HOUR)
    assert lines[-1] == "80:00 finished red/sweep"
    assert the(simulation).batch.completed == "0-7"


@pytest.mark.parametrize("moment", [10 * MINUTE, 40 * MINUTE])
def test_a_saved_or_forked_or_taken_over_job_goes_on_as_the_original_does(moment: int) -> None:
    original = waves(job("sweep", 2, 5), job("other", 1, 3, notes={"duration": "50m"}))
    original.advance(START + moment)
    original.drain()
    twins = [
        original.fork(),
        Simulation.load(original.save()),
        Simulation.from_snapshot(original.snapshot(), policy=UNQUEUED, seed=1),
    ]
    wanted = run(original, 2 * HOUR)
    assert [run(twin, 2 * HOUR) for twin in twins] == [wanted] * 3
    assert wanted


def test_pods_of_a_job_make_room_one_by_one() -> None:
    simulation = waves(job("sweep", 4, 4, notes={"duration": "1h", "checkpoint_interval": "1m"}), count=1)
    simulation.advance(START + 10 * MINUTE)
    simulation.drain()
    submit(simulation, lone("serve", gpus=1, priority=1000, duration="5m"))
    assert run(simulation, 2 * HOUR) == [
        "10:00 preempted red/sweep-3 by default/serve Preempted",
        "10:00 evicted red/sweep-3 by default/serve Preempted",
        "10:30 started default/serve",
        "15:30 finished default/serve",
        "65:30 finished Job/red/sweep",
    ]
