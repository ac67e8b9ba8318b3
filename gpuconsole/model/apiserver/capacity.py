"""ResourceFlavor and Topology: their schemas, and the webhook of ResourceFlavor."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver import forms
from gpuconsole.model.apiserver.gates import Gates
from gpuconsole.model.apiserver.labels import check_labels
from gpuconsole.model.apiserver.refusals import duplicate, invalid
from gpuconsole.model.apiserver.schema import (
    MOMENT,
    TEXT,
    Empty,
    SchemaRule,
    Transition,
    a_text,
    listed,
    mapped,
    record,
)
from gpuconsole.model.apiserver.selectors import TOLERATION, named
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.syntax import label_key, label_value
from gpuconsole.model.labels import HOSTNAME

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ALL_EFFECTS = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"
_TAINT_EFFECTS = SchemaRule(
    _ALL_EFFECTS, lambda taints: all(taint["effect"] in _EFFECTS for taint in taints), "write one of these effects"
)
_TAINT = record({"key!": a_text(zero=""), "effect!": a_text(zero=""), "value": TEXT, "timeAdded": MOMENT})
_TOLERATION_RULES = (
    SchemaRule(
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        lambda listed: all("key" in one or one["operator"] == "Exists" for one in listed),
        "name a key, or write operator: Exists",
    ),
    SchemaRule(
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
        lambda listed: all("tolerationSeconds" not in one or one["effect"] == "NoExecute" for one in listed),
        "write effect: NoExecute, or drop tolerationSeconds",
    ),
    SchemaRule(
        "supported toleration values: 'Equal'(default), 'Exists'",
        lambda listed: all(one.get("operator", "Equal") in ("Equal", "Exists") for one in listed),
        "write Equal or Exists",
    ),
    SchemaRule(
        "a value must be empty when 'operator' is 'Exists'",
        lambda listed: all(one.get("operator") != "Exists" or "value" not in one for one in listed),
        "drop the value, or write operator: Equal",
    ),
    SchemaRule(
        _ALL_EFFECTS,
        lambda listed: all("effect" not in one or one["effect"] in _EFFECTS for one in listed),
        "write one of these effects, or none",
    ),
)
TOLERATIONS = listed(TOLERATION, most=8, rules=_TOLERATION_RULES)


def _frozen(key: str) -> Transition:
    """Rule that a field of a flavor with a topology is immutable."""

    def holds(spec: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        return "topologyName" not in old or bool(spec.get(key) == old.get(key))

    verb = "is" if key == "topologyName" else "are"
    return Transition(
        f"{key} {verb} immutable when topologyName is set", holds, "leave it as it was, or create another flavor"
    )


_HAS_LABEL = SchemaRule(
    "at least one nodeLabel is required when topology is set",
    lambda spec: "topologyName" not in spec or len(spec["nodeLabels"]) >= 1,
    "add a nodeLabel of the nodes",
    "required",
    lambda spec: ("topologyName",),
)
_FLAVOR_SPEC = record(
    {
        "nodeLabels": mapped(TEXT, most=8),
        "nodeTaints": listed(_TAINT, most=8, rules=(_TAINT_EFFECTS,)),
        "tolerations": TOLERATIONS,
        "topologyName": named(empty=Empty.KEPT),
    },
    rules=(_HAS_LABEL, _frozen("nodeLabels"), _frozen("tolerations"), _frozen("topologyName")),
    zero={},
)
RESOURCE_FLAVOR = {"spec": _FLAVOR_SPEC}


def validate_flavor(flavor: Mapping[str, Any], old: Mapping[str, Any] | None, gates: Gates) -> Iterator[FieldError]:
    """Yield the webhook's errors for a ResourceFlavor (Kueue 0.19 resourceflavor_webhook)."""
    spec = flavor.get("spec") or {}
    yield from check_labels(spec.get("nodeLabels"), ("spec", "nodeLabels"))
    yield from _check_taints(spec.get("nodeTaints") or (), ("spec", "nodeTaints"))
    yield from check_toleration_keys(spec.get("tolerations") or (), ("spec", "tolerations"))


def _check_taints(taints: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for n, taint in enumerate(taints):
        key, value = taint.get("key", ""), taint.get("value", "")
        for message in label_key(key):
            yield invalid((*path, n, "key"), key, message, "write the key as example.com/name", "bad-label")
        wrong = list(label_value(value))
        if wrong:
            yield invalid((*path, n, "value"), value, ";".join(wrong), "write it as a label's value", "bad-label")
        mark = key, taint.get("effect", "")
        if mark in seen:
            yield duplicate((*path, n), taint, "taints must be unique by key and effect pair")
        seen.add(mark)


def check_toleration_keys(tolerations: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    """Validate keys of tolerations; an empty one tolerates every key."""
    for n, toleration in enumerate(tolerations):
        key = toleration.get("key", "")
        for message in label_key(key) if key else ():
            yield invalid((*path, n, "key"), key, message, "write the key as example.com/name", "bad-label")


def _labels(levels: Sequence[Mapping[str, str]]) -> list[str]:
    return [level["nodeLabel"] for level in levels]


def _repeated(labels: Sequence[str]) -> int:
    return next(n for n, label in enumerate(labels) if label in labels[:n])


TOPOLOGY = {
    "spec": record(
        {
            "levels!": listed(
                record({"nodeLabel!": a_text(forms.NODE_LABEL, least=1, most=316)}),
                least=1,
                most=16,
                rules=(
                    Transition("field is immutable", lambda new, old: bool(new == old), "create another topology"),
                    SchemaRule(
                        "must be unique",
                        lambda levels: not levels or max(Counter(_labels(levels)).values()) == 1,
                        "drop one of those that are equal",
                        "duplicate",
                        lambda levels: (_repeated(_labels(levels)),),
                    ),
                    SchemaRule(
                        f"the {HOSTNAME} label can only be used at the lowest level of topology",
                        lambda levels: HOSTNAME not in _labels(levels)[:-1] or _labels(levels)[-1] == HOSTNAME,
                        "move it to the end",
                        "level-order",
                        lambda levels: (_labels(levels).index(HOSTNAME),),
                    ),
                ),
            )
        }
    )
}
