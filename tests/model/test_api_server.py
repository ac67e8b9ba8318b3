"""Strict mode refuses what Kueue's API server refuses, by its own outcomes for more than a thousand objects."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from msgspec import Struct

from gpuconsole.model.manifests import Severity, load_text
from tests.support.shared_material import CONFORMANCE, needs_conformance


class Write(Struct, frozen=True):
    """An object that was sent to the API server, and whether it was taken."""

    name: str
    document: dict[str, Any]
    accepted: bool


REFERENCES = ("undefined-", "no-namespace-selector", "namespace-not-selected")
"""Codes of findings about other objects, which an API server does not look at."""

NOT_CHECKED = {"kubectl fills in the namespace": ("metadata.namespace",)}
STRICTER = {
    "GPUs are whole": ("nvidia.com/gpu", "resources.1.nominalQuota"),
    "a weight is a weight in a LocalQueue too": ("LocalQueue: spec.fairSharing.weight",),
}


def table(name: str) -> Any:
    assert CONFORMANCE is not None
    return json.loads((CONFORMANCE / "tables" / "manifests" / f"{name}.json").read_text())


def mutations() -> Iterator[Write]:
    mutations = table("mutations")
    for case in mutations["cases"]:
        document = deepcopy(mutations["bases"][case["kind"]])
        place: Any = document
        *way, last = case.get("path", [""])
        for key in way:
            place = place[key]
        match case.get("op"):
            case "set":
                place[last] = case["value"]
            case "delete":
                del place[last]
            case "duplicate":
                place.insert(last, deepcopy(place[last]))
        yield Write(case["name"], document, case["outcome"]["accepted"])


def creations() -> Iterator[Write]:
    for name in ("unit_table_objects", "shipped_manifest_objects"):
        for case in table(name)["cases"]:
            yield Write(case["name"], case["object"], case["outcome"]["accepted"])
    for case in table("integration_specs")["cases"]:
        for step in case["steps"]:
            if step["verb"] == "create" and not step.get("subresource"):
                yield Write(case["name"], step["object"], step["outcome"]["accepted"])


def refused(write: Write) -> bool:
    findings = load_text(json.dumps(write.document), "object.json", strict=True).findings
    return any(f.severity is Severity.ERROR and not f.code.startswith(REFERENCES) for f in findings)


def explained(name: str, reasons: Mapping[str, tuple[str, ...]]) -> bool:
    return any(word in name for words in reasons.values() for word in words)


@needs_conformance
@pytest.mark.parametrize("writes", [mutations, creations])
def test_strict_mode_agrees_with_the_api_server(writes: Any) -> None:
    everything = list(writes())
    assert len(everything) > 300
    wrong = [write for write in everything if refused(write) == write.accepted]
    assert [w.name for w in wrong if not w.accepted and not explained(w.name, NOT_CHECKED)] == []
    assert [w.name for w in wrong if w.accepted and not explained(w.name, STRICTER)] == []
    assert len(wrong) <= len(everything) // 50
