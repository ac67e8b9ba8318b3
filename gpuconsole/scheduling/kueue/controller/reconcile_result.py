"""The result of one reconciliation of a Workload."""

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.events import KueueEvent
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions, recorder_events


class PlannedEviction(Struct, frozen=True):
    """Reason and message of an eviction; `cause` is the underlying cause."""

    reason: str
    message: str
    cause: str = ""


class ReconcileResult(Struct, frozen=True):
    """The Workload after a reconciliation, its events, and the time until the next one."""

    workload: Workload | None
    """None: it is deleted."""
    events: tuple[KueueEvent, ...] = ()
    again: Span = 0
    """Time until the next reconciliation; 0 = only after a change."""
    eviction: PlannedEviction | None = None
    """Eviction of `workload`; it is not marked yet, because its job must be stopped first. None = no eviction."""

    def marked(self, now: Time) -> Workload | None:
        """Return the Workload with the conditions of its eviction, if there is one."""
        if self.workload is None or self.eviction is None:
            return self.workload
        why = self.eviction
        return conditions.evict(self.workload, why.reason, why.message, now, cause=why.cause)


def evicted(workload: Workload, why: PlannedEviction) -> ReconcileResult:
    """Return the result for a workload to evict, with an event if it has an admission."""
    said = recorder_events.evicted_event(workload, why.reason, why.message, why.cause)
    return ReconcileResult(workload, (said,) if workload.admission is not None else (), eviction=why)
