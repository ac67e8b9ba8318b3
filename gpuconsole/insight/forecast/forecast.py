"""Forecast of Kueue's next scheduling cycles for all pending workloads, and the outlook of one workload.

The simulator's admission engine follows the cluster's changes, and runs cycles in forks until another one would change
nothing. No time passes, nothing is written, and no pod is scheduled: quota alone decides. To reproduce a decision that
the engine does not take on the visible state, it is run again with possible states that the API does not show
(`possible_scheduler_states`): as if all other workloads that were refused before were inadmissible, and from each
flavor at which the workload's search may continue. The outlook estimates the start of a pending workload, or the risk
of an admitted one, with fewer runs than the commands, as it is updated often.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, product
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.data_gaps import in_sentences
from gpuconsole.insight.forecast.estimates import RUNS
from gpuconsole.insight.forecast.expected_start import Eta, expected_start_steps
from gpuconsole.insight.index.demand import amount_of
from gpuconsole.insight.pending.shortage import first_of
from gpuconsole.insight.pending.why import AdmissionView, view_on
from gpuconsole.insight.preemption.risk import EFFORT, HORIZON, WorkloadRisk, eviction_risk_steps
from gpuconsole.model.clock import DAY, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.events import AdmissionDecision, Admit, Applied, Deleted, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import ClusterQueue, QueueingStrategy
from gpuconsole.model.snapshot import EMPTY, NO_ASSUMPTIONS, QueueAssumptions, Snapshot, change_events
from gpuconsole.model.workloads import PLACED, Admission, Condition, Workload, WorkloadPhase, phase
from gpuconsole.scheduling.kueue import apply_decisions, conditions
from gpuconsole.scheduling.kueue.admissibility import inadmissible_reason
from gpuconsole.scheduling.kueue.assignment import ResumePosition
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.scheduling.kueue.session import ClusterQueueState, KueueSession
from gpuconsole.scheduling.kueue.state import FlavorScanProgress
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


MOST_PLACES = 16
"""Maximum number of flavor positions that are tried, as their number grows with pod sets and flavors."""
_FROM_THE_START = -1


def possible_scheduler_states(session: KueueSession, workload: str, other: str = "") -> Iterator[KueueSession]:
    """Yield copies of the session, each in an in-memory state that Kueue may have when it tries `workload`.

    All refused workloads but `workload` and `other` are inadmissible. There is one state for each flavor at which
    Kueue's search may continue (LastTriedFlavorIdx).
    """
    subject, config = session.workload(workload), session.compiled_config
    rules = config.queues.get(config.cluster_queue_of(subject.local_queue)) if subject is not None else None
    if rules is None:
        return
    queue, kept = rules.queue, session.dump()
    awake = (workload, other)
    inadmissible = {name: ClusterQueueState(inadmissible=_refused(session, name, awake)) for name in kept.queues}
    alone = replace(kept, due=(), queues=inadmissible, progress={})
    generation = kept.generations.get(queue.name, 0)
    # A workload that was never tried has no flavor position to continue from.
    most = MOST_PLACES if subject is not None and _looked_at(subject) else 1
    for resume in islice(_places(queue, session.requests_of(workload)), most):
        fork = session.fork()
        fork.load(replace(alone, progress={workload: FlavorScanProgress(resume, generation, kept.cycles, b"")}))
        yield fork


def _refused(session: KueueSession, queue: str, awake: Collection[str]) -> tuple[str, ...]:
    """Return refused workloads, except these, that may be inadmissible. StrictFIFO keeps its head active."""
    rules = session.compiled_config.queues.get(queue)
    if rules is None or rules.queue.queueing_strategy is QueueingStrategy.STRICT_FIFO:
        return ()
    waiting = (one.workload for one in session.pending_workloads(queue))
    return tuple(other.key for other in waiting if other.key not in awake and _looked_at(other))


def _looked_at(workload: Workload) -> bool:
    return workload.condition(QUOTA_RESERVED) is not None


def _places(queue: ClusterQueue, requested: Mapping[str, Mapping[str, int]]) -> Iterator[ResumePosition]:
    """Yield the flavor positions where the pod sets' search may continue: the start, or after a flavor."""
    last = {resource: len(group.flavors) - 1 for group in queue.resource_groups for resource in group.covered_resources}
    choices = [
        [
            {resource: place if place < last.get(resource, 0) else _FROM_THE_START for resource in resources}
            for place in range(_FROM_THE_START, max([1, *(last.get(resource, 0) for resource in resources)]))
        ]
        for resources in requested.values()
    ]
    return product(*choices)


