"""controller_jobs_*, controller_jobframework: what Kueue's webhooks ask of jobs that are created or changed."""

from collections.abc import Iterator
from typing import Any

from gpuconsole.model.apiserver.jobs import JOB_KINDS, as_stored, check_job
from gpuconsole.model.apiserver.jobs.framework import Pods, at, check_bound, check_job_change, check_request, entries
from gpuconsole.model.apiserver.jobs.kinds import view
from gpuconsole.model.apiserver.jobs.webhooks import check_cluster_spec, check_shape
from gpuconsole.model.documents.findings import FieldError, FieldErrorKind
from gpuconsole.model.jobs.workloads import QUEUE
from tests.conformance.tables import Case, Check, Document, Table, compare

_PATH = ("spec", "template", "metadata", "annotations")


def check_kind(group: str, kind: str, new: str, old: str = "") -> Check:
    """The webhook of one kind: every error with its value and text, in their order."""

    def check(table: Table, case: Case) -> list[str]:
        given = case.input
        gates = {**case.gates, **(given.get("featureGates") or {})}
        default = given.get("defaultLqExist", False)
        errors = check_job(group, kind, given[new], given[old] if old else None, gates=gates, default_queue=default)
        return list(compare("errors", list(map(_shown, errors)), _wanted(case.want)))

    return check


def check_service(group: str, kind: str, new: str, old: str = "") -> Check:
    """The webhook of a service: errors by type and field, in any order."""

    def check(table: Table, case: Case) -> list[str]:
        given = case.input
        gates = {**case.gates, **(given.get("featureGates") or {})}
        errors = check_job(group, kind, given[new], given[old] if old else None, gates=gates)
        wanted = case.want.get("wantErr") or []
        wanted = wanted.get("$errors") or [wanted] if isinstance(wanted, dict) else wanted
        got = sorted((error.kind.value, error.field) for error in errors)
        return list(compare("wantErr", got, sorted((error["type"], error["field"]) for error in wanted)))

    return check


def check_default(group: str, kind: str, given: str, want: str = "want") -> Check:
    """The mutating webhook: the whole object."""

    def check(table: Table, case: Case) -> list[str]:
        gates = {**case.gates, **(case.input.get("featureGates") or {})}
        stored = as_stored(
            group,
            kind,
            case.input[given],
            gates=gates,
            default_queue=case.input.get("defaultLqExist", False),
            manage_all=case.input.get("manageJobsWithoutQueueName", case.input.get("manageAll", False)),
        )
        wanted = case.want.get(want) or case.input.get(want)
        return list(compare(want, stored, wanted))

    return check


def check_elastic_gate(table: Table, case: Case) -> list[str]:
    """The gate that holds back the pods of an elastic Job."""
    stored = as_stored("batch", "Job", case.input["args"]["job"], gates=case.gates)
    found = entries(stored, "spec", "template", "spec", "schedulingGates")
    return list(compare("want", found, case.want.get("want") or []))


def check_cluster(table: Table, case: Case) -> list[str]:
    """What is asked of the cluster of a RayService."""
    seen = view(case.input["object"], JOB_KINDS["ray.io", "RayService"], "RayService")
    errors = check_cluster_spec(case.input["rayClusterSpec"], seen, ("spec",))
    got = sorted((error.kind.value, error.field) for error in errors)
    wanted = sorted((error["type"], error["field"]) for error in case.want.get("wantErrors") or [])
    return list(compare("wantErrors", got, wanted))


def check_immutable(table: Table, case: Case) -> list[str]:
    """What pods in a queue ask for may not change."""
    errors = check_shape(case.input.get("newPodSpec") or {}, case.input.get("oldPodSpec") or {}, ("spec",))
    got = sorted((error.kind.value, error.field) for error in errors)
    wanted = sorted((error["type"], error["field"]) for error in case.want.get("wantErr") or [])
    return list(compare("wantErr", got, wanted))


def check_default_queue(table: Table, case: Case) -> list[str]:
    """The queue of a job that names none."""
    default = case.input.get("defaultQueueExist", False)
    stored = as_stored("batch", "Job", case.input["job"], gates=case.gates, default_queue=default)
    found = at(stored, "metadata", "labels", QUEUE) or ""
    return list(compare("wantQueueLabel", found, case.want.get("wantQueueLabel", "")))


def _wanted(want: Document) -> list[dict[str, Any]]:
    found = want.get("wantValidationErrs") or want.get("wantErr") or want.get("wantErrors") or []
    errors = found.get("$errors") or [found] if isinstance(found, dict) else found
    return [{key: error.get(key, "") for key in ("type", "field", "badValue", "detail")} for error in errors]


def _shown(error: FieldError) -> dict[str, Any]:
    omitted = error.kind is FieldErrorKind.TOO_LONG
    value = "<value omitted>" if omitted else "" if error.value is None else error.value
    return {"type": error.kind.value, "field": error.field, "badValue": value, "detail": error.detail}


