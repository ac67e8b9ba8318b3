"""Reason codes of pending workloads, jobs and pods, and the parsers for messages of Kueue and of the schedulers.

The patterns of Kueue's messages were read from flavorassigner.go, tas_flavorassigner.go, tas_flavor_snapshot.go,
scheduler.go, workload_controller.go and the preemption package of Kueue 0.6 to 0.19; the newest wording comes first. An
unknown message gives `PendingReason.OTHER`, no guess.

`read_nodes` reads the nodes that each reason excludes, from messages of kube-scheduler (1.18 and later) and Volcano.
`read_engine` reads messages of Volcano 1.8 to 1.15 (conditions of PodGroups, FailedScheduling of pods) and of KAI 0.13
about pods and pod groups; a text that is not recognized gives None, never a guess.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.resources import amount
from gpuconsole.model.workloads import Workload


class PendingReason(StrEnum):
    """Reason why a workload, job or pod is pending; also the codes of `pending` in a scenario's `expect`."""

    NOT_WAITING = "not-waiting"
    EXCEEDS_MAX = "exceeds-max"
    """It requests more than the queue's maximum capacity: waiting does not help."""
    QUOTA = "quota"
    FLAVOR_MISMATCH = "flavor-mismatch"
    """No flavor matches the pods: taints, node affinity, or a resource that the queue does not cover."""
    TOPOLOGY = "topology"
    WAITING_FOR_VICTIMS = "waiting-for-victims"
    CONTENTION = "contention"
    """Another workload was processed earlier in the same scheduling cycle; it is retried at once."""
    NAMESPACE = "namespace"
    QUEUE_STOPPED = "queue-stopped"
    QUEUE_INACTIVE = "queue-inactive"
    """The queue is inactive: an object that it refers to is missing or inactive."""
    QUEUE_MISSING = "queue-missing"
    DEACTIVATED = "deactivated"
    BACKOFF = "backoff"
    CHECKS = "checks"
    """It has reserved quota and waits for admission checks."""
    GATED = "gated"
    PODS_READY = "pods-ready"
    """Kueue waits until all admitted workloads are ready (blockAdmission)."""
    INVALID = "invalid"
    """Its resource requests are invalid: over their limits, or outside a LimitRange."""
    RESOURCE_QUOTA = "resource-quota"
    """Admitted (or not queued at all), but a ResourceQuota of its namespace prevents its pods from being created."""
    GANG = "gang"
    """Admitted, but not all pods of the gang fit on nodes at once."""
    NODES = "nodes"
    """Admitted (or not queued at all), but no node takes a pod."""
    DISRUPTION_BUDGET = "disruption-budget"
    """The only possible victims are protected by a PodDisruptionBudget, which its scheduler respects."""
    IMAGE = "image"
    """Its pods are scheduled, but an image cannot be pulled."""
    POD_FAILURE = "pod-failure"
    """Its pods are scheduled, but their containers fail or cannot be created."""
    STARTING = "starting"
    """Its pods are scheduled, but not all are running yet."""
    NO_PODS = "no-pods"
    """Admitted, but not all of its pods exist."""
    INADMISSIBLE = "parked"
    """Inadmissible like equivalent workloads; Kueue wrote no other reason."""
    EVICTED = "evicted"
    """Evicted and requeued; not tried since."""
    QUEUED = "queued"
    """Queued and not tried yet."""
    UNSEEN = "unseen"
    """Unknown: an object that the decision depends on is not visible, and its scheduler wrote no reason."""
    OTHER = "other"


UNDER_WAY = (PendingReason.STARTING, PendingReason.NO_PODS)
"""Admitted, and no decision of a scheduler is pending."""