def with_obstacle(session: KueueSession, workload: Workload, now: Time) -> Workload | None:
    """Return a pending workload with the condition that Kueue's workload controller, not its scheduler, writes.

    None if it writes none, because nothing keeps the scheduler from trying the workload.
    """
    reason, message = inadmissible_reason(workload, session.look_up_queues(workload), session.config)
    granular = session.config.has_granular_reasons
    return conditions.set_pending_reason(workload, reason, message, now, granular=granular) if message else None


class ForecastReservation(Struct, frozen=True):
    """Quota reservation of a workload, with the number (from 1) of the cycle that makes it."""

    cycle: int
    admission: Admission


class CyclesResult(Struct):
    """Reservations, preemptions and refusals of the simulated cycles. Filled while they run, read-only afterwards."""

    reserved: dict[str, ForecastReservation] = field(default_factory=dict)
    said: dict[str, Condition] = field(default_factory=dict)
    """Pending workload → the condition that Kueue would write, if it differs from the stored one."""
    preempted: list[Preempt] = field(default_factory=list)
    assumptions: QueueAssumptions = NO_ASSUMPTIONS
    """Assumptions about Kueue's queues at the start."""


class AdmissionForecaster:
    """Simulates the next scheduling cycles of a cluster that is observed again and again. Mutates by `ask`."""

    def __init__(self, config: KueueConfig) -> None:
        self.config = config
        self._session = KueueSession(config)
        self._observed = Observation(self._session)
        """State of Kueue's queues as far as its writes show it."""
        self._at = EMPTY
        """The Snapshot up to which the session is updated."""
        self._adopted = EMPTY
        """The Snapshot at which the queues of another observer were taken over, which knew what time had changed."""
        self._with_pods = False
        self._outcome: CyclesResult | None = None
        """The result for that Snapshot."""

    @property
    def followed(self) -> tuple[Snapshot, Observation] | None:
        """The last observed cluster and the known state of Kueue's queues; None before the first observation."""
        return (self._at, self._observed) if self._at is not EMPTY else None

    def adopt(self, snapshot: Snapshot, observed: Observation) -> None:
        """Continue with the queues of another observer, which followed the cluster event by event up to a Snapshot."""
        self._observed = observed.fork()
        self._session, self._at, self._outcome = self._observed.session, snapshot, None
        self._with_pods, self._adopted = self._session.uses_topologies, snapshot

    def ask(self, snapshot: Snapshot, *, keep: bool = True) -> CyclesResult:
        """Run the next cycles on this Snapshot, in a fork.

        Without `keep` the Snapshot is hypothetical: the next one is compared with the last that was kept, and the
        preemptions say how their victims were chosen.
        """
        is_known = self._at is not EMPTY and snapshot is not self._adopted
        is_stale = is_known and self._session.is_stale(snapshot.time)
        changes = change_events(self._at, snapshot)
        if keep and not changes and not is_stale and self._outcome is not None:
            return self._outcome
        if not keep:
            if is_stale:
                self._renew(snapshot.time)
            return self._suppose(snapshot, changes)
        self._with_pods = _tell(self._session, changes, snapshot, self._with_pods, self._observed)
        self._observed.update_queues(snapshot.time)
        self._at = snapshot
        if is_stale:
            self._renew(snapshot.time)
        ready = self._session.fork()
        self._observed.prepare_fork(ready, snapshot.time)
        self._outcome = _Cycles(ready, snapshot, choices=False).run()
        self._outcome.assumptions = ready.assumptions
        return self._outcome

    def _renew(self, now: Time) -> None:
        """Rebuild the session as of `now`, when the passing of time has made it outdated."""
        session = KueueSession(self.config)
        self._with_pods = _tell(session, change_events(EMPTY, self._at), self._at, with_pods=False, now=now)
        self._session, self._observed, self._outcome = session, self._observed.continue_in(session), None

    def _suppose(self, supposed: Snapshot, changes: list[Applied | Deleted]) -> CyclesResult:
        """Run the next cycles on a hypothetical Snapshot; workloads that its changes may admit are requeued."""
        session = self._session.fork()
        self._observed.prepare_fork(session, supposed.time)
        _tell(session, changes, supposed, self._with_pods)
        session.requeue_inadmissible(supposed.time)
        return _Cycles(session, supposed, choices=True).run()

    def with_possible_state(self, supposed: Snapshot, workload: str, other: str) -> Iterator[CyclesResult]:
        """Yield a result for each possible in-memory state of Kueue on a hypothetical Snapshot."""
        session = self._session.fork()
        _tell(session, change_events(self._at, supposed), supposed, self._with_pods)
        for possible in possible_scheduler_states(session, workload, other):
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
            observed.before_event(event, now)
            session.apply_event(event, now)
            observed.after_event(event, now)
        else:
            session.apply_event(event, now)
    if not session.uses_topologies:
        return False
    for event in pods if with_pods else [Applied(now, pod) for pod in after.pods.all()]:
        session.apply_event(event, now)
    return True


