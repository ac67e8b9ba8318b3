"""Pods are let go to the places that the topology chose for them (Kueue 0.19 controller/tas topology_ungater.go)."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodTemplate
from gpuconsole.model.workloads import PodSetAssignment
from gpuconsole.scheduling.kueue.podset import TOPOLOGY_GATE

Values = tuple[str, ...]


def places(template: PodTemplate, assignment: PodSetAssignment, present: Sequence[Pod | None]) -> list[PodTemplate]:
    """The template of each pod, bound to a domain of the assignment and without the gate that made it wait.

    `present` are the pods that exist, by index: they keep their domains, the others take what is left, in the order
    of the domains, as their indices are their ranks.
    """
    if not assignment.topology:
        return [template] * assignment.count
    free = Counter({domain.values: domain.count for domain in assignment.topology})
    missing = assignment.count - len(present)
    taken = [_domain(pod, assignment.levels) for pod in (*present, *[None] * missing)]
    for index, values in enumerate(taken):
        if values is not None and free[values] > 0:
            free[values] -= 1
        else:
            taken[index] = None
    left = free.elements()
    bound: dict[Values, PodTemplate] = {}
    result = []
    for known in taken:
        values = known or next(left, ())
        if values not in bound:
            bound[values] = _bound(template, dict(zip(assignment.levels, values, strict=False)))
        result.append(bound[values])
    return result


def _domain(pod: Pod | None, levels: Sequence[str]) -> Values | None:
    if pod is None or pod.done or pod.deleted:
        return None
    return tuple(pod.template.node_selector.get(level, "") for level in levels)


def _bound(template: PodTemplate, labels: dict[str, str]) -> PodTemplate:
    return replace(
        template,
        node_selector={**template.node_selector, **labels},
        scheduling_gates=tuple(gate for gate in template.scheduling_gates if gate != TOPOLOGY_GATE),
    )
