"""Kueue's webhooks for jobs: what each label and annotation may say, and what may change when."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
from msgspec import Struct

from gpuconsole.model.apiserver.jobs import as_stored, check_job
from gpuconsole.model.documents.findings import FieldErrorKind
from gpuconsole.model.manifests import load_text

INVALID, REQUIRED = FieldErrorKind.INVALID, FieldErrorKind.REQUIRED
FORBIDDEN, DUPLICATE, TOO_MANY = FieldErrorKind.FORBIDDEN, FieldErrorKind.DUPLICATE, FieldErrorKind.TOO_MANY
K = "kueue.x-k8s.io/"
NOTES = "metadata.annotations"
POD = "spec.template.metadata.annotations"
POD_TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}
Errors = tuple[tuple[FieldErrorKind, str], ...]


def job(
    labels: Mapping[str, str] = {}, notes: Mapping[str, str] = {}, pods: Mapping[str, str] = {}, **spec: Any
) -> dict[str, Any]:
    template = {**POD_TEMPLATE, "metadata": {"annotations": _full(pods)}}
    meta = {"name": "j", "namespace": "n", "labels": _full(labels), "annotations": _full(notes)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template, **spec}}


def _full(short: Mapping[str, str]) -> dict[str, str]:
    return {f"{K}{key}": value for key, value in short.items()}


class Case(Struct, frozen=True):
    """A Job and what it is refused for."""

    job: dict[str, Any]
    errors: Errors = ()
    says: str = ""
    gates: Mapping[str, bool] = {}


LAYERS = [{"topology": "rack", "size": 8}, {"topology": "host", "size": 4}]
TOPOLOGY, SLICE, SIZE = "podset-required-topology", "podset-slice-required-topology", "podset-slice-size"
CONSTRAINTS, GROUP = "podset-slice-required-topology-constraints", "podset-group-name"
WHERE = f"{POD}[{K}{CONSTRAINTS}]"


def layered(*layers: dict[str, Any], **more: str) -> dict[str, Any]:
    return job(pods={CONSTRAINTS: json.dumps(layers), **more}, parallelism=16)


CREATED = {
    "a job with nothing to be said about": Case(job({"queue-name": "q"}, parallelism=2)),
    "a queue's name that is none": Case(
        job({"queue-name": "Q"}), ((INVALID, f"metadata.labels[{K}queue-name]"),), "RFC 1123 subdomain"
    ),
    "a prebuilt Workload's name that is none": Case(
        job(notes={"prebuilt-workload-name": "W"}), ((INVALID, f"{NOTES}[{K}prebuilt-workload-name]"),)
    ),
    "a prebuilt Workload's label counts behind the gate": Case(
        job({"prebuilt-workload-name": "W"}, {"prebuilt-workload-name": "w"}),
        ((INVALID, f"metadata.labels[{K}prebuilt-workload-name]"),),
        gates={"WorkloadIdentifierAnnotations": False},
    ),
    "a time limit that is no number": Case(
        job({"max-exec-time-seconds": "1h"}),
        ((INVALID, f"metadata.labels[{K}max-exec-time-seconds]"),),
        'strconv.Atoi: parsing "1h": invalid syntax',
    ),
    "a time limit of nothing": Case(
        job({"max-exec-time-seconds": "0"}),
        ((INVALID, f"metadata.labels[{K}max-exec-time-seconds]"),),
        "should be greater than 0",
    ),
    "gates of no domain": Case(
        job(notes={"admission-gated-by": "a b"}), ((INVALID, f"{NOTES}[{K}admission-gated-by]"),)
    ),
    "gates behind their gate": Case(job(notes={"admission-gated-by": "a b"}), gates={"AdmissionGatedBy": False}),
    "a number of pods that is none": Case(
        job(notes={"job-min-parallelism": "few"}, parallelism=8),
        ((INVALID, f"{NOTES}[{K}job-min-parallelism]"),),
        'strconv.Atoi: parsing "few": invalid syntax',
    ),
    "as many pods at least as there are": Case(
        job(notes={"job-min-parallelism": "4"}, parallelism=8, completions=4),
        ((INVALID, f"{NOTES}[{K}job-min-parallelism]"),),
        "should be between 0 and 3",
    ),
    "a job that may shrink in two ways": Case(
        job(notes={"job-min-parallelism": "2", "elastic-job": "true"}, parallelism=4),
        ((INVALID, f"{NOTES}[{K}job-min-parallelism]"),),
        "partial admission and elastic job",
    ),
    "completions that follow parallelism where nothing is indexed": Case(
        job(notes={"job-completions-equal-parallelism": "true"}),
        ((INVALID, f"{NOTES}[{K}job-completions-equal-parallelism]"),),
        "should not be enabled for NonIndexed jobs",
    ),
    "completions that do not follow parallelism": Case(
        job(
            notes={"job-completions-equal-parallelism": "true"}, completionMode="Indexed", parallelism=2, completions=3
        ),
        ((INVALID, "spec.completions"),),
        "should be equal to parallelism",
    ),
    "completions that follow maybe": Case(
        job(notes={"job-completions-equal-parallelism": "maybe"}),
        ((INVALID, f"{NOTES}[{K}job-completions-equal-parallelism]"),),
        'strconv.ParseBool: parsing "maybe": invalid syntax',
    ),
    "an elastic job that asks for one rack": Case(
        job(notes={"elastic-job": "true"}, pods={TOPOLOGY: "rack"}),
        ((FORBIDDEN, f"{POD}[{K}{TOPOLOGY}]"),),
        "required topology is not supported with elastic jobs",
    ),
    "two wishes": Case(
        job(pods={TOPOLOGY: "rack", "podset-unconstrained-topology": "true"}),
        ((INVALID, POD),),
        "more than one topology",
    ),
    "a level that is no label": Case(job(pods={TOPOLOGY: "a rack"}), ((INVALID, f"{POD}[{K}{TOPOLOGY}]"),)),
    "unconstrained or not": Case(
        job(pods={"podset-unconstrained-topology": "so"}),
        ((INVALID, f"{POD}[{K}podset-unconstrained-topology]"),),
        "must be a boolean value",
    ),
    "a slice of no size": Case(job(pods={SLICE: "rack"}), ((REQUIRED, f"{POD}[{K}{SIZE}]"),)),
    "a size of no slice": Case(job(pods={SIZE: "1"}), ((FORBIDDEN, f"{POD}[{K}{SIZE}]"),)),
    "a size that is no number": Case(
        job(pods={SLICE: "rack", SIZE: "four"}), ((INVALID, f"{POD}[{K}{SIZE}]"),), "numeric"
    ),
    "a size of nothing": Case(job(pods={SLICE: "rack", SIZE: "0"}), ((INVALID, f"{POD}[{K}{SIZE}]"),), "equal to 1"),
    "a slice of more pods than there are": Case(
        job(pods={SLICE: "rack", SIZE: "3"}, parallelism=2),
        ((INVALID, f"{POD}[{K}{SIZE}]"),),
        "must not be greater than pod set count 2",
    ),
    "a group that is a number, of slices, wishing for nothing": Case(
        job(pods={GROUP: "1", SLICE: "rack", SIZE: "1"}),
        ((INVALID, f"{POD}[{K}{GROUP}]"), *((FORBIDDEN, f"{POD}[{K}{GROUP}]"),) * 3),
    ),
    "layers that fit": Case(layered(*LAYERS)),
    "layers behind their gate": Case(layered(*LAYERS), ((FORBIDDEN, WHERE),), gates={"TASMultiLayerTopology": False}),
    "layers beside a slice and a group": Case(
        layered(*LAYERS, **{SLICE: "rack", SIZE: "1", GROUP: "g", TOPOLOGY: "block"}),
        (*((FORBIDDEN, WHERE),) * 2, *((FORBIDDEN, f"{POD}[{K}{GROUP}]"),) * 3),
    ),
    "layers that are no list": Case(job(pods={CONSTRAINTS: "{}"}), ((INVALID, WHERE),), "must be a valid JSON array"),
    "no layer at all": Case(layered(), ((INVALID, WHERE),), "between 1 and 3 entries"),
    "layers that do not divide": Case(
        layered({"topology": "rack", "size": 8}, {"topology": "host", "size": 3}),
        ((INVALID, f"{WHERE}[1].size"),),
        "must evenly divide the parent layer size 8",
    ),
    "a layer of no size and no name": Case(
        layered({"topology": "", "size": 0}),
        (*((INVALID, f"{WHERE}[0].topology"),) * 2, (INVALID, f"{WHERE}[0].size")),
    ),
    "a layer that stands twice": Case(layered(LAYERS[0], LAYERS[0]), ((DUPLICATE, f"{WHERE}[1].topology"),)),
    "a layer of more pods than there are": Case(
        layered({"topology": "rack", "size": 32}), ((INVALID, WHERE),), "must not be greater than pod set count 16"
    ),
    "topology behind its gate": Case(job(pods={SIZE: "0"}), gates={"TopologyAwareScheduling": False}),
}


@pytest.mark.parametrize("case", CREATED.values(), ids=CREATED)
def test_a_job_that_says_what_it_may_not_is_refused(case: Case) -> None:
    errors = check_job("batch", "Job", case.job, gates=case.gates)
    assert sorted((e.kind, e.field) for e in errors) == sorted(case.errors)
    assert case.says in " | ".join(error.detail for error in errors)


RUNNING: dict[str, Any] = {"suspend": False}
WAITING: dict[str, Any] = {"suspend": True}
CHANGED = {
    "the queue while it waits": (job({"queue-name": "a"}, **WAITING), job({"queue-name": "b"}, **WAITING), ()),
    "the queue while it runs": (
        job({"queue-name": "a"}, **RUNNING),
        job({"queue-name": "b"}, **RUNNING),
        (f"metadata.labels[{K}queue-name]",),
    ),
    "the time limit while it runs": (
        job({"max-exec-time-seconds": "1"}, **RUNNING),
        job({"max-exec-time-seconds": "2"}, **RUNNING),
        (f"metadata.labels[{K}max-exec-time-seconds]",),
    ),
    "a class for one that runs": (
        job(**RUNNING),
        job({"priority-class": "a"}, **RUNNING),
        (f"metadata.labels[{K}priority-class]",),
    ),
    "another class for one that runs": (job({"priority-class": "a"}), job({"priority-class": "b"}), ()),
    "no class any more": (
        job({"priority-class": "a"}, **WAITING),
        job(**WAITING),
        (f"metadata.labels[{K}priority-class]",),
    ),
    "a prebuilt Workload of one that runs": (
        job({"prebuilt-workload-name": "a"}),
        job({"prebuilt-workload-name": "b"}),
        (f"metadata.labels[{K}prebuilt-workload-name]",),
    ),
    "a job that becomes elastic": (job(), job(notes={"elastic-job": "true"}), (f"{NOTES}[{K}elastic-job]",)),
    "a gate that was not there": (
        job(),
        job(notes={"admission-gated-by": "a.io/b"}),
        (f"{NOTES}[{K}admission-gated-by]",),
    ),
    "pods of one that was admitted in part": (
        job(notes={"job-min-parallelism": "1"}, parallelism=4, **RUNNING),
        job(notes={"job-min-parallelism": "1"}, parallelism=3, **RUNNING),
        ("spec.parallelism",),
    ),
    "whether completions follow, while it runs": (
        job(notes={"job-completions-equal-parallelism": "true"}, completionMode="Indexed"),
        job(notes={"job-completions-equal-parallelism": "false"}, completionMode="Indexed"),
        (f"{NOTES}[{K}job-completions-equal-parallelism]",),
    ),
    "completions that do not follow": (
        job(**WAITING),
        job(notes={"job-completions-equal-parallelism": "true"}, **WAITING),
        (f"{NOTES}[{K}job-completions-equal-parallelism]",),
    ),
    "the time limit to nothing": (
        job(**WAITING),
        job({"max-exec-time-seconds": "0"}, **WAITING),
        (f"metadata.labels[{K}max-exec-time-seconds]",),
    ),
    "a wish that contradicts itself": (job(), job(pods={SIZE: "1"}), (f"{POD}[{K}{SIZE}]",)),
    "the least number of pods": (
        job(notes={"job-min-parallelism": "1"}, parallelism=4, **WAITING),
        job(notes={"job-min-parallelism": "4"}, parallelism=4, **WAITING),
        (f"{NOTES}[{K}job-min-parallelism]",),
    ),
    "one that is being stopped counts as running": (
        job({"queue-name": "a"}, {"stopping": "true"}, **WAITING),
        job({"queue-name": "b"}, {"stopping": "true"}, **WAITING),
        (f"metadata.labels[{K}queue-name]",),
    ),
}


@pytest.mark.parametrize(("old", "new", "fields"), CHANGED.values(), ids=CHANGED)
def test_what_a_job_may_not_change_depends_on_whether_it_runs(
    old: dict[str, Any], new: dict[str, Any], fields: tuple[str, ...]
) -> None:
    assert tuple(error.field for error in check_job("batch", "Job", new, old)) == fields


def test_a_queue_has_to_be_named_where_there_is_a_default_one() -> None:
    old, new = job({"queue-name": "a"}, **WAITING), job(**WAITING)
    assert check_job("batch", "Job", new, old) == []
    [error] = check_job("batch", "Job", new, old, default_queue=True)
    assert error.detail == "queue-name must not be empty in namespace with default queue"


def replicated(name: str, replicas: int, notes: dict[str, str]) -> dict[str, Any]:
    template = {**POD_TEMPLATE, "metadata": {"annotations": _full(notes)}}
    return {"name": name, "replicas": replicas, "template": {"spec": {"template": template}}}


def job_set(*jobs: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "s", "namespace": "n"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"replicatedJobs": list(jobs)},
    }


PAIRED = {TOPOLOGY: "rack", GROUP: "pair"}
GROUPS: dict[str, tuple[dict[str, Any], tuple[int, ...], str]] = {
    "a leader and its workers": (job_set(replicated("a", 1, PAIRED), replicated("b", 4, PAIRED)), (), ""),
    "one alone": (job_set(replicated("a", 1, PAIRED)), (0,), "groups of exactly 2 pod sets, got: 1 pod set(s)"),
    "no leader": (
        job_set(replicated("a", 2, PAIRED), replicated("b", 3, PAIRED)),
        (0, 1),
        "got: 2 replica(s) and 3 replica(s) in the group",
    ),
    "wishes that differ": (
        job_set(replicated("a", 1, PAIRED), replicated("b", 4, {**PAIRED, TOPOLOGY: "block"})),
        (0, 1),
        "topology consistent with 'spec.replicatedJobs[1].template.spec.template.metadata.annotations' in group 'pair'",
    ),
}


@pytest.mark.parametrize(("document", "places", "says"), GROUPS.values(), ids=GROUPS)
def test_pod_sets_are_grouped_in_pairs(document: dict[str, Any], places: tuple[int, ...], says: str) -> None:
    errors = check_job("jobset.x-k8s.io", "JobSet", document)
    assert tuple(error.path[2] for error in errors) == places
    assert not says or says in errors[0].detail


def test_a_kind_that_cannot_change_its_size_is_not_elastic() -> None:
    document = job_set()
    document["metadata"]["annotations"] = {f"{K}elastic-job": "true"}
    [error] = check_job("jobset.x-k8s.io", "JobSet", document)
    assert error.detail == 'elastic job is not supported for "jobset.x-k8s.io/v1alpha2, Kind=JobSet"'


def test_replicas_of_a_pytorch_job_are_named_by_their_kind() -> None:
    template = {"metadata": {"annotations": _full({SLICE: "rack", SIZE: "4"})}}
    spec = {"pytorchReplicaSpecs": {"Master": {"template": {}}, "Worker": {"replicas": 3, "template": template}}}
    [error] = check_job("kubeflow.org", "PyTorchJob", {"spec": spec})
    assert error.field == f"spec.pytorchReplicaSpecs[Worker].template.metadata.annotations[{K}{SIZE}]"


def test_a_managed_ray_cluster_scales_only_as_an_elastic_job() -> None:
    groups = [{"groupName": "head"}, *({"groupName": f"g{n}"} for n in range(17))]
    spec = {"enableInTreeAutoscaling": True, "headGroupSpec": {}, "workerGroupSpecs": groups}
    document: dict[str, Any] = {"metadata": {"labels": {f"{K}queue-name": "q"}}, "spec": spec}
    errors = check_job("ray.io", "RayCluster", document)
    assert [(e.kind, e.field) for e in errors] == [
        (INVALID, "spec.enableInTreeAutoscaling"),
        (TOO_MANY, "spec.workerGroupSpecs"),
        (FORBIDDEN, "spec.workerGroupSpecs[0].groupName"),
    ]
    assert check_job("ray.io", "RayCluster", {**document, "metadata": {}}) == []
    elastic = {"labels": {f"{K}queue-name": "q"}, "annotations": {f"{K}elastic-job": "true"}}
    gated = {"template": {"spec": {"schedulingGates": [{"name": f"{K}elastic-job"}]}}}
    few = {**spec, "workerGroupSpecs": [{"groupName": "g", **gated}], "managedBy": "kueue.x-k8s.io/multikueue"}
    errors = check_job("ray.io", "RayCluster", {"metadata": elastic, "spec": few})
    assert [(e.kind, e.field) for e in errors] == [
        (INVALID, "spec.headGroupSpec.template.spec.schedulingGates"),
        (FORBIDDEN, "spec.enableInTreeAutoscaling"),
    ]


def test_a_ray_cluster_that_kueue_managed_keeps_its_queue_behind_the_gate() -> None:
    old = {"metadata": {"labels": {f"{K}queue-name": "q"}}, "spec": {"suspend": False}}
    new: dict[str, Any] = {"metadata": {}, "spec": {"suspend": False}}
    assert [e.field for e in check_job("ray.io", "RayCluster", new, old)] == [f"metadata.labels[{K}queue-name]"]
    assert check_job("ray.io", "RayCluster", new, old, gates={"ValidateRayAndSparkJobUpdates": False}) == []


def test_a_job_with_a_queue_is_suspended_until_it_is_admitted() -> None:
    queued = job({"queue-name": "q"})
    before = deepcopy(queued)
    stored = as_stored("batch", "Job", queued)
    assert (stored["spec"]["suspend"], queued) == (True, before)
    assert as_stored("batch", "Job", job()) == job()
    assert as_stored("batch", "Job", queued, {**stored, "spec": {"suspend": False}})["spec"]["suspend"] is False
    torch = {"metadata": {"labels": {f"{K}queue-name": "q"}}, "spec": {"runPolicy": {}}}
    assert as_stored("kubeflow.org", "PyTorchJob", torch)["spec"] == {"runPolicy": {"suspend": True}}


def test_findings_about_jobs_are_told_once_with_what_reading_them_finds() -> None:
    wrong = job({"queue-name": "Q", "max-exec-time-seconds": "1h"})
    ray = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "labels": _full({"queue-name": "R"})},
    }
    text = "\n---\n".join(map(json.dumps, (wrong, {**ray, "spec": {}})))
    found = [(f.object, f.path) for f in load_text(text, "a.yaml", strict=True).findings if f.severity.value == "error"]
    assert found == [
        ("Job/n/j", f"metadata.labels[{K}queue-name]"),
        ("Job/n/j", f"metadata.labels[{K}max-exec-time-seconds]"),
        ("RayCluster/r", f"metadata.labels[{K}queue-name]"),
        ("RayCluster/r", "spec.headGroupSpec"),
    ]


def test_a_job_that_is_given_again_may_change_its_queue_while_it_waits() -> None:
    text = "\n---\n".join(json.dumps(job({"queue-name": name})) for name in ("a", "b"))
    assert [f.code for f in load_text(text, "a.yaml", strict=True).findings if f.severity.value == "error"] == []
    running = "\n---\n".join(json.dumps(job({"queue-name": name}, **RUNNING)) for name in ("a", "b"))
    found = load_text(running, "a.yaml", strict=True).findings
    assert [f.code for f in found if f.severity.value == "error"] == ["immutable"]


SIZED = {"metadata": {"annotations": _full({SLICE: "rack", SIZE: "9"})}}
ODD = {"metadata": {"annotations": _full({SIZE: "1"})}}
KINDS_OF_PODS: dict[str, tuple[tuple[str, str], dict[str, Any], tuple[str, ...]]] = {
    "a JobSet": (
        ("jobset.x-k8s.io", "JobSet"),
        {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": {"template": SIZED}}}]},
        (f"spec.replicatedJobs[0].template.spec.template.metadata.annotations[{K}{SIZE}]",),
    ),
    "a PyTorchJob": (
        ("kubeflow.org", "PyTorchJob"),
        {"pytorchReplicaSpecs": {"Master": {"template": ODD}, "Worker": {"template": SIZED}}},
        (
            f"spec.pytorchReplicaSpecs[Master].template.metadata.annotations[{K}{SIZE}]",
            f"spec.pytorchReplicaSpecs[Worker].template.metadata.annotations[{K}{SIZE}]",
        ),
    ),
    "a RayCluster": (
        ("ray.io", "RayCluster"),
        {"headGroupSpec": {"template": ODD}, "workerGroupSpecs": [{"groupName": "g", "template": SIZED}]},
        (
            f"spec.headGroupSpec.template.metadata.annotations[{K}{SIZE}]",
            f"spec.workerGroupSpecs[0].template.metadata.annotations[{K}{SIZE}]",
        ),
    ),
    "a RayJob": (
        ("ray.io", "RayJob"),
        {"rayClusterSpec": {"headGroupSpec": {"template": SIZED}, "workerGroupSpecs": [{"template": ODD}]}},
        (
            f"spec.rayClusterSpec.headGroupSpec.template.metadata.annotations[{K}{SIZE}]",
            f"spec.rayClusterSpec.workerGroupSpecs[0].template.metadata.annotations[{K}{SIZE}]",
        ),
    ),
}


@pytest.mark.parametrize(("kind", "spec", "fields"), KINDS_OF_PODS.values(), ids=KINDS_OF_PODS)
def test_pods_of_every_kind_are_looked_at_new_and_changed(
    kind: tuple[str, str], spec: dict[str, Any], fields: tuple[str, ...]
) -> None:
    queued: dict[str, Any] = {"metadata": {"labels": _full({"queue-name": "q"})}, "spec": {}}
    document = {**queued, "spec": spec}
    assert tuple(error.field for error in check_job(*kind, document)) == fields
    assert tuple(error.field for error in check_job(*kind, document, queued)) == fields
    assert check_job(*kind, document, gates={"TopologyAwareScheduling": False}) == []
    moved = {**queued, "metadata": {"labels": _full({"queue-name": "other"})}}
    assert [error.field for error in check_job(*kind, moved, queued)] == [f"metadata.labels[{K}queue-name]"]
    renamed = {**document, "metadata": {"labels": _full({"queue-name": "Q"})}}
    queue = f"metadata.labels[{K}queue-name]"
    assert queue in [error.field for error in check_job(*kind, renamed)]
    assert queue in [error.field for error in check_job(*kind, renamed, queued)]


def test_head_and_workers_of_a_ray_cluster_are_a_pair() -> None:
    def template(level: str) -> dict[str, Any]:
        return {"metadata": {"annotations": _full({TOPOLOGY: level, GROUP: "g"})}}

    spec = {
        "headGroupSpec": {"template": template("rack")},
        "workerGroupSpecs": [{"groupName": "w", "template": template("block")}],
    }
    errors = check_job("ray.io", "RayCluster", {"spec": spec})
    assert [error.field for error in errors] == [
        "spec.headGroupSpec.template.metadata.annotations",
        "spec.workerGroupSpecs[0].template.metadata.annotations",
    ]


def test_a_plain_pod_is_looked_at_too() -> None:
    pod = {"metadata": {"labels": _full({"queue-name": "Q"}), "annotations": _full({SIZE: "1"})}}
    fields = [f"metadata.labels[{K}queue-name]", f"{NOTES}[{K}{SIZE}]"]
    assert [error.field for error in check_job("", "Pod", pod)] == fields
    assert [error.field for error in check_job("", "Pod", pod, pod)] == fields


def test_a_changed_pytorch_job_has_gates_that_are_names() -> None:
    old = {"metadata": {"annotations": _full({"admission-gated-by": "a.io/b,b"})}, "spec": {}}
    new = {"metadata": {"annotations": _full({"admission-gated-by": "b"})}, "spec": {}}
    assert [e.field for e in check_job("kubeflow.org", "PyTorchJob", new, old)] == [f"{NOTES}[{K}admission-gated-by]"]


def test_a_job_that_waits_may_take_another_workload_of_a_proper_name() -> None:
    old, new = job(**WAITING), job({"prebuilt-workload-name": "W"}, **WAITING)
    field = f"metadata.labels[{K}prebuilt-workload-name]"
    kind = ("kubeflow.org", "PyTorchJob")
    waiting = {**new, "spec": {"runPolicy": {"suspend": True}}}
    assert [e.field for e in check_job(*kind, waiting, {**old, "spec": waiting["spec"]})] == [field]
