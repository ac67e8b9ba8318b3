"""Ray jobs with the queue of a batch scheduler: KubeRay's operator writes the scheduler into their pods."""

import json
from typing import Any

import pytest

from gpuconsole.model.job import Job
from gpuconsole.model.manifests import load_text
from gpuconsole.model.pod_template import PodTemplate

VOLCANO, KAI, APP, QUEUE = (
    "volcano.sh/queue-name",
    "kai.scheduler/queue",
    "yunikorn.apache.org/app-id",
    "yunikorn.apache.org/queue",
)
PRIORITY = "ray.io/priority-class-name"
KUEUE = "kueue.x-k8s.io/queue-name"


def pod(scheduler: str = "", **labels: str) -> dict[str, Any]:
    said = {"schedulerName": scheduler} if scheduler else {}
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "ray", "image": "x"}], **said}}


def cluster(scheduler: str = "") -> dict[str, Any]:
    worker = {"groupName": "gpu", "replicas": 2, "template": pod(scheduler, mine="yes")}
    return {"headGroupSpec": {"template": pod(scheduler)}, "workerGroupSpecs": [worker]}


def document(kind: str, labels: dict[str, str], scheduler: str = "", **spec: Any) -> str:

    inner = cluster(scheduler)
    body = {"RayCluster": inner, "RayJob": {"rayClusterSpec": inner, **spec}, "RayService": {"rayClusterConfig": inner}}
    meta = {"name": "a", "namespace": "n", "labels": labels}
    return json.dumps({"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta, "spec": body[kind]})


def templates(text: str) -> dict[str, PodTemplate]:
    (job,) = load_text(text).objects
    assert isinstance(job, Job)
    return {pods.name: pods.template for pods in job.pod_sets}


WRITTEN = {
    "Volcano's": ({VOLCANO: "q", PRIORITY: "high"}, "volcano", {VOLCANO: "q", PRIORITY: "high"}),
    "KAI's": ({KAI: "q"}, "kai-scheduler", {KAI: "q"}),
    "YuniKorn's": ({QUEUE: "root.q", APP: "one"}, "yunikorn", {"queue": "root.q", "applicationId": "one"}),
    "YuniKorn's, by its application": ({APP: "one"}, "yunikorn", {"applicationId": "one"}),
    "Kueue's, which places nothing": ({KUEUE: "q"}, "default-scheduler", {}),
    "Kueue's and Volcano's": ({KUEUE: "q", VOLCANO: "q"}, "volcano", {VOLCANO: "q"}),
    "an empty one": ({VOLCANO: "", PRIORITY: "high"}, "default-scheduler", {}),
    "none": ({PRIORITY: "high"}, "default-scheduler", {}),
}


@pytest.mark.parametrize(("labels", "scheduler", "copied"), WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_every_pod_gets_the_scheduler_of_the_queue_and_its_labels(
    kind: str, labels: dict[str, str], scheduler: str, copied: dict[str, str]
) -> None:
    found = templates(document(kind, labels))
    assert set(found) == {"head", "gpu", *(["submitter"] if kind == "RayJob" else [])}
    assert {template.scheduler_name for template in found.values()} == {scheduler}
    assert found["head"].labels == copied
    assert found["gpu"].labels == {"mine": "yes", **copied}


def test_the_operator_writes_over_what_a_template_says() -> None:
    found = templates(document("RayCluster", {VOLCANO: "q"}, scheduler="other"))
    assert {template.scheduler_name for template in found.values()} == {"volcano"}


def test_with_the_queues_of_two_schedulers_a_template_says_which_one_it_is() -> None:
    found = templates(document("RayCluster", {VOLCANO: "q", KAI: "k"}, scheduler="kai-scheduler"))
    assert {template.scheduler_name for template in found.values()} == {"kai-scheduler"}
    assert found["head"].labels == {KAI: "k"}


@pytest.mark.parametrize(
    ("mode", "codes"), [("K8sJobMode", ["ray-submission-mode"]), ("HTTPMode", []), ("SidecarMode", [])]
)
def test_kai_takes_no_ray_job_whose_submitter_comes_later(mode: str, codes: list[str]) -> None:
    loaded = load_text(document("RayJob", {KAI: "q"}, submissionMode=mode))
    assert [finding.code for finding in loaded.findings] == codes


COUNTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "as many as are written": ({"replicas": 2}, 2, 2),
    "none where nothing is written, as the CRD has it": ({}, 0, 0),
    "at least the least": ({"replicas": 1, "minReplicas": 3}, 3, 1),
    "the least, where nothing else is written": ({"minReplicas": 2, "maxReplicas": 8}, 2, 0),
    "at most the most": ({"replicas": 5, "maxReplicas": 3}, 3, 5),
    "times the hosts": ({"replicas": 2, "numOfHosts": 4}, 8, 8),
    "none of a group that is suspended": ({"replicas": 2, "suspend": True}, 0, 2),
}


@pytest.mark.parametrize(("fields", "made", "counted"), COUNTS.values(), ids=COUNTS)
def test_the_operator_makes_workers_within_their_bounds_and_kueue_counts_replicas_as_written(
    fields: dict[str, Any], made: int, counted: int
) -> None:
    for labels, expected in (({}, made), ({KUEUE: "q"}, counted)):
        text = json.loads(document("RayCluster", labels))
        text["spec"]["workerGroupSpecs"] = [{"groupName": "gpu", "template": pod(), **fields}]
        (job,) = load_text(json.dumps(text)).objects
        assert isinstance(job, Job)
        assert [(pods.name, pods.count) for pods in job.pod_sets] == [("head", 1), ("gpu", expected)]


@pytest.mark.parametrize(("labels", "codes"), [({VOLCANO: "q"}, ["ray-cluster-selector"]), ({KAI: "q"}, []), ({}, [])])
def test_volcano_takes_no_ray_job_on_a_cluster_that_is_there(labels: dict[str, str], codes: list[str]) -> None:
    text = json.loads(document("RayJob", labels, clusterSelector={"ray.io/cluster": "c"}))
    del text["spec"]["rayClusterSpec"]
    assert [
        finding.code for finding in load_text(json.dumps(text)).findings if finding.code != "undefined-kai"
    ] == codes
