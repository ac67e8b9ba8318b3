"""ResourceQuotas of namespaces: the API server refuses pods, their controllers try again, `why` says so."""

from typing import Any

import pytest

from gpuconsole.insight.health.alerts import AlertKind
from gpuconsole.insight.overview import dashboard
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cluster import PriorityClass, ResourceQuota
from gpuconsole.model.commands import Delete
from gpuconsole.model.devices import described
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.volcano import VolcanoPhase
from gpuconsole.model.workloads import WorkloadPhase
from gpuconsole.sim.engine import Simulation
from gpuconsole.ui.workload_table import WorkloadRows
from tests.support import job_manifests
from tests.support.sim_cluster import START, UNQUEUED, key_of, nodes, pod, start, submit, two_teams

GPUS = "requests.nvidia.com/gpu"


def quota(hard: dict[str, object], name: str = "q", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "red"},
        "spec": {"hard": hard, **spec},
    }


def refusals(simulation: Simulation) -> list[tuple[int, str, str, str]]:
    """What the API server refused: seconds since the start, subject's kind, reason, text."""
    return [
        ((event.time - START) // SECOND, event.workload, event.reason, event.message)
        for event in simulation.drain()
        if isinstance(event, HistoryEvent) and event.what is HistoryEventKind.PENDING and event.reason == "FailedCreate"
    ]


def forbidden(simulation: Simulation) -> list[str]:
    """Why commands were refused."""
    lines = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    return [line.message for line in lines if line.what is HistoryEventKind.COMMAND_REFUSED]


def present(simulation: Simulation) -> list[str]:
    return sorted(pod.name for pod in simulation.snapshot().pods.all() if not pod.done)


def used(simulation: Simulation, name: str = "q") -> dict[str, int]:
    return dict(simulation.snapshot().resource_quotas[f"red/{name}"].used)


def test_of_a_job_of_eight_pods_a_quota_of_four_lets_four_be_created() -> None:
    simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 4}))], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("train", 8)))

    assert present(simulation) == ["train-0", "train-1", "train-2", "train-3"]
    assert used(simulation) == {GPUS: 4}
    text = (
        f'Error creating: pods "train-4" is forbidden: exceeded quota: q, requested: {GPUS}=1, used: {GPUS}=4,'
        f" limited: {GPUS}=4"
    )
    assert refusals(simulation) == [(0, "Job/red/train", "FailedCreate", text)]
    answer = explain(simulation.snapshot(), "Job/red/train")
    assert (answer.code, answer.headline, answer.text) == (
        PendingReason.RESOURCE_QUOTA,
        "4 of 8 pods cannot be created: ResourceQuota q of namespace red would be exceeded.",
        text.removeprefix("Error creating: "),
    )


def test_work_whose_pods_are_refused_is_pending_or_admitted_and_needs_attention() -> None:
    """It counts as running nowhere: not in the list of workloads, in the counts of its namespace, on the dashboard."""
    simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 4}))], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("train", 8)))
    snapshot = simulation.snapshot()
    (row,) = WorkloadRows().update(snapshot).rows
    assert (row.key, row.phase, row.reason) == ("Job/red/train", WorkloadPhase.PENDING, PendingReason.RESOURCE_QUOTA)
    found = dashboard(snapshot)
    assert [(one.name, one.pending, one.running, one.pending_gpus) for one in found.queues] == [("red", 1, 0, 4)]
    assert (found.waiting.in_all, found.waiting.by_resource_quota, found.waiting.by_nodes) == (1, 1, 0)
    assert described(found.waiting.units) == "4 GPUs"
    text = "Job/red/train: 4 of 8 pods cannot be created: ResourceQuota q of namespace red would be exceeded"
    assert [one.text for one in found.attention if one.trouble is AlertKind.UNSCHEDULABLE] == [text]

    queued = start([*two_teams(), *job_manifests.read(quota({GPUS: 2}))])
    submit(queued, *job_manifests.read(job_manifests.job("train", 8, queue="lq")))
    snapshot = queued.snapshot()
    (row,) = WorkloadRows().update(snapshot).rows
    assert (row.phase, row.reason) == (WorkloadPhase.ADMITTED, PendingReason.RESOURCE_QUOTA)
    (trouble,) = (one for one in dashboard(snapshot).attention if one.trouble is AlertKind.UNSCHEDULABLE)
    text = f"{row.key}: 6 of 8 pods cannot be created: ResourceQuota q of namespace red would be exceeded"
    assert (trouble.text, trouble.table, trouble.key, trouble.gpus) == (text, "workloads", row.key, 6)


