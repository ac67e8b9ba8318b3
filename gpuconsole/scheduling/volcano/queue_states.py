"""Opening and closing of Volcano's queues, and the effect on child queues (Volcano 1.15 controllers/queue)."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from gpuconsole.model.volcano import JobAction, VolcanoQueue

OPEN, CLOSED, CLOSING, UNKNOWN = "Open", "Closed", "Closing", "Unknown"
ROOT = "root"
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
"""Annotation of a queue that was closed with its parent, and opens with it."""
_SHUT = (CLOSED, CLOSING)
Queues = Mapping[str, VolcanoQueue]


def next_queue_state(state: str, action: JobAction, busy: bool) -> str:
    """The state after an action; a `busy` queue has PodGroups and stays Closing until they are gone."""
    shut = CLOSING if busy else CLOSED
    match state, action:
        case _, JobAction.OPEN_QUEUE:
            return OPEN
        case "Closed", _:
            return CLOSED
        case "Closing", _:
            return shut
        case _, JobAction.CLOSE_QUEUE:
            return shut
        case "Unknown", _:
            return UNKNOWN
        case _:
            return OPEN


def queue_refusal(queue: VolcanoQueue, action: JobAction, queues: Queues) -> str:
    """Why a queue cannot be opened or closed; empty if it can."""
    if action is JobAction.CLOSE_QUEUE and queue.name == ROOT and queue.state not in _SHUT:
        return "Root queue cannot be closed"
    parent = queues.get(queue.parent) if queue.parent not in ("", ROOT) else None
    if action is JobAction.OPEN_QUEUE and queue.state != OPEN and parent is not None and parent.state in _SHUT:
        return (
            f"Failed to open queue {queue.name} because its parent queue {parent.name} is closing or closed. "
            "Open the parent queue first."
        )
    return ""


def queue_command(name: str, action: JobAction, queues: Queues, busy: Collection[str]) -> list[VolcanoQueue]:
    """The changed queues when a queue is opened or closed, itself included; none if that is refused.

    Open descendants close with it, and those that closed with it open with it. `busy` are queues with PodGroups.
    """
    queue = queues[name]
    if queue_refusal(queue, action, queues):
        return []
    after = replace(queue, state=next_queue_state(queue.state, action, name in busy))
    if action is JobAction.OPEN_QUEUE and CLOSED_BY_PARENT in queue.annotations:
        after = replace(after, annotations={**queue.annotations, CLOSED_BY_PARENT: "false"})
    changed = [after] if after != queue else []
    known = {**queues, name: after}
    for child in sorted((child for child in queues.values() if child.parent == name), key=lambda child: child.name):
        if action is JobAction.CLOSE_QUEUE and child.state not in _SHUT:
            noted = replace(child, annotations={**child.annotations, CLOSED_BY_PARENT: "true"})
            changed += queue_command(child.name, action, {**known, child.name: noted}, busy)
        elif action is JobAction.OPEN_QUEUE and child.annotations.get(CLOSED_BY_PARENT) == "true":
            changed += queue_command(child.name, action, known, busy)
    return changed
