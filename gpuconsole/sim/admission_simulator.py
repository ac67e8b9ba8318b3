"""Simulates admission alone, cycle by cycle: decisions take effect at once, and nothing else happens.

No controllers, pods or run times; inadmissible workloads are requeued at once. The conformance data was made this
way, and suggestions are tried this way to see whether a change admits a workload.
"""

from collections.abc import Iterable

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.events import (
    AdmissionDecision,
    Admit,
    Applied,
    Deleted,
    Event,
    Evict,
    KeepWaiting,
    Preempt,
    Refuse,
)
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession


class AdmissionSimulator:
    """Runs Kueue's scheduling cycles and applies each decision at once, without pods and controllers. Mutates."""

    __slots__ = ("now", "session", "workloads")

    def __init__(self, session: KueueSession, now: Time, workloads: Iterable[Workload] = ()) -> None:
        """`workloads` are those that the session already has."""
        self.session = session
        self.now = now
        self.workloads: dict[str, Workload] = {workload.key: workload for workload in workloads}

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, config: KueueConfig) -> "AdmissionSimulator":
        """Start from the current state of a cluster; inadmissible workloads are tried again."""
        rehearsal = cls(KueueSession(config), snapshot.time)
        for obj in snapshot.objects():
            rehearsal.apply(obj)
        return rehearsal

    def fork(self) -> "AdmissionSimulator":
        """Return an independent copy."""
        copied = AdmissionSimulator(self.session.fork(), self.now)
        copied.workloads = self.workloads.copy()
        return copied

    def apply(self, obj: Object) -> None:
        """Create or update an object."""
        self.apply_event(Applied(self.now, obj))

    def delete(self, table: str, key: str) -> None:
        """Delete an object; `table` as in `model.objects.TABLES`."""
        self.apply_event(Deleted(self.now, table, key))

    def apply_event(self, event: Event) -> None:
        """Apply a change of the observed cluster, as `apply` and `delete` do."""
        match event:
            case Applied(_, Workload() as workload):
                self.workloads[workload.key] = workload
            case Deleted(_, "workloads", key):
                self.workloads.pop(key, None)
            case _:
                pass
        self.session.apply_event(event, self.now)

    def finish(self, key: str) -> None:
        """Finish a workload, whether it ran or not; a missing or finished workload is unchanged."""
        workload = self.workloads.get(key)
        if workload is not None and not workload.finished:
            self.apply(conditions.mark_finished(workload, "Succeeded", "Job finished", self.now))

    def requeue_inadmissible(self) -> None:
        """Requeue the inadmissible workloads of every cohort tree that had a relevant change."""
        self.session.requeue_inadmissible(self.now)

    def run_cycle(self) -> list[AdmissionDecision]:
        """Run one cycle a second later, and apply its decisions, evictions last; repeated refusals are omitted.

        Decisions come in the order in which they were taken.
        """
        self.now += SECOND
        decided: list[AdmissionDecision] = []
        for decision in self.session.run_cycle(self.now, report=ReportRefusals.CHANGED):
            if isinstance(decision, Refuse) and not self._record_refusal(decision):
                continue
            decided.append(decision)
            match decision:
                case Admit():
                    self._admit(decision)
                case Preempt() | Evict() | Refuse() | KeepWaiting():
                    pass
        for victim in apply_decisions.victims_of(decided):
            self._evict(victim)
        self.requeue_inadmissible()
        return decided

    def _admit(self, decision: Admit) -> None:
        reserved = conditions.reserve_quota(self.workloads[decision.workload], decision.admission, self.now)
        self.apply(conditions.sync_admitted(reserved, self.now, granular=self.session.config.has_granular_reasons))
        if decision.replaces:
            self.apply(apply_decisions.with_finished_slice(self.workloads[decision.replaces], reserved, self.now))

    def _record_refusal(self, decision: Refuse) -> bool:
        """Record a refusal; False if it repeats the workload's previous one."""
        workload = self.workloads[decision.workload]
        refused = conditions.apply_refusal(
            workload, decision, self.now, granular=self.session.config.has_granular_reasons
        )
        if refused is not workload:
            self.apply(refused)
        return refused is not workload

    def _evict(self, victim: Preempt | Evict) -> None:
        evicted = apply_decisions.with_eviction(self.workloads[victim.workload], victim, self.now)
        self.apply(conditions.release_quota(evicted, self.now, granular=self.session.config.has_granular_reasons))
