"""Webhooks of SparkApplication and AppWrapper (Kueue 0.19, AppWrapper 1.1)."""

from collections.abc import Iterator
from typing import Any

from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.jobs.framework import JobView, check_job, check_job_change, is_elastic
from gpuconsole.model.apiserver.jobs.parts import Document, at, entries, number, pods_of
from gpuconsole.model.apiserver.jobs.topology import check_bound, check_request
from gpuconsole.model.apiserver.jobs.wrapped import (
    MOST_POD_SETS,
    PathError,
    contradiction,
    declared,
    inferred,
    kind_of,
    template_at,
)
from gpuconsole.model.apiserver.refusals import forbidden, invalid, required
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path

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


def change_spark_application(
    document: Document, job: JobView, old: Document, before: JobView, gates: Gates, *, default_queue: bool
) -> Iterator[FieldError]:
    """Validate the update of a SparkApplication."""
    if job.queue or (before.queue and enabled(gates, "ValidateRayAndSparkJobUpdates")):
        yield from check_job_change(job, before, gates, default_queue=default_queue)
        yield from check_spark_application(document, job, gates)


def check_app_wrapper(document: Document, job: JobView, gates: Gates) -> Iterator[FieldError]:
    """Validate a new AppWrapper: its components, and the paths of their pod templates."""
    components = [one for one in entries(document, *_COMPONENTS) if isinstance(one, dict)]
    count = 0
    for place, component in enumerate(components):
        known, refusals = _look(component, at(document, "metadata", "namespace"), (*_COMPONENTS, place))
        count += known
        yield from refusals
    if not count:
        yield invalid(_COMPONENTS, components, "components contains no podspecs", "add a component that makes pods")
    if count > MOST_POD_SETS:
        detail = f"components contains {count} podspecs; at most {MOST_POD_SETS} are allowed"
        yield invalid(_COMPONENTS, components, detail, "use fewer components")
    yield from check_job(job, gates)


def _look(component: dict[str, Any], namespace: object, path: Path) -> tuple[int, list[FieldError]]:
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
        error for place, pods in enumerate(own) for error in _path(component, pods.path, (*path, "podSets", place))
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


def _path(component: dict[str, Any], path: str, place: Path) -> Iterator[FieldError]:
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
