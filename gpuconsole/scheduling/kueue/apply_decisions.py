"""Applies the scheduler's decisions to Workload objects; shared by all callers that carry decisions out.

Every function is pure. The caller decides when the quota of an evicted workload is free: at once, or when its pods are
gone.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import AdmissionDecision, Admit, Evict, Preempt
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions, slices
from gpuconsole.scheduling.kueue.checks import checks_for, synced


def victims_of(decisions: Iterable[AdmissionDecision]) -> list[Preempt | Evict]:
    """Return the evictions of a cycle, sorted by workload; callers apply them after all other decisions."""
    victims = [decision for decision in decisions if isinstance(decision, Preempt | Evict)]
    return sorted(victims, key=lambda victim: victim.workload)


def reserved(workload: Workload, decision: Admit, queue: ClusterQueue | None, now: Time) -> Workload:
    """Return the workload with its quota reserved and with the admission checks of its ClusterQueue."""
    given = conditions.reserve(workload, decision.admission, now)
    names = checks_for(given, queue) if queue is not None else ()
    return replace(given, checks=synced(given.checks, names, now))


def replaced(old: Workload, new: Workload, now: Time) -> Workload:
    """Finish a slice of an elastic job that `new` replaces."""
    return conditions.finish(old, slices.REPLACED, slices.replacement_message(new), now)


def evicted(workload: Workload, decision: Preempt | Evict, now: Time) -> Workload:
    """Mark the victim as evicted; it holds its quota until `conditions.release`."""
    if isinstance(decision, Preempt):
        return conditions.evict(workload, conditions.PREEMPTED, decision.message, now, decision.rule)
    return conditions.evict(workload, decision.reason, decision.message, now)
