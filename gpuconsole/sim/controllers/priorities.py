"""Priorities of workloads and pods from their priority classes."""

from collections.abc import Iterable

from gpuconsole.model.cluster import SYSTEM_PRIORITIES, PriorityClass, default_class
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.sim.world import World


def pod_priority(world: World, template: PodTemplate) -> int:
    """The pod's priority, else its PriorityClass's, else the global default's, else 0 (admission plugin Priority)."""
    if template.priority is not None:
        return template.priority
    named: PriorityClass | None = world.state.get(PriorityClass, template.priority_class)
    if named is not None:
        return named.value
    if template.priority_class:
        return SYSTEM_PRIORITIES.get(template.priority_class, 0)
    return default_class(_classes(world))[0]


def workload_priority(world: World, name: str, pod_sets: tuple[PodSet, ...]) -> tuple[int, str]:
    """Priority and class of a workload (Kueue pkg/util/priority).

    The WorkloadPriorityClass of the label comes first, then the PriorityClass of the first pod set that names one,
    then the global default.
    """
    if name:
        own: WorkloadPriorityClass | None = world.state.get(WorkloadPriorityClass, name)
        return (0 if own is None else own.value), name
    for pod_set in pod_sets:
        if pod_set.template.priority_class or pod_set.template.priority is not None:
            return pod_priority(world, pod_set.template), pod_set.template.priority_class
    return default_class(_classes(world))


def default_class_name(world: World) -> str:
    """The class that the API server sets in pods without one; empty without a global default."""
    return default_class(_classes(world))[1]


def _classes(world: World) -> Iterable[PriorityClass]:
    classes: Iterable[PriorityClass] = world.state.table("priority_classes").all()
    return classes
