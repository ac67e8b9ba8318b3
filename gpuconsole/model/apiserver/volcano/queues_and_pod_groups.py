"""Validation of Volcano Queues, PodGroups, HyperNodes and pods; and what all of Volcano's webhooks share.

Shared: `Objection`, an error with Volcano's text; the order of tasks or flows by their dependencies; `fits`, whether a
document decodes into Volcano's Go types, which comes before the webhooks; and network topology.

A Queue is validated by itself (queues/validate: amounts, state, hierarchy annotations) and in its hierarchy (depth,
allocated pods in a parent, amounts that must fit). The others follow podgroups, hypernodes and pods validate.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver.jobs.framework import Document, at, entries, not_whole, whole
from gpuconsole.model.documents.findings import DocumentFindings, MapKey, Path
from gpuconsole.model.resources import MEMORY, MILLI, amount, canonical, format_quantity, parse_quantity


class Objection(Struct, frozen=True):
    """Error that a webhook of Volcano or KAI reports for an object."""

    path: Path
    text: str
    """The webhook's text, with the spaces and punctuation that separate it from other errors in the message."""
    remedy: str
    code: str

    @property
    def problem(self) -> str:
        """The text without the separators."""
        return self.text.strip(" ;\n.")


def message_of(objections: Iterable[Objection]) -> str:
    """Return the webhook's message with all these errors; empty if there are none."""
    return "".join(objection.text for objection in objections)


def report(findings: DocumentFindings, at: Path, objections: Iterable[Objection]) -> None:
    """Add the errors of a webhook to the findings; `at` is the path of the object in its document."""
    for objection in objections:
        findings.refused((*at, *objection.path), objection.problem, objection.remedy, objection.code)


def order_of(dependencies: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Sort tasks or flows so that each comes after its dependencies; None for a cycle or a missing dependency.

    Of the names that could come next, the one whose dependencies were completed last comes first (Volcano jobs/validate
    topoSort).
    """
    waits = {name: len(before) for name, before in dependencies.items()}
    free = [name for name, count in waits.items() if not count]
    done: list[str] = []
    while free:
        last = free.pop()
        done.append(last)
        for name, before in dependencies.items():
            if last in before:
                waits[name] -= 1
                if not waits[name]:
                    free.append(name)
    return done if len(done) == len(dependencies) else None


TEXT, WHOLE, QUANTITY, ANYTHING = "text", "whole", "quantity", "anything"
"""Types of values in the shapes below; a shape maps the fields of a kind that a webhook reads to their Go types."""
AMOUNTS = {"*": QUANTITY}
_TOPOLOGY = {"highestTierAllowed": WHOLE, "highestTierName": TEXT}
_POLICIES = [{"action": TEXT, "event": TEXT, "events": [TEXT], "exitCode": WHOLE}]
_RESOURCES = {"requests": AMOUNTS, "limits": AMOUNTS}
_CONTAINERS = [{"resources": _RESOURCES}]
_POD = {"spec": {"containers": _CONTAINERS, "initContainers": _CONTAINERS, "resources": _RESOURCES}}
_TASK = {
    "name": TEXT,
    "replicas": WHOLE,
    "minAvailable": WHOLE,
    "policies": _POLICIES,
    "template": _POD,
    "topologyPolicy": TEXT,
    "dependsOn": {"name": [TEXT]},
    "partitionPolicy": {
        **dict.fromkeys(("totalPartitions", "partitionSize", "minPartitions"), WHOLE),
        "networkTopology": _TOPOLOGY,
    },
}
_META = {"name": TEXT, "annotations": {"*": TEXT}}
JOB = {
    "metadata": _META,
    "spec": {
        "minAvailable": WHOLE,
        "queue": TEXT,
        "tasks": [_TASK],
        "policies": _POLICIES,
        "plugins": {"*": ANYTHING},
        "volumes": [{"mountPath": TEXT, "volumeClaimName": TEXT, "volumeClaim": {}}],
        "networkTopology": _TOPOLOGY,
    },
}
QUEUE_SHAPE = {
    "metadata": _META,
    "spec": {
        "parent": TEXT,
        "capability": AMOUNTS,
        "deserved": AMOUNTS,
        "guarantee": {"resource": AMOUNTS},
    },
    "status": {"state": TEXT, "allocated": AMOUNTS},
}
GROUP = {
    "metadata": _META,
    "spec": {
        "queue": TEXT,
        "networkTopology": _TOPOLOGY,
        "subGroupPolicy": [{"name": TEXT, "networkTopology": _TOPOLOGY}],
    },
}
HYPER_NODE = {
    "metadata": _META,
    "spec": {"members": [{"selector": {"regexMatch": {"pattern": TEXT}}}]},
}
JOB_FLOW = {"spec": {"flows": [{"name": TEXT, "dependsOn": {"targets": [TEXT]}}]}}
CRON_JOB = {"metadata": _META, "spec": {"schedule": TEXT, "timeZone": TEXT}}
POD = {"metadata": _META, "spec": {"schedulerName": TEXT}}
_LARGEST = 10**18


def fits(value: Any, shape: Any) -> bool:
    """True if a value decodes into the Go types of a shape such as `JOB`; an absent value always does.

    `*` in a shape matches any key of a map.
    """
    if value is None or shape == ANYTHING:
        return True
    match shape:
        case dict():
            if not isinstance(value, dict):
                return False
            each = shape.get("*")
            if each == QUANTITY and None in value.values():
                return False
            return all(fits(part, shape.get(key, each or ANYTHING)) for key, part in value.items())
        case list():
            return isinstance(value, list) and all(part is not None and fits(part, shape[0]) for part in value)
        case "text":
            return isinstance(value, str)
        case "whole":
            return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
        case _:
            return _is_quantity(value)


def _is_quantity(value: Any) -> bool:
    try:
        parse_quantity(value)
    except (ValueError, TypeError):
        return False
    return isinstance(value, (str, int, float))


BOTH = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"


def names_both(place: Any) -> bool:
    """True if an object's `networkTopology` sets both highestTierAllowed and highestTierName, which Volcano refuses."""
    asked = at(place, "networkTopology")
    return at(asked, "highestTierAllowed") is not None and bool(at(asked, "highestTierName"))


HIERARCHY = "volcano.sh/hierarchy"
WEIGHTS = "volcano.sh/hierarchy-weights"
"""Annotations of a Queue for hierarchical DRF: its path, and the weight of each part."""
STATES = ("Open", "Closed")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)|nan", re.IGNORECASE)
_ORDER = "guarantee <= deserved <= capability"
Queues = Mapping[str, Document]
"""All Queues by name."""


