"""Selects the pods that a ProvisioningRequest asks for (Kueue 0.19 controller.go: reqIsNeeded, mergePodSets)."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.workloads import PodSetAssignment, Workload


class InconsistentAssignments(ValueError):
    """Error: the workload's admission lacks one of its pod sets."""

    def __init__(self, pod_set: str) -> None:
        super().__init__(f'inconsistent podSet assignments: missing assignment for PodSet "{pod_set}"')


class Needed(Struct, frozen=True):
    """Pods requested as one: the first of their pod sets, its assignment, and the count of all."""

    pod_set: PodSet
    assignment: PodSetAssignment
    count: int


def is_needed(workload: Workload, config: ProvisioningRequestConfig) -> bool:
    """True if any pod needs a resource that the config manages (any, if it lists none).

    Raises InconsistentAssignments.
    """
    return any(count > 0 for _, _, count in _managed(workload, config))


def needed(workload: Workload, config: ProvisioningRequestConfig) -> tuple[Needed, ...]:
    """Return the pods to request, merged by the config's merge policy. Raises InconsistentAssignments."""
    found: list[Needed] = []
    for pod_set, assignment, count in _managed(workload, config):
        if count <= 0:
            continue
        like = next(
            (n for n, other in enumerate(found) if _is_mergeable(other.pod_set, pod_set, config.merge_policy)), None
        )
        if like is None:
            found.append(Needed(pod_set, assignment, count))
        else:
            found[like] = replace(found[like], count=found[like].count + count)
    return tuple(found)


def _managed(workload: Workload, config: ProvisioningRequestConfig) -> Iterator[tuple[PodSet, PodSetAssignment, int]]:
    admission = workload.admission
    given = {a.name: a for a in admission.pod_sets} if admission is not None else {}
    for pod_set in workload.pod_sets:
        if pod_set.count <= 0 or not _uses(pod_set.template, config.managed_resources):
            continue
        assignment = given.get(pod_set.name)
        if assignment is None:
            raise InconsistentAssignments(pod_set.name)
        yield pod_set, assignment, assignment.count


def _uses(template: PodTemplate, managed: tuple[str, ...]) -> bool:
    containers = (*template.init_containers, *template.containers)
    asked = {resource for c in containers for part in (c.requests, c.limits) for resource in part}
    return not managed or not asked.isdisjoint(managed)


def _is_mergeable(one: PodSet, other: PodSet, policy: str) -> bool:
    match policy:
        case "IdenticalPodTemplates":
            return one.template == other.template
        case "IdenticalWorkloadSchedulingRequirements":
            return _requirements(one.template) == _requirements(other.template)
        case _:
            return False


def _requirements(template: PodTemplate) -> tuple[object, ...]:
    """Return the fields that decide on which nodes a pod fits."""
    return (
        [container.requests for container in template.containers],
        [container.requests for container in template.init_containers],
        template.node_selector,
        template.tolerations,
        template.affinity,
        template.preferred,
        template.resource_claims,
    )
