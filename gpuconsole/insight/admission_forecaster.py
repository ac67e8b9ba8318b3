"""Admission engine behind the forecast: it follows the cluster's changes and runs scheduling cycles in forks.

It applies the changes since the last observation. No pod is scheduled: quota alone decides. Cycles run until another
one would change nothing; no time passes.
"""

from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.possible_scheduler_states import possible_scheduler_states
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.decisions import Admit, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import EMPTY, NO_ASSUMPTIONS, QueueAssumptions, Snapshot, change_events
from gpuconsole.model.workloads import Admission, Condition, Workload
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.admissibility import inadmissible_reason
from gpuconsole.scheduling.kueue.admission_checks import all_ready
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.scheduling.kueue.session import KueueSession


class ForecastReservation(Struct, frozen=True):
    """Quota reservation of a workload, with the number (from 1) of the cycle that makes it."""

    cycle: int
    admission: Admission


class CyclesResult(Struct):
    """Reservations, preemptions and refusals of the simulated cycles. Filled while they run, read-only afterwards."""

    reserved: dict[str, ForecastReservation] = field(default_factory=dict)
    said: dict[str, Condition] = field(default_factory=dict)
    """Conditions of other pending workloads, if the engine's message differs from the stored condition."""
    preempted: list[Preempt] = field(default_factory=list)
    assumptions: QueueAssumptions = NO_ASSUMPTIONS
    """Assumptions about Kueue's queues at the start."""


class AdmissionForecaster:
    """Runs the next scheduling cycles of an observed cluster. Mutates by `ask`; its decisions stay in forks."""

    def __init__(self, config: KueueConfig) -> None:
        self.config = config
        self._session = KueueSession(config)
        self._observed = Observation(self._session)
        """State of Kueue's queues as far as its writes show it."""
        self._at = EMPTY
        """The Snapshot up to which the session is updated."""
        self._with_pods = False
        self._outcome: CyclesResult | None = None
        """The result for that Snapshot."""

    @property
    def followed(self) -> tuple[Snapshot, Observation] | None:
        """The last observed cluster and the known state of Kueue's queues; None before the first observation."""
        return (self._at, self._observed) if self._at is not EMPTY else None

    def ask(self, snapshot: Snapshot, *, keep: bool = True) -> CyclesResult:
        """Run the next cycles on this Snapshot.

        Without `keep` the Snapshot is hypothetical: the engine stays at the previous one, and the preemptions say how
        their victims were chosen.
        """
        is_stale = self._at is not EMPTY and self._session.is_stale(snapshot.time)
        changes = change_events(self._at, snapshot)
        if keep and not changes and not is_stale and self._outcome is not None:
            return self._outcome
        if not keep:
            if is_stale:
                self._renew(snapshot.time)
            return self._suppose(snapshot, changes)
        self._with_pods = _tell(self._session, changes, snapshot, self._with_pods, self._observed)
        self._observed.settle(snapshot.time)
        self._at = snapshot
        if is_stale:
            self._renew(snapshot.time)
        ready = self._session.fork()
        self._observed.hand_over(ready, snapshot.time)
        self._outcome = _Cycles(ready, snapshot, choices=False).run()
        self._outcome.assumptions = ready.assumptions
        return self._outcome

    def _renew(self, now: Time) -> None:
        """Rebuild the session as of `now`, when the passing of time has made it outdated."""
        session = KueueSession(self.config)
        self._with_pods = _tell(session, change_events(EMPTY, self._at), self._at, with_pods=False, now=now)
        self._session, self._observed, self._outcome = session, self._observed.renewed(session), None

    def _suppose(self, supposed: Snapshot, changes: list[Applied | Deleted]) -> CyclesResult:
        """Run the next cycles on a hypothetical Snapshot; workloads that its changes may admit are requeued."""
        session = self._session.fork()
        self._observed.hand_over(session, supposed.time)
        _tell(session, changes, supposed, self._with_pods)
        session.requeue_inadmissible(supposed.time)
        return _Cycles(session, supposed, choices=True).run()

    def with_possible_state(self, supposed: Snapshot, workload: str, other: str) -> Iterator[CyclesResult]:
        """Yield a result for each possible in-memory state of Kueue on a hypothetical Snapshot."""
        session = self._session.fork()
        _tell(session, change_events(self._at, supposed), supposed, self._with_pods)
        for possible in possible_scheduler_states(session, supposed, workload, other):
            yield _Cycles(possible, supposed, choices=False).run()


