"""Whatever stands in a document of a known kind: findings, never exceptions."""

import json
from copy import deepcopy
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.model.documents.findings import Key
from gpuconsole.model.manifests import LoadedManifests, decode_object, load_text
from gpuconsole.model.manifests.kinds import DECODERS, versions_of
from gpuconsole.model.objects import Object
from tests.support.sample_manifests import DOCUMENTS

ODD = st.sampled_from(
    ["", "0", "-1", "1e99", "9" * 50, "true", "Never", "a\x1b[0m", "ü" * 300, "0.5", "500m", "kueue.x-k8s.io/a", "1h"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | ODD
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10) | ODD, inner, max_size=4),
    max_leaves=10,
)


def paths(value: Any, path: tuple[Key, ...] = ()) -> list[tuple[Key, ...]]:
    """Every path in a document."""
    found = [path] if path else []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in entries:
        found += paths(child, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A valid document with up to three values replaced by something else."""
    document: dict[str, Any] = deepcopy(draw(st.sampled_from(list(DOCUMENTS.values()))))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([p for p in paths(document) if p[-1] not in ("kind", "apiVersion")]))
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = draw(VALUES)
    return document


@st.composite
def invented(draw: st.DrawFn) -> dict[str, Any]:
    """A document of a known kind in which anything may stand."""
    group, kind = draw(st.sampled_from(list(DECODERS)))
    version = versions_of(group, kind)[-1]
    body = draw(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "value", "items"]), VALUES, max_size=4))
    return {"apiVersion": f"{group}/{version}" if group else version, "kind": kind, **body}


def holds_up(loaded: LoadedManifests) -> None:
    for finding in loaded.findings:
        assert finding.line >= 1
        assert finding.problem
        assert finding.remedy
        assert finding.code
        assert all(part.isprintable() for part in (finding.path, finding.problem, finding.remedy, finding.object))
    # What was read is of the declared types throughout: it survives a file.
    data = msgspec.json.encode(loaded.objects)
    assert msgspec.json.decode(data, type=tuple[Object, ...]) == loaded.objects


@settings(max_examples=200, deadline=None)
@given(damaged() | invented(), st.booleans())
def test_any_document_gives_findings_and_no_exception(document: dict[str, Any], strict: bool) -> None:
    holds_up(load_text(json.dumps(document), "fuzz.json", strict=strict))
    decode_object(document)


@settings(max_examples=50, deadline=None)
@given(st.lists(damaged(), min_size=2, max_size=6))
def test_documents_that_name_each_other_wrongly_do_no_harm(documents: list[dict[str, Any]]) -> None:
    holds_up(load_text("\n---\n".join(json.dumps(document) for document in documents), "fuzz.yaml"))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.text("ab:-[]{}&*!|>'\"\n\t #,?%@", max_size=80), st.sampled_from(["a.yaml", "a.txt"]))
def test_any_text_gives_findings_and_no_exception(text: str, name: str) -> None:
    holds_up(load_text(text, name))
    holds_up(load_text(f"apiVersion: v1\nkind: Pod\n{text}", name))
