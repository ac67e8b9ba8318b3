"""workload.codeflare.dev AppWrapper: several objects admitted together, with pod counts as in Kueue 0.19."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.jobs.wrapped import (
    SERVICES,
    PathError,
    WrappedPods,
    declared,
    inferred,
    kind_of,
    steps,
    template_at,
)
from gpuconsole.model.clock import Span, Time, parse_span
from gpuconsole.model.documents.pods import pod_template
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.job_rules import ReplicaRules
from gpuconsole.model.jobs.common import MOST_PODS, job, positive_span
from gpuconsole.model.jobs.labels import DURATION
from gpuconsole.model.jobs.topology import topology_request
from gpuconsole.model.pod_sets import PodSet

_appwrapper_PHASES: Mapping[str, JobPhase] = {
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
    "Suspended": JobPhase.SUSPENDED,
    "Running": JobPhase.RUNNING,
}


def app_wrapper(reader: Reader, now: Time) -> Job:
    """Read an AppWrapper: the pod sets of its components run together, as long as the longest of them.

    If all components are services, it runs until it is deleted.
    """
    spec = reader.mapping("spec")
    spec.only("components", "managedBy", "suspend")
    components = list(spec.items("components", 1000))
    name = reader.mapping("metadata").text("name")
    found = [(component, pods) for component in components for pods in _pods(component.value)]
    pod_sets = tuple(
        _appwrapper_pod_set(component, pods, f"{name}-{number}") for number, (component, pods) in enumerate(found)
    )
    serves = bool(found) and all(kind_of(component.value) in SERVICES for component, _ in found)
    suspended = spec.flag("suspend")
    state = _appwrapper_PHASES.get(reader.mapping("status").text("phase"))
    return job(
        reader,
        now,
        "AppWrapper",
        pod_sets,
        rules=ReplicaRules() if serves else None,
        duration=_duration(reader, components),
        suspended=suspended,
        phase=state or (JobPhase.SUSPENDED if suspended else JobPhase.PENDING),
    )


def _pods(component: Mapping[str, Any]) -> list[WrappedPods]:
    """Return the readable pod sets of a component; declared ones take precedence over inferred ones."""
    try:
        known = declared(component) or inferred(component)
    except PathError:
        return []
    return [pods for pods in known if _is_there(component, pods.path)]


def _is_there(component: Mapping[str, Any], path: str) -> bool:
    try:
        template_at(component, path)
    except PathError:
        return False
    return True


def _appwrapper_pod_set(component: Reader, pods: WrappedPods, name: str) -> PodSet:
    place, count = _place(component, pods.path), min(pods.replicas, MOST_PODS)
    request = topology_request(place, count, index=pods.index, subgroup=pods.subgroup, subgroups=pods.subgroups)
    return PodSet(name=name, count=count, template=pod_template(place), topology=request)


def _place(component: Reader, path: str) -> Reader:
    place = component
    for key in steps(path):
        value = place.value[key]
        place = Reader(value, place.report, place, key)
    return place


def _duration(reader: Reader, components: list[Reader]) -> Span | None:
    """Return the duration: its own annotation, else the longest of its components'; None if there is none."""
    own = positive_span(reader.down("metadata", "annotations"), DURATION)
    if own is not None:
        return own
    spans = []
    for component in components:
        text = component.down("template", "metadata", "annotations").text(DURATION)
        try:
            spans.append(parse_span(text))
        except ValueError:
            continue
    return max((span for span in spans if span > 0), default=None)