def test_pods_are_created_when_others_of_the_namespace_have_ended_at_the_next_attempt() -> None:
    """Kubernetes' Job controller waits 1 s, 2 s, 4 s … and at most a minute between its attempts."""
    simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 4}))], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("first", 4, notes={"duration": "100s"})))
    simulation.advance(START + 10 * SECOND)
    submit(simulation, *job_manifests.read(job_manifests.job("second", 4, notes={"duration": "100s"})))
    simulation.advance(START + 10 * SECOND + 122 * SECOND)
    assert present(simulation) == []
    # Attempts at 10, 11, 13, 17, 25, 41, 73, 133 s: the quota is free again at 100 s.
    simulation.advance(START + 133 * SECOND)
    assert present(simulation) == ["second-0", "second-1", "second-2", "second-3"]
    assert used(simulation) == {GPUS: 4}
    simulation.advance(START + HOUR)
    assert used(simulation) == {GPUS: 0}
    assert simulation.next_time is None or simulation.next_time > START + HOUR


def test_what_can_never_be_created_keeps_no_timer_going() -> None:
    simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 0}))], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("train", 2)))
    assert (present(simulation), simulation.next_time) == ([], None)


def test_a_larger_or_deleted_quota_lets_the_rest_be_created() -> None:
    for change in (job_manifests.read(quota({GPUS: 8}))[0], None):
        simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 4}))], UNQUEUED)
        submit(simulation, *job_manifests.read(job_manifests.job("train", 8)))
        if change is not None:
            submit(simulation, change)
        else:
            simulation.submit(Delete("resource_quotas", "red/q"))
        simulation.advance(START + MINUTE)
        assert len(present(simulation)) == 8


def test_an_admitted_workload_whose_pods_are_refused_says_so() -> None:
    simulation = start([*two_teams(), *job_manifests.read(quota({"pods": 1}))])
    submit(simulation, *job_manifests.read(job_manifests.job("train", 3, queue="lq")))
    key = key_of(simulation, "red/train")
    assert simulation.snapshot().workloads[key].admitted
    assert present(simulation) == ["train-0"]
    answer = explain(simulation.snapshot(), key)
    assert (answer.code, answer.headline, answer.source, answer.text) == (
        PendingReason.RESOURCE_QUOTA,
        "2 of 3 pods cannot be created: ResourceQuota q of namespace red would be exceeded.",
        "kube-apiserver",
        'pods "train-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
    )
    assert [remedy.text for remedy in answer.remedies] == [
        "raise pods of ResourceQuota red/q to 3 or more, or wait for pods of red to end"
    ]


def test_a_gang_is_refused_in_part_and_starts_when_there_is_room() -> None:
    simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 3}))], UNQUEUED)
    master = {"replicas": 1, "restartPolicy": "Never", "template": job_manifests.pod()}
    workers = {"replicas": 3, "restartPolicy": "Never", "template": job_manifests.pod()}
    gang = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": job_manifests.meta("gang", duration="10m"),
        "spec": {"pytorchReplicaSpecs": {"Master": master, "Worker": workers}},
    }
    submit(simulation, *job_manifests.read(gang))
    assert present(simulation) == ["gang-master-0", "gang-worker-0", "gang-worker-1"]
    submit(simulation, *job_manifests.read(quota({GPUS: 4})))
    simulation.advance(START + 20 * MINUTE)
    assert simulation.snapshot().jobs["PyTorchJob/red/gang"].phase == "Succeeded"


def test_a_lone_pod_that_is_refused_does_not_exist() -> None:
    simulation = start([*nodes(1), ResourceQuota(namespace="default", name="q", hard={GPUS: 1})], UNQUEUED)
    submit(simulation, pod("one"), pod("two"))
    assert present(simulation) == ["one"]
    assert forbidden(simulation) == [
        f'pods "two" is forbidden: exceeded quota: q, requested: {GPUS}=1, used: {GPUS}=1, limited: {GPUS}=1'
    ]


def test_a_volcano_jobs_pods_are_refused_and_made_later() -> None:
    task = {"replicas": 4, "name": "w", "template": job_manifests.pod(restart="Never")}
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": job_manifests.meta("v", duration="10m"),
        "spec": {"minAvailable": 1, "schedulerName": "volcano", "queue": "default", "tasks": [task]},
    }
    simulation = start([*nodes(1), *job_manifests.read(quota({GPUS: 3}))], UNQUEUED)
    submit(simulation, *job_manifests.read(document))
    simulation.advance(START + MINUTE)
    assert len(present(simulation)) == 3
    submit(simulation, *job_manifests.read(quota({GPUS: 9})))
    simulation.advance(START + 5 * MINUTE)
    assert len(present(simulation)) == 4


