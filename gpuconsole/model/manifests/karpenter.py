"""Karpenter's NodePool, validated by the rules of its v1 CRD; capacity is acted on in its own room."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.amounts import resources
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.documents.selectors import taints
from gpuconsole.model.volcano import NodePool

POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
OLD_POLICY = "WhenUnderutilized"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")

Requirement = tuple[str, str, tuple[str, ...]]


def node_pool(reader: Reader, now: Time) -> NodePool:
    """A NodePool: its labels, requirements and consolidation."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    spec.only("disruption", "limits", "replicas", "template", "weight")
    spec.optional("weight", low=1, high=100)
    resources(spec, "limits")
    template = spec.mapping("template")
    inner = template.mapping("spec")
    _check_class(inner)
    taints(inner, "taints")
    taints(inner, "startupTaints")
    disruption = spec.mapping("disruption")
    disruption.only("budgets", "consolidateAfter", "consolidationPolicy")
    return NodePool(
        name=meta.name,
        labels=template.mapping("metadata").labels("labels"),
        requirements=tuple(_requirement(place) for place in inner.items("requirements", 100)),
        consolidation_policy=_policy(disruption),
        consolidate_after=_after(disruption),
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
