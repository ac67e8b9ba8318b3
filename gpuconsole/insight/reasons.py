"""The schedulers' own texts, read back: why a workload (Kueue) or a pod (kube-scheduler) waits, as codes.

The texts are those of Kueue 0.19 (flavorassigner, scheduler.go, workload conditions) and of kube-scheduler's
FailedScheduling. A text that is not known gives `Code.OTHER`, never a guess.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from gpuconsole.model.quantity import amount

NO_GROUPS: Mapping[str, str] = {}


class Code(StrEnum):
    """One word for why something waits; also the codes of `pending` in a scenario's `expect`."""

    NOT_WAITING = "not-waiting"
    EXCEEDS_MAX = "exceeds-max"
    """More than the queue could ever have: waiting does not help."""
    QUOTA = "quota"
    FLAVOR_MISMATCH = "flavor-mismatch"
    """No flavor suits the pods: taints, node affinity, or a resource that the queue does not cover."""
    TOPOLOGY = "topology"
    WAITING_FOR_VICTIMS = "waiting-for-victims"
    CONTENTION = "contention"
    """Another workload was quicker in the same cycle; it is tried again at once."""
    NAMESPACE = "namespace"
    QUEUE_STOPPED = "queue-stopped"
    QUEUE_INACTIVE = "queue-inactive"
    """The queue cannot admit: something that it refers to is missing or inactive."""
    QUEUE_MISSING = "queue-missing"
    DEACTIVATED = "deactivated"
    BACKOFF = "backoff"
    CHECKS = "checks"
    """Has its quota and waits for admission checks."""
    GATED = "gated"
    PODS_READY = "pods-ready"
    """Kueue waits until all admitted workloads are ready (blockAdmission)."""
    INVALID = "invalid"
    """Its own resources are refused: requests over limits, or a LimitRange."""
    GANG = "gang"
    """Admitted, but not all pods of the gang fit on nodes at once."""
    NODES = "nodes"
    """Admitted (or not queued at all), but no node takes a pod."""
    PARKED = "parked"
    """Set aside with its look-alikes until something changes; Kueue wrote no reason of its own."""
    EVICTED = "evicted"
    """Lost its place and waits for its turn again; it was not tried since."""
    QUEUED = "queued"
    """Waits for its turn and was not tried yet."""
    OTHER = "other"


class Reason(Struct, frozen=True, kw_only=True):
    """One reason out of a text, with whatever arguments that kind has; amounts are in base units."""

    code: Code
    text: str
    """The words that were read."""
    pod_set: str = ""
    flavor: str = ""
    resource: str = ""
    short: int = 0
    """How much more is needed."""
    assumed: int = 0
    """What earlier pod sets of the same workload take."""
    request: int = 0
    capacity: int = 0
    count: int = 0
    """Victims, or nodes that this reason rules out."""
    name: str = ""
    """Of the queue or the taint."""


