"""Access to optional fields of job documents, which may be absent or of the wrong type."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.jobs.topology import Pods
from gpuconsole.model.documents.findings import Key, Path

Document = Mapping[str, Any]


def at(document: Any, *keys: Key) -> Any:
    """Return the value at a path of keys, or None."""
    for key in keys:
        if isinstance(key, int):
            document = document[key] if isinstance(document, list) and key < len(document) else None
        else:
            document = document.get(key) if isinstance(document, dict) else None
    return document


def entries(document: Any, *keys: Key) -> list[Any]:
    """Return the list at a path of keys, or an empty one."""
    found = at(document, *keys)
    return found if isinstance(found, list) else []


def number(document: Any, *keys: Key, default: int = 1) -> int:
    """Return the number at a path of keys, or the default."""
    found = at(document, *keys)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def pods_of(template: Any, name: str, count: int, path: Path) -> Pods:
    """Return a pod set with the annotations of the template at a path."""
    notes = at(template, "metadata", "annotations")
    found = {k: v for k, v in notes.items() if isinstance(v, str)} if isinstance(notes, dict) else {}
    return Pods(name, count, found, (*path, "metadata", "annotations"))


def at_once(spec: Any) -> int:
    """Number of pods of a batch job that run at the same time."""
    parallelism = number(spec, "parallelism")
    return min(parallelism, number(spec, "completions", default=parallelism))
