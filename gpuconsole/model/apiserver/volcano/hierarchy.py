"""Hierarchical Volcano Queues: depth, allocated pods in a parent, and amounts that must fit (queues/validate)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.jobs.parts import Document, at
from gpuconsole.model.apiserver.volcano.objections import Objection, message_of
from gpuconsole.model.apiserver.volcano.queues import Queues, check_queue, refusal_of
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.quantity import MEMORY, MILLI, amount, format_quantity

ROOT = "root"
MOST_LEVELS = 5
_TOPS = ("", ROOT)
_PARENT: Path = ("spec", "parent")
_KINDS = ("capability", "deserved", "guarantee")


def refusal(queue: Document, old: Document | None, queues: Queues) -> str:
    """Return why a new queue, or one that replaces `old`, is refused; empty if it is accepted."""
    own = refusal_of(list(check_queue(queue, queues)))
    if own:
        return own
    moved = old is None or parent_of(queue) != parent_of(old)
    if moved:
        return message_of(among(queue, queues))
    changed = old is None or any(_amounts(queue, kind) != _amounts(old, kind) for kind in _KINDS)
    return message_of(check_amounts(queue, queues)) if changed else ""


def among(queue: Document, queues: Queues) -> Iterator[Objection]:
    """Yield the error in a queue's parent, or else in its amounts."""
    misplaced = list(check_place(queue, queues))
    yield from misplaced or check_amounts(queue, queues)


def name_of(queue: Document) -> str:
    """Name of a queue."""
    return str(at(queue, "metadata", "name") or "")


def parent_of(queue: Document) -> str:
    """Name of a queue's parent; empty if it names none."""
    return str(at(queue, *_PARENT) or "")


def children_of(name: str, queues: Queues) -> list[Document]:
    """Return the child queues of a queue, sorted by name."""
    return [queue for _, queue in sorted(queues.items()) if parent_of(queue) == name]


def check_place(queue: Document, queues: Queues, most: int = MOST_LEVELS) -> Iterator[Objection]:
    """Report the first error in a queue's parent: a cycle, the depth, a missing queue, or allocated pods."""
    name, above = name_of(queue), parent_of(queue)
    if above in _TOPS:
        return
    text = f"queue {name} cannot use itself as parent" if above == name else depth_fault(queue, queues, most)
    parent = queues.get(above)
    if not text and parent is None:
        text = f"failed to get parent queue of queue {name}: {_not_found(above)}"
    if not text and parent is not None and not children_of(above, queues):
        pods = _pods_in(parent)
        if pods:
            text = f"queue {above} cannot be the parent queue of queue {name} because it has allocated Pods: {pods}"
    if text:
        yield Objection(_PARENT, text, "choose another parent", "bad-parent")


def depth_fault(queue: Document, queues: Queues, most: int) -> str:
    """Return the error if a queue is deeper than `most` levels, or an ancestor is missing; empty if it is valid."""
    name, above, depth = name_of(queue), parent_of(queue), 1
    while above not in _TOPS:
        depth += 1
        if depth > most:
            return f"queue {name} exceeds the maximum allowed depth of {most}"
        parent = queues.get(above)
        if parent is None:
            return f"failed to get parent queue {above} of queue {name}: {_not_found(above)}"
        above = parent_of(parent)
    return ""


def _not_found(name: str) -> str:
    return f'queue.scheduling.volcano.sh "{name}" not found'


def _pods_in(queue: Document) -> int:
    return amount("pods", (at(queue, "status", "allocated") or {}).get("pods", 0))


def check_amounts(queue: Document, queues: Queues) -> Iterator[Objection]:
    """Report the first amount of a queue that does not fit its parent, siblings or children."""
    texts = list(_amount_faults(queue, queues)) if name_of(queue) != ROOT else []
    if texts:
        yield Objection(("spec",), texts[0], "lower the amounts, or raise the parent's", "bad-amounts")


