"""Implicit pod requests and limits: RuntimeClass overhead and LimitRange defaults and bounds.

Kueue 0.19 pkg/workload/resources.go and pkg/util/limitrange.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec.structs import replace

from gpuconsole.model.cluster import LimitRange, LimitRangeItem
from gpuconsole.model.pod_template import Container, PodResources, PodTemplate
from gpuconsole.model.resources import Resources, exceeding

Limits = Mapping[str, LimitRangeItem]
"""Type (Container, Pod) → the combined LimitRanges of a namespace."""

NO_LIMITS: Limits = {}
Overheads = Mapping[str, Resources]
"""RuntimeClass → overhead per pod."""
NO_OVERHEADS: Overheads = {}

_ABOVE_LIMITS = "requests must not exceed its limits"
_ABOVE_MAX = "requests must not be above the limitRange max"
_BELOW_MIN = "requests must not be below the limitRange min"


def summarise(ranges: Iterable[LimitRange]) -> dict[str, Limits]:
    """Combine LimitRanges by namespace: lowest max and ratio, highest min, first default by the objects' names."""
    summary: dict[str, dict[str, LimitRangeItem]] = {}
    for limit_range in sorted(ranges, key=lambda limit_range: limit_range.key):
        items = summary.setdefault(limit_range.namespace, {})
        for item in limit_range.items:
            known = items.get(item.type)
            items[item.type] = item if known is None else _merge(known, item)
    return dict(summary)


def _merge(known: LimitRangeItem, item: LimitRangeItem) -> LimitRangeItem:
    return replace(
        known,
        max=_join(known.max, item.max, min),
        min=_join(known.min, item.min, max),
        default={**item.default, **known.default},
        default_request={**item.default_request, **known.default_request},
        max_ratio=_tightest(known.max_ratio, item.max_ratio),
    )


def _tightest(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    both = {**one, **other}
    return {name: min(one.get(name, both[name]), other.get(name, both[name]), key=Fraction) for name in both}


def _join(one: Resources, other: Resources, choose: Callable[[int, int], int]) -> dict[str, int]:
    both = {**one, **other}
    return {name: choose(one.get(name, both[name]), other.get(name, both[name])) for name in both}


def adjusted(template: PodTemplate, limits: Limits, overheads: Overheads) -> PodTemplate:
    """Return the template with its RuntimeClass overhead and the namespace's LimitRange defaults (AdjustResources)."""
    if overheads and template.runtime_class in overheads and not template.overhead:
        template = replace(template, overhead=overheads[template.runtime_class])
    return with_defaults(template, limits) if limits else template


def with_defaults(template: PodTemplate, limits: Limits) -> PodTemplate:
    """Return the template with the LimitRange defaults for missing requests and limits of containers and of the whole
    pod.
    """
    item = limits.get("Pod")
    if item is not None and template.resources is not None:
        whole = template.resources
        asked = {**item.default_request, **whole.requests}
        template = replace(template, resources=PodResources(asked, {**item.default, **whole.limits}))
    item = limits.get("Container")
    if item is None or not (item.default or item.default_request):
        return template

    def fill(container: Container) -> Container:
        requests = {**item.default_request, **container.requests}
        return replace(container, requests=requests, limits={**item.default, **container.limits})

    return replace(
        template,
        containers=tuple(map(fill, template.containers)),
        init_containers=tuple(map(fill, template.init_containers)),
    )


def violation(templates: Sequence[PodTemplate], limits: Limits) -> str:
    """Return why these templates, one per pod set, violate their own limits or the LimitRanges; empty if not."""
    own = [problem for path, template in _paths(templates) for problem in _above_own_limits(path, template)]
    if own:
        return f"resources validation failed: {_aggregate(own)}"
    ranged = [problem for path, template in _paths(templates) for problem in _out_of_range(path, template, limits)]
    return f"resources didn't satisfy LimitRange constraints: {_aggregate(ranged)}" if ranged else ""


def _paths(templates: Sequence[PodTemplate]) -> Iterator[tuple[str, PodTemplate]]:
    for index, template in enumerate(templates):
        yield f"spec.podSets[{index}].template.spec", template


def _containers(path: str, template: PodTemplate) -> Iterator[tuple[str, Container]]:
    for kind, containers in (("initContainers", template.init_containers), ("containers", template.containers)):
        for index, container in enumerate(containers):
            yield f"{path}.{kind}[{index}]", container


def _above_own_limits(path: str, template: PodTemplate) -> Iterator[str]:
    for place, container in _containers(path, template):
        yield from _greater(place, container.effective, container.limits, _ABOVE_LIMITS)
    if template.resources is not None:
        yield from _greater(f"{path}.resources", template.resources.requests, template.resources.limits, _ABOVE_LIMITS)


def _out_of_range(path: str, template: PodTemplate, limits: Limits) -> Iterator[str]:
    item = limits.get("Container")
    if item is not None:
        for place, container in _containers(path, template):
            yield from _greater(place, _join(container.effective, container.limits, max), item.max, _ABOVE_MAX)
            yield from _greater(place, item.min, _join(container.effective, container.limits, min), _BELOW_MIN)
    item = limits.get("Pod")
    if item is not None:
        yield from _greater(path, template.requests, item.max, _ABOVE_MAX)
        yield from _greater(path, item.min, template.requests, _BELOW_MIN)


def _greater(place: str, amounts: Resources, bounds: Resources, problem: str) -> Iterator[str]:
    """Yield one line that names the resources that exceed their bound; unbounded ones do not count."""
    names = exceeding(amounts, bounds)
    if names:
        yield f"{place}: Invalid value: {json.dumps(names, separators=(',', ':'))}: {problem}"


def _aggregate(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
