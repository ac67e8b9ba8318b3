"""Volcano Jobs live as Volcano's job controller lets them: phases, policies, retries, tasks that wait for others."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.commands import Command, Cordon, Delete, FailPod, Finish, Scale, SetActive, SetStopPolicy, Submit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.volcano import VolcanoPhase, VolcanoQueue
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import GPU, START, UNQUEUED, nodes

KEY = "VolcanoJob/red/train"
Document = Mapping[str, Any]
POD: Document = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"limits": {GPU: 1}}}]}}


def task(name: str, replicas: int, **more: Any) -> Document:
    return {"name": name, "replicas": replicas, "template": POD, **more}


def on(event: str, action: str, **more: Any) -> Document:
    return {"event": event, "action": action, **more}


WORKERS = (task("worker", 2),)


def train(*policies: Document, tasks: Sequence[Document] = WORKERS, takes: str = "1h", **spec: Any) -> Job:
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "red", "annotations": {"gpuconsole.io/duration": takes}},
        "spec": {"tasks": list(tasks), "policies": list(policies), **spec},
    }
    found = decode_object(document)
    assert isinstance(found, Job)
    return found


class Cluster:
    """Two nodes of four GPUs on which one job runs."""

    def __init__(self, *things: Object, policy: SimPolicy = UNQUEUED) -> None:
        self.simulation = Simulation.from_objects([*nodes(2), *things], policy=policy, seed=1, start=START)
        self.lines: list[str] = []

    def after(self, span: Span, *orders: Command) -> "Cluster":
        self.simulation.advance(START + span)
        for order in orders:
            self.simulation.submit(order)
        for event in self.simulation.drain():
            if isinstance(event, HistoryEvent) and event.what is not HistoryEventKind.GANG_WAITING:
                self.last = event
                self.lines.append(_line(event))
        return self

    @property
    def job(self) -> Job:
        return self.simulation.snapshot().jobs[KEY]

    @property
    def queues(self) -> Mapping[str, str]:
        return {queue.name: queue.state for queue in self.simulation.snapshot().volcano_queues.values()}

    @property
    def phases(self) -> list[str]:
        """The phases that the job was in last, the present one last."""
        return [phase.value for phase, _ in self.job.volcano_status.conditions]

    @property
    def pods(self) -> list[str]:
        pods = self.simulation.snapshot().pods.values()
        return [f"{pod.name} {'Leaving' if pod.deleted else pod.phase.value}" for pod in pods]


def _line(event: HistoryEvent) -> str:
    lost = f" loses {event.lost_gpu_seconds:.0f} GPU s" if event.lost_gpu_seconds else ""
    subject = event.pod.partition("/")[2] or "job"
    reason = f" {event.reason}" if event.reason else ""
    return f"{(event.time - START) // SECOND:>5} {event.what.value} {subject}{reason}{lost}"


BEGIN = [
    "    0 submitted job",
    "    0 pod-bound train-worker-0",
    "    0 pod-bound train-worker-1",
    "    0 started job",
]


def test_a_job_runs_when_its_gang_does_and_is_completed_when_all_its_pods_succeed() -> None:
    cluster = Cluster(train()).after(2 * HOUR)
    assert cluster.lines == [*BEGIN, " 3600 finished job Completed"]
    assert cluster.phases == ["Pending", "Running", "Completed"]
    assert cluster.pods == ["train-worker-0 Succeeded", "train-worker-1 Succeeded"]
    assert (cluster.job.phase, cluster.job.volcano_status.retry_count) == (JobPhase.SUCCEEDED, 0)


def test_a_restarted_job_loses_all_its_pods_and_begins_anew_when_they_are_gone() -> None:
    cluster = Cluster(train(on("PodFailed", "RestartJob"))).after(10 * MINUTE, FailPod("red/train-worker-0"))
    assert cluster.phases[-1] == "Restarting"
    assert cluster.pods == ["train-worker-1 Leaving", "train-worker-0 Pending"]
    cluster.after(2 * HOUR)
    assert cluster.lines == [
        *BEGIN,
        "  600 pod-failed train-worker-0 Error loses 1200 GPU s",
        "  600 evicted job RestartJob",
        "  630 pod-bound train-worker-0",
        "  630 pod-bound train-worker-1",
        "  630 started job",
        " 4230 finished job Completed",
    ]
    assert cluster.phases == ["Restarting", "Pending", "Running", "Completed"]
    assert cluster.job.volcano_status.retry_count == 1


def test_a_task_restarts_after_its_timeout_and_leaves_other_tasks_alone() -> None:
    tasks = (task("master", 1), task("worker", 2, policies=[on("PodFailed", "RestartTask", timeout="5m")]))
    cluster = Cluster(train(tasks=tasks)).after(10 * MINUTE, FailPod("red/train-worker-0")).after(14 * MINUTE)
    assert cluster.pods == ["train-master-0 Running", "train-worker-0 Failed", "train-worker-1 Running"]
    cluster.after(15 * MINUTE)
    assert cluster.pods == ["train-master-0 Running", "train-worker-1 Leaving", "train-worker-0 Pending"]
    assert "  900 evicted job RestartTask" in cluster.lines
    assert cluster.after(16 * MINUTE).pods[0] == "train-master-0 Running"


def test_a_pod_that_was_made_again_counts_once() -> None:
    policy = on("PodFailed", "RestartTask", timeout="5m")
    cluster = Cluster(train(policy, minAvailable=2)).after(10 * MINUTE, FailPod("red/train-worker-0"))
    cluster.after(20 * MINUTE, Delete("pods", "red/train-worker-1")).after(20 * MINUTE + SECOND)
    assert [line.split()[0] for line in cluster.lines if line.endswith("started job")] == ["0", "930"]


def test_an_action_that_waits_is_dropped_when_the_job_restarts_meanwhile() -> None:
    late = on("PodFailed", "AbortJob", timeout="5m")
    tasks = (task("worker", 2, policies=[late]), task("helper", 1, policies=[on("PodFailed", "RestartJob")]))
    cluster = Cluster(train(tasks=tasks)).after(1 * MINUTE, FailPod("red/train-worker-0"))
    cluster.after(2 * MINUTE, Cordon("n1", True), Cordon("n2", True), FailPod("red/train-helper-0")).after(10 * MINUTE)
    assert cluster.job.volcano_status.phase is VolcanoPhase.PENDING


def test_another_action_for_the_same_pod_takes_the_place_of_the_first_with_its_own_timeout() -> None:
    late = (on("PodFailed", "RestartTask", timeout="10m"), on("PodEvicted", "AbortJob", timeout="10m"))
    cluster = Cluster(train(*late)).after(1 * MINUTE, FailPod("red/train-worker-0"))
    cluster.after(2 * MINUTE, Delete("pods", "red/train-worker-0")).after(12 * MINUTE - SECOND)
    assert cluster.job.volcano_status.phase is VolcanoPhase.RUNNING
    assert cluster.after(12 * MINUTE).job.volcano_status.phase is VolcanoPhase.ABORTING


def test_a_pod_that_fails_under_no_policy_is_not_made_again() -> None:
    cluster = Cluster(train()).after(10 * MINUTE, FailPod("red/train-worker-0")).after(2 * HOUR)
    assert cluster.pods == ["train-worker-0 Failed", "train-worker-1 Running"]
    assert (cluster.job.volcano_status.phase, cluster.job.volcano_status.failed) == (VolcanoPhase.RUNNING, 1)


def test_a_pod_that_is_taken_away_is_made_again() -> None:
    cluster = Cluster(train(minAvailable=1)).after(10 * MINUTE, Delete("pods", "red/train-worker-0"))
    assert cluster.after(11 * MINUTE).pods == ["train-worker-1 Running", "train-worker-0 Running"]
    assert cluster.job.volcano_status.retry_count == 0


def test_an_eviction_restarts_the_whole_job_if_a_policy_says_so() -> None:
    cluster = Cluster(train(on("PodEvicted", "RestartJob"))).after(10 * MINUTE, Delete("pods", "red/train-worker-0"))
    assert cluster.after(12 * MINUTE).job.volcano_status.retry_count == 1


def test_the_last_retry_is_the_one_that_fails_the_job_and_keeps_the_pods_that_ended() -> None:
    cluster = Cluster(train(on("*", "RestartJob"), maxRetry=2)).after(10 * MINUTE, FailPod("red/train-worker-0"))
    cluster.after(20 * MINUTE, FailPod("red/train-worker-1")).after(30 * MINUTE)
    assert cluster.lines[-1] == " 1200 failed job Failed"
    assert cluster.pods == ["train-worker-1 Failed"]
    assert (cluster.job.phase, cluster.job.volcano_status.retry_count) == (JobPhase.FAILED, 2)


def test_a_master_that_completes_ends_the_job_and_its_workers() -> None:
    tasks = (task("master", 1, policies=[on("TaskCompleted", "CompleteJob")]), task("worker", 2))
    cluster = Cluster(train(tasks=tasks)).after(1 * HOUR)
    assert cluster.pods == ["train-master-0 Succeeded", "train-worker-0 Leaving", "train-worker-1 Leaving"]
    assert cluster.phases == ["Pending", "Running", "Completing"]
    assert cluster.after(2 * HOUR).lines[-1] == " 3630 finished job Completed"
    assert cluster.pods == ["train-master-0 Succeeded"]


def test_pods_of_a_task_are_made_once_the_tasks_that_it_depends_on_run() -> None:
    waiting = task("worker", 3, dependsOn={"name": ["master"]})
    hungry: Document = {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: 5}}}]}}
    stuck = ({**task("master", 1), "template": hungry}, waiting)
    assert Cluster(train(tasks=stuck, minAvailable=1)).after(1 * MINUTE).pods == ["train-master-0 Pending"]
    cluster = Cluster(train(tasks=(task("master", 1), waiting), minAvailable=1)).after(1 * MINUTE)
    assert cluster.pods == ["train-master-0 Running", *(f"train-worker-{n} Running" for n in range(3))]


def test_a_finished_job_goes_when_its_time_to_live_is_over() -> None:
    cluster = Cluster(train(ttlSecondsAfterFinished=600)).after(70 * MINUTE - SECOND)
    assert cluster.job.phase is JobPhase.SUCCEEDED
    after = cluster.after(70 * MINUTE).simulation.snapshot()
    assert (list(after.jobs), list(after.pods), list(after.pod_groups)) == ([], [], [])


def test_min_success_completes_a_job_while_others_still_run() -> None:
    cluster = Cluster(train(takes="1h", minSuccess=1, tasks=(task("worker", 2),))).after(1 * HOUR)
    assert cluster.job.volcano_status.phase is VolcanoPhase.COMPLETED


def test_an_aborted_job_frees_its_gpus_and_goes_on_when_it_is_resumed() -> None:
    cluster = Cluster(train()).after(10 * MINUTE, SetActive("red/train", False)).after(20 * MINUTE)
    assert (cluster.phases[-2:], cluster.pods, cluster.job.phase) == (["Aborting", "Aborted"], [], JobPhase.SUSPENDED)
    assert cluster.job.suspended
    cluster.after(30 * MINUTE, SetActive("red/train", True)).after(31 * MINUTE)
    assert (cluster.phases[-1], cluster.job.phase) == ("Running", JobPhase.RUNNING)
    assert cluster.pods == ["train-worker-0 Running", "train-worker-1 Running"]


def test_a_job_can_be_scaled_but_not_below_what_it_needs() -> None:
    tasks = (task("worker", 2, minAvailable=1),)
    cluster = Cluster(train(tasks=tasks)).after(1 * MINUTE, Scale("red/train", 3)).after(2 * MINUTE)
    assert cluster.pods == [f"train-worker-{n} Running" for n in range(3)]
    cluster.after(3 * MINUTE, Scale("red/train", 1)).after(5 * MINUTE, Scale("red/train", 0))
    assert cluster.pods == ["train-worker-0 Running"]
    assert cluster.last.message == "'minAvailable' must be <= 'replicas' in task: worker"


def test_a_deleted_job_takes_its_pods_and_its_pod_group_along() -> None:
    cluster = Cluster(train(on("PodEvicted", "RestartJob"))).after(1 * MINUTE, Delete("jobs", KEY)).after(5 * MINUTE)
    after = cluster.simulation.snapshot()
    assert (list(after.jobs), list(after.pods), list(after.pod_groups)) == ([], [], [])


def test_a_job_that_is_told_to_finish_before_it_runs_is_completed() -> None:
    big = (task("worker", 9),)
    cluster = Cluster(train(tasks=big)).after(1 * MINUTE, Finish("red/train")).after(2 * MINUTE)
    assert (cluster.job.phase, cluster.pods) == (JobPhase.SUCCEEDED, [])


def test_of_a_job_that_is_told_to_finish_no_pod_waits_any_longer() -> None:
    some = (task("worker", 9, minAvailable=1),)
    cluster = Cluster(train(tasks=some)).after(1 * MINUTE)
    assert {pod.split()[1] for pod in cluster.pods} == {"Running", "Pending"}
    cluster.after(2 * MINUTE, Finish("red/train")).after(3 * MINUTE)
    assert cluster.job.phase == JobPhase.SUCCEEDED
    assert {pod.split()[1] for pod in cluster.pods} == {"Succeeded"}


def test_pods_carry_what_the_plugins_and_the_controller_say() -> None:
    tasks = (task("master", 1), task("worker", 2))
    job = train(tasks=tasks, plugins={"pytorch": ["--port=5000"], "env": []}, queue="ml")
    pod = Cluster(job).after(1 * MINUTE).simulation.snapshot().pods["red/train-worker-1"]
    assert {key: pod.env[key] for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "VC_TASK_INDEX")} == {
        "MASTER_ADDR": "train-master-0.train",
        "MASTER_PORT": "5000",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "VC_TASK_INDEX": "1",
    }
    assert (pod.hostname, pod.subdomain) == ("train-worker-1", "train")
    assert pod.labels["volcano.sh/queue-name"] == "ml"
    assert pod.annotations["scheduling.k8s.io/group-name"] == pod.gang


def test_a_job_with_a_plugin_that_does_not_exist_gets_no_pods() -> None:
    cluster = Cluster(train(plugins={"sla": []})).after(1 * MINUTE)
    assert (cluster.pods, cluster.lines[-1]) == ([], "    0 pending job FailedCreate")


@pytest.mark.parametrize("at", [5, 11, 13], ids=["while it runs", "while it waits to act", "after"])
def test_a_copy_and_a_saved_simulation_live_on_alike(at: int) -> None:
    job = train(on("PodFailed", "RestartJob", timeout="2m"))
    cluster = Cluster(job)
    cluster.simulation.schedule_commands(START + 10 * MINUTE, FailPod("red/train-worker-0"))
    cluster.after(at * MINUTE)
    copies = (cluster.simulation.fork(), Simulation.load(cluster.simulation.save()))
    cluster.simulation.advance(START + 2 * HOUR)
    wanted = cluster.simulation.snapshot().jobs[KEY]
    assert wanted.volcano_status.retry_count == 1
    for copy in copies:
        copy.advance(START + 2 * HOUR)
        assert copy.snapshot().jobs[KEY] == wanted


def test_volcano_makes_pods_only_for_jobs_that_its_scheduler_lets_in() -> None:
    """A job that asks for more GPUs than there are waits outside, without pods; one that fits nowhere waits inside."""
    by_volcano = replace(UNQUEUED, placement=VolcanoPolicy())
    too_many = Cluster(train(tasks=(task("worker", 9),)), policy=by_volcano).after(1 * HOUR)
    (group,) = too_many.simulation.snapshot().pod_groups.values()
    assert (group.phase, too_many.pods, too_many.phases) == ("Pending", [], ["Pending"])
    wide: Document = {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: 5}}}]}}
    waiting = Cluster(train(tasks=({**task("worker", 1), "template": wide},)), policy=by_volcano).after(1 * HOUR)
    (group,) = waiting.simulation.snapshot().pod_groups.values()
    assert (group.phase, waiting.pods) == ("Inqueue", ["train-worker-0 Pending"])
    restarted = Cluster(train(on("PodFailed", "RestartJob")), policy=by_volcano)
    restarted.after(10 * MINUTE, FailPod("red/train-worker-0")).after(2 * HOUR)
    assert restarted.phases == ["Restarting", "Pending", "Running", "Completed"]


def test_a_queue_that_closes_lets_its_jobs_end_and_takes_no_new_ones() -> None:
    queues = (VolcanoQueue(name="org"), VolcanoQueue(name="ml", parent="org"))
    cluster = Cluster(train(queue="ml"), *queues).after(1 * MINUTE, SetStopPolicy("org", StopPolicy.HOLD))
    assert cluster.queues == {"ml": "Closing", "org": "Closed"}
    another = replace(train(queue="ml"), name="late")
    cluster.after(2 * MINUTE, Submit((another,)))
    assert cluster.last.message == ("can only submit job to queue with state `Open`, queue `ml` status is `Closing`;")
    cluster.after(2 * HOUR)
    assert (cluster.queues, cluster.job.phase) == ({"ml": "Closed", "org": "Closed"}, JobPhase.SUCCEEDED)
    cluster.after(3 * HOUR, SetStopPolicy("ml", StopPolicy.NONE))
    assert cluster.last.message.startswith("Failed to open queue ml because its parent queue org is closing or closed.")
    cluster.after(3 * HOUR, SetStopPolicy("org", StopPolicy.NONE))
    assert cluster.queues == {"ml": "Open", "org": "Open"}


def test_a_job_that_runs_already_is_taken_over_with_its_pods() -> None:
    first = Cluster(train()).after(10 * MINUTE).simulation.snapshot()
    taken = Simulation.from_snapshot(first, policy=UNQUEUED, seed=1)
    taken.advance(START + 2 * HOUR)
    after = taken.snapshot()
    assert after.jobs[KEY].volcano_status.phase is VolcanoPhase.COMPLETED
    assert [pod.phase.value for pod in after.pods.values()] == ["Succeeded", "Succeeded"]
