"""The events of one decision, as Kueue's scheduler records them: each text comes from the product."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from gpuconsole.model.clock import Time
from gpuconsole.model.events import AdmissionDecision, Admit, Evict, KeepWaiting, KueueEvent, Preempt, Refuse
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions as recorder_events
from gpuconsole.scheduling.kueue.config import KueueConfig


def events_for(
    decision: AdmissionDecision,
    workload: Workload,
    changed: Workload,
    workloads: Mapping[str, Workload],
    config: KueueConfig,
    now: Time,
) -> Iterator[KueueEvent]:
    """Yield the events of one decision about `workload`, which made it `changed`; others are looked up by key."""
    match decision:
        case Admit():
            yield from _admission(decision, workload, changed, now)
        case Preempt():
            yield recorder_events.evicted_event(workload, decision)
            yield from recorder_events.preempted_events(decision, workload, workloads[decision.by], config)
        case Refuse():
            yield recorder_events.rejection_event(decision)
        case Evict():
            yield recorder_events.evicted_event(workload, decision)
        case KeepWaiting():
            yield KueueEvent(workload.key, "SecondPassFailed", decision.message, warning=True)
        case _:
            assert_never(decision)


def _admission(decision: Admit, workload: Workload, changed: Workload, now: Time) -> Iterator[KueueEvent]:
    """Yield the events of an admission; for a second pass only Admitted, if it was not admitted before."""
    if not workload.reserved:
        yield recorder_events.quota_reserved_event(decision, workload, now)
    if changed.admitted and not workload.unhealthy_nodes:
        yield recorder_events.admitted_event(changed)
