"""Simulates admission alone: applies Kueue's decisions to Workloads, cycle by cycle, without pods and controllers.

Forecasts, suggestions and conformance scenarios run on it. They differ in when an evicted workload releases its quota,
when inadmissible workloads are requeued, and which refusals they want to see: arguments of `AdmissionSimulator`.
"""

from collections.abc import Iterator, MutableMapping
from copy import copy
from typing import assert_never

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
from gpuconsole.model.snapshot import NO_ROWS, Snapshot, TableView
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession


class SimulatedWorkloads(MutableMapping[str, Workload]):
    """The Workloads of a Snapshot, by key, as a simulation changes them; a fork copies the changes only. Mutable."""

    __slots__ = ("_before", "_changes")

    def __init__(self, before: TableView[Workload]) -> None:
        self._before = before
        self._changes: dict[str, Workload | None] = {}
        """Changed and new Workloads; None if deleted."""

    def fork(self) -> "SimulatedWorkloads":
        """Return an independent copy."""
        copied = SimulatedWorkloads(self._before)
        copied._changes = self._changes.copy()
        return copied

    def is_changed(self, key: str) -> bool:
        """True if the simulation wrote or deleted the Workload."""
        return key in self._changes

    def all(self) -> Iterator[Workload]:
        """Yield the Workloads; faster than iterating over the keys."""
        for workload in self._before.all():
            current = self._changes.get(workload.key, workload)
            if current is not None:
                yield current
        for key, changed in self._changes.items():
            if changed is not None and key not in self._before:
                yield changed

    def __getitem__(self, key: str) -> Workload:
        if key not in self._changes:
            return self._before[key]
        workload = self._changes[key]
        if workload is None:
            raise KeyError(key)
        return workload

    def __setitem__(self, key: str, workload: Workload) -> None:
        self._changes[key] = workload

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._changes[key] = None

    def __iter__(self) -> Iterator[str]:
        return (workload.key for workload in self.all())

    def __len__(self) -> int:
        return sum(1 for _ in self.all())


