"""Karpenter's NodePool, validated by the rules of its v1 CRD; the simulation acts on it (sim/autoscaling)."""

import re

from gpuconsole.model.autoscaling import DEFAULT_BUDGETS, EXPIRE_AFTER, NodePool, NodePoolBudget
from gpuconsole.model.clock import Span, Time, parse_cron
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.pods_and_selectors import taints
from gpuconsole.model.documents.reader import Reader, resources, shown

POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
OLD_POLICY = "WhenUnderutilized"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
REASONS = ("Underutilized", "Empty", "Drifted")
_NODES = re.compile(r"(100|[0-9]{1,2})%|[0-9]{1,9}")

Requirement = tuple[str, str, tuple[str, ...]]


def node_pool(reader: Reader, now: Time) -> NodePool:
    """Read a NodePool: labels, taints and requirements of its nodes, limits, and disruption settings."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    spec.only("disruption", "limits", "replicas", "template", "weight")
    template = spec.mapping("template")
    inner = template.mapping("spec")
    _check_class(inner)
    taints(inner, "startupTaints")
    disruption = spec.mapping("disruption")
    disruption.only("budgets", "consolidateAfter", "consolidationPolicy")
    return NodePool(
        name=meta.name,
        labels=template.mapping("metadata").labels("labels"),
        taints=taints(inner, "taints"),
        requirements=tuple(_requirement(place) for place in inner.items("requirements", 100)),
        min_values=_min_values(inner),
        limits=resources(spec, "limits"),
        weight=spec.optional("weight", low=1, high=100) or 0,
        replicas=spec.optional("replicas", low=0),
        consolidation_policy=_policy(disruption),
        consolidate_after=_after(disruption),
        expire_after=_expiry(inner),
        termination_grace=inner.span("terminationGracePeriod"),
        budgets=_budgets(disruption),
    )


def _check_class(inner: Reader) -> None:
    if "nodeClassRef" not in inner:
        inner.report.refused(
            inner.at("nodeClassRef"),
            "the NodePool has no nodeClassRef: Karpenter cannot launch nodes for it",
            "name one: nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}",
            "no-node-class",
        )
        return
    place = inner.mapping("nodeClassRef")
    for key in ("group", "kind", "name"):
        place.required(key)


def _requirement(place: Reader) -> Requirement:
    place.only("key", "operator", "values", "minValues")
    operator = place.one_of("operator", "", OPERATORS)
    values = place.texts("values")
    if not operator:
        place.required("operator")
    elif operator == "In" and not values:
        problem = "requirements with operator 'In' must have a value defined"
        place.report.refused(place.at("values"), problem, "name at least one value", "no-values")
    elif operator in ("Gt", "Lt", "Gte", "Lte") and not (len(values) == 1 and values[0].isdigit()):
        problem = "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"
        place.report.refused(place.at("values"), problem, 'write one number, such as ["4"]', "bad-value")
    return place.required("key"), operator, values


def _min_values(inner: Reader) -> dict[str, int]:
    """Return the largest minValues of each key."""
    found: dict[str, int] = {}
    for place in inner.items("requirements", 100):
        least = place.optional("minValues", low=1, high=50)
        if least is not None:
            found[place.text("key")] = max(least, found.get(place.text("key"), 0))
    return found


def _policy(disruption: Reader) -> str:
    if disruption.raw("consolidationPolicy") == OLD_POLICY:
        disruption.report.refused(
            disruption.at("consolidationPolicy"),
            f"consolidationPolicy {OLD_POLICY} was renamed in karpenter.sh/v1; it is read as {POLICIES[1]}",
            f"write {POLICIES[1]}",
            "renamed-policy",
        )
        return POLICIES[1]
    return disruption.one_of("consolidationPolicy", POLICIES[1], POLICIES)


def _after(disruption: Reader) -> str:
    after = disruption.raw("consolidateAfter")
    if after is None or after == "Never":
        return "" if after is None else "Never"
    span = disruption.span("consolidateAfter")
    return "" if span is None else shown(after).strip("'\"")


def _expiry(inner: Reader) -> Span | None:
    """Return the lifetime of nodes: None for `Never`, 30 days if it is not set."""
    if inner.raw("expireAfter") == "Never":
        return None
    span = inner.span("expireAfter")
    return EXPIRE_AFTER if span is None else span


def _budgets(disruption: Reader) -> tuple[NodePoolBudget, ...]:
    if disruption.raw("budgets") is None:
        return DEFAULT_BUDGETS
    return tuple(_budget(place) for place in disruption.items("budgets", 50))


def _budget(place: Reader) -> NodePoolBudget:
    place.only("nodes", "reasons", "schedule", "duration")
    schedule, duration = place.text("schedule"), place.span("duration")
    if bool(schedule) != (duration is not None):
        problem = "'schedule' must be set with 'duration'"
        place.report.refused(place.at("schedule"), problem, "write both, or neither", "half-a-window")
    if schedule and not _is_cron(place, schedule):
        schedule = ""
    reasons = place.texts("reasons", 50)
    for reason in reasons:
        if reason not in REASONS:
            problem = f"{shown(reason)} is not a disruption reason"
            place.report.refused(place.at("reasons"), problem, f"it takes {', '.join(REASONS)}", "bad-value")
    return NodePoolBudget(_nodes(place), reasons, schedule, duration or 0)


def _nodes(place: Reader) -> str:
    """Read a number of nodes or a percentage, as text; `0` if it is invalid."""
    raw = place.raw("nodes")
    text = (
        str(raw)
        if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 10**9
        else place.text("nodes", "10%")
    )
    if _NODES.fullmatch(text):
        return text
    problem = f"{shown(text)} is neither a number of nodes nor a part of them"
    place.report.error(place.at("nodes"), problem, 'write it as "3" or "20%"', "bad-value")
    return "0"


def _is_cron(place: Reader, schedule: str) -> bool:
    try:
        parse_cron(schedule)
    except ValueError as error:
        remedy = 'write minute, hour, day, month and weekday in UTC, such as "0 9 * * 1-5"'
        place.report.error(place.at("schedule"), str(error), remedy, "bad-schedule")
        return False
    return True