def check_framework(table: Table, case: Case) -> Iterator[str]:
    """TestValidateJobOnCreate, TestValidateJobOnUpdate: what all kinds share, told by type and field.

    The kind of a new job is not among the data; which one it was is told by the error about it.
    """
    given, want = case.input, case.want.get("wantErr") or []
    gates = {**case.gates, **(given.get("featureGates") or {})}
    if "job" in given:
        said = (case.variables.get("gotErr") or [{}])[0].get("detail", "")
        known = next((key for key, kind in JOB_KINDS.items() if f'"{kind.version}, Kind={key[1]}"' in said), None)
        errors = check_job(*(known or ("batch", "Job")), given["job"], gates=gates)
    else:
        default = given.get("nsHasDefaultQueue", False)
        errors = _changes(given["newJob"], given["oldJob"], gates, default)
    got = sorted((error.kind.value, error.field) for error in errors)
    yield from compare("wantErr", got, sorted((error["type"], error["field"]) for error in want))


def _changes(new: Document, old: Document, gates: dict[str, bool], default: bool) -> list[FieldError]:
    kind = JOB_KINDS["batch", "Job"]
    return list(check_job_change(view(new, kind, "Job"), view(old, kind, "Job"), gates, default_queue=default))


def check_annotations(table: Table, case: Case) -> Iterator[str]:
    """TestValidateSliceRequiredTopologyConstraintsAnnotation, TestValidateSliceSizeAnnotationUpperBound."""
    notes = case.input.get("annotations") or {}
    gates = {**case.gates, **(case.input.get("featureGates") or {})}
    if "podSetCount" in case.input:
        errors = list(check_bound(Pods("main", case.input["podSetCount"], notes, _PATH)))
    else:
        errors = list(check_request(notes, _PATH, gates))
    yield from compare("wantErrNum", len(errors), case.want.get("wantErrNum", 0))


_APPS, _LWS = "apps", "leaderworkerset.x-k8s.io"

CHECKS: dict[str, Check] = {
    "controller_jobs_deployment/TestDefault": check_default(_APPS, "Deployment", "deployment"),
    "controller_jobs_deployment/TestValidateCreate": check_service(_APPS, "Deployment", "deployment"),
    "controller_jobs_deployment/TestValidateUpdate": check_service(
        _APPS, "Deployment", "newDeployment", "oldDeployment"
    ),
    "controller_jobs_statefulset/TestDefault": check_default(_APPS, "StatefulSet", "statefulset"),
    "controller_jobs_statefulset/TestValidateCreate": check_service(_APPS, "StatefulSet", "sts"),
    "controller_jobs_statefulset/TestValidateUpdate": check_service(_APPS, "StatefulSet", "newObj", "oldObj"),
    "controller_jobs_leaderworkerset/TestDefault": check_default(_LWS, "LeaderWorkerSet", "lws"),
    "controller_jobs_leaderworkerset/TestValidateCreate": check_service(_LWS, "LeaderWorkerSet", "lws"),
    "controller_jobs_leaderworkerset/TestValidateUpdate": check_service(_LWS, "LeaderWorkerSet", "newObj", "oldObj"),
    "controller_jobs_job/TestDefault": check_default("batch", "Job", "job"),
    "controller_jobs_job/Test_applyWorkloadSliceSchedulingGate": check_elastic_gate,
    "controller_jobs_raycluster/TestValidateDefault": check_default("ray.io", "RayCluster", "oldJob", "newJob"),
    "controller_jobs_raycluster/TestValidateCreateRayClusterSpec": check_cluster,
    "controller_jobframework/TestValidateImmutablePodSpec": check_immutable,
    "controller_jobframework/TestApplyDefaultLocalQueue": check_default_queue,
    "controller_jobs_job/TestValidateCreate": check_kind("batch", "Job", "job"),
    "controller_jobs_job/TestValidateUpdate": check_kind("batch", "Job", "newJob", "oldJob"),
    "controller_jobs_jobset/TestValidateCreate": check_kind("jobset.x-k8s.io", "JobSet", "job"),
    "controller_jobs_jobset/TestValidateUpdate": check_kind("jobset.x-k8s.io", "JobSet", "newJob", "oldJob"),
    "controller_jobs_kubeflow_jobs_pytorchjob/TestValidate": check_kind("kubeflow.org", "PyTorchJob", "job"),
    "controller_jobs_raycluster/TestValidateCreate": check_kind("ray.io", "RayCluster", "job"),
    "controller_jobs_raycluster/TestValidateUpdate": check_kind("ray.io", "RayCluster", "newJob", "oldJob"),
    "controller_jobframework/TestValidateJobOnCreate": lambda table, case: list(check_framework(table, case)),
    "controller_jobframework/TestValidateJobOnUpdate": lambda table, case: list(check_framework(table, case)),
    "controller_jobframework/TestValidateSliceRequiredTopologyConstraintsAnnotation": lambda table, case: list(
        check_annotations(table, case)
    ),
    "controller_jobframework/TestValidateSliceSizeAnnotationUpperBound": lambda table, case: list(
        check_annotations(table, case)
    ),
}