def _tell(
    session: KueueSession,
    changes: list[Applied | Deleted],
    after: Snapshot,
    with_pods: bool,
    observed: Observation | None = None,
    now: Time | None = None,
) -> bool:
    """Apply changes to a session as of `now` (default: then); return True if it places pods and has all of them."""
    now = after.time if now is None else now
    pods: list[Applied | Deleted] = []
    for event in changes:
        if event.table == TABLES[Pod]:
            pods.append(event)
        elif observed is not None:
            observed.before(event, now)
            session.follow(event, now)
            observed.after(event, now)
        else:
            session.follow(event, now)
    if not session.places_pods:
        return False
    for event in pods if with_pods else [Applied(now, pod) for pod in after.pods.all()]:
        session.follow(event, now)
    return True


class _Cycles:
    """Scheduling cycles at one moment, in a fork of a session. Mutates."""

    def __init__(self, settled: KueueSession, snapshot: Snapshot, *, choices: bool) -> None:
        self._choices = choices
        self._settled = settled
        self._session = settled.fork()
        self._snapshot = snapshot
        self._changed: dict[str, Workload] = {}
        """Workloads as changed by the decisions."""
        self._outcome = CyclesResult()

    def run(self) -> CyclesResult:
        session = self._session
        for refusal in session.rejected_claims():
            self._refuse(refusal, self._snapshot.time)
        cycle = self._cycles(0)
        if session.has_requeue_due:
            # Kueue batches events for one second before it requeues; no cycle changes anything until then.
            session.requeue_inadmissible(self._snapshot.time)
            self._cycles(cycle)
        self._see_obstacles()
        return self._outcome

    def _cycles(self, cycle: int) -> int:
        """Run cycles until another would change nothing; returns the number of the last one."""
        session, goes_on = self._session, True
        while goes_on and session.has_active:
            cycle += 1
            goes_on = self._cycle(cycle) or session.has_progressed
        return cycle

    def _cycle(self, number: int) -> bool:
        """Run one cycle; True if a workload was evicted, so that the next cycle can decide differently."""
        # As in the simulation, the cycles of one moment are a microsecond apart.
        now = self._snapshot.time + number - 1
        decided = self._session.run_cycle(now, choices=self._choices)
        for decision in decided:
            match decision:
                case Admit():
                    self._admit(decision, number, now)
                case Refuse():
                    self._refuse(decision, now)
                case Preempt() | Evict() | KeepWaiting():
                    pass
        return any([self._evict(victim, now) for victim in apply_decisions.victims_of(decided)])

    def _workload(self, key: str) -> Workload | None:
        return self._changed.get(key) or self._snapshot.workloads.get(key)

    def _take(self, workload: Workload, now: Time) -> None:
        self._changed[workload.key] = workload
        self._session.apply(workload, now)

    def _admit(self, decision: Admit, cycle: int, now: Time) -> None:
        workload = self._workload(decision.workload)
        if workload is None:
            return
        if not workload.reserved:
            self._outcome.reserved[workload.key] = ForecastReservation(cycle, decision.admission)
            self._outcome.said.pop(workload.key, None)
        queue = self._snapshot.cluster_queues.get(decision.admission.cluster_queue)
        reserved = apply_decisions.reserved(workload, decision, queue, now)
        if all_ready(reserved):
            reserved = conditions.admit(reserved, now, granular=self._session.config.granular)
        self._take(reserved, now)
        old = self._workload(decision.replaces)
        if old is not None and not old.finished:
            self._take(apply_decisions.replaced(old, reserved, now), now)

    def _refuse(self, decision: Refuse, now: Time) -> None:
        workload = self._workload(decision.workload)
        if workload is None:
            return
        refused = conditions.take_refusal(workload, decision, now, granular=self._session.config.granular)
        inadmissible = self._session.is_inadmissible(workload.key)
        if refused is not workload or workload.inadmissible != inadmissible:
            self._note(refused)
            self._take(replace(refused, inadmissible=inadmissible), now)

    def _evict(self, decision: Preempt | Evict, now: Time) -> bool:
        victim = self._workload(decision.workload)
        if victim is None or not victim.reserved or victim.is_true(conditions.EVICTED):
            return False
        if isinstance(decision, Preempt):
            self._outcome.preempted.append(decision)
        self._take(apply_decisions.evicted(victim, decision, now), now)
        return True

    def _see_obstacles(self) -> None:
        """Record the conditions that Kueue's workload controller, not its scheduler, writes for pending workloads."""
        session, granular = self._settled, self._settled.config.granular
        for workload in self._snapshot.workloads.all():
            if workload.key in self._changed or workload.reserved or workload.finished or not workload.active:
                continue
            reason, message = inadmissible_reason(workload, session.look_up_queues(workload), session.config)
            if message:
                self._note(conditions.refuse(workload, reason, message, self._snapshot.time, granular=granular))

    def _note(self, workload: Workload) -> None:
        said = workload.condition(conditions.QUOTA_RESERVED)
        if said is not None:
            self._outcome.said[workload.key] = said