def _pods(name: str, **spec: Any) -> dict[str, Any]:
    template = job_manifests.pod(0, restart="Never")
    template["spec"].update(spec)
    return job_manifests.job(name, 3, template=template)


CPU = [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}}]


@pytest.mark.parametrize(
    ("hard", "scope", "pods", "created"),
    [
        ({"pods": 1}, {"scopes": ["BestEffort"]}, {}, 1),
        ({"pods": 1}, {"scopes": ["BestEffort"]}, {"containers": CPU}, 3),
        ({"pods": 1}, {"scopes": ["NotBestEffort"]}, {"containers": CPU}, 1),
        ({"pods": 1}, {"scopes": ["NotBestEffort"]}, {}, 3),
        ({"pods": 2}, {"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, 2),
        ({"pods": 2}, {"scopes": ["Terminating"]}, {}, 3),
        ({"pods": 2}, {"scopes": ["NotTerminating"]}, {}, 2),
        ({"pods": 2}, {"scopes": ["NotTerminating", "BestEffort"]}, {"containers": CPU}, 3),
        ({"count/pods": 2}, {}, {}, 2),
        ({"requests.cpu": "2500m"}, {}, {"containers": CPU}, 2),
        ({"cpu": "1"}, {}, {"containers": CPU}, 1),
        ({"limits.cpu": 5}, {}, {"containers": CPU}, 2),
        ({"requests.memory": "1Gi"}, {}, {"containers": CPU}, 1),
        ({"limits.nvidia.com/gpu": 0}, {}, {}, 3),
    ],
)
def test_scopes_and_resources_of_a_quota(
    hard: dict[str, object], scope: dict[str, Any], pods: dict[str, Any], created: int
) -> None:
    simulation = start([*nodes(2), *job_manifests.read(quota(hard, **scope))], UNQUEUED)
    submit(simulation, *job_manifests.read(_pods("j", **pods)))
    assert len(present(simulation)) == created


@pytest.mark.parametrize(
    ("expression", "created"),
    [
        ({"operator": "In", "values": ["high"]}, {"high": 1, "low": 3, "": 3}),
        ({"operator": "NotIn", "values": ["high"]}, {"high": 3, "low": 1, "": 1}),
        ({"operator": "Exists"}, {"high": 1, "low": 1, "": 3}),
        ({"operator": "DoesNotExist"}, {"high": 3, "low": 3, "": 1}),
    ],
)
def test_a_quota_of_priority_classes(expression: dict[str, Any], created: dict[str, int]) -> None:
    scope: dict[str, Any] = {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", **expression}]}}
    classes = [PriorityClass(name=name, value=value) for name, value in (("high", 9), ("low", 1))]
    found = {}
    for name in created:
        simulation = start([*nodes(2), *classes, *job_manifests.read(quota({"pods": 1}, **scope))], UNQUEUED)
        submit(simulation, *job_manifests.read(_pods("j", **({"priorityClassName": name} if name else {}))))
        found[name] = len(present(simulation))
    assert found == created


def test_where_cpu_is_limited_each_container_has_to_name_it() -> None:
    simulation = start([*nodes(2), *job_manifests.read(quota({"requests.cpu": 4, "limits.memory": "1Gi"}))], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("j", 1)))
    assert refusals(simulation)[0][3] == (
        'Error creating: pods "j-0" is forbidden: failed quota: q:'
        " must specify limits.memory for: main; requests.cpu for: main"
    )


def test_of_several_quotas_each_has_to_have_room() -> None:
    two = job_manifests.read(quota({GPUS: 4}, "wide"), quota({"pods": 2}, "narrow"))
    simulation = start([*nodes(2), *two], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("train", 8)))
    assert (present(simulation), used(simulation, "wide"), used(simulation, "narrow")) == (
        ["train-0", "train-1"],
        {GPUS: 2},
        {"pods": 2},
    )


def test_a_job_is_refused_where_jobs_are_counted() -> None:
    simulation = start([*nodes(2), *job_manifests.read(quota({"count/jobs.batch": 1}))], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("one")), *job_manifests.read(job_manifests.job("two")))
    assert sorted(simulation.snapshot().jobs) == ["Job/red/one"]
    assert forbidden(simulation) == [
        'jobs.batch "two" is forbidden: exceeded quota: q, requested: count/jobs.batch=1,'
        " used: count/jobs.batch=1, limited: count/jobs.batch=1"
    ]


