"""What admission decides next on a Snapshot: an engine that is kept from look to look, and asked in a fork.

Only what changed since the last look is told to it, and no pod is placed: quota decides who is admitted. It runs until
another cycle would decide nothing else, without letting time pass.
"""

from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.remembered import memories
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.decisions import Admit, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.objects import TABLES
from gpuconsole.model.scan import news
from gpuconsole.model.seen import NO_ASSUMPTIONS, QueueAssumptions
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.workloads import Admission, Condition, Workload
from gpuconsole.scheduling.kueue import conditions, effects
from gpuconsole.scheduling.kueue.checks import all_ready
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.scheduling.kueue.prospects import prospect
from gpuconsole.scheduling.kueue.session import Session


class Reservation(Struct, frozen=True):
    """Quota for a workload, by the how many-th cycle from now."""

    cycle: int
    admission: Admission


class Outcome(Struct):
    """What came of the cycles. Filled while they run, read-only after it."""

    reserved: dict[str, Reservation] = field(default_factory=dict)
    said: dict[str, Condition] = field(default_factory=dict)
    """Why others wait, where the engine says something else than what is written down."""
    preempted: list[Preempt] = field(default_factory=list)
    assumptions: QueueAssumptions = NO_ASSUMPTIONS
    """What is assumed of Kueue's queues at the begin."""


class Foresight:
    """The engine beside a cluster that others run. Mutates by `ask`; what it decides stays in forks."""

    def __init__(self, config: KueueConfig) -> None:
        self.config = config
        self._session = Session(config)
        self._observed = Observation(self._session)
        """What of Kueue's queues shows in what it wrote."""
        self._at = EMPTY
        """What the session was told so far."""
        self._with_pods = False
        self._outcome: Outcome | None = None
        """What came of it there."""

    @property
    def followed(self) -> tuple[Snapshot, Observation] | None:
        """The cluster of the last look, and what shows of Kueue's queues there; None before the first one."""
        return (self._at, self._observed) if self._at is not EMPTY else None

    def ask(self, snapshot: Snapshot, *, keep: bool = True) -> Outcome:
        """Let the next cycles decide on this Snapshot.

        Without `keep` the engine stays at the Snapshot before: for what only might have been. Its preemptions say how
        their victims were chosen.
        """
        outlived = self._at is not EMPTY and self._session.outlived(snapshot.time)
        changes = news(self._at, snapshot)
        if keep and not changes and not outlived and self._outcome is not None:
            return self._outcome
        if not keep:
            if outlived:
                self._renew(snapshot.time)
            return self._suppose(snapshot, changes)
        self._with_pods = _tell(self._session, changes, snapshot, self._with_pods, self._observed)
        self._observed.settle(snapshot.time)
        self._at = snapshot
        if outlived:
            self._renew(snapshot.time)
        ready = self._session.fork()
        self._observed.hand_over(ready, snapshot.time)
        self._outcome = _Cycles(ready, snapshot, choices=False).run()
        self._outcome.assumptions = ready.assumptions
        return self._outcome

    def _renew(self, now: Time) -> None:
        """Tell another session all that this one knows, as of `now`, when time has made it another one."""
        session = Session(self.config)
        self._with_pods = _tell(session, news(EMPTY, self._at), self._at, with_pods=False, now=now)
        self._session, self._observed, self._outcome = session, self._observed.renewed(session), None

    def _suppose(self, supposed: Snapshot, changes: list[Applied | Deleted]) -> Outcome:
        """What the next cycles would decide, were this the cluster; whom the changes may admit is tried again."""
        session = self._session.fork()
        self._observed.hand_over(session, supposed.time)
        _tell(session, changes, supposed, self._with_pods)
        session.wake(supposed.time)
        return _Cycles(session, supposed, choices=True).run()

    def remembering(self, supposed: Snapshot, workload: str, beside: str) -> Iterator[Outcome]:
        """What they might decide on a Snapshot that never was, by what only Kueue may remember (see `memories`)."""
        session = self._session.fork()
        _tell(session, news(self._at, supposed), supposed, self._with_pods)
        for possible in memories(session, supposed, workload, beside):
            yield _Cycles(possible, supposed, choices=False).run()


