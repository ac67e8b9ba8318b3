"""Kueue's webhooks for services and for new jobs: what may change while pods run, and what new jobs are given."""

from typing import Any

import pytest

from gpuconsole.model.apiserver.jobs import as_stored, check_job

K = "kueue.x-k8s.io/"
Manifest = dict[str, Any]
APPS, LWS = "apps", "leaderworkerset.x-k8s.io"


def pod(cpu: str = "1", **spec: Any) -> Manifest:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}}


def service(
    kind: str = "StatefulSet", *, queue: str = "q", ready: int = 0, template: Manifest | None = None, **spec: Any
) -> Manifest:
    labels = {f"{K}queue-name": queue} if queue else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "s", "namespace": "n", "labels": labels},
        "spec": {"replicas": 3, "template": template or pod(), **spec},
        "status": {"readyReplicas": ready},
    }


def groups(*, queue: str = "q", leader: Manifest | None = None, **group: Any) -> Manifest:
    labels = {f"{K}queue-name": queue} if queue else {}
    template: Manifest = {"size": 4, "workerTemplate": pod(), **group}
    if leader is not None:
        template["leaderTemplate"] = leader
    meta = {"name": "s", "namespace": "n", "labels": labels}
    return {"kind": "LeaderWorkerSet", "metadata": meta, "spec": {"replicas": 2, "leaderWorkerTemplate": template}}


def fields(group: str, new: Manifest, old: Manifest | None = None, **gates: bool) -> list[str]:
    return [error.field for error in check_job(group, new["kind"], new, old, gates=gates)]


