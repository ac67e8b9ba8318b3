"""Applies the scheduler's decisions to Workload objects, and returns the events that Kueue records for them.

Every function is pure. A refusal is applied by `conditions.apply_refusal`. The caller decides when the quota of an
evicted workload is free, at once or when its pods are gone, and calls `conditions.release_quota` then; a backoff ends
with `conditions.end_backoff`. The admission simulator and the full simulation use these functions, and none of their
own. The texts of the events are Kueue's, verbatim (Kueue 0.19 scheduler.go, preemption.go, evict.go); nothing in the
scheduler reads them.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import AdmissionDecision, Admit, Evict, KueueEvent, Preempt, Refuse
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions, slices
from gpuconsole.scheduling.kueue.conditions import (
    DEACTIVATED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    required_checks,
    sync_checks,
)
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import effective_priority


def victims_of(decisions: Iterable[AdmissionDecision]) -> list[Preempt | Evict]:
    """Return the evictions of a cycle, sorted by workload; callers apply them after all other decisions."""
    victims = [decision for decision in decisions if isinstance(decision, Preempt | Evict)]
    return sorted(victims, key=lambda victim: victim.workload)


def with_reservation(workload: Workload, decision: Admit, queue: ClusterQueue | None, now: Time) -> Workload:
    """Return the workload with its quota reserved and with the admission checks of its ClusterQueue."""
    given = conditions.reserve_quota(workload, decision.admission, now)
    names = required_checks(given, queue) if queue is not None else ()
    return replace(given, checks=sync_checks(given.checks, names, now))


def with_finished_slice(old: Workload, new: Workload, now: Time) -> Workload:
    """Return `old`, a workload slice of an elastic job, as finished because `new` replaces it."""
    return conditions.mark_finished(old, slices.REPLACED, slices.replacement_message(new), now)


def with_eviction(workload: Workload, decision: Preempt | Evict, now: Time) -> Workload:
    """Return the victim with its Evicted condition; it holds its quota until `conditions.release_quota`."""
    if isinstance(decision, Preempt):
        return conditions.mark_evicted(workload, PREEMPTED, decision.message, now, decision.rule)
    return conditions.mark_evicted(workload, decision.reason, decision.message, now, cause=decision.cause)


_LONGEST_WAIT = (2**63 - 1) / 10**9
"""Seconds: Go's longest duration. A workload without a creation time has waited that long."""


def quota_reserved_event(decision: Admit, workload: Workload, now: Time) -> KueueEvent:
    """Return the event of a quota reservation."""
    waited = min(_LONGEST_WAIT, (now - queued_since(workload)) / SECOND)
    considered = f"; Flavors considered: {decision.considered}" if decision.considered else ""
    queue = decision.admission.cluster_queue
    message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited:.0f}s{considered}"
    return KueueEvent(workload.key, QUOTA_RESERVED, message)


def admitted_event(workload: Workload, waited: Span = 0) -> KueueEvent:
    """Return the event of an admission; `waited` is the time since the reservation, 0 from the scheduler."""
    queue = workload.cluster_queue
    message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited / SECOND:.0f}s"
    return KueueEvent(workload.key, "Admitted", message)


def rejection_event(decision: Refuse) -> KueueEvent:
    """Return the event of a refusal. Kueue records it each time; Kubernetes counts repeated ones."""
    return KueueEvent(decision.workload, decision.reason, decision.message, warning=True)


def evicted_event(workload: Workload, decision: Preempt | Evict) -> KueueEvent:
    """Return the event of an eviction, with the underlying cause of a deactivation."""
    reason, cause = (PREEMPTED, "") if isinstance(decision, Preempt) else (decision.reason, decision.cause)
    behind = f"DueTo{cause}" if reason == DEACTIVATED and cause else ""
    return KueueEvent(workload.key, f"EvictedDueTo{reason}{behind}", decision.message)


def preempted_events(
    decision: Preempt, victim: Workload, preemptor: Workload, config: KueueConfig
) -> Iterator[KueueEvent]:
    """Yield the events of a preemption besides the eviction: the victim's and the preemptor's."""
    priorities = (
        f"preemptor effective priority: {priority_text(preemptor, config)};"
        f" preemptee effective priority: {priority_text(victim, config)}"
    )
    yield KueueEvent(victim.key, "Preempted", f"{decision.message}; {priorities}")
    place = f"{victim.key} (UID: {victim.uid}) in ClusterQueue {victim.cluster_queue}"
    yield KueueEvent(preemptor.key, "PreemptedWorkload", f"Preempted workload {place}; {priorities}")


def queued_since(workload: Workload) -> Time:
    """Return the time since which a workload is pending: creation, or last change of Requeued (QueuedWaitTime)."""
    requeued = workload.condition(REQUEUED)
    return requeued.since if requeued is not None else workload.created


def priority_text(workload: Workload, config: KueueConfig) -> str:
    """Return a workload's priority as events show it: effective priority and its parts."""
    effective = effective_priority(workload, config)
    return f"{effective} (base: {workload.priority}, boost: {effective - workload.priority})"