def _tell(
    session: Session,
    changes: list[Applied | Deleted],
    after: Snapshot,
    with_pods: bool,
    observed: Observation | None = None,
    now: Time | None = None,
) -> bool:
    """Tell a session what changed, as of `now`, by default of then; True if it places pods, and knows all of them."""
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
    """The cycles of one moment, in a fork of a session. Mutates."""

    def __init__(self, settled: Session, snapshot: Snapshot, *, choices: bool) -> None:
        self._choices = choices
        self._settled = settled
        self._session = settled.fork()
        self._snapshot = snapshot
        self._changed: dict[str, Workload] = {}
        """Workloads as the decisions left them."""
        self._outcome = Outcome()

    def run(self) -> Outcome:
        session = self._session
        for refusal in session.turned_away():
            self._refuse(refusal, self._snapshot.time)
        cycle = self._cycles(0)
        if session.wake_due:
            # Kueue gathers what happens for a second: by then no cycle decides anything else.
            session.wake(self._snapshot.time)
            self._cycles(cycle)
        self._see_obstacles()
        return self._outcome

    def _cycles(self, cycle: int) -> int:
        """Run cycles, numbered from the next one, until another would decide nothing else; the last one's number."""
        session, goes_on = self._session, True
        while goes_on and session.has_active:
            cycle += 1
            goes_on = self._cycle(cycle) or session.progressed
        return cycle

    def _cycle(self, number: int) -> bool:
        """Run one cycle; True if somebody was evicted, so that the next one finds another cluster."""
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
        return any([self._evict(victim, now) for victim in effects.victims_of(decided)])

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
            self._outcome.reserved[workload.key] = Reservation(cycle, decision.admission)
            self._outcome.said.pop(workload.key, None)
        queue = self._snapshot.cluster_queues.get(decision.admission.cluster_queue)
        reserved = effects.reserved(workload, decision, queue, now)
        if all_ready(reserved):
            reserved = conditions.admit(reserved, now, granular=self._session.config.granular)
        self._take(reserved, now)
        old = self._workload(decision.replaces)
        if old is not None and not old.finished:
            self._take(effects.replaced(old, reserved, now), now)

    def _refuse(self, decision: Refuse, now: Time) -> None:
        workload = self._workload(decision.workload)
        if workload is None:
            return
        refused = conditions.take_refusal(workload, decision, now, granular=self._session.config.granular)
        parked = self._session.parked(workload.key)
        if refused is not workload or workload.parked != parked:
            self._note(refused)
            self._take(replace(refused, parked=parked), now)

    def _evict(self, decision: Preempt | Evict, now: Time) -> bool:
        victim = self._workload(decision.workload)
        if victim is None or not victim.reserved or victim.is_true(conditions.EVICTED):
            return False
        if isinstance(decision, Preempt):
            self._outcome.preempted.append(decision)
        self._take(effects.evicted(victim, decision, now), now)
        return True

    def _see_obstacles(self) -> None:
        """What Kueue's workload controller writes down of workloads that no cycle looks at."""
        session, granular = self._settled, self._settled.config.granular
        for workload in self._snapshot.workloads.all():
            if workload.key in self._changed or workload.reserved or workload.finished or not workload.active:
                continue
            reason, message = prospect(workload, session.outlook(workload), session.config)
            if message:
                self._note(conditions.refuse(workload, reason, message, self._snapshot.time, granular=granular))

    def _note(self, workload: Workload) -> None:
        said = workload.condition(conditions.QUOTA_RESERVED)
        if said is not None:
            self._outcome.said[workload.key] = said