QUEUE = f"metadata.labels[{K}queue-name]"
GROUP = "spec.leaderWorkerTemplate"
CHANGES: dict[str, tuple[str, Manifest, Manifest, list[str]]] = {
    "another queue while nothing is ready": (APPS, service(queue="other"), service(), []),
    "another queue while pods are ready": (APPS, service(queue="other"), service(ready=1), [QUEUE]),
    "no queue any more": (APPS, service(queue=""), service(), [QUEUE]),
    "a Deployment of another size": (APPS, service("Deployment", replicas=5), service("Deployment"), []),
    "a StatefulSet of another size": (APPS, service(replicas=5), service(), ["spec.replicas"]),
    "one without a queue": (APPS, service(replicas=5, queue=""), service(queue=""), []),
    "to zero": (APPS, service(replicas=0), service(), []),
    "and back": (APPS, service(), service(replicas=0), []),
    "other needs": (
        APPS,
        service(template=pod("2")),
        service(),
        ["spec.template.spec.containers[0].resources.requests"],
    ),
    "another node selector": (
        APPS,
        service(template=pod(nodeSelector={"a": "b"})),
        service(),
        ["spec.template.spec.nodeSelector"],
    ),
    "another image": (
        APPS,
        service(
            template={"spec": {"containers": [{"name": "c", "image": "y", "resources": {"requests": {"cpu": "1"}}}]}}
        ),
        service(),
        [],
    ),
    "groups of another size": (LWS, groups(size=5), groups(), [f"{GROUP}.size"]),
    "groups that get a leader": (LWS, groups(leader=pod()), groups(), [f"{GROUP}.leaderTemplate"]),
    "workers with other needs": (
        LWS,
        groups(workerTemplate=pod("2")),
        groups(),
        [f"{GROUP}.workerTemplate.spec.containers[0].resources.requests"],
    ),
    "groups without a queue": (LWS, groups(queue="", size=5), groups(queue=""), []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_change_of_a_service(name: str) -> None:
    group, new, old, want = CHANGES[name]
    assert fields(group, new, old) == want


def test_scaling_up_waits_for_the_pods_of_before() -> None:
    new, old = service(), service(replicas=0)
    new["status"]["replicas"] = 1
    (error,) = check_job(APPS, "StatefulSet", new, old)
    assert (error.field, error.detail) == ("spec.replicas", "scaling down is still in progress")


def test_a_group_keeps_its_size_behind_a_gate() -> None:
    assert fields(LWS, groups(size=5), groups(), LWSImmutableGroupSize=False) == []


def test_what_another_integration_manages_is_left_to_it() -> None:
    theirs = service(queue="Q", template={"metadata": {"annotations": {f"{K}pod-suspending-parent": LWS}}})
    assert fields(APPS, theirs) == []
    assert as_stored(APPS, "StatefulSet", theirs) == theirs


def test_numbers_of_groups_are_bounded() -> None:
    many, few = groups(), groups()
    many["spec"]["replicas"], few["spec"]["replicas"] = 1_000_001, -1
    details = [error.detail for document in (many, few) for error in check_job(LWS, "LeaderWorkerSet", document)]
    assert details == [
        "invalid LeaderWorkerSet replicas: must be <= 1000000, got 1000001",
        "invalid LeaderWorkerSet replicas: must be >= 0, got -1",
    ]


def test_leader_and_workers_are_placed_as_a_pair() -> None:
    notes = {f"{K}podset-group-name": "g", f"{K}podset-required-topology": "rack"}
    leader = {**pod(), "metadata": {"annotations": notes}}
    alone = groups(leader=leader)
    assert fields(LWS, alone) == [f"{GROUP}.leaderTemplate.metadata.annotations[{K}podset-group-name]"]
    assert fields(LWS, groups(leader=leader, workerTemplate=leader)) == []


def test_services_are_not_elastic() -> None:
    document = service()
    document["metadata"]["annotations"] = {f"{K}elastic-job": "true"}
    assert fields(APPS, document) == [f"metadata.annotations[{K}elastic-job]"]


def test_a_deployment_tells_its_pods_where_they_stand() -> None:
    stored = as_stored(APPS, "Deployment", service("Deployment"))
    assert stored["spec"]["template"]["metadata"] == {
        "annotations": {f"{K}pod-suspending-parent": "deployment"},
        "labels": {f"{K}managed": "true", f"{K}queue-name": "q"},
    }
    alone = service("Deployment", queue="")
    assert as_stored(APPS, "Deployment", alone) == alone


def test_workers_count_after_their_leader() -> None:
    stored = as_stored(LWS, "LeaderWorkerSet", groups(leader=pod()))["spec"]["leaderWorkerTemplate"]
    served = {f"{K}pod-suspending-parent": f"{LWS}/leaderworkerset", f"{K}pod-group-serving": "true"}
    assert stored["leaderTemplate"]["metadata"]["annotations"] == served
    assert stored["workerTemplate"]["metadata"]["annotations"] == {**served, f"{K}pod-index-offset": "1"}


def job(**meta: Any) -> Manifest:
    return {"kind": "Job", "metadata": {"name": "j", "namespace": "n", **meta}, "spec": {"template": pod()}}


def test_a_new_job_goes_to_the_default_queue_and_waits() -> None:
    stored = as_stored("batch", "Job", job(), default_queue=True)
    assert (stored["metadata"]["labels"], stored["spec"]["suspend"]) == ({f"{K}queue-name": "default"}, True)
    assert as_stored("batch", "Job", job()) == job()
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "o", "controller": True}
    owned = job(ownerReferences=[owner])
    assert as_stored("batch", "Job", owned, default_queue=True) == owned


def test_pods_of_an_elastic_job_wait_for_their_slice() -> None:
    elastic = job(labels={f"{K}queue-name": "q"}, annotations={f"{K}elastic-job": "true"})
    gates = as_stored("batch", "Job", elastic)["spec"]["template"]["spec"]["schedulingGates"]
    assert gates == [{"name": f"{K}elastic-job"}]
    off = as_stored("batch", "Job", elastic, gates={"ElasticJobsViaWorkloadSlices": False})
    assert "schedulingGates" not in off["spec"]["template"]["spec"]


def test_a_launcher_that_works_too_has_the_first_rank() -> None:
    replicas = {"Launcher": {"template": pod()}, "Worker": {"template": pod()}}
    document = {"kind": "MPIJob", "metadata": {"name": "m"}, "spec": {"mpiReplicaSpecs": replicas}}
    assert as_stored("kubeflow.org", "MPIJob", document) == document
    document["spec"]["runLauncherAsWorker"] = True  # type: ignore[index]
    worker = as_stored("kubeflow.org", "MPIJob", document)["spec"]["mpiReplicaSpecs"]["Worker"]
    assert worker["template"]["metadata"]["annotations"] == {f"{K}pod-index-offset": "1"}


def test_a_service_of_ray_is_asked_what_a_cluster_is_asked() -> None:
    workers = [{"groupName": "head"}]
    cluster = {"enableInTreeAutoscaling": True, "workerGroupSpecs": workers}
    meta = {"name": "r", "labels": {f"{K}queue-name": "q"}}
    document = {"kind": "RayService", "metadata": meta, "spec": {"rayClusterConfig": cluster}}
    assert fields("ray.io", document) == [
        "spec.rayClusterSpec.enableInTreeAutoscaling",
        "spec.rayClusterSpec.workerGroupSpecs[0].groupName",
    ]