def test_a_fork_and_a_saved_simulation_go_on_alike() -> None:
    simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 4}))], UNQUEUED)
    submit(simulation, *job_manifests.read(job_manifests.job("train", 8, 8, notes={"duration": "5m"})))
    simulation.drain()
    fork, loaded = simulation.fork(), Simulation.load(simulation.save())
    ends = []
    for one in (simulation, fork, loaded):
        one.advance(START + HOUR)
        ends.append([event for event in one.drain() if isinstance(event, HistoryEvent)])
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][-1].what is HistoryEventKind.FINISHED


def test_a_cron_job_makes_its_job_when_fewer_jobs_are_there() -> None:
    """Every ten minutes a Job of fifteen, and no more than one at a time by the quota."""
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": job_manifests.meta("nightly"),
        "spec": {
            "schedule": "*/10 * * * *",
            "successfulJobsHistoryLimit": 0,
            "jobTemplate": {
                "metadata": {"annotations": {"gpuconsole.io/duration": "15m"}},
                "spec": {"template": job_manifests.pod(restart="Never")},
            },
        },
    }
    simulation = start([*nodes(1), *job_manifests.read(quota({"count/jobs.batch": 1}))], UNQUEUED)
    submit(simulation, *job_manifests.read(cron))
    simulation.advance(START + 21 * MINUTE)
    assert len([job for job in simulation.snapshot().jobs.all() if job.kind == "Job"]) == 1
    (refused,) = refusals(simulation)
    assert refused[:3] == (1200, "CronJob/red/nightly", "FailedCreate")
    assert refused[3].startswith('Error creating job: jobs.batch "nightly-')
    assert refused[3].endswith("used: count/jobs.batch=1, limited: count/jobs.batch=1")
    simulation.advance(START + 26 * MINUTE)
    jobs = [job for job in simulation.snapshot().jobs.all() if job.kind == "Job" and not job.ended]
    assert len(jobs) == 1


def _volcano(name: str, pods: int, least: int, **notes: str) -> dict[str, Any]:
    task = {"replicas": pods, "name": "w", "template": job_manifests.pod(restart="Never")}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": job_manifests.meta(name, **notes),
        "spec": {"minAvailable": least, "schedulerName": "volcano", "queue": "default", "tasks": [task]},
    }


def test_volcano_terminates_a_job_whose_pods_are_refused_fifteen_times_again() -> None:
    """Attempts 5 ms, 10 ms, 20 ms … apart: the last one 163.835 s after the first (handleJobError)."""
    simulation = start([*nodes(1), *job_manifests.read(quota({GPUS: 3}))], UNQUEUED)
    submit(simulation, *job_manifests.read(_volcano("v", 4, 1, duration="10m")))
    simulation.advance(START + 163 * SECOND)
    assert len(present(simulation)) == 3
    simulation.drain()
    simulation.advance(START + 164 * SECOND)
    lines = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    assert "Job failed on action SyncJob for retry limit reached" in [line.message for line in lines]
    simulation.advance(START + 300 * SECOND)
    assert present(simulation) == []
    assert simulation.snapshot().jobs["VolcanoJob/red/v"].volcano_status.phase is VolcanoPhase.TERMINATED


def test_a_volcano_job_goes_on_where_room_comes_before_its_last_attempt() -> None:
    simulation = start([*nodes(1), *job_manifests.read(quota({GPUS: 3}))], UNQUEUED)
    submit(simulation, *job_manifests.read(_volcano("v", 4, 1, duration="10m")))
    simulation.advance(START + MINUTE)
    submit(simulation, *job_manifests.read(quota({GPUS: 4})))
    simulation.advance(START + 12 * MINUTE)
    assert simulation.snapshot().jobs["VolcanoJob/red/v"].phase == "Succeeded"


def test_why_a_group_waits_is_said_of_the_whole_that_made_it() -> None:
    workers = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": job_manifests.pod()}}
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": job_manifests.meta("serve"),
        "spec": workers,
    }
    simulation = start([*nodes(2), *job_manifests.read(quota({GPUS: 2}))], UNQUEUED)
    submit(simulation, *job_manifests.read(document))
    answer = explain(simulation.snapshot(), "LeaderWorkerSet/red/serve")
    assert (answer.code, answer.headline) == (
        PendingReason.RESOURCE_QUOTA,
        "serve-0: 1 of 3 pods cannot be created: ResourceQuota q of namespace red would be exceeded.",
    )