class AdmissionSimulator:
    """Runs Kueue's scheduling cycles and applies their decisions, without pods and controllers. Mutates."""

    __slots__ = (
        "_requeues_at_once",
        "_stays_open",
        "_victims_keep_quota",
        "now",
        "report",
        "session",
        "with_traces",
        "workloads",
    )

    def __init__(
        self,
        session: KueueSession,
        now: Time,
        workloads: TableView[Workload] = NO_ROWS,
        *,
        victims_keep_quota: bool = False,
        requeues_at_once: bool = True,
        report: ReportRefusals = ReportRefusals.CHANGED,
        with_traces: bool = False,
        stays_open: bool = False,
    ) -> None:
        """`workloads` are those that the session already has.

        An evicted workload releases its quota at once, or with `victims_keep_quota` when its release is applied, as
        when its pods are gone. Inadmissible workloads are requeued after each cycle, or without `requeues_at_once` when
        `requeue_inadmissible` is called. `report`, `with_traces` and `stays_open` are those of
        `KueueSession.run_cycle`.
        """
        self.session = session
        self.now = now
        self.workloads = SimulatedWorkloads(workloads)
        self._victims_keep_quota = victims_keep_quota
        self._requeues_at_once = requeues_at_once
        self.report = report
        self.with_traces = with_traces
        self._stays_open = stays_open

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, config: KueueConfig) -> "AdmissionSimulator":
        """Start from the current state of a cluster; inadmissible workloads are tried again."""
        simulator = cls(KueueSession(config), snapshot.time, snapshot.workloads)
        for obj in snapshot.objects():
            simulator.session.apply(obj, snapshot.time)
        return simulator

    def fork(self) -> "AdmissionSimulator":
        """Return an independent copy."""
        copied = copy(self)
        copied.session = self.session.fork()
        copied.workloads = self.workloads.fork()
        return copied

    def apply(self, obj: Object) -> None:
        """Create or update an object."""
        if isinstance(obj, Workload):
            self.workloads[obj.key] = obj
        self.session.apply(obj, self.now)

    def delete(self, table: str, key: str) -> None:
        """Delete an object; `table` as in `model.objects.TABLES`."""
        if table == "workloads":
            self.workloads.pop(key, None)
        self.session.delete(table, key, self.now)

    def apply_event(self, event: Event) -> None:
        """Apply a change of the observed cluster, as `apply` and `delete` do."""
        match event:
            case Applied(_, obj):
                self.apply(obj)
            case Deleted(_, table, key):
                self.delete(table, key)
            case _:
                pass

    def finish(self, key: str) -> None:
        """Finish a workload, whether it ran or not; a missing or finished workload is unchanged."""
        workload = self.workloads.get(key)
        if workload is not None and not workload.finished:
            self.update_workload(conditions.mark_finished(workload, "Succeeded", "Job finished", self.now))

    def requeue_inadmissible(self) -> None:
        """Requeue the inadmissible workloads of every cohort tree that had a relevant change."""
        self.session.requeue_inadmissible(self.now)

    def run_cycle(self, now: Time | None = None) -> list[AdmissionDecision]:
        """Run one cycle, a second later or at `now`, and apply its decisions; returns them as they were taken.

        Refusals that repeat the workload's previous one are omitted, unless EVERY refusal is reported.
        """
        self.now = self.now + SECOND if now is None else now
        decided: list[AdmissionDecision] = []
        for decision in self.session.run_cycle(
            self.now, with_traces=self.with_traces, report=self.report, stays_open=self._stays_open
        ):
            is_eviction = isinstance(decision, Preempt | Evict)
            if is_eviction or self.apply_decision(decision) or self.report is ReportRefusals.EVERY:
                decided.append(decision)
        for victim in apply_decisions.victims_of(decided):
            self.apply_decision(victim)
        if self._requeues_at_once:
            self.requeue_inadmissible()
        return decided

    def run_until_settled(self, most: int | None = None) -> Iterator[tuple[int, list[AdmissionDecision]]]:
        """Run cycles, at most `most`, until another would change nothing; yield the number of each, and its decisions.

        A requeue that is due then follows, and more cycles: Kueue batches events for one second before it requeues. As
        in the simulation, the cycles of one moment are a microsecond apart.
        """
        start, cycle = self.now, 0
        for is_requeue in (False, True):
            if is_requeue:
                if not self.session.has_requeue_due:
                    return
                self.session.requeue_inadmissible(start)
            goes_on = True
            while goes_on and self.session.has_heads and (most is None or cycle < most):
                cycle += 1
                decided = self.run_cycle(start + cycle - 1)
                yield cycle, decided
                goes_on = bool(apply_decisions.victims_of(decided)) or self.session.has_progressed

    def apply_decision(self, decision: AdmissionDecision) -> bool:
        """Apply one decision; return False for a refusal that repeats the workload's previous one."""
        match decision:
            case Admit():
                self._admit(decision)
            case Refuse():
                return self._refuse(decision)
            case Preempt() | Evict():
                self._evict(decision)
            case KeepWaiting():
                pass
            case _:
                assert_never(decision)
        return True

    def update_workload(self, workload: Workload) -> None:
        """Write a Workload that a decision changed."""
        self.apply(workload)

    def _admit(self, decision: Admit) -> None:
        workload = self.workloads[decision.workload]
        rules = self.session.compiled_config.queues.get(decision.admission.cluster_queue)
        queue = rules.queue if rules is not None else None
        reserved = apply_decisions.with_reservation(workload, decision, queue, self.now)
        self.update_workload(conditions.sync_admitted(reserved, self.now, granular=self._granular))
        old = self.workloads.get(decision.replaces)
        if old is not None and not old.finished:
            self.update_workload(apply_decisions.with_finished_slice(old, reserved, self.now))

    def _refuse(self, decision: Refuse) -> bool:
        workload = self.workloads[decision.workload]
        refused = conditions.apply_refusal(workload, decision, self.now, granular=self._granular)
        if refused is not workload:
            self.update_workload(refused)
        return refused is not workload

    def _evict(self, decision: Preempt | Evict) -> None:
        evicted = apply_decisions.with_eviction(self.workloads[decision.workload], decision, self.now)
        if not self._victims_keep_quota:
            evicted = conditions.release_quota(evicted, self.now, granular=self._granular)
        self.update_workload(evicted)

    @property
    def _granular(self) -> bool:
        return self.session.config.has_granular_reasons
