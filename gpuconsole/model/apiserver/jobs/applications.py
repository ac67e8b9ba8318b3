"""Webhooks of SparkApplication and AppWrapper (Kueue 0.19, AppWrapper 1.1).

The parameters are those of `kinds.JobCreateCheck` and `kinds.JobUpdateCheck`. The pod sets of an AppWrapper's
components are inferred for known kinds, else declared by their paths (AppWrapper 1.1 pkg/utils: GetValueAtPath,
InferPodSets, ValidatePodSets), which Kueue uses, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver.common_validation import Gates, enabled
from gpuconsole.model.apiserver.jobs.framework import (
    Document,
    JobView,
    at,
    at_once,
    check_bound,
    check_job,
    check_job_change,
    check_request,
    entries,
    is_elastic,
    number,
    pods_of,
)
from gpuconsole.model.apiserver.schema import forbidden, invalid, required
from gpuconsole.model.documents.findings import FieldError, Path
from gpuconsole.model.jobs.batch import COMPLETION_INDEX, JOB_INDEX
from gpuconsole.model.jobs.kubeflow import REPLICA_INDEX

WrapperDocument = Mapping[str, Any]
MOST_POD_SETS = 8
"""Most pod sets of an AppWrapper."""
_ROOT = "template"
_STEP = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
SERVICES = (("apps", "Deployment"), ("apps", "StatefulSet"), ("ray.io", "RayCluster"))
"""(group, kind) of components that run until they are deleted."""


class PathError(ValueError):
    """A path in an AppWrapper does not lead to a pod template."""


class WrappedPods(Struct, frozen=True):
    """A pod set of an AppWrapper's component."""

    path: str
    """Path from the component, such as `template.spec.template`."""
    replicas: int
    index: str = ""
    """Label or annotation of the pods that has the index of each; empty if they have none."""
    subgroup: str = ""
    subgroups: int | None = None


def value_at(component: WrapperDocument, path: str) -> Any:
    """Return the value at a path, such as `template.spec.template`, of a component. Raises PathError."""
    if not path.startswith(_ROOT):
        raise PathError(f"first element of the path must be '{_ROOT}'")
    done, rest, value = _ROOT, path.removeprefix(_ROOT), component.get("template")
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise PathError(f"at path position '{done}' invalid path element '{rest}'")
        value = _field(value, step[1], done) if step[1] is not None else _entry(value, step[2], done)
        done, rest = done + step[0], rest[step.end() :]
    return value


def _field(value: Any, key: str, done: str) -> Any:
    if not isinstance(value, dict):
        raise PathError(f"at path position '{done}.' non-map value")
    if key not in value:
        raise PathError(f"at path position '{done}.' missing field '{key}'")
    return value[key]


def _entry(value: Any, text: str, done: str) -> Any:
    if not text.isdecimal():
        raise PathError(f"at path position '{done}' invalid index expression '{text}'")
    if not isinstance(value, list):
        raise PathError(f"at path position '{done}' found non-array value")
    if int(text) >= len(value):
        raise PathError(f"at path position '{done}' out of bounds index '{int(text)}'")
    return value[int(text)]


def steps(path: str) -> list[str | int]:
    """Split the path of a pod template into the keys and list positions that lead to it from the component."""
    found = _STEP.findall(path.removeprefix(_ROOT))
    return [_ROOT, *(key if key else int(position) for key, position in found)]


def template_at(component: WrapperDocument, path: str) -> WrapperDocument:
    """Return the pod template at a path of a component. Raises PathError."""
    value = value_at(component, path)
    if not isinstance(value, dict):
        raise PathError(f"at path position '{path}' non-map value")
    if not isinstance(value.get("spec"), dict):
        raise PathError(f"content at {path} does not contain a spec")
    return value


def kind_of(component: WrapperDocument) -> tuple[str, str]:
    """Return (group, kind) of the object in a component."""
    template = component.get("template")
    version, kind = at(template, "apiVersion"), at(template, "kind")
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    return group, kind if isinstance(kind, str) else ""


def inferred(component: WrapperDocument) -> list[WrappedPods]:
    """Return the pod sets of a component of a known kind. Raises PathError if a pod template is missing."""
    found = list(_inferred(component.get("template"), kind_of(component)))
    for pods in found:
        template_at(component, pods.path)
    return found


def _inferred(document: Any, kind: tuple[str, str]) -> Iterator[WrappedPods]:
    spec = at(document, "spec")
    match kind:
        case ("batch", "Job"):
            yield WrappedPods("template.spec.template", at_once(spec), COMPLETION_INDEX)
        case ("jobset.x-k8s.io", "JobSet"):
            for place, job in enumerate(entries(spec, "replicatedJobs")):
                path = f"template.spec.replicatedJobs[{place}].template.spec.template"
                replicas = number(job, "replicas")
                count = replicas * at_once(at(job, "template", "spec"))
                yield WrappedPods(path, count, COMPLETION_INDEX, JOB_INDEX, replicas)
        case ("kubeflow.org", "PyTorchJob"):
            for type in ("Master", "Worker"):
                if at(spec, "pytorchReplicaSpecs", type, "template") is not None:
                    path = f"template.spec.pytorchReplicaSpecs.{type}.template"
                    yield WrappedPods(path, number(spec, "pytorchReplicaSpecs", type, "replicas"), REPLICA_INDEX)
        case ("ray.io", "RayCluster"):
            yield from _ray(spec, "template.spec.")
        case ("ray.io", "RayJob"):
            yield from _ray(at(spec, "rayClusterSpec"), "template.spec.rayClusterSpec.")
        case ("", "Pod"):
            yield WrappedPods("template", 1)
        case ("apps", "Deployment" | "StatefulSet"):
            yield WrappedPods("template.spec.template", number(spec, "replicas"))