def check_queue(queue: Document, queues: Queues) -> Iterator[Objection]:
    """Yield the errors in a queue; `queues` are all queues by name."""
    spec = at(queue, "spec") or {}
    yield from _check_amounts(spec)
    state = at(queue, "status", "state")
    if state and state not in STATES:
        yield _wrong(("status", "state"), "spec.state", state, f"queue state must be in [{' '.join(STATES)}]", "Open")
    yield from check_hierarchy(queue, queues)


def _wrong(path: Path, field: str, value: Any, detail: str, remedy: str) -> Objection:
    text = f'requestBody.{field}: Invalid value: "{value}": {detail}'
    return QueueObjection(path, text, remedy, "bad-queue", detail)


class QueueObjection(Objection, frozen=True):
    """Error in a queue; its `problem` omits the field, because the finding has its path."""

    detail: str

    @property
    def problem(self) -> str:
        return self.detail


def _check_amounts(spec: Any) -> Iterator[Objection]:
    capability, deserved = spec.get("capability") or {}, spec.get("deserved") or {}
    guarantee = at(spec, "guarantee", "resource") or {}
    yield from _not_negative(capability, "capability")
    yield from _not_negative(deserved, "deserved")
    for name, text in guarantee.items():
        yield from _not_negative({name: text}, "guarantee", "resource")
        least = f"guarantee[{name}]={canonical(text)}"
        if name not in deserved:
            yield _of(name, "<nil>", f"deserved[{name}] must be >= {least}")
        elif parse_quantity(deserved[name]) < parse_quantity(text):
            shown = canonical(deserved[name])
            yield _of(name, shown, f"deserved[{name}]={shown} must be >= {least}")
    for name, text in deserved.items():
        if name in capability and parse_quantity(text) > parse_quantity(capability[name]):
            shown = canonical(text)
            most = f"capability[{name}]={canonical(capability[name])}"
            yield _of(name, shown, f"deserved[{name}]={shown} must be <= {most}")


def _of(name: str, shown: str, detail: str) -> Objection:
    return _wrong(("spec", "deserved", MapKey(name)), f"spec.deserved.{name}", shown, detail, f"keep to {_ORDER}")


def _not_negative(amounts: Mapping[str, Any], *keys: str) -> Iterator[Objection]:
    for name, text in amounts.items():
        if parse_quantity(text) < Fraction():
            field = ".".join(("spec", *keys, name))
            detail = "must be greater than or equal to 0"
            yield _wrong(("spec", *keys, MapKey(name)), field, canonical(text), detail, "write 0 or more")


def check_hierarchy(queue: Document, queues: Queues) -> Iterator[Objection]:
    """Report the first error in a queue's annotations for hierarchical DRF."""
    notes = at(queue, "metadata", "annotations") or {}
    hierarchy, weights = notes.get(HIERARCHY, ""), notes.get(WEIGHTS, "")
    if not hierarchy and not weights:
        return
    if hierarchy.count("/") != weights.count("/"):
        yield _noted(HIERARCHY, hierarchy, f"{HIERARCHY} must have the same length with {WEIGHTS}")
        return
    for weight in weights.split("/"):
        if not _NUMBER.fullmatch(weight):
            detail = (
                f'{weight} in the {weights} is invalid number: strconv.ParseFloat: parsing "{weight}": invalid syntax'
            )
            yield _noted(WEIGHTS, weights, detail)
            return
        if not float(weight) > 0:
            yield _noted(WEIGHTS, weights, f"{weight} in the {weights} must be larger than 0")
            return
    mine = at(queue, "metadata", "name")
    for name, other in sorted(queues.items()):
        theirs = (at(other, "metadata", "annotations") or {}).get(HIERARCHY, "")
        if theirs and name != mine and theirs.startswith(f"{hierarchy}/"):
            yield _noted(
                HIERARCHY, hierarchy, f"{hierarchy} is not allowed to be in the sub path of {theirs} of queue {name}"
            )
            return