class _Cycles:
    """Scheduling cycles at one moment, in a fork of a session; victims keep their quota. Mutates."""

    def __init__(self, settled: KueueSession, snapshot: Snapshot, *, choices: bool) -> None:
        self._settled = settled
        self._snapshot = snapshot
        self._simulator = AdmissionSimulator(
            settled.fork(),
            snapshot.time,
            snapshot.workloads,
            victims_keep_quota=True,
            requeues_at_once=False,
            with_traces=choices,
        )
        self._outcome = CyclesResult()

    def run(self) -> CyclesResult:
        simulator, session = self._simulator, self._simulator.session
        for refusal in session.rejected_claims():
            if simulator.apply_decision(refusal):
                self._note(simulator.workloads[refusal.workload])
        for cycle, decided in simulator.run_until_settled():
            self._note_decisions(cycle, decided)
        self._see_obstacles()
        return self._outcome

    def _note_decisions(self, cycle: int, decided: Sequence[AdmissionDecision]) -> None:
        for decision in decided:
            match decision:
                case Admit():
                    self._note_reservation(decision, cycle)
                case Refuse():
                    self._note(self._simulator.workloads[decision.workload])
                case Preempt() | Evict() | KeepWaiting():
                    pass
        victims = apply_decisions.victims_of(decided)
        self._outcome.preempted += (victim for victim in victims if isinstance(victim, Preempt))

    def _note_reservation(self, decision: Admit, cycle: int) -> None:
        """Record a reservation; a second pass for a workload that has quota is none."""
        before = self._snapshot.workloads.get(decision.workload)
        if before is not None and not before.reserved:
            self._outcome.reserved.setdefault(decision.workload, ForecastReservation(cycle, decision.admission))
            self._outcome.said.pop(decision.workload, None)

    def _see_obstacles(self) -> None:
        """Record the conditions that Kueue's workload controller, not its scheduler, writes for pending workloads."""
        for workload in self._snapshot.workloads.all():
            is_decided = self._simulator.workloads.is_changed(workload.key)
            if is_decided or workload.reserved or workload.finished or not workload.active:
                continue
            written = with_obstacle(self._settled, workload, self._snapshot.time)
            if written is not None:
                self._note(written)

    def _note(self, workload: Workload) -> None:
        said = workload.condition(conditions.QUOTA_RESERVED)
        if said is not None:
            self._outcome.said[workload.key] = said


NO_KUEUE = "Kueue is not installed in this cluster"


class ForecastAction(StrEnum):
    """Effect of the next scheduling cycles on a workload."""

    ADMITTED = "admitted"
    """Quota is reserved for it."""
    AFTER_VICTIMS = "after-victims"
    """It preempts others and waits for their quota."""
    WAITS = "waits"
    PREEMPTED = "preempted"
    """It runs, and is a victim."""


