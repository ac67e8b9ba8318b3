"""PodGroups, HyperNodes and pods that Volcano schedules (podgroups, hypernodes, pods: validate)."""

import re
from collections.abc import Iterator

from gpuconsole.model.apiserver.jobs.numbers import not_whole, whole
from gpuconsole.model.apiserver.jobs.parts import Document, at, entries
from gpuconsole.model.apiserver.volcano.objections import Objection
from gpuconsole.model.apiserver.volcano.queues import Queues
from gpuconsole.model.apiserver.volcano.topology import BOTH, names_both
from gpuconsole.model.documents.findings import MapKey

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
