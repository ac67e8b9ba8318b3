"""The result of one reconciliation of a Workload."""

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.events import KueueEvent
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions, recorder_events


class PlannedEviction(Struct, frozen=True):
    """Why a workload has to go; `cause` is what was behind the reason."""

    reason: str
    message: str
    cause: str = ""


class ReconcileResult(Struct, frozen=True):
    """The Workload afterwards, and when to look again."""

    workload: Workload | None
    """None: it is deleted."""
    events: tuple[KueueEvent, ...] = ()
    again: Span = 0
    """Look again after this span; 0 = when something changes."""
    eviction: PlannedEviction | None = None
    """`workload` is to be evicted; it is not marked yet, because its work has to be stopped first."""

    def marked(self, now: Time) -> Workload | None:
        """The Workload with the marks of its eviction."""
        if self.workload is None or self.eviction is None:
            return self.workload
        why = self.eviction
        return conditions.evict(self.workload, why.reason, why.message, now, cause=why.cause)


def evicted(workload: Workload, why: PlannedEviction) -> ReconcileResult:
    """The workload has to go; Kueue says so where it had been given something."""
    said = recorder_events.evicted(workload, why.reason, why.message, why.cause)
    return ReconcileResult(workload, (said,) if workload.admission is not None else (), eviction=why)