def _amount_faults(queue: Document, queues: Queues) -> Iterator[str]:
    above = parent_of(queue)
    if above not in _TOPS:
        parent = queues.get(above)
        if parent is None:
            yield f"parent queue {above} not found: {_not_found(above)}"
            return
        yield from ancestor_faults(queue, queues)
        siblings = [other for other in children_of(above, queues) if name_of(other) != name_of(queue)]
        yield from _sum_faults(parent, (*siblings, queue), "parent queue")
    children = children_of(name_of(queue), queues)
    if children:
        yield from child_faults(queue, children, queues)


def ancestor_faults(queue: Document, queues: Queues) -> Iterator[str]:
    """Yield an error for a capability above that of the nearest ancestor that sets the resource."""
    for name, value in _capability(queue).items():
        most = _nearest(queue, name, queues)
        if most is not None and value > most:
            mine, theirs = _shown(name, value), _shown(name, most)
            yield f"queue {name_of(queue)} capability[{name}]={mine} exceeds its ancestor's capability={theirs}"


def _nearest(queue: Document, resource: str, queues: Queues) -> int | None:
    above = parent_of(queue)
    while above not in _TOPS:
        parent = queues.get(above)
        if parent is None:
            return None
        value = _capability(parent).get(resource, 0)
        if value > 0:
            return value
        above = parent_of(parent)
    return None


def child_faults(queue: Document, children: Iterable[Document], queues: Queues) -> Iterator[str]:
    """Yield an error for a capability below a descendant's, and for sums of children that exceed the queue's."""
    below = list(children)
    for name, value in _capability(queue).items():
        most = max((_largest(child, name, queues) for child in below), default=0)
        if value < most:
            mine, theirs = _shown(name, value), _shown(name, most)
            start = f"queue {name_of(queue)} capability[{name}]={mine}"
            yield f"{start} is smaller than its descendants' max capability={theirs}"
    yield from _sum_faults(queue, below, "queue")


def _largest(queue: Document, resource: str, queues: Queues) -> int:
    value = _capability(queue).get(resource, 0)
    if value > 0:
        return value
    return max((_largest(child, resource, queues) for child in children_of(name_of(queue), queues)), default=0)


def _sum_faults(parent: Document, children: Iterable[Document], word: str) -> Iterator[str]:
    """Yield an error if the guarantee or deserved of the children adds up to more than their parent's."""
    totals: dict[str, dict[str, int]] = {"guarantee": {}, "deserved": {}}
    limits = {kind: _amounts(parent, kind) for kind in totals}
    for child in children:
        for kind, total in totals.items():
            for name, value in _amounts(child, kind).items():
                total[name] = total.get(name, 0) + value
            limit = limits[kind]
            if any(value > limit.get(name, 0) for name, value in total.items()):
                yield (
                    f"{word} {name_of(parent)} validation failed: sum of children's {kind} ({_written(total)})"
                    f" exceeds parent's {kind} limit ({_written(limit)})"
                )
                return


def _capability(queue: Document) -> dict[str, int]:
    return _read(at(queue, "spec", "capability"))


def _amounts(queue: Document, kind: str) -> dict[str, int]:
    return _read(at(queue, "spec", *(("guarantee", "resource") if kind == "guarantee" else (kind,))))


def _read(texts: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: amount(name, text) for name, text in (texts or {}).items()}


def _shown(name: str, value: int) -> str:
    if name in MILLI or name == MEMORY:
        return format_quantity(name, value)
    return f"{value * 1000:.2f}"


def _written(amounts: Mapping[str, int]) -> str:
    """Format amounts as Volcano prints a Resource: CPU and scalar resources in thousandths."""
    parts = [f"cpu {amounts.get('cpu', 0):.2f}", f"memory {amounts.get(MEMORY, 0):.2f}"]
    others = (name for name in sorted(amounts) if name not in ("cpu", MEMORY, "pods"))
    return ", ".join([*parts, *(f"{name} {amounts[name] * 1000:.2f}" for name in others)])
