"""Selectors, taints, tolerations and affinity in documents."""

from gpuconsole.model.documents.names import LONGEST_KEY, is_label_value, key_name, labels, unique
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.labels import LabelSelector, NodeTerm, PreferredTerm, Requirement, Taint, Toleration
from gpuconsole.model.pod_template import PodAffinity, PodTerm

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SETS = ("In", "NotIn", "Exists", "DoesNotExist")


def requirements(reader: Reader, key: str, operators: tuple[str, ...] = _SETS) -> tuple[Requirement, ...]:
    """Read the expressions under `key`."""
    return tuple(_requirement(place, operators) for place in reader.items(key))


def _requirement(place: Reader, operators: tuple[str, ...]) -> Requirement:
    operator = place.one_of("operator", "", operators)
    values = place.texts("values")
    if not operator:
        place.required("operator")
    elif operator in ("In", "NotIn") and not values:
        place.report.refused(
            place.at("values"), f"operator {operator} has no values", "name at least one value", "no-values"
        )
    elif operator in ("Exists", "DoesNotExist") and values:
        place.report.refused(
            place.at("values"), f"operator {operator} takes no values", "leave the values out", "needless-values"
        )
    return Requirement(place.required("key"), operator, values)


def selector(reader: Reader, key: str) -> LabelSelector | None:
    """Read a label selector; None (absent or null) selects nothing, an empty mapping selects everything."""
    if key not in reader:
        return None
    place = reader.mapping(key)
    place.only("matchLabels", "matchExpressions")
    return LabelSelector(labels(place, "matchLabels"), requirements(place, "matchExpressions"))


def taints(reader: Reader, key: str) -> tuple[Taint, ...]:
    """Read the taints under `key`; duplicates by key and effect are reported."""
    found = tuple(_taint(place) for place in reader.items(key))
    unique(reader, key, [f"{taint.key}:{taint.effect}" for taint in found])
    return found


def _taint(place: Reader) -> Taint:
    value = place.text("value")
    if not is_label_value(value):
        place.report.refused(
            place.at("value"),
            f"{shown(value)} is not a valid value of a taint",
            "write it as a label's value",
            "bad-label",
        )
    return Taint(key_name(place, "key", required=True), value, place.one_of("effect", "", _EFFECTS) or _effect(place))


def _effect(place: Reader) -> str:
    place.required("effect")
    return "NoSchedule"


def tolerations(reader: Reader, key: str, *, checked: bool = True) -> tuple[Toleration, ...]:
    """Read the tolerations under `key`; `checked` adds the API server's rules for pods and flavors."""
    return tuple(_toleration(place, checked) for place in reader.items(key))


def _toleration(place: Reader, checked: bool) -> Toleration:
    found = Toleration(
        place.text("key", limit=LONGEST_KEY),
        place.text("operator") or "Equal",
        place.text("value"),
        place.text("effect"),
        place.optional("tolerationSeconds", low=-(2**63), high=2**63 - 1),
    )
    if checked:
        _check_toleration(place, found.key, found.operator, found.value, found.seconds)
    return found


def _check_toleration(place: Reader, name: str, operator: str, value: str, seconds: int | None) -> None:
    key_name(place, "key")
    place.one_of("operator", "Equal", ("Equal", "Exists"))
    effect = place.one_of("effect", "", _EFFECTS)
    if not name and operator != "Exists":
        place.report.refused(
            place.at("operator"),
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            "name a key, or write operator: Exists",
            "bad-toleration",
        )
    if operator == "Exists" and value:
        place.report.refused(
            place.at("value"), "a value must be empty when 'operator' is 'Exists'", "drop it", "bad-toleration"
        )
    if seconds is not None and effect != "NoExecute":
        place.report.refused(
            place.at("tolerationSeconds"),
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            "write effect: NoExecute, or drop tolerationSeconds",
            "bad-toleration",
        )


def node_term(place: Reader) -> NodeTerm:
    """Read a node selector term."""
    operators = (*_SETS, "Gt", "Lt")
    return NodeTerm(requirements(place, "matchExpressions", operators), requirements(place, "matchFields", operators))


def node_affinity(spec: Reader) -> tuple[tuple[NodeTerm, ...] | None, tuple[PreferredTerm, ...]]:
    """Read the required and the preferred node affinity of a pod spec."""
    place = spec.down("affinity", "nodeAffinity")
    required = None
    if "requiredDuringSchedulingIgnoredDuringExecution" in place:
        terms = place.mapping("requiredDuringSchedulingIgnoredDuringExecution")
        required = tuple(node_term(term) for term in terms.items("nodeSelectorTerms"))
    preferred = tuple(
        PreferredTerm(item.number("weight", 1, low=1, high=100), node_term(item.mapping("preference")))
        for item in place.items("preferredDuringSchedulingIgnoredDuringExecution")
    )
    return required, preferred


def pod_affinity(spec: Reader, key: str) -> PodAffinity | None:
    """Read podAffinity or podAntiAffinity of a pod spec; None if it has no terms."""
    place = spec.down("affinity", key)
    required = tuple(_pod_term(term) for term in place.items("requiredDuringSchedulingIgnoredDuringExecution"))
    preferred = tuple(
        (item.number("weight", 1, low=1, high=100), _pod_term(item.mapping("podAffinityTerm")))
        for item in place.items("preferredDuringSchedulingIgnoredDuringExecution")
    )
    return PodAffinity(required, preferred) if required or preferred else None


def _pod_term(place: Reader) -> PodTerm:
    return PodTerm(
        place.required("topologyKey"),
        selector(place, "labelSelector"),
        place.texts("namespaces"),
        selector(place, "namespaceSelector"),
        place.texts("matchLabelKeys"),
        place.texts("mismatchLabelKeys"),
    )
