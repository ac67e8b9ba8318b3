"""What Volcano and KAI write about pods and pod groups that wait, read back: whose words, what kind, in plain words.

The texts are those of Volcano 1.8 to 1.15 (conditions of PodGroups, FailedScheduling of pods) and of KAI 0.13. A text
that is not known gives None, never a guess.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

VOLCANO, KAI = "Volcano", "KAI"


class Kind(StrEnum):
    """What holds a pod up; the first of several says why, for who is not let in needs no node."""

    QUEUE_MISSING = "queue-missing"
    OVERUSED = "overused"
    VICTIMS = "victims"
    GANG = "gang"
    NODES = "nodes"


_RANK = {kind: rank for rank, kind in enumerate(Kind)}


class Told(Struct, frozen=True, kw_only=True):
    """A text that was understood."""

    source: str
    kind: Kind
    headline: str
    """One plain sentence."""
    remedy: str = ""
    """What would unblock it."""


class _Form(Struct, frozen=True):
    source: str
    kind: Kind
    pattern: re.Pattern[str]
    headline: str
    remedy: str = ""


def _form(source: str, kind: Kind, pattern: str, headline: str, remedy: str = "") -> _Form:
    return _Form(source, kind, re.compile(pattern, re.DOTALL), headline, remedy)


_FORMS: tuple[_Form, ...] = (
    _form(
        VOLCANO,
        Kind.OVERUSED,
        r"resource in cluster is overused(?:: (?:overused )?(?P<what>.*))?",
        "Volcano has not let it in: what was let in already asks for all {what} (the plugin overcommit).",
        "earlier jobs end, or the overcommit factor is raised",
    ),
    _form(
        VOLCANO,
        Kind.OVERUSED,
        r"queue resource quota insufficient(?:: (?:insufficient )?(?P<what>.*))?",
        "Volcano has not let it in: with it its queue would have more {what} than it may.",
        "jobs of its queue end, or the queue's capability is raised",
    ),
    _form(
        VOLCANO,
        Kind.OVERUSED,
        r"(?:Queue|queue) <?(?P<what>[^<>\s]+)>? is overused.*",
        "Its queue {what} has what it deserves, so others come first.",
        "jobs of its queue end, or its weight or deserved amount is raised",
    ),
    _form(
        VOLCANO,
        Kind.OVERUSED,
        r"resource quota insufficient, (?P<what>.*)",
        "Volcano has not let it in: the ResourceQuota of its namespace is used up ({what}).",
        "pods of its namespace end, or the ResourceQuota is raised",
    ),
    _form(
        VOLCANO,
        Kind.GANG,
        r"Not enough valid tasks for gang-scheduling, (?P<what>.*)",
        "Its gang has too few pods to start: {what}.",
        "as many pods as minAvailable asks for",
    ),
    _form(
        VOLCANO,
        Kind.GANG,
        r"[Pp]od \S+ can possibly be assigned to (?P<what>[^\s,]+)(?:, once minAvailable is satisfied)?",
        "One pod has a place on {what}, and waits for the others of its gang.",
        "room for minAvailable of its pods at once",
    ),
    _form(
        VOLCANO,
        Kind.VICTIMS,
        r"[Pp]od \S+ can possibly be assigned to (?P<what>[^\s,]+), "
        r"once resource is released(?: and minAvailable is satisfied)?",
        "It has a place on {what} as soon as what runs there has left.",
        "the evicted pods on {what} end",
    ),
    _form(
        VOLCANO,
        Kind.GANG,
        r"(?:In hyperNode \S+: )?(?:(?P<part>\d+/\d+) tasks in gang unschedulable: )?"
        r"pod group is not ready, (?P<what>.*?)(?:;.*)?\.?",
        "Its gang is not complete: {what}.",
        "room for minAvailable of its pods at once",
    ),
    _form(
        VOLCANO,
        Kind.NODES,
        r"pod group is ready, (?P<what>.*?)(?:;.*)?\.?",
        "Its gang runs with fewer pods than it asks for: {what}.",
        "room for the others",
    ),
    _form(
        KAI,
        Kind.OVERUSED,
        r"(?:OverLimit: )(?P<what>.*)",
        "Its queue would exceed its limit: {what}",
        "jobs of its queue end, or the queue's limit is raised",
    ),
    _form(
        KAI,
        Kind.OVERUSED,
        r"(?:NonPreemptibleOverQuota: )(?P<what>.*)",
        "It cannot be preempted, so it has to fit into its queue's quota: {what}",
        "it is made preemptible, or the quota is raised",
    ),
    _form(
        KAI,
        Kind.QUEUE_MISSING,
        r"(?:QueueDoesNotExist: )(?P<what>.*)",
        "Its queue does not exist: {what}",
        "a queue of that name, or the label kai.scheduler/queue with another one",
    ),
    _form(
        KAI,
        Kind.NODES,
        r"(?:PodSchedulingErrors: )?(?:Resources were not found for pod (?P<pod>\S+) due to: )?"
        r"no nodes with enough resources were found: (?P<what>.*?)\.*",
        "No node has room for its pods: {what}.",
        "room on one node for each of its pods",
    ),
    _form(
        KAI,
        Kind.GANG,
        r"(?:PodSchedulingErrors: )?Resources were found for (?P<part>\d+) pods while (?P<what>\d+) are required"
        r" for gang scheduling\b.*",
        "Its pods start together: {part} of {what} find a node.",
        "room for all of them at once, or a smaller minMember",
    ),
    _form(KAI, Kind.NODES, r"PodSchedulingErrors: (?P<what>.*)", "Its pods do not all find a node: {what}"),
    _form(KAI, Kind.NODES, r"Unable to schedule podgroup", "KAI found no way to run its pods."),
)


_SKIPPED = re.compile(r"Task \S+ with role spec \S+ has already predicated failed, skip")


def skipped(text: str) -> bool:
    """True for what Volcano writes on a pod that it did not try, since another one of its role found no node."""
    return _SKIPPED.fullmatch(text) is not None


def read_engine(text: str) -> Told | None:
    """What a text says, if Volcano or KAI wrote it."""
    for form in _FORMS:
        match = form.pattern.fullmatch(text)
        if match is not None:
            words = {name: value or "resources" for name, value in match.groupdict().items()}
            return Told(
                source=form.source,
                kind=form.kind,
                headline=form.headline.format(**words),
                remedy=form.remedy.format(**words),
            )
    return None


def writer(text: str) -> str:
    """Who wrote what a pod's condition says: Volcano and kube-scheduler differ in a word."""
    told = read_engine(text)
    if told is not None:
        return told.source
    return VOLCANO if skipped(text) or re.match(r"\d+/\d+ nodes are unavailable", text) else ""


def dominant_told(texts: Iterable[str]) -> tuple[str, Told] | None:
    """The text that says why, out of those of a group and its pods; None if none is understood."""
    found = [(text, told) for text in texts if text and (told := read_engine(text)) is not None]
    return min(found, key=lambda pair: _RANK[pair[1].kind], default=None)