POD_SET = re.compile(r"(?:couldn't|failed to) assign flavors to pod set (?P<name>\S+?): ")
_TAINT = r"untolerated taint \{(?P<name>\S*) (?P<value>\S*) (?P<effect>\S*) <nil>\} in flavor (?P<flavor>[^\s,;]+)"
_LESS = r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+)"
_UNUSED = r" for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), (?P<short>\S+) more needed"
_FLAVOR_REASONS: tuple[tuple[PendingReason, str], ...] = (
    (PendingReason.QUOTA, f"insufficient unused quota{_UNUSED}"),
    (PendingReason.QUOTA, f"insufficient unused quota in cohort{_UNUSED}"),
    (PendingReason.QUOTA, r"borrowing limit for (?P<resource>\S+) in flavor (?P<flavor>\S+) exceeded"),
    (
        PendingReason.EXCEEDS_MAX,
        rf"{_LESS}, previously considered podsets requests \((?P<assumed>[^)]*)\) \+ current podset request "
        r"\((?P<request>[^)]*)\) > maximum capacity \((?P<capacity>[^)]*)\)",
    ),
    (PendingReason.EXCEEDS_MAX, rf"{_LESS}, request > maximum capacity \((?P<request>\S+) > (?P<capacity>[^)]*)\)"),
    (PendingReason.EXCEEDS_MAX, rf"{_LESS} in ClusterQueue"),
    (PendingReason.FLAVOR_MISMATCH, _TAINT),
    (PendingReason.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) doesn't match node affinity"),
    (PendingReason.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) not found"),
    (PendingReason.FLAVOR_MISMATCH, r"resource (?P<resource>\S+) unavailable in ClusterQueue"),
    (
        PendingReason.FLAVOR_MISMATCH,
        r"could not assign (?P<flavor>\S+) flavor since the original workload is assigned: [^,;]*",
    ),
    (
        PendingReason.FLAVOR_MISMATCH,
        r"skipping flavor (?P<flavor>\S+) (?:as it is not found in the nomination|due to)[^,;]*",
    ),
    (
        PendingReason.FLAVOR_MISMATCH,
        r"Flavor \"(?P<flavor>[^\"]+)\" (?:does not support TopologyAwareScheduling|information missing in TAS cache"
        r"|does not contain the requested level|supports only TopologyAwareScheduling)",
    ),
    (PendingReason.TOPOLOGY, r"no (?:topology domains at|requested topology) level: (?P<name>[^\s,;]+)"),
    (PendingReason.TOPOLOGY, r"topology \"(?P<name>[^\"]+)\" (?:doesn't allow|allows) to fit [^,;]*"),
    (PendingReason.TOPOLOGY, r"workload requires Topology, but there is no TAS cache information"),
    (PendingReason.TOPOLOGY, r"(?:more than one|no) (?:TAS )?flavor assigned"),
    (PendingReason.TOPOLOGY, r"\S+ topology is not supported with ElasticJobsViaWorkloadSlices"),
    (PendingReason.TOPOLOGY, r"Cannot replace the node, because the existing topologyAssignment is invalid[^;]*"),
)
FLAVOR_REASONS = tuple((code, re.compile(pattern)) for code, pattern in _FLAVOR_REASONS)
SUFFIX = re.compile(
    r"\. (?:Pending the (?:preemption|migration) of (?P<count>\d+) workload\(s\)"
    r"|Preempting (?P<failed>\d+) workload\(s\) failed, will retry\.)$"
)
_CONTENDED = (
    r"Workload has overlapping preemption targets with another workload",
    r"Workload no longer fits after processing another workload",
    r"A more favorable variant is already admitted",
    r"Failed to admit workload: .*",
    r"Workload skipped because its premption calculations were invalidated by another workload",
    r"other workloads in the cohort were prioritized",
)
_EVICTED = (
    r"(?:Preempted|Replaced|Evicted) to accommodate a workload \(UID: (?P<name>[^,)]*).*",
    r"Preempted to accommodate a higher priority Workload",
    r"Preempted by another workload in the .*",
    r"Exceeded the PodsReady timeout .*",
    r"Evicted due to AdmissionChecks? .*",
    r"At least one admission check is false",
    r"Workload was evicted as there was no replacement for (?:unhealthy node\(s\)|a failed node): .*",
)
_WHOLE: tuple[tuple[PendingReason, str], ...] = (
    (
        PendingReason.WAITING_FOR_VICTIMS,
        r"Workload has overlapping preemption targets with another workload, "
        r"but will fit after these preemptions complete",
    ),
    *((PendingReason.CONTENTION, pattern) for pattern in _CONTENDED),
    (PendingReason.NAMESPACE, r"[Ww]orkload namespace doesn't match ClusterQueue selector"),
    (PendingReason.NAMESPACE, r'workload namespace "[^"]*" does not exist: .*'),
    (PendingReason.NAMESPACE, r"Could not obtain workload namespace: .*"),
    (PendingReason.QUEUE_STOPPED, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is stopped"),
    (PendingReason.QUEUE_STOPPED, r"The (?:ClusterQueue|LocalQueue) is stopped"),
    (PendingReason.QUEUE_INACTIVE, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is inactive"),
    (
        PendingReason.QUEUE_MISSING,
        r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) (?:doesn't exist|not found|is terminating or missing)",
    ),
    (PendingReason.DEACTIVATED, r"The workload is deactivated.*"),
    (PendingReason.DEACTIVATED, r"Deactivat(?:ing|ed) [Ww]orkload .*"),
    *((PendingReason.EVICTED, pattern) for pattern in _EVICTED),
    (PendingReason.QUEUED, r"Workload is pending evaluation in the scheduling queue"),
    (PendingReason.QUEUED, r"AdmissionGatedBy cleared, waiting for quota reservation"),
    (PendingReason.QUEUED, r"The workload has no reservation(?: and not all checks ready)?"),
    (PendingReason.INADMISSIBLE, r"Bypassed scheduling evaluation because an equivalent workload recently failed"),
    (PendingReason.GATED, r"Admission is gated by: (?P<name>.*)"),
    (PendingReason.GATED, r"Workload requires preemption, but it's gated"),
    (PendingReason.INVALID, r"resources validation failed: .*"),
    (PendingReason.INVALID, r"resources didn't satisfy LimitRange constraints: .*"),
    (PendingReason.FLAVOR_MISMATCH, r"Target flavor is below LastAcceptableFlavorName"),
    (PendingReason.CHECKS, r"The workload has failed admission checks"),
    (PendingReason.CHECKS, r"The workload has not all checks ready"),
    (PendingReason.PODS_READY, r"[Ww]aiting for all admitted workloads to be in (?:the )?PodsReady condition"),
)
WHOLE = tuple((code, re.compile(pattern)) for code, pattern in _WHOLE)


class ParsedReason(Struct, frozen=True, kw_only=True):
    """One reason from a message, with the arguments of its kind; amounts are in base units."""

    code: PendingReason
    text: str
    """The part of the message that was parsed."""
    pod_set: str = ""
    flavor: str = ""
    resource: str = ""
    short: int = 0
    """Amount that is missing."""
    assumed: int = 0
    """Request of earlier pod sets of the same workload."""
    request: int = 0
    capacity: int = 0
    count: int = 0
    """Number of victims, or of nodes that this reason excludes."""
    name: str = ""
    """Name in the message: of a queue, taint, topology level or gate; of a preemptor, its UID."""


def read_kueue(text: str) -> tuple[ParsedReason, ...]:
    """Parse the message of a QuotaReserved=False condition (or of a Pending event), in the order of the text.

    A suffix about preemption is a reason of its own and comes last.
    """
    for code, pattern in WHOLE:
        match = pattern.fullmatch(text)
        if match is not None:
            return (ParsedReason(code=code, text=text, name=match.groupdict().get("name") or ""),)
    suffix = SUFFIX.search(text)
    body = text[: suffix.start()] if suffix is not None else text
    heads = list(POD_SET.finditer(body))
    reasons: list[ParsedReason] = []
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(body)
        reasons += _flavor_reasons(body[head.end() : end].removesuffix("; "), head["name"])
    if suffix is not None:
        code = PendingReason.WAITING_FOR_VICTIMS if suffix["count"] else PendingReason.CONTENTION
        count = int(suffix["count"] or suffix["failed"])
        reasons.append(ParsedReason(code=code, text=suffix[0].removeprefix(". "), count=count))
    return tuple(reasons) or (ParsedReason(code=PendingReason.OTHER, text=text),)


def _flavor_reasons(text: str, pod_set: str) -> list[ParsedReason]:
    found: list[tuple[int, ParsedReason]] = []
    for code, pattern in FLAVOR_REASONS:
        found += [(match.start(), _reason(code, match, pod_set)) for match in pattern.finditer(text)]
    if not found:
        return [ParsedReason(code=PendingReason.OTHER, text=text, pod_set=pod_set)]
    return [reason for _, reason in sorted(found, key=lambda pair: pair[0])]


def _reason(code: PendingReason, match: re.Match[str], pod_set: str) -> ParsedReason:
    groups = match.groupdict()
    resource = groups.get("resource") or ""
    return ParsedReason(
        code=code,
        text=match[0],
        pod_set=pod_set,
        flavor=groups.get("flavor") or "",
        resource=resource,
        short=_amount(resource, groups.get("short")),
        assumed=_amount(resource, groups.get("assumed")),
        request=_amount(resource, groups.get("request")),
        capacity=_amount(resource, groups.get("capacity")),
        name=groups.get("name") or "",
    )


def _amount(resource: str, text: str | None) -> int:
    try:
        return amount(resource, text) if text else 0
    except ValueError:
        return 0


SEVERITY = {
    PendingReason.FLAVOR_MISMATCH: 3,
    PendingReason.EXCEEDS_MAX: 2,
    PendingReason.QUOTA: 1,
    PendingReason.TOPOLOGY: 0,
}


FlavorGroups: TypeAlias = tuple[tuple[str, ...], ...]
"""The names of the flavors of each resource group of a ClusterQueue."""


def flavor_groups(queue: ClusterQueue | None) -> FlavorGroups:
    """Return the flavors of a ClusterQueue by resource group; none of a missing one."""
    groups = queue.resource_groups if queue is not None else ()
    return tuple(tuple(flavor.name for flavor in group.flavors) for group in groups)


def dominant(reasons: Iterable[ParsedReason], groups: FlavorGroups = ()) -> PendingReason:
    """Return the dominant code of all reasons of a message.

    A preemption under way takes precedence, then contention. Otherwise Kueue's rule for its granular reasons applies
    (§5.9): a flavor is as bad as its worst resource, a resource group as bad as its best flavor, a workload as bad as
    its worst group and pod set. `groups` are those of the ClusterQueue; flavors outside of them count as one more.
    """
    group_of = {flavor: str(number) for number, group in enumerate(groups) for flavor in group}
    worst: dict[tuple[str, str], dict[str, int]] = {}
    others: list[PendingReason] = []
    for reason in reasons:
        if reason.code not in SEVERITY:
            others.append(reason.code)
            continue
        group = group_of.get(reason.flavor, "") if reason.flavor else reason.resource
        flavors = worst.setdefault((reason.pod_set, group), {})
        flavors[reason.flavor] = max(flavors.get(reason.flavor, 0), SEVERITY[reason.code])
    for code in (PendingReason.WAITING_FOR_VICTIMS, PendingReason.CONTENTION):
        if code in others:
            return code
    if not worst:
        return others[0] if others else PendingReason.OTHER
    severity = max(min(flavors.values()) for flavors in worst.values())
    return next(code for code, level in SEVERITY.items() if level == severity)


@lru_cache(maxsize=1 << 15)
def code_of(text: str, groups: FlavorGroups = ()) -> PendingReason:
    """Return the dominant code of a message of Kueue; cached, as the same message is parsed for many screens."""
    return dominant(read_kueue(text), groups)


def pending_code(workload: Workload, groups: FlavorGroups) -> PendingReason:
    """Return the code of a pending workload: of Kueue's message, or without one whether it is inadmissible or queued.

    `groups` are those of its ClusterQueue. The message may be older than the state of its queue, which `explain`
    considers, too.
    """
    refused = workload.condition("QuotaReserved")
    if refused is not None and refused.message:
        return code_of(refused.message, groups)
    return PendingReason.INADMISSIBLE if workload.inadmissible else PendingReason.QUEUED


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


_SCHEDULER_CODES = (
    PendingReason.QUEUE_MISSING,
    PendingReason.QUOTA,
    PendingReason.WAITING_FOR_VICTIMS,
    PendingReason.GANG,
    PendingReason.NODES,
)
"""The codes of Volcano's and KAI's messages: of several messages the first code counts, as a gang that is not enqueued
needs no node.
"""


class SchedulerText(Struct, frozen=True, kw_only=True):
    """A recognized message of a scheduler: what keeps the pod from running, and a remedy."""

    source: str
    code: PendingReason
    headline: str
    """One sentence."""
    remedy: str = ""
    """Change that would unblock it."""


_Form = tuple[PendingReason, re.Pattern[str], str, str]
"""Code, pattern, headline and remedy of a message; the groups of the pattern are inserted into both texts."""


def _form(code: PendingReason, pattern: str, headline: str, remedy: str = "") -> _Form:
    return code, re.compile(pattern, re.DOTALL), headline, remedy


_FORMS: Mapping[str, tuple[_Form, ...]] = {
    VOLCANO: (
        _form(
            PendingReason.QUOTA,
            r"resource in cluster is overused(?:: (?:overused )?(?P<what>.*))?",
            "Not enqueued by Volcano: enqueued jobs already request all {what} (plugin overcommit).",
            "other jobs end, or the overcommit-factor is raised",
        ),
        _form(
            PendingReason.QUOTA,
            r"queue resource quota insufficient(?:: (?:insufficient )?(?P<what>.*))?",
            "Not enqueued by Volcano: its queue would exceed its capability for {what}.",
            "jobs in its queue end, or the queue's capability is raised",
        ),
        _form(
            PendingReason.QUOTA,
            r"(?:Queue|queue) <?(?P<what>[^<>\s]+)>? is overused.*",
            "Its queue {what} is overused: it has its deserved share, so other queues come first.",
            "jobs in its queue end, or the queue's weight or deserved amount is raised",
        ),
        _form(
            PendingReason.QUOTA,
            r"resource quota insufficient, (?P<what>.*)",
            "Not enqueued by Volcano: the ResourceQuota of its namespace would be exceeded ({what}).",
            "pods in its namespace end, or the ResourceQuota is raised",
        ),
        _form(
            PendingReason.GANG,
            r"Not enough valid tasks for gang-scheduling, (?P<what>.*)",
            "Gang not scheduled, too few pods exist: {what}.",
            "at least minAvailable pods exist",
        ),
        _form(
            PendingReason.GANG,
            r"[Pp]od \S+ can possibly be assigned to (?P<what>[^\s,]+)(?:, once minAvailable is satisfied)?",
            "A pod fits on {what} and waits for the rest of its gang.",
            "free capacity for minAvailable pods at once",
        ),
        _form(
            PendingReason.WAITING_FOR_VICTIMS,
            r"[Pp]od \S+ can possibly be assigned to (?P<what>[^\s,]+), "
            r"once resource is released(?: and minAvailable is satisfied)?",
            "It fits on {what} once the evicted pods there have terminated.",
            "the evicted pods on {what} terminate",
        ),
        _form(
            PendingReason.GANG,
            r"(?:In hyperNode \S+: )?(?:(?P<part>\d+/\d+) tasks in gang unschedulable: )?"
            r"pod group is not ready, (?P<what>.*?)(?:;.*)?\.?",
            "Gang not scheduled: {what}.",
            "free capacity for minAvailable pods at once",
        ),
        _form(
            PendingReason.NODES,
            r"pod group is ready, (?P<what>.*?)(?:;.*)?\.?",
            "Partially scheduled gang: it has its minimum of pods, {what}.",
            "free capacity for the remaining pods",
        ),
    ),
    KAI: (
        _form(
            PendingReason.QUOTA,
            r"(?:OverLimit: )(?P<what>.*)",
            "The job would exceed its queue's limit: {what}",
            "jobs in its queue end, or the queue's limit is raised",
        ),
        _form(
            PendingReason.QUOTA,
            r"(?:NonPreemptibleOverQuota: )(?P<what>.*)",
            "Non-preemptible work must fit into its queue's quota: {what}",
            "make it preemptible, or raise the queue's quota",
        ),
        _form(
            PendingReason.QUEUE_MISSING,
            r"(?:QueueDoesNotExist: )(?P<what>.*)",
            "Its queue does not exist: {what}",
            "create the queue, or set label kai.scheduler/queue to another one",
        ),
        _form(
            PendingReason.NODES,
            r"(?:PodSchedulingErrors: )?(?:Resources were not found for pod (?P<pod>\S+) due to: )?"
            r"no nodes with enough resources were found: (?P<what>.*?)\.*",
            "No node fits its pods: {what}.",
            "a node with enough free resources for each of its pods",
        ),
        _form(
            PendingReason.GANG,
            r"(?:PodSchedulingErrors: )?Resources were found for (?P<part>\d+) pods while (?P<what>\d+) are required"
            r" for gang scheduling\b.*",
            "Gang not scheduled: {part} of {what} pods fit on nodes.",
            "free capacity for all of them at once, or a smaller minMember",
        ),
        _form(PendingReason.NODES, r"PodSchedulingErrors: (?P<what>.*)", "Not all of its pods fit on nodes: {what}"),
        _form(PendingReason.NODES, r"Unable to schedule podgroup", "KAI could not schedule its pod group."),
    ),
}


_SKIPPED = re.compile(r"Task \S+ with role spec \S+ has already predicated failed, skip")


def skipped(text: str) -> bool:
    """True for Volcano's message on a pod that it skipped because another pod of the same role did not fit."""
    return _SKIPPED.fullmatch(text) is not None


def read_engine(text: str) -> SchedulerText | None:
    """Parse a message of Volcano or KAI; None if it is neither's."""
    for source, forms in _FORMS.items():
        for code, pattern, headline, remedy in forms:
            match = pattern.fullmatch(text)
            if match is not None:
                words = {name: value or "resources" for name, value in match.groupdict().items()}
                return SchedulerText(
                    source=source, code=code, headline=headline.format(**words), remedy=remedy.format(**words)
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
    return min(found, key=lambda pair: _SCHEDULER_CODES.index(pair[1].code), default=None)
