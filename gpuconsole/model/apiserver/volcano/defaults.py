"""Volcano's mutating webhooks, as patches (queues/mutate, podgroups/mutate)."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.jobs.parts import Document, at
from gpuconsole.model.apiserver.volcano.groups import default_queue
from gpuconsole.model.apiserver.volcano.queues import default_notes

Patch = list[dict[str, Any]]
QUEUE_OPERATIONS = ("CREATE", "UPDATE")


def patch_of_queue(queue: Document) -> Patch:
    """Return the defaults of a new queue: root of its hierarchy, reclaimable, weight."""
    notes = default_notes(at(queue, "metadata", "annotations") or {})
    found = [_add(f"/metadata/annotations/{key.replace('/', '~1')}", value) for key, value in notes.items()]
    if at(queue, "spec", "reclaimable") is None:
        found.append(_add("/spec/reclaimable", True))
    if not at(queue, "spec", "weight"):
        found.append(_add("/spec/weight", 1))
    return found


def patch_of_group(group: Document, notes: Mapping[str, str]) -> Patch:
    """Return the defaults of a new PodGroup: the queue in its namespace's annotations."""
    queue = default_queue(group, notes)
    return [] if queue is None else [_add("/spec/queue", queue)]


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
