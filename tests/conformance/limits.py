"""workload, util_limitrange: the defaults and bounds that a namespace sets, and what pods are told that break them."""

import json
from collections.abc import Iterator, Sequence

from gpuconsole.model.cluster import LimitRange, RuntimeClass
from gpuconsole.model.pod_template import Container, PodResources, PodTemplate
from gpuconsole.scheduling.kueue.pod_resources import (
    Limits,
    combine_limit_ranges,
    limits_violation,
    with_overhead_and_defaults,
)
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare


def _limits(documents: Sequence[Document]) -> Limits:
    """The summary of LimitRanges that are all of one namespace; those without a name are named in order."""
    named = [
        {**d, "metadata": {"name": f"r{number}", **(d.get("metadata") or {}), "namespace": "default"}}
        for number, d in enumerate(documents)
    ]
    return combine_limit_ranges(thing for thing in world.decode_all(named) if isinstance(thing, LimitRange)).get(
        "default", {}
    )


def _templates(document: Document) -> list[PodTemplate]:
    metadata = {"name": "any", **(document.get("metadata") or {})}
    return [pods.template for pods in world.decode_workload({**document, "metadata": metadata}).pod_sets]


def check_defaults(table: Table, case: Case) -> Iterator[str]:
    """TestAdjustResources: what the containers ask for after defaults, limits standing in for missing requests."""
    limits = _limits(case.input.get("limitranges") or ())
    classes = [thing for thing in world.decode_all(case.input.get("runtimeClasses")) if isinstance(thing, RuntimeClass)]
    overheads = {known.name: known.overhead for known in classes}
    got = [_asked(with_overhead_and_defaults(template, limits, overheads)) for template in _templates(case.input["wl"])]
    yield from compare("pod sets", got, [_asked(template) for template in _templates(case.want["wantWl"])])


Asked = tuple[dict[str, int], dict[str, int]]
"""Requests with limits where a request is missing, and limits."""


def _asked(template: PodTemplate) -> tuple[list[Asked], Asked | None, dict[str, int]]:
    def both(container: Container | PodResources) -> Asked:
        return {**container.limits, **container.requests}, dict(container.limits)

    containers = [both(container) for container in (*template.init_containers, *template.containers)]
    return containers, both(template.resources) if template.resources is not None else None, dict(template.overhead)


def check_summary(table: Table, case: Case) -> Iterator[str]:
    """TestSummarize: several LimitRanges as one."""
    wanted = _limits([_as_range(case.want["expected"])]) if case.want["expected"] else {}
    yield from compare("expected", _limits(case.input["ranges"]), wanted)


def _as_range(summary: Document) -> Document:
    items = [{**item, "type": kind} for kind, item in summary.items()]
    return {"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": items}}


def check_bounds(table: Table, case: Case) -> Iterator[str]:
    """TestValidatePodSpec: what is told of a pod that is out of a namespace's bounds."""
    summary = case.input.get("summary") or {}
    limits = _limits([_as_range(summary)]) if summary else {}
    spec = case.input.get("podSpec") or table.fixtures["podSpec"]
    templates = _templates({"spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}]}})
    yield from compare("want", limits_violation(templates, limits), _ranged(case.want.get("want") or ()))


def check_workload(table: Table, case: Case) -> Iterator[str]:
    """TestValidateLimitRange: the same for every pod set of a workload."""
    ranges = [case.input["limitRange"]] if case.input.get("limitRange") else []
    got = limits_violation(_templates(case.input["workload"]), _limits(ranges))
    yield from compare("wantError", got, _ranged(case.want.get("wantError") or ()))


def check_resources(table: Table, case: Case) -> Iterator[str]:
    """TestValidateResources: requests within the pods' own limits."""
    got = limits_violation(_templates(case.input["workloadInfo"]["Obj"]), {})
    wanted = _text(case.want.get("wantError") or ())
    yield from compare("wantError", got, f"resources validation failed: {wanted}" if wanted else "")


def _ranged(errors: Sequence[Document]) -> str:
    text = _text(errors)
    return f"resources didn't satisfy LimitRange constraints: {text}" if text else ""


def _text(errors: Sequence[Document]) -> str:
    """The errors as a condition's message lists them."""
    lines = [
        f"{e['field']}: Invalid value: {json.dumps(e['badValue'], separators=(',', ':'))}: {e['detail']}"
        for e in errors
    ]
    return lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]" if lines else ""


CHECKS: dict[str, Check] = {
    "workload/TestAdjustResources": lambda table, case: list(check_defaults(table, case)),
    "workload/TestValidateLimitRange": lambda table, case: list(check_workload(table, case)),
    "workload/TestValidateResources": lambda table, case: list(check_resources(table, case)),
    "util_limitrange/TestSummarize": lambda table, case: list(check_summary(table, case)),
    "util_limitrange/TestValidatePodSpec": lambda table, case: list(check_bounds(table, case)),
}
