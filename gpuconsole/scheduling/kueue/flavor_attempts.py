"""The flavors tried for a pod set and the result of each, as the event of an admission reports them.

Kueue 0.19 flavorassigner/flavor_assigner_attempts.go. Searches only record results; they are combined on demand.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.scheduling.kueue.flavor_assignment_mode import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.reasons import GranularReason, most_severe


class FlavorResult(Struct, frozen=True):
    """The result of one flavor in one search: its worst mode over the resources, borrowing level and reasons."""

    flavor: str
    mode: FlavorAssignmentMode
    height: int = 0
    reasons: tuple[str, ...] = ()
    cause: GranularReason = GranularReason.NONE
    """Granular reason why it does not fit."""


class FlavorSearch(Struct, frozen=True):
    """One search for one resource among the flavors of its group."""

    resource: str
    flavors: tuple[str, ...]
    noted: tuple[FlavorResult, ...]


class FlavorAttempt(Struct, frozen=True, kw_only=True):
    """The combined result of a flavor over all searches of a pod set."""

    flavor: str
    mode: FlavorAssignmentMode
    """NO_FIT, PREEMPT or FIT."""
    possibility: FlavorAssignmentMode | None = None
    """Result of the simulated preemption: NO_CANDIDATES, PREEMPT or RECLAIM; None without one."""
    height: int = 0
    reasons: tuple[str, ...] = ()
    cause: GranularReason = GranularReason.NONE


def attempts(searches: Iterable[FlavorSearch]) -> list[FlavorAttempt]:
    """Combine searches by flavor, sorted by name; one that a later search of its group did not try does not fit."""
    merged: dict[str, FlavorAttempt] = {}
    for search in searches:
        for noted in search.noted:
            merged[noted.flavor] = _merge(merged.get(noted.flavor), noted)
        if search.noted:
            tried = {noted.flavor for noted in search.noted}
            for flavor in search.flavors:
                if flavor in merged and flavor not in tried:
                    merged[flavor] = _without(merged[flavor], search.resource)
    return [merged[flavor] for flavor in sorted(merged)]


def _merge(known: FlavorAttempt | None, noted: FlavorResult) -> FlavorAttempt:
    simulated = noted.mode if noted.mode not in (FlavorAssignmentMode.NO_FIT, FlavorAssignmentMode.FIT) else None
    mode = FlavorAssignmentMode.PREEMPT if simulated is not None else noted.mode
    if known is None:
        reasons = tuple(sorted(set(noted.reasons)))
        return FlavorAttempt(
            flavor=noted.flavor,
            mode=mode,
            possibility=simulated,
            height=noted.height,
            reasons=reasons,
            cause=noted.cause,
        )
    possible = [p for p in (known.possibility, simulated) if p is not None]
    return FlavorAttempt(
        flavor=noted.flavor,
        mode=min(known.mode, mode),
        possibility=min(possible, default=None),
        height=max(known.height, noted.height),
        reasons=tuple(sorted({*known.reasons, *noted.reasons})),
        cause=most_severe((known.cause, noted.cause)),
    )


def _without(known: FlavorAttempt, resource: str) -> FlavorAttempt:
    reason = f"flavor {known.flavor} does not provide resource {resource}"
    return FlavorAttempt(
        flavor=known.flavor,
        mode=FlavorAssignmentMode.NO_FIT,
        possibility=known.possibility,
        height=known.height,
        reasons=tuple(sorted({*known.reasons, reason})),
        cause=GranularReason.NO_MATCHING_FLAVOR,
    )


def attempts_text(searches_by_pod_set: Iterable[tuple[str, Sequence[FlavorSearch]]]) -> str:
    """Return the event's text: by pod set, the flavors that do not fit without borrowing; empty if all do."""
    return " | ".join(
        f"{name}: {', '.join(texts)}" for name, searches in searches_by_pod_set if (texts := list(_texts(searches)))
    )


_NAMES = {
    FlavorAssignmentMode.NO_FIT: "NoFit",
    FlavorAssignmentMode.NO_CANDIDATES: "preemptionMode=NoCandidates",
    FlavorAssignmentMode.PREEMPT: "preemptionMode=Preempt",
    FlavorAssignmentMode.RECLAIM: "preemptionMode=Reclaim",
    FlavorAssignmentMode.FIT: "Fit",
}


def _texts(searches: Sequence[FlavorSearch]) -> Iterator[str]:
    for attempt in attempts(searches):
        if attempt.mode == FlavorAssignmentMode.FIT and not attempt.height:
            continue
        outcome = _NAMES[attempt.mode if attempt.possibility is None else attempt.possibility]
        borrow = [f"borrow={attempt.height}"] if attempt.height else []
        yield f"{attempt.flavor}({';'.join([outcome, *borrow, *attempt.reasons])})"
