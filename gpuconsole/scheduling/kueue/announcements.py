"""What Kueue's event recorder says of a decision, verbatim (Kueue 0.19 scheduler.go, preemption.go, evict.go).

Events are told to people; nothing in the scheduler reads them.
"""

from collections.abc import Iterator, Mapping
from typing import assert_never

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.decisions import AdmissionDecision, Admit, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.requests import effective_priority, queue_timestamp

_LONGEST_WAIT = (2**63 - 1) / 10**9
"""Seconds: Go's longest duration. A workload without a creation time has waited that long."""


class Event(Struct, frozen=True):
    """One event about a workload; `warning` is its type."""

    workload: str
    reason: str
    message: str
    warning: bool = False


def announce(
    decision: AdmissionDecision,
    workload: Workload,
    changed: Workload,
    workloads: Mapping[str, Workload],
    config: KueueConfig,
    now: Time,
) -> Iterator[Event]:
    """Events of one decision about `workload`, which made it `changed`; others are looked up by key."""
    match decision:
        case Admit():
            yield from _admission(decision, workload, changed, config, now)
        case Preempt():
            yield from _preemption(decision, workload, workloads[decision.by], config)
        case Refuse():
            yield Event(workload.key, decision.reason, decision.message, warning=True)
        case Evict():
            yield Event(workload.key, f"EvictedDueTo{decision.reason}", decision.message)
        case KeepWaiting():
            yield Event(workload.key, "SecondPassFailed", decision.message, warning=True)
        case _:
            assert_never(decision)


def _admission(
    decision: Admit, workload: Workload, changed: Workload, config: KueueConfig, now: Time
) -> Iterator[Event]:
    """What is told of an admission; of a second pass only that the workload is admitted now, if it was not."""
    queue = decision.admission.cluster_queue
    if not workload.reserved:
        waited = min(_LONGEST_WAIT, (now - queue_timestamp(workload, config)) / SECOND)
        considered = f"; Flavors considered: {decision.considered}" if decision.considered else ""
        message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited:.0f}s{considered}"
        yield Event(workload.key, "QuotaReserved", message)
    if changed.admitted and not workload.unhealthy_nodes:
        message = f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s"
        yield Event(workload.key, "Admitted", message)


def _preemption(decision: Preempt, victim: Workload, preemptor: Workload, config: KueueConfig) -> Iterator[Event]:
    priorities = (
        f"preemptor effective priority: {priority_text(preemptor, config)};"
        f" preemptee effective priority: {priority_text(victim, config)}"
    )
    yield Event(victim.key, "EvictedDueToPreempted", decision.message)
    yield Event(victim.key, "Preempted", f"{decision.message}; {priorities}")
    place = f"{victim.key} (UID: {victim.uid}) in ClusterQueue {victim.cluster_queue}"
    yield Event(preemptor.key, "PreemptedWorkload", f"Preempted workload {place}; {priorities}")


def priority_text(workload: Workload, config: KueueConfig) -> str:
    """A workload's priority as events tell it: what counts, and what it is made of."""
    effective = effective_priority(workload, config)
    return f"{effective} (base: {workload.priority}, boost: {effective - workload.priority})"