def _noted(key: str, value: str, detail: str) -> Objection:
    path = ("metadata", "annotations", MapKey(key))
    return _wrong(path, "metadata.annotations", value, detail, "write root/sci/dev and 1/2/8, as an example")


ROOT = "root"
MOST_LEVELS = 5
_TOPS = ("", ROOT)
_PARENT: Path = ("spec", "parent")


def among(queue: Document, queues: Queues) -> Iterator[Objection]:
    """Yield the error in a queue's place in the hierarchy: its parent, or else its amounts."""
    misplaced = list(check_place(queue, queues))
    yield from misplaced or check_amounts(queue, queues)


def name_of(queue: Document) -> str:
    """Name of a queue."""
    return str(at(queue, "metadata", "name") or "")


def parent_of(queue: Document) -> str:
    """Name of a queue's parent; empty if it names none."""
    return str(at(queue, *_PARENT) or "")


def children_of(name: str, queues: Queues) -> list[Document]:
    """Return the queues whose parent is this one, sorted by name."""
    return [queue for _, queue in sorted(queues.items()) if parent_of(queue) == name]


def check_place(queue: Document, queues: Queues, most: int = MOST_LEVELS) -> Iterator[Objection]:
    """Report the first error in a queue's parent: the queue itself, the depth, a missing queue, or allocated pods."""
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


_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_MEMBERS = ("spec", "members")


def check_group_queue(group: Document, queues: Queues) -> Iterator[Objection]:
    """Validate that the queue of a PodGroup exists and is open."""
    name = at(group, "spec", "queue")
    if not name:
        return
    queue, path = queues.get(name), ("spec", "queue")
    if queue is None:
        text = f'unable to find queue: queue.scheduling.volcano.sh "{name}" not found'
        yield Objection(path, text, f"define a Volcano Queue {name}", "undefined-volcano-queue")
        return
    state = at(queue, "status", "state") or ""
    if state != "Open":
        text = f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is `{state}`. "
        yield Objection(path, text, "open the queue, or choose another", "closed-volcano-queue")


def check_group(group: Document) -> Iterator[Objection]:
    """Validate that the PodGroup and its sub-groups set highestTierAllowed or highestTierName, not both.

    Only the first wrong sub-group is reported.
    """
    if names_both(at(group, "spec")):
        yield Objection(("spec", "networkTopology"), f"{BOTH}.", "keep one of them", "bad-topology")
    for n, policy in enumerate(entries(group, "spec", "subGroupPolicy")):
        if names_both(policy):
            text = f"in subGroupPolicy '{at(policy, 'name') or ''}': {BOTH}."
            path = ("spec", "subGroupPolicy", n, "networkTopology")
            yield Objection(path, text, "keep one of them", "bad-topology")
            return


def check_hyper_node(node: Document) -> Iterator[Objection]:
    """Validate that a HyperNode has members, and that their patterns are regular expressions."""
    members = entries(node, *_MEMBERS)
    if not members:
        yield Objection(_MEMBERS, "member must have at least one member", "add a member", "required")
    for n, member in enumerate(members):
        pattern = at(member, "selector", "regexMatch", "pattern")
        try:
            re.compile(pattern or "")
        except re.error as problem:
            path = (*_MEMBERS, n, "selector", "regexMatch", "pattern")
            yield Objection(path, f"member regexMatch pattern is invalid: {problem}", "correct it", "bad-pattern")


def check_pod(pod: Document, schedulers: tuple[str, ...] = ("volcano",)) -> Iterator[Objection]:
    """Validate that a pod of Volcano has at most one disruption budget: a number, or a percentage."""
    notes = at(pod, "metadata", "annotations") or {}
    if at(pod, "spec", "schedulerName") not in schedulers:
        return
    for key in _BUDGETS:
        text = _budget_fault(key, notes[key]) if key in notes else ""
        if text:
            path = ("metadata", "annotations", MapKey(key))
            yield Objection(path, text, "write a number, or 1% to 99%", "bad-budget")
            return
    if all(key in notes for key in _BUDGETS):
        text = f"not allow configure multiple annotations <[{' '.join(_BUDGETS)}]> at same time"
        yield Objection(("metadata", "annotations"), text, "keep one of them", "bad-budget")


def _budget_fault(key: str, text: str) -> str:
    number = whole(text, 32)
    if number is not None:
        return "" if number > 0 else f'invalid value <"{text}"> for {key}, it must be a positive integer'
    share = whole(text.replace("%", ""))
    if share is None:
        return f"invalid value {not_whole(text.replace('%', ''))} for {key}"
    if 0 < share < 100:
        return ""
    return f'invalid value <"{text}"> for {key}, it must be a valid percentage which between 1% ~ 99%'
