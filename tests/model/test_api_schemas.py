"""The schemas say what Kueue's CustomResourceDefinitions say: every field, bound, word, default, list type and rule."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from gpuconsole.model.apiserver import KINDS
from gpuconsole.model.apiserver.schema import Schema, Transition, ValueType
from tests.support.shared_material import SHARED, needs_shared

FORMS = {
    ValueType.RECORD: "object",
    ValueType.MAP: "object",
    ValueType.LIST: "array",
    ValueType.TEXT: "string",
    ValueType.WHOLE: "integer",
    ValueType.FLAG: "boolean",
}
SIZES = {"int32": 2**31, "int64": 2**63, None: 2**63}
CASELESS = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"

Definition = Mapping[str, Any]


def differences(schema: Schema, theirs: Definition, path: str) -> Iterator[str]:
    """What the two say differently of one value and of everything in it; metadata of the object itself is skipped."""
    ours: dict[str, Any] = {
        "default": schema.default,
        "words": set(schema.words),
        "rules": sorted((rule.message, isinstance(rule, Transition)) for rule in schema.rules),
    }
    want: dict[str, Any] = {
        "default": theirs.get("default"),
        "words": set(theirs.get("enum", ())),
        "rules": sorted((r["message"], "oldSelf" in r["rule"]) for r in theirs.get("x-kubernetes-validations", ())),
    }
    if theirs.get("x-kubernetes-int-or-string"):
        want["form"] = ValueType.QUANTITY if "pattern" in theirs else ValueType.INT_OR_TEXT
        ours["form"] = schema.form
    else:
        want["form"], ours["form"] = theirs.get("type"), FORMS.get(schema.form)
    ours |= _bounds(schema)
    want |= _their_bounds(theirs)
    yield from (
        f"{path}: {key} is {ours.get(key)}, not {value}" for key, value in want.items() if ours.get(key) != value
    )
    for name, field in theirs.get("properties", {}).items():
        if name in schema.fields and (path, name) != ("", "metadata"):
            yield from differences(schema.fields[name], field, f"{path}.{name}")
    below = theirs.get("items") or theirs.get("additionalProperties")
    if isinstance(below, dict) and schema.items is not None:
        yield from differences(schema.items, below, f"{path}[]")


def _bounds(schema: Schema) -> dict[str, Any]:
    pattern = schema.pattern.pattern if schema.pattern is not None and schema.form is ValueType.TEXT else None
    return {
        "fields": set(schema.fields),
        "required": set(schema.required),
        "least": schema.least,
        "most": schema.most,
        "pattern": None if pattern is None else f"^{pattern}$",
        "keys": schema.keys,
        "distinct": schema.distinct,
        "moment": schema.moment,
    }


def _their_bounds(theirs: Definition) -> dict[str, Any]:
    form, most = theirs.get("type"), {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
    least = {"string": "minLength", "array": "minItems"}
    size = SIZES[theirs.get("format")] if form == "integer" else 0
    pattern = theirs.get("pattern") if form == "string" else None
    return {
        "fields": set(theirs.get("properties", ())),
        "required": set(theirs.get("required", ())),
        "least": theirs.get("minimum", -size) if size else theirs.get(least.get(form or "", "")),
        "most": theirs.get("maximum", size - 1) if size else theirs.get(most.get(form or "", "")),
        "pattern": "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$" if pattern == CASELESS else pattern,
        "keys": tuple(theirs.get("x-kubernetes-list-map-keys", ())),
        "distinct": theirs.get("x-kubernetes-list-type") == "set",
        "moment": theirs.get("format") == "date-time",
    }


FILES = {"Topology": "topologies", "WorkloadPriorityClass": "workloadpriorityclasses"}


@needs_shared
@pytest.mark.parametrize("name", KINDS)
def test_a_schema_is_that_of_the_definition(name: str) -> None:
    assert SHARED is not None
    file = SHARED / "crds" / "kueue" / f"kueue.x-k8s.io_{FILES.get(name, name.lower() + 's')}.yaml"
    whole: Definition = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    served = next(version for version in whole["spec"]["versions"] if version["name"] == "v1beta2")
    kind = KINDS[name]
    assert kind.namespaced == (whole["spec"]["scope"] == "Namespaced")
    assert kind.has_status == ("status" in (served.get("subresources") or {}))
    assert list(differences(kind.schema, served["schema"]["openAPIV3Schema"], "")) == []