_POD_SET = re.compile(r"(?:couldn't|failed to) assign flavors to pod set (?P<name>\S+?): ")
_TAINT = r"untolerated taint \{(?P<name>\S*) (?P<value>\S*) (?P<effect>\S*) <nil>\} in flavor (?P<flavor>[^\s,;]+)"
_FLAVOR_REASONS: tuple[tuple[Code, str], ...] = (
    (
        Code.QUOTA,
        r"insufficient unused quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), (?P<short>\S+) more needed",
    ),
    (
        Code.EXCEEDS_MAX,
        r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), "
        r"previously considered podsets requests \((?P<assumed>[^)]*)\) \+ current podset request "
        r"\((?P<request>[^)]*)\) > maximum capacity \((?P<capacity>[^)]*)\)",
    ),
    (Code.FLAVOR_MISMATCH, _TAINT),
    (Code.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) doesn't match node affinity"),
    (Code.FLAVOR_MISMATCH, r"flavor (?P<flavor>\S+) not found"),
    (Code.FLAVOR_MISMATCH, r"resource (?P<resource>\S+) unavailable in ClusterQueue"),
    (
        Code.FLAVOR_MISMATCH,
        r"Flavor \"(?P<flavor>[^\"]+)\" (?:does not support TopologyAwareScheduling|information missing in TAS cache"
        r"|does not contain the requested level|supports only TopologyAwareScheduling)",
    ),
    (Code.TOPOLOGY, r"no topology domains at level: (?P<name>[^\s,;]+)"),
    (Code.TOPOLOGY, r"topology \"(?P<name>[^\"]+)\" (?:doesn't allow|allows) to fit [^,;]*"),
)
_FLAVOR_REASON = tuple((code, re.compile(pattern)) for code, pattern in _FLAVOR_REASONS)
_SUFFIX = re.compile(
    r"\. (?:Pending the preemption of (?P<count>\d+) workload\(s\)"
    r"|Preempting (?P<failed>\d+) workload\(s\) failed, will retry\.)$"
)
_WHOLE: tuple[tuple[Code, str], ...] = (
    (
        Code.WAITING_FOR_VICTIMS,
        r"Workload has overlapping preemption targets with another workload, "
        r"but will fit after these preemptions complete",
    ),
    (Code.CONTENTION, r"Workload has overlapping preemption targets with another workload"),
    (Code.CONTENTION, r"Workload no longer fits after processing another workload"),
    (Code.CONTENTION, r"Failed to admit workload: .*"),
    (Code.NAMESPACE, r"workload namespace doesn't match ClusterQueue selector"),
    (Code.NAMESPACE, r'workload namespace "[^"]*" does not exist: .*'),
    (Code.QUEUE_STOPPED, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is stopped"),
    (Code.QUEUE_INACTIVE, r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is inactive"),
    (
        Code.QUEUE_MISSING,
        r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) (?:doesn't exist|not found|is terminating or missing)",
    ),
    (Code.DEACTIVATED, r"The workload is deactivated.*"),
    (Code.EVICTED, r"Preempted to accommodate a workload \(UID: (?P<name>[^,)]*).*"),
    (Code.EVICTED, r"Exceeded the PodsReady timeout .*"),
    (Code.EVICTED, r"Evicted due to AdmissionChecks? .*"),
    (Code.EVICTED, r"Workload was evicted as there was no replacement for unhealthy node\(s\): .*"),
    (Code.QUEUE_STOPPED, r"The (?:ClusterQueue|LocalQueue) is stopped"),
    (Code.QUEUED, r"Workload is pending evaluation in the scheduling queue"),
    (Code.PARKED, r"Bypassed scheduling evaluation because an equivalent workload recently failed"),
    (Code.GATED, r"Admission is gated by: (?P<name>.*)"),
    (Code.GATED, r"Workload requires preemption, but it's gated"),
    (Code.INVALID, r"resources validation failed: .*"),
    (Code.INVALID, r"resources didn't satisfy LimitRange constraints: .*"),
    (Code.CHECKS, r"The workload has failed admission checks"),
    (Code.PODS_READY, r"waiting for all admitted workloads to be in PodsReady condition"),
)
_WHOLE_TEXT = tuple((code, re.compile(pattern)) for code, pattern in _WHOLE)


def read_kueue(text: str) -> tuple[Reason, ...]:
    """Read the message of a QuotaReserved=False condition (or of a Pending event); the order is that of the text.

    A suffix about preemption is a reason of its own and comes last.
    """
    for code, pattern in _WHOLE_TEXT:
        match = pattern.fullmatch(text)
        if match is not None:
            return (Reason(code=code, text=text, name=match.groupdict().get("name") or ""),)
    suffix = _SUFFIX.search(text)
    body = text[: suffix.start()] if suffix is not None else text
    heads = list(_POD_SET.finditer(body))
    reasons: list[Reason] = []
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(body)
        reasons += _flavor_reasons(body[head.end() : end].removesuffix("; "), head["name"])
    if suffix is not None:
        code = Code.WAITING_FOR_VICTIMS if suffix["count"] else Code.CONTENTION
        count = int(suffix["count"] or suffix["failed"])
        reasons.append(Reason(code=code, text=suffix[0].removeprefix(". "), count=count))
    return tuple(reasons) or (Reason(code=Code.OTHER, text=text),)


def _flavor_reasons(text: str, pod_set: str) -> list[Reason]:
    found: list[tuple[int, Reason]] = []
    for code, pattern in _FLAVOR_REASON:
        found += [(match.start(), _reason(code, match, pod_set)) for match in pattern.finditer(text)]
    if not found:
        return [Reason(code=Code.OTHER, text=text, pod_set=pod_set)]
    return [reason for _, reason in sorted(found, key=lambda pair: pair[0])]


def _reason(code: Code, match: re.Match[str], pod_set: str) -> Reason:
    groups = match.groupdict()
    resource = groups.get("resource") or ""
    return Reason(
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


SEVERITY = {Code.FLAVOR_MISMATCH: 3, Code.EXCEEDS_MAX: 2, Code.QUOTA: 1, Code.TOPOLOGY: 0}


def dominant(reasons: Iterable[Reason], group_of: Mapping[str, str] = NO_GROUPS) -> Code:
    """The one code that says why, out of all reasons of a text.

    Preemption under way comes first. Else Kueue's rule for its granular reasons (§5.9): a flavor is as bad as its worst
    resource, a resource group as bad as its best flavor, a workload as bad as its worst group and pod set. `group_of`
    maps flavors to their resource group; without it all flavors count as one group.
    """
    worst: dict[tuple[str, str], dict[str, int]] = {}
    others: list[Code] = []
    for reason in reasons:
        if reason.code not in SEVERITY:
            others.append(reason.code)
            continue
        group = group_of.get(reason.flavor, "") if reason.flavor else reason.resource
        flavors = worst.setdefault((reason.pod_set, group), {})
        flavors[reason.flavor] = max(flavors.get(reason.flavor, 0), SEVERITY[reason.code])
    for code in (Code.WAITING_FOR_VICTIMS, Code.CONTENTION):
        if code in others:
            return code
    if not worst:
        return others[0] if others else Code.OTHER
    severity = max(min(flavors.values()) for flavors in worst.values())
    return next(code for code, level in SEVERITY.items() if level == severity)


@lru_cache(maxsize=4096)
def code_of(text: str) -> Code:
    """The dominant code of Kueue's text; quick, because few texts differ among many workloads."""
    return dominant(read_kueue(text))


_NODES = re.compile(r"(?P<fit>\d+)/(?P<all>\d+) nodes are (?:un)?available")
"""Volcano says how many of all nodes are left, and calls them unavailable."""
_NODE_REASONS = tuple(
    re.compile(rf"(?P<count>\d+) {pattern}")
    for pattern in (
        r"Insufficient (?P<resource>[^\s,]+?)(?=[,.]?(?:\s|$))",
        r"node\(s\) had untolerated taint(?:\(s\)| \{(?P<name>[^}]*)\})",
        r"node\(s\) didn't match Pod's node affinity/selector",
        r"node\(s\) were unschedulable",
        r"node\(s\) didn't match pod topology spread constraints(?: \([^)]*\))?",
        r"node\(s\) were not ready",
        r"Too many pods",
    )
)


def read_nodes(text: str) -> tuple[Reason, ...]:
    """Read kube-scheduler's FailedScheduling text; `count` is how many nodes each reason rules out, most first."""
    head = _NODES.search(text)
    if head is None:
        return (Reason(code=Code.OTHER, text=text),) if text else ()
    body = text[head.end() :].partition(" preemption: ")[0]
    reasons = [
        Reason(
            code=Code.NODES,
            text=match[0],
            count=int(match["count"]),
            resource=match.groupdict().get("resource") or "",
            name=match.groupdict().get("name") or "",
        )
        for pattern in _NODE_REASONS
        for match in pattern.finditer(body)
    ]
    return tuple(sorted(reasons, key=lambda reason: -reason.count)) or (Reason(code=Code.NODES, text=text),)
