"""Parsers for the messages of kube-scheduler, Volcano and KAI about pending pods.

`read_nodes` reads the nodes that each reason excludes, from messages of kube-scheduler (1.18 and later) and Volcano.
`read_engine` reads messages of Volcano 1.8 to 1.15 (conditions of PodGroups, FailedScheduling of pods) and of KAI 0.13
about pods and pod groups; a text that is not recognized gives None, never a guess.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.pending.reasons import ParsedReason, PendingReason

_HEAD = re.compile(r"(?P<fit>\d+)/(?P<all>\d+) nodes are (?:un)?available")
"""Volcano counts the nodes that are left, and calls them unavailable."""
_NODE_REASONS = tuple(
    re.compile(rf"(?P<count>\d+) {pattern}")
    for pattern in (
        r"Insufficient (?P<resource>[^\s,]+?)(?=[,.]?(?:\s|$))",
        r"node\(s\) had untolerated taint(?:\(s\)| \{(?P<name>[^}]*)\})",
        r"node\(s\) had taints? (?:\{(?P<name>[^}]*)\}, )?that the pod didn't tolerate",
        r"node\(s\) didn't match Pod's node affinity(?:/selector)?",
        r"node\(s\) didn't match node selector",
        r"node\(s\) didn't (?:match|satisfy existing pods) (?:pod )?(?:anti-)?affinity(?: rules|/\S+)?",
        r"node\(s\) had (?:volume )?node affinity conflict",
        r"node\(s\) didn't find available persistent volumes to bind",
        r"node\(s\) exceed max volume count",
        r"node\(s\) didn't have free ports for the requested pod ports",
        r"cannot allocate all claims",
        r"node\(s\) (?:pod number exceeded|resource fit failed)",
        r"node\(s\) were unschedulable",
        r"node\(s\) didn't match pod topology spread constraints(?: \([^)]*\))?",
        r"node\(s\) were not ready",
        r"Too many pods",
    )
)


def read_nodes(text: str) -> tuple[ParsedReason, ...]:
    """Parse a FailedScheduling message; `count` is the number of nodes that each reason excludes, most first.

    Nodes that the pod does not select come last: more capacity there would not help.
    """
    head = _HEAD.search(text)
    if head is None:
        return (ParsedReason(code=PendingReason.OTHER, text=text),) if text else ()
    body = text[head.end() :].partition(" preemption: ")[0]
    reasons = [
        ParsedReason(
            code=PendingReason.NODES,
            text=match[0],
            count=int(match["count"]),
            resource=match.groupdict().get("resource") or "",
            name=match.groupdict().get("name") or "",
        )
        for pattern in _NODE_REASONS
        for match in pattern.finditer(body)
    ]
    reasons.sort(key=lambda reason: (_unselected(reason), -reason.count))
    return tuple(reasons) or (ParsedReason(code=PendingReason.NODES, text=text),)


def _unselected(reason: ParsedReason) -> bool:
    return reason.text.endswith(("Pod's node affinity", "Pod's node affinity/selector", "match node selector"))


VOLCANO, KAI = "Volcano", "KAI"


class SchedulerTextKind(StrEnum):
    """What keeps a pod from running; of several kinds the first counts, as a gang that is not enqueued needs no
    node.
    """

    QUEUE_MISSING = "queue-missing"
    OVERUSED = "overused"
    VICTIMS = "victims"
    GANG = "gang"
    NODES = "nodes"


_RANK = {kind: rank for rank, kind in enumerate(SchedulerTextKind)}


class SchedulerText(Struct, frozen=True, kw_only=True):
    """A recognized message of a scheduler: what keeps the pod from running, and a remedy."""

    source: str
    kind: SchedulerTextKind
    headline: str
    """One sentence."""
    remedy: str = ""
    """Change that would unblock it."""


class _Form(Struct, frozen=True):
    source: str
    kind: SchedulerTextKind
    pattern: re.Pattern[str]
    headline: str
    remedy: str = ""


def _form(source: str, kind: SchedulerTextKind, pattern: str, headline: str, remedy: str = "") -> _Form:
    return _Form(source, kind, re.compile(pattern, re.DOTALL), headline, remedy)


_FORMS: tuple[_Form, ...] = (
    _form(
        VOLCANO,
        SchedulerTextKind.OVERUSED,
        r"resource in cluster is overused(?:: (?:overused )?(?P<what>.*))?",
        "Not enqueued by Volcano: enqueued jobs already request all {what} (plugin overcommit).",
        "other jobs end, or the overcommit-factor is raised",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.OVERUSED,
        r"queue resource quota insufficient(?:: (?:insufficient )?(?P<what>.*))?",
        "Not enqueued by Volcano: its queue would exceed its capability for {what}.",
        "jobs in its queue end, or the queue's capability is raised",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.OVERUSED,
        r"(?:Queue|queue) <?(?P<what>[^<>\s]+)>? is overused.*",
        "Its queue {what} is overused: it has its deserved share, so other queues come first.",
        "jobs in its queue end, or the queue's weight or deserved amount is raised",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.OVERUSED,
        r"resource quota insufficient, (?P<what>.*)",
        "Not enqueued by Volcano: the ResourceQuota of its namespace would be exceeded ({what}).",
        "pods in its namespace end, or the ResourceQuota is raised",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.GANG,
        r"Not enough valid tasks for gang-scheduling, (?P<what>.*)",
        "Gang not scheduled, too few pods exist: {what}.",
        "at least minAvailable pods exist",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.GANG,
        r"[Pp]od \S+ can possibly be assigned to (?P<what>[^\s,]+)(?:, once minAvailable is satisfied)?",
        "A pod fits on {what} and waits for the rest of its gang.",
        "free capacity for minAvailable pods at once",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.VICTIMS,
        r"[Pp]od \S+ can possibly be assigned to (?P<what>[^\s,]+), "
        r"once resource is released(?: and minAvailable is satisfied)?",
        "It fits on {what} once the evicted pods there have terminated.",
        "the evicted pods on {what} terminate",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.GANG,
        r"(?:In hyperNode \S+: )?(?:(?P<part>\d+/\d+) tasks in gang unschedulable: )?"
        r"pod group is not ready, (?P<what>.*?)(?:;.*)?\.?",
        "Gang not scheduled: {what}.",
        "free capacity for minAvailable pods at once",
    ),
    _form(
        VOLCANO,
        SchedulerTextKind.NODES,
        r"pod group is ready, (?P<what>.*?)(?:;.*)?\.?",
        "Partially scheduled gang: it has its minimum of pods, {what}.",
        "free capacity for the remaining pods",
    ),
    _form(
        KAI,
        SchedulerTextKind.OVERUSED,
        r"(?:OverLimit: )(?P<what>.*)",
        "The job would exceed its queue's limit: {what}",
        "jobs in its queue end, or the queue's limit is raised",
    ),
    _form(
        KAI,
        SchedulerTextKind.OVERUSED,
        r"(?:NonPreemptibleOverQuota: )(?P<what>.*)",
        "Non-preemptible work must fit into its queue's quota: {what}",
        "make it preemptible, or raise the queue's quota",
    ),
    _form(
        KAI,
        SchedulerTextKind.QUEUE_MISSING,
        r"(?:QueueDoesNotExist: )(?P<what>.*)",
        "Its queue does not exist: {what}",
        "create the queue, or set label kai.scheduler/queue to another one",
    ),
    _form(
        KAI,
        SchedulerTextKind.NODES,
        r"(?:PodSchedulingErrors: )?(?:Resources were not found for pod (?P<pod>\S+) due to: )?"
        r"no nodes with enough resources were found: (?P<what>.*?)\.*",
        "No node fits its pods: {what}.",
        "a node with enough free resources for each of its pods",
    ),
    _form(
        KAI,
        SchedulerTextKind.GANG,
        r"(?:PodSchedulingErrors: )?Resources were found for (?P<part>\d+) pods while (?P<what>\d+) are required"
        r" for gang scheduling\b.*",
        "Gang not scheduled: {part} of {what} pods fit on nodes.",
        "free capacity for all of them at once, or a smaller minMember",
    ),
    _form(
        KAI, SchedulerTextKind.NODES, r"PodSchedulingErrors: (?P<what>.*)", "Not all of its pods fit on nodes: {what}"
    ),
    _form(KAI, SchedulerTextKind.NODES, r"Unable to schedule podgroup", "KAI could not schedule its pod group."),
)


_SKIPPED = re.compile(r"Task \S+ with role spec \S+ has already predicated failed, skip")


def skipped(text: str) -> bool:
    """True for Volcano's message on a pod that it skipped because another pod of the same role did not fit."""
    return _SKIPPED.fullmatch(text) is not None


def read_engine(text: str) -> SchedulerText | None:
    """Parse a message of Volcano or KAI; None if it is neither's."""
    for form in _FORMS:
        match = form.pattern.fullmatch(text)
        if match is not None:
            words = {name: value or "resources" for name, value in match.groupdict().items()}
            return SchedulerText(
                source=form.source,
                kind=form.kind,
                headline=form.headline.format(**words),
                remedy=form.remedy.format(**words),
            )
    return None


def writer(text: str) -> str:
    """Return the scheduler that wrote a pod's condition; empty for kube-scheduler, or a message that is not recognized.

    Volcano and kube-scheduler differ in one word: Volcano calls the nodes unavailable.
    """
    parsed = read_engine(text)
    if parsed is not None:
        return parsed.source
    return VOLCANO if skipped(text) or re.match(r"\d+/\d+ nodes are unavailable", text) else ""


def dominant_text(texts: Iterable[str]) -> tuple[str, SchedulerText] | None:
    """Return the dominant message of a group and its pods; None if none is recognized."""
    found = [(text, parsed) for text in texts if text and (parsed := read_engine(text)) is not None]
    return min(found, key=lambda pair: _RANK[pair[1].kind], default=None)
