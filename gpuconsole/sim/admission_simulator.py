"""Admission alone, cycle by cycle: decisions take effect at once, and nothing else happens.

No controllers, pods or run times; parked workloads wake at once. It is what the conformance data was made with, and
what a change is tried on to see whether it lets a workload in.
"""

from collections.abc import Iterable

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.decisions import AdmissionDecision, Admit, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.heads import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession


class AdmissionSimulator:
    """A session whose decisions are carried out at once. Mutates; `fork` gives an independent twin."""

    __slots__ = ("now", "session", "workloads")

    def __init__(self, session: KueueSession, now: Time, workloads: Iterable[Workload] = ()) -> None:
        """`workloads` are those that the session knows already."""
        self.session = session
        self.now = now
        self.workloads: dict[str, Workload] = {workload.key: workload for workload in workloads}

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, config: KueueConfig) -> "AdmissionSimulator":
        """The admission of a cluster as it is; what is parked there is tried anew."""
        rehearsal = cls(KueueSession(config), snapshot.time)
        for obj in snapshot.objects():
            rehearsal.apply(obj)
        return rehearsal

    def fork(self) -> "AdmissionSimulator":
        twin = AdmissionSimulator(self.session.fork(), self.now)
        twin.workloads = self.workloads.copy()
        return twin

    def apply(self, obj: Object) -> None:
        self.follow(Applied(self.now, obj))

    def delete(self, table: str, key: str) -> None:
        """An object is gone; `table` as in `model.objects.TABLES`."""
        self.follow(Deleted(self.now, table, key))

    def follow(self, event: Event) -> None:
        """Take in what happened in the cluster that is rehearsed."""
        match event:
            case Applied(_, Workload() as workload):
                self.workloads[workload.key] = workload
            case Deleted(_, "workloads", key):
                self.workloads.pop(key, None)
            case _:
                pass
        self.session.follow(event, self.now)

    def finish(self, key: str) -> None:
        """A workload ends, whether it ran or not; one that is not there, or ended already, stays as it is."""
        workload = self.workloads.get(key)
        if workload is not None and not workload.finished:
            self.apply(conditions.finish(workload, "Succeeded", "Job finished", self.now))

    def queue_of(self, key: str) -> ClusterQueue | None:
        """The ClusterQueue that a workload is sent to; None where there is none."""
        workload = self.workloads.get(key)
        return self.session.look_up_queues(workload).cluster_queue if workload is not None else None

    def wake(self) -> None:
        """Move parked workloads back, wherever something happened that may let them in."""
        self.session.requeue_inadmissible(self.now)

    def cycle(self) -> list[AdmissionDecision]:
        """One cycle a second later, with its consequences, evictions last; refusals that tell nothing new are left out.

        Decisions come in the order in which they were taken.
        """
        self.now += SECOND
        decided: list[AdmissionDecision] = []
        for decision in self.session.run_cycle(self.now, report=ReportRefusals.CHANGED):
            if isinstance(decision, Refuse) and not self._tell(decision):
                continue
            decided.append(decision)
            match decision:
                case Admit():
                    self._admit(decision)
                case Preempt() | Evict() | Refuse() | KeepWaiting():
                    pass
        for victim in apply_decisions.victims_of(decided):
            self._evict(victim)
        self.wake()
        return decided

    def _admit(self, decision: Admit) -> None:
        reserved = conditions.reserve(self.workloads[decision.workload], decision.admission, self.now)
        self.apply(conditions.admit(reserved, self.now, granular=self.session.config.granular))
        if decision.replaces:
            self.apply(apply_decisions.replaced(self.workloads[decision.replaces], reserved, self.now))

    def _tell(self, decision: Refuse) -> bool:
        """Write a refusal down; False if the workload was told the same before."""
        workload = self.workloads[decision.workload]
        refused = conditions.take_refusal(workload, decision, self.now, granular=self.session.config.granular)
        if refused is not workload:
            self.apply(refused)
        return refused is not workload

    def _evict(self, victim: Preempt | Evict) -> None:
        evicted = apply_decisions.evicted(self.workloads[victim.workload], victim, self.now)
        self.apply(conditions.release(evicted, self.now, granular=self.session.config.granular))
