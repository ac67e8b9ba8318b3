"""Admission fair sharing: the recent usage of a LocalQueue as a decaying number (Kueue 0.19 pkg/cache/queue/afs).

It has the sampled consumption of the queue's admitted workloads, in which older samples count less, and an entry
penalty for each workload that has reserved quota and is not yet admitted, so that a queue cannot fill the cluster
between two samples. Amounts are billionths (of a core, a byte, a GPU), because Kueue rounds to nine decimals.
"""

import math
from collections.abc import Mapping
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.resources import BILLIONTH, CPU, Resources

Fine = Mapping[str, int]
"""Resource name → amount in billionths of its unit."""


class LocalQueueUsage(Struct, frozen=True, omit_defaults=True):
    """The recorded consumption and entry penalties of one LocalQueue."""

    updated: Time
    """Time of the last update of `consumed`; never decreases."""
    consumed: Fine = {}
    penalties: Mapping[str, Fine] = {}
    """Workload's key → what its reservation costs the queue until it is admitted."""
    seeded: bool = False
    """`consumed` includes the consumption that the LocalQueue's status reported."""

    @property
    def penalty(self) -> Fine:
        """All entry penalties together."""
        return summed(*self.penalties.values())


def to_billionths(amounts: Resources) -> dict[str, int]:
    """Amounts in base units as billionths."""
    return {name: value * (BILLIONTH // 1000 if name == CPU else BILLIONTH) for name, value in amounts.items()}


def summed(*vectors: Fine) -> dict[str, int]:
    """Return the exact sums by resource name."""
    total: dict[str, int] = {}
    for vector in vectors:
        for name, value in vector.items():
            total[name] = total.get(name, 0) + value
    return total


def times(vector: Fine, factor: float) -> dict[str, int]:
    """Multiply, rounding down, so that repeated scaling by less than 1 ends at zero (resource.MulByFloat)."""
    # The shortest decimal that stands for the factor, as strconv.FormatFloat writes it.
    numerator, denominator = Decimal(repr(factor)).as_integer_ratio()
    return {name: value * numerator // denominator for name, value in vector.items()}


def alpha(elapsed: Span, half_life: Span) -> float:
    """Weight of a sample over this span; 0 without a half-life (calculateAlphaRate)."""
    return 1.0 - math.pow(0.5, elapsed / SECOND / (half_life / SECOND)) if half_life else 0.0


def decayed(consumed: Fine, usage: Fine, elapsed: Span, half_life: Span) -> dict[str, int]:
    """Combine decayed consumption with current usage (CalculateDecayedConsumed)."""
    rate = alpha(elapsed, half_life)
    return summed(times(consumed, 1 - rate), times(usage, rate))


def sampled(ledger: LocalQueueUsage, usage: Fine, now: Time, half_life: Span) -> LocalQueueUsage:
    """Return the record after a sample of the current usage; without a half-life nothing is remembered."""
    if not half_life:
        return replace(ledger, consumed={}, updated=now)
    elapsed = max(0, now - ledger.updated)
    consumed = decayed(ledger.consumed, usage, elapsed, half_life)
    return replace(ledger, consumed=consumed, updated=max(now, ledger.updated))


def caught_up(ledger: LocalQueueUsage, now: Time, interval: Span, half_life: Span) -> LocalQueueUsage:
    """Apply the samples that were skipped while the queue had no admitted workloads, as one sample.

    Unchanged until more than one interval has passed.
    """
    missed = now - ledger.updated
    if not interval or missed <= interval:
        return ledger
    return sampled(ledger, {}, ledger.updated + missed // interval * interval, half_life)


def settled(ledger: LocalQueueUsage, workload: str, usage: Fine, now: Time, half_life: Span) -> LocalQueueUsage:
    """Turn a workload's penalty into consumption when it is admitted (updateAfsConsumedUsage)."""
    elapsed = max(0, now - ledger.updated)
    consumed = decayed(ledger.consumed, usage, elapsed, half_life)
    consumed = summed(consumed, ledger.penalties.get(workload, {}))
    return replace(without_penalty(ledger, workload), consumed=consumed, updated=max(now, ledger.updated))


def with_penalty(ledger: LocalQueueUsage, workload: str, penalty: Fine) -> LocalQueueUsage:
    """Charge a workload's reservation; replaces its previous penalty (PushPenalty)."""
    return replace(ledger, penalties={**ledger.penalties, workload: penalty})


def without_penalty(ledger: LocalQueueUsage, workload: str) -> LocalQueueUsage:
    """Remove a workload's penalty, if it has one (SubPenalty)."""
    if workload not in ledger.penalties:
        return ledger
    return replace(ledger, penalties={key: charged for key, charged in ledger.penalties.items() if key != workload})


def seeded(ledger: LocalQueueUsage | None, consumed: Fine, now: Time) -> LocalQueueUsage:
    """Add the consumption that a LocalQueue's status reports; once, and without a sample of running workloads.

    A live sample would count workloads whose penalties are still pending twice (initializeAfsIfNeeded).
    """
    if ledger is None:
        return LocalQueueUsage(updated=now, consumed=consumed, seeded=True)
    if ledger.seeded:
        return ledger
    return replace(ledger, consumed=summed(ledger.consumed, consumed), seeded=True)


def usage(consumed: Fine, penalty: Fine, weight: float, resource_weights: Mapping[str, float]) -> float:
    """Return the number by which LocalQueues are compared; infinite for weight 0 (CalculateUsage)."""
    if weight <= 0:
        return math.inf
    amounts = summed(consumed, penalty)
    return sum(resource_weights.get(name, 1) * (amounts[name] / BILLIONTH) for name in sorted(amounts)) / weight
