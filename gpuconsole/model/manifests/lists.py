"""Documents with several objects: lists, and scenarios with the objects that they create."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.text import clean

MOST_NESTED = 4
MOST_ITEMS = 1_000_000
_SCENARIO = ("steps", "objects", "arrivals", "files")


def is_scenario(document: dict[str, Any]) -> bool:
    """True for a scenario file: it has steps, objects, arrivals or files, but no kind and no apiVersion."""
    return "kind" not in document and "apiVersion" not in document and any(key in document for key in _SCENARIO)


def is_snapshot(document: dict[str, Any]) -> bool:
    """True for the Snapshot of a saved simulation, which has no kind, but objects, time and recent."""
    return "kind" not in document and all(key in document for key in ("objects", "time", "recent"))


def objects_in(place: Reader, depth: int = 0) -> Iterator[Reader]:
    """Yield the objects of a document: itself, or the items of a List kind, each at its own path."""
    kind = place.value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(place.value.get("items"), list)):
        yield place
    elif depth < MOST_NESTED:
        for item in place.items("items", MOST_ITEMS):
            yield from objects_in(_with_kind(item, place.value, kind.removesuffix("List")), depth + 1)


def _with_kind(item: Reader, parent: dict[str, Any], kind: str) -> Reader:
    """Return an item with the kind of its typed list (such as `PodList`) if it has none."""
    if "kind" in item or not kind:
        return item
    return item.reporting(item.report, {"apiVersion": parent.get("apiVersion"), "kind": kind, **item.value})


def first_objects(scenario: Reader) -> Iterator[Reader]:
    """Yield the objects with which a scenario starts."""
    for item in scenario.items("objects", MOST_ITEMS):
        yield from objects_in(item)


def later_objects(scenario: Reader) -> Iterator[Reader]:
    """Yield the objects that a scenario's steps create."""
    for step in scenario.items("steps", MOST_ITEMS):
        for item in step.items("create", MOST_ITEMS):
            yield from objects_in(item)


def label(document: Mapping[str, Any], kind: str) -> str:
    """Return `Kind/namespace/name` of a document, without missing parts."""
    metadata = document.get("metadata")
    names = [metadata.get(key) for key in ("namespace", "name")] if isinstance(metadata, dict) else []
    return clean("/".join(filter(None, [kind, *(name for name in names if isinstance(name, str))])), 600)