def _ray(spec: Any, prefix: str) -> Iterator[WrappedPods]:
    yield WrappedPods(f"{prefix}headGroupSpec.template", 1)
    for place, group in enumerate(entries(spec, "workerGroupSpecs")):
        if at(group, "template") is not None:
            yield WrappedPods(f"{prefix}workerGroupSpecs[{place}].template", number(group, "replicas"))


def declared(component: WrapperDocument) -> list[WrappedPods]:
    """Return the pod sets that a component declares."""
    sets = [part for part in entries(component, "podSets") if isinstance(part, dict)]
    return [WrappedPods(str(part.get("path") or ""), number(part, "replicas")) for part in sets]


def contradiction(own: Sequence[WrappedPods], known: Sequence[WrappedPods]) -> str:
    """Return how the declared pod sets (`own`) differ from the inferred ones (`known`); empty if they agree."""
    paths: dict[str, WrappedPods] = {}
    for pods in own:
        if pods.path in paths:
            return f"multiple DeclaredPodSets with path '{pods.path}'"
        paths[pods.path] = pods
    if not own or not known:
        return ""
    if len(known) != len(own):
        return f"DeclaredPodSet count {len(own)} differs from inferred count {len(known)}"
    for pods in known:
        said = paths.get(pods.path)
        if said is None:
            return f"PodSet with path '{pods.path}' is missing"
        if said.replicas != pods.replicas:
            counts = f"replica count {said.replicas} differs from inferred count {pods.replicas}"
            return f"{counts} for PodSet at path position '{pods.path}'"
    return ""


_COMPONENTS = ("spec", "components")


def check_spark_application(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new or changed SparkApplication."""
    spec = at(document, "spec")
    mode, dynamic = at(spec, "mode"), at(spec, "dynamicAllocation", "enabled")
    if job.queue and mode not in ("cluster", None):
        detail = "only Cluster mode is supported for a kueue managed job"
        yield invalid(("spec", "mode"), mode, detail, "write mode: cluster")
    if job.queue and dynamic is True and not is_elastic(job, gates):
        detail = (
            "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is "
            "on and the job is an elastic job"
        )
        yield invalid(("spec", "dynamicAllocation", "enabled"), dynamic, detail, "drop it, and set executor.instances")
    yield from check_job(job, gates)
    if enabled(gates, "TopologyAwareScheduling"):
        for role, count in (("driver", 1), ("executor", number(spec, "executor", "instances", default=0))):
            pods = pods_of(at(spec, role, "template"), role, count, ("spec", role))
            yield from check_request(pods.notes, pods.path, gates)
            yield from check_bound(pods)


def check_app_wrapper(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new AppWrapper: its components, and the paths of their pod templates."""
    components = [one for one in entries(document, *_COMPONENTS) if isinstance(one, dict)]
    count = 0
    for place, component in enumerate(components):
        known, refusals = _check_component(component, at(document, "metadata", "namespace"), (*_COMPONENTS, place))
        count += known
        yield from refusals
    if not count:
        yield invalid(_COMPONENTS, components, "components contains no podspecs", "add a component that makes pods")
    if count > MOST_POD_SETS:
        detail = f"components contains {count} podspecs; at most {MOST_POD_SETS} are allowed"
        yield invalid(_COMPONENTS, components, detail, "use fewer components")
    yield from check_job(job, gates)


def _check_component(component: dict[str, Any], namespace: object, path: Path) -> tuple[int, list[FieldError]]:
    """Count the pod sets of a component, and list its errors."""
    template, own = (*path, "template"), declared(component)
    found: list[FieldError] = []
    if kind_of(component) == ("workload.codeflare.dev", "AppWrapper"):
        found.append(forbidden(template, "Nested AppWrappers are forbidden", "wrap its components themselves"))
    elsewhere = at(component, "template", "metadata", "namespace")
    if elsewhere and elsewhere != (namespace or "default"):
        where = (*template, "metadata", "namespace")
        found.append(forbidden(where, "AppWrappers cannot create objects in other namespaces", "drop the namespace"))
    found += [
        error
        for place, pods in enumerate(own)
        for error in _check_path(component, pods.path, (*path, "podSets", place))
    ]
    try:
        known = inferred(component)
    except PathError as error:
        detail = f"error inferring PodSets: {error}"
        return len(own), [*found, invalid(template, component.get("template"), detail, "write its pod template")]
    if said := contradiction(own, known):
        remedy = "drop podSets: those of this kind are known"
        found.append(invalid((*path, "podSets"), component.get("podSets"), said, remedy))
    return max(len(own), len(known)), found


def _check_path(component: dict[str, Any], path: str, place: Path) -> Iterator[FieldError]:
    where = (*place, "path")
    if not path:
        yield required(where, "podspec must specify path", "write it as template.spec.template")
        return
    try:
        template_at(component, path)
    except PathError as error:
        detail = f"path does not refer to a v1.PodSpecTemplate: {error}"
        yield invalid(where, path, detail, "write the path from `template` to the pod template")


def change_app_wrapper(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of an AppWrapper: its components are immutable."""
    if at(document, *_COMPONENTS) != at(old, *_COMPONENTS):
        yield forbidden(_COMPONENTS, "attempt to change immutable field", "delete it, and create it anew")
    yield from check_job_change(job, before, gates, default_queue=default_queue)
