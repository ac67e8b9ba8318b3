"""Parser for Kueue's messages about pending workloads. An unknown message gives `PendingReason.OTHER`, no guess."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from gpuconsole.insight.kueue_message_patterns import FLAVOR_REASONS, POD_SET, SUFFIX, WHOLE
from gpuconsole.insight.pending_reasons import PendingReason
from gpuconsole.model.resources import amount

__all__ = ["NO_GROUPS", "SEVERITY", "ParsedReason", "PendingReason", "code_of", "dominant", "read_kueue"]

NO_GROUPS: Mapping[str, str] = {}


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
    """Name of the queue or the taint."""


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


def dominant(reasons: Iterable[ParsedReason], group_of: Mapping[str, str] = NO_GROUPS) -> PendingReason:
    """Return the dominant code of all reasons of a message.

    Preemption under way takes precedence. Otherwise Kueue's rule for its granular reasons applies (§5.9): a flavor is
    as bad as its worst resource, a resource group as bad as its best flavor, a workload as bad as its worst group and
    pod set. `group_of` maps flavors to their resource group; without it all flavors count as one group.
    """
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
def code_of(text: str) -> PendingReason:
    """Return the dominant code of a message of Kueue; cached, as the same message is parsed for many screens."""
    return dominant(read_kueue(text))