class WorkloadForecast(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Forecast of the next scheduling cycles for one workload."""

    workload: str
    queue: str = ""
    """ClusterQueue."""
    gpus: int = 0
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int = 0
    created: Time = 0
    fate: ForecastAction
    cycle: int = 0
    """Number of the cycle that admits it, from 1; 0 if none does."""
    flavors: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Flavors of each pod set, as `assigned` writes them."""
    victims: tuple[str, ...] = ()
    """Workloads that it preempts."""
    by: str = ""
    """Its preemptor; empty if it is not a victim."""
    rule: str = ""
    """Rule by which it is preempted: the reason of Kueue's Preempted condition."""
    reason: str = ""
    message: str = ""
    """Reason and message of a pending workload, as Kueue would write them."""


class Forecast(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Forecast for all workloads at one moment, valid until the cluster changes."""

    time: Time = 0
    prospects: Mapping[str, WorkloadForecast] = {}
    """Forecasts of all pending workloads and their victims, by workload."""
    assumed: tuple[str, ...] = ()
    """Assumptions about the cluster, in sentences."""
    queues: tuple[str, ...] = ()
    """Assumptions about Kueue's in-memory queues, in sentences."""

    def of(self, workload: str) -> WorkloadForecast | None:
        """Return the forecast for a workload; None if it is neither pending nor a victim."""
        return self.prospects.get(workload)

    @property
    def expected(self) -> dict[str, WorkloadForecast]:
        """The forecasts of workloads that will be admitted or will preempt others, by workload."""
        return {
            key: one
            for key, one in self.prospects.items()
            if one.fate in (ForecastAction.ADMITTED, ForecastAction.AFTER_VICTIMS)
        }

    def in_order(self) -> list[WorkloadForecast]:
        """Admissions by cycle, then preemptors, pending workloads and victims; each by priority and age."""
        order = list(ForecastAction)
        return sorted(
            self.prospects.values(),
            key=lambda one: (order.index(one.fate), one.cycle, -one.priority, one.created, one.workload),
        )


class Forecaster:
    """Forecasts one cluster again and again, from the changes since the last forecast. Mutates by `forecast`."""

    def __init__(self) -> None:
        self._foresight: AdmissionForecaster | None = None

    def forecast(
        self,
        snapshot: Snapshot,
        policy: SimPolicy,
        *,
        assumed: Iterable[str] = (),
        supposed: bool = False,
        observed: Observation | None = None,
    ) -> Forecast:
        """Run scheduling cycles on a Snapshot until another cycle would change nothing.

        With `supposed` the Snapshot is hypothetical; the next one is not compared with it. `observed` has Kueue's
        queues at this Snapshot, from an observer that followed the cluster event by event, such as a shadow.
        """
        if policy.kueue is None:
            return Forecast(time=snapshot.time, assumed=(*assumed, NO_KUEUE))
        engine = self._engine(policy.kueue)
        if observed is not None:
            engine.adopt(snapshot, observed)
        outcome = engine.ask(snapshot, keep=not supposed)
        return _as_forecast(snapshot, outcome, assumed)

    def possible(self, supposed: Snapshot, policy: SimPolicy, workload: str, other: str = "") -> Iterator[Forecast]:
        """Yield a forecast on a hypothetical Snapshot for each in-memory state that Kueue may have.

        In these, all workloads that were refused before are inadmissible, except `workload` and `other`.
        """
        if policy.kueue is not None:
            for outcome in self._engine(policy.kueue).with_possible_state(supposed, workload, other):
                yield _as_forecast(supposed, outcome, ())

    def preemptions(self, supposed: Snapshot, policy: SimPolicy) -> Sequence[Preempt]:
        """Return the preemptions on a hypothetical Snapshot, with the choice of their victims."""
        return self._engine(policy.kueue).ask(supposed, keep=False).preempted if policy.kueue is not None else ()

    def followed(self, policy: SimPolicy) -> tuple[Snapshot, Observation] | None:
        """The last observed cluster and the known state of Kueue's queues; None if the policy differs."""
        engine = self._foresight
        return engine.followed if engine is not None and engine.config == policy.kueue else None

    def _engine(self, config: KueueConfig) -> AdmissionForecaster:
        if self._foresight is None or self._foresight.config != config:
            self._foresight = AdmissionForecaster(config)
        return self._foresight


def forecast(snapshot: Snapshot, policy: SimPolicy, *, assumed: Iterable[str] = ()) -> Forecast:
    """Make a single forecast; see `Forecaster` for repeated ones."""
    return Forecaster().forecast(snapshot, policy, assumed=assumed)


def _as_forecast(snapshot: Snapshot, outcome: CyclesResult, assumed: Iterable[str]) -> Forecast:
    victims: dict[str, list[str]] = {}
    for line in outcome.preempted:
        victims.setdefault(line.by, []).append(line.workload)
    prospects = {line.workload: _victim(snapshot, line) for line in outcome.preempted}
    for workload in snapshot.workloads.all():
        if _waits(workload):
            named = tuple(victims.get(workload.key, ()))
            prospects[workload.key] = _prospect(snapshot, workload, outcome, named)
    queues = in_sentences(outcome.assumptions)
    return Forecast(time=snapshot.time, prospects=prospects, assumed=tuple(assumed), queues=queues)


def assigned(admission: Admission) -> tuple[str, ...]:
    """Format the flavors of each pod set so that they can be compared: `main×2 nvidia.com/gpu=h100`."""
    return tuple(
        f"{part.name}×{part.count} {','.join(f'{name}={flavor}' for name, flavor in sorted(part.flavors.items()))}"
        for part in sorted(admission.pod_sets, key=lambda part: part.name)
    )


def in_words(workload_forecast: WorkloadForecast) -> str:
    """Format the forecast for one workload in one line."""
    match workload_forecast.fate:
        case ForecastAction.ADMITTED:
            on = f" on {', '.join(workload_forecast.flavors)}" if workload_forecast.flavors else ""
            made_room = f", after preempting {first_of(workload_forecast.victims)}" if workload_forecast.victims else ""
            return f"admitted in cycle {workload_forecast.cycle}{on}{made_room}"
        case ForecastAction.AFTER_VICTIMS:
            return f"preempts {first_of(workload_forecast.victims)}"
        case ForecastAction.PREEMPTED:
            return f"preempted by {workload_forecast.by} ({workload_forecast.rule})"
        case ForecastAction.WAITS:
            return f"pending: {workload_forecast.message}" if workload_forecast.message else "pending"


def _waits(workload: Workload) -> bool:
    return workload.active and not workload.reserved and not workload.finished


def _victim(snapshot: Snapshot, decision: Preempt) -> WorkloadForecast:
    victim = snapshot.workloads[decision.workload]
    gpus, unit = amount_of(snapshot, victim)
    return WorkloadForecast(
        workload=victim.key,
        queue=victim.cluster_queue,
        gpus=gpus,
        unit=unit,
        priority=victim.priority,
        created=victim.created,
        fate=ForecastAction.PREEMPTED,
        by=decision.by,
        rule=decision.rule.value,
    )


def _prospect(
    snapshot: Snapshot, workload: Workload, outcome: CyclesResult, victims: tuple[str, ...]
) -> WorkloadForecast:
    local_queue = snapshot.local_queues.get(workload.local_queue)
    gpus, unit = amount_of(snapshot, workload)
    made = WorkloadForecast(
        workload=workload.key,
        queue=local_queue.cluster_queue if local_queue is not None else "",
        gpus=gpus,
        unit=unit,
        priority=workload.priority,
        created=workload.created,
        victims=victims,
        fate=ForecastAction.AFTER_VICTIMS if victims else ForecastAction.WAITS,
    )
    reserved = outcome.reserved.get(workload.key)
    if reserved is not None:
        flavors = (flavor for part in reserved.admission.pod_sets for flavor in part.flavors.values())
        return replace(
            made,
            fate=ForecastAction.ADMITTED,
            cycle=reserved.cycle,
            flavors=tuple(dict.fromkeys(flavors)),
            given=assigned(reserved.admission),
        )
    said = outcome.said.get(workload.key) or workload.condition("QuotaReserved")
    return replace(made, reason=said.reason, message=said.message) if said is not None else made


_EFFORT = EFFORT // 2
"""Half of the simulation steps of the answer about all workloads."""


class WorkloadOutlook(Struct, frozen=True, kw_only=True):
    """Forecast of one workload at `time`, with its horizon and the number of runs."""

    time: Time
    until: Time
    runs: int
    eta: Eta | None = None
    risk: WorkloadRisk | None = field(default=None, name="danger")


def outlook_steps(
    simulation: "Simulation", workload: str, *, runs: int = RUNS, seed: int = 0, found: Snapshot | None = None
) -> Iterator[Progress[WorkloadOutlook]]:
    """Forecast one workload: the start of a pending one, the preemption risk of an admitted one.

    The progress is the number of complete runs; only the last item has an answer. The simulation is not modified, and
    must not advance in the meantime. A workload that does not exist, or that is neither pending nor admitted, gets an
    empty answer. `found` is the live or saved cluster that the simulation started from, if any; running work is read
    from it, as in `risk`.
    """
    now = simulation.now
    nothing = WorkloadOutlook(time=now, until=now, runs=0)
    subject = simulation.workload(workload)
    stands = subject if found is None else found.workloads.get(workload)
    if stands is not None and phase(stands) in PLACED:
        standing = view_on(found, simulation.policy) if found is not None else None
        yield from _risk_steps(simulation, workload, runs, seed, standing)
    elif subject is not None and phase(subject) in (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED):
        for piece in expected_start_steps(simulation, workload, runs=runs, seed=seed, horizon=DAY):
            outlook = replace(nothing, until=now + DAY, runs=runs, eta=piece.answer) if piece.last else None
            yield Progress(done=piece.done, total=piece.total, answer=outlook, last=piece.last)
    else:
        yield Progress(answer=nothing, last=True)


def _risk_steps(
    simulation: "Simulation", workload: str, runs: int, seed: int, found: AdmissionView | None
) -> Iterator[Progress[WorkloadOutlook]]:
    now = simulation.now
    for piece in eviction_risk_steps(simulation, runs=runs, seed=seed, horizon=HORIZON, found=found, effort=_EFFORT):
        outlook = None
        if piece.answer is not None and piece.last:
            own = next((one for one in piece.answer.workloads if one.workload == workload), None)
            outlook = WorkloadOutlook(time=now, until=piece.answer.horizon, runs=piece.done, risk=own)
        yield Progress(doing=piece.doing, done=piece.done, total=piece.total, answer=outlook, last=piece.last)
