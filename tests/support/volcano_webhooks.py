"""Volcano's answer to an admission review of a queue, put together from the rules that the console checks."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import (
    among,
    check_amounts,
    check_queue,
    message_of,
    parent_of,
)

Document = Mapping[str, Any]

AMOUNTS = ("capability", "deserved", "guarantee")


def queue_refusal(queue: Document, old: Document | None, queues: Mapping[str, Document]) -> str:
    """Why Volcano refuses a new queue, or one that replaces `old`; empty if it is accepted."""
    own = list(dict.fromkeys(objection.text for objection in check_queue(queue, queues)))
    if own:
        return own[0] if len(own) == 1 else f"[{', '.join(own)}]"
    if old is None or parent_of(queue) != parent_of(old):
        return message_of(among(queue, queues))
    changed = any(queue["spec"].get(kind) != old["spec"].get(kind) for kind in AMOUNTS)
    return message_of(check_amounts(queue, queues)) if changed else ""
