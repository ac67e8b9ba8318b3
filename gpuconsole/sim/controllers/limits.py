"""Defaults that the API server sets in pods without requests (plugins LimitRanger and RuntimeClass)."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.cluster import LimitRange, LimitRangeItem, RuntimeClass
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import Resources
from gpuconsole.sim.world import World

_CONTAINER = "Container"


def defaulted(world: World, namespace: str, template: PodTemplate) -> PodTemplate:
    """The template with its RuntimeClass's overhead and the namespace's default requests and limits."""
    template = _weighed(world, template)
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for item in _items(world, namespace):
        # The first LimitRange that names a resource counts; a limit without a default request is the request too.
        requests = {**item.default, **item.default_request, **requests}
        limits = {**item.default, **limits}
    if not requests and not limits:
        return template
    return replace(
        template,
        containers=tuple(_filled(container, requests, limits) for container in template.containers),
        init_containers=tuple(_filled(container, requests, limits) for container in template.init_containers),
    )


def defaulted_sets(world: World, namespace: str, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
    """Pod sets with `defaulted` templates (Kueue's AdjustResources does the same to a Workload)."""
    templates = [defaulted(world, namespace, part.template) for part in pod_sets]
    if all(part.template is template for part, template in zip(pod_sets, templates, strict=True)):
        return pod_sets
    return tuple(replace(part, template=template) for part, template in zip(pod_sets, templates, strict=True))


def _weighed(world: World, template: PodTemplate) -> PodTemplate:
    """The template with its RuntimeClass's overhead (API server, plugin RuntimeClass)."""
    if not template.runtime_class or template.overhead:
        return template
    known: RuntimeClass | None = world.state.get(RuntimeClass, template.runtime_class)
    return template if known is None else replace(template, overhead=known.overhead)


def _items(world: World, namespace: str) -> list[LimitRangeItem]:
    ranges: Iterable[LimitRange] = world.state.table("limit_ranges").all()
    return [item for found in ranges if found.namespace == namespace for item in found.items if item.type == _CONTAINER]


def _filled(container: Container, requests: Resources, limits: Resources) -> Container:
    return replace(container, requests={**requests, **container.effective}, limits={**limits, **container.limits})
