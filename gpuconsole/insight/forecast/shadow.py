"""Shadow of a running Kueue: checks each of its decisions against the engine, event by event.

The shadow applies every change of the cluster in order, and reconstructs Kueue's queues (`Observation`). When a change
shows a decision of Kueue, the engine runs scheduling cycles on the state just before it. Kueue decides on a state that
is a little older than its writes, and keeps a part of its state in memory, so a decision that differs is searched for
on the few other states that are possible, in this order (`agreement.StateOrigin`):

1. the state just before the decision;
2. the states of the last second, because Kueue had not read the newest changes yet;
3. these states with the inadmissible workloads requeued, because no object shows when a batch of requeues ends;
4. these states with only the decided workload active, or with another one that was decided in that second, and its
   search at each flavor where it may have stopped.

A decision that none of them explains is a disagreement. Until the inadmissible workloads of a cohort tree were requeued
once, its queues are those of a past that the shadow has not seen: such a decision is unknown, not a disagreement.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple, TypeVar, assert_never

from gpuconsole.insight.forecast.agreement import (
    KEPT,
    AgreementCounts,
    DecisionKind,
    DisagreementCause,
    ShadowDisagreement,
    ShadowReport,
    StateOrigin,
    first_hour,
)
from gpuconsole.insight.forecast.decisions import newly_true, workload_facts
from gpuconsole.insight.forecast.forecast import assigned, possible_scheduler_states, with_obstacle
from gpuconsole.model.clock import HOUR, SECOND, Span, Time
from gpuconsole.model.events import AdmissionDecision, Admit, Applied, Deleted, Evict, KeepWaiting, Preempt, Refuse
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.snapshot import TableView
from gpuconsole.model.state import ObjectTable
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.conditions import EVICTED, NODE_FAILURES, PREEMPTED, QUOTA_RESERVED
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.messages import rule_in
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator

WINDOW: Span = SECOND
"""How far back the states are searched: the longest time that a cycle and its writes take on a busy API server."""
CHECKPOINT: Span = SECOND // 4
"""Time between two kept copies of the state; the states in between are computed again from the changes."""
MOST_REPLAYED = 500
"""Number of changes after which a copy is kept although none of them is decisive."""
MOST_STATES = 16
"""Maximum number of earlier states that are searched for one decision; each costs as much as a forecast."""
MOST_QUEUE_STATES = 240
"""Maximum number of possible states of Kueue's queues that are tried for one decision; each has one or two heads."""
MOST_CYCLES = 20
"""Maximum number of cycles that are simulated on one state; later decisions are simulated on a later state."""
COST_PER_SECOND, MOST_COST = 300, 6_000
"""Cost of the states that are searched per second of the cluster's time, and at once after a quiet time.

A unit took 0.5 ms of CPU time, so that the shadow uses at most a sixth of a core, also in a large cluster.
"""
DECISIONS_PER_UNIT, WORKLOADS_PER_UNIT = 4, 100
"""Simulated decisions, and workloads of a forked state, that cost one unit besides the one of each state."""
_INERT = ("pods", "jobs", "nodes")
"""Tables whose changes alone change no decision about quota. Pods and nodes decide where topologies are used."""


class ObservedDecision(NamedTuple):
    """A decision about a workload, comparable between Kueue and the engine."""

    kind: DecisionKind
    workload: str
    outcome: tuple[str, ...]
    """Flavors of each pod set; reason and message of a refusal; UID of the preemptor and rule of a preemption."""


class Shadow:
    """Follows the changes of a cluster with a running Kueue, and checks each of its decisions. Mutates by `follow`."""

    def __init__(self, config: KueueConfig, objects: Iterable[Object] = (), now: Time = 0) -> None:
        """`objects` are those of the cluster at `now`, when the shadow begins."""
        self._observation = Observation(KueueSession(config))
        self._states = _RecentStates()
        self._workloads = ObjectTable()
        self._changes = 0
        """Number of changes so far."""
        self._predictions: dict[tuple[int, StateOrigin], _Prediction] = {}
        """Predictions of the last second, by the number of changes before the state."""
        self._budget = _SearchBudget(now)
        self._decided: deque[tuple[Time, str]] = deque()
        """Times and workloads of the decisions of the last second."""
        self._since = self._now = now
        self._kinds: dict[DecisionKind, AgreementCounts] = {}
        self._hours: dict[int, AgreementCounts] = {}
        self._found: Counter[StateOrigin] = Counter()
        self._causes: Counter[DisagreementCause] = Counter()
        self._disagreements: deque[ShadowDisagreement] = deque(maxlen=KEPT)
        for obj in objects:
            event = Applied(now, obj)
            _store(self._workloads, event)
            self._observation.apply(event, now)
        self._observation.update_queues(now)
        self._without_history = self._trees_with_inadmissible()
        self._known_since: Time | None = None if self._without_history else now

    def _trees_with_inadmissible(self) -> set[str]:
        """Return the trees with workloads that Kueue refused before the shadow began."""
        session = self._observation.session
        refused = (one for one in self._workloads.all() if _is_refused(one))
        return {tree for one in refused if (tree := session.tree_name(one.local_queue))}

    @property
    def report(self) -> ShadowReport:
        """What was found so far."""
        first = first_hour(self._now)
        self._hours = {hour: counts for hour, counts in self._hours.items() if hour >= first}
        return ShadowReport(
            since=self._since,
            until=self._now,
            counts=sum(self._kinds.values(), AgreementCounts()),
            hours=dict(self._hours),
            kinds=dict(self._kinds),
            states=dict(self._found),
            causes=dict(self._causes),
            disagreements=tuple(self._disagreements),
            without_history=len(self._without_history),
            known_since=self._known_since,
        )

    @property
    def observation(self) -> Observation:
        """Kueue's queues after the last change; it goes on with the next one, so work with a fork of it."""
        return self._observation

    def follow(self, event: Applied | Deleted, now: Time) -> None:
        """Check the decisions that a change shows, and apply it. `now` is when it was observed."""
        now = self._now = max(now, self._now)
        known: Workload | None = self._workloads.get(event.key) if event.table == TABLES[Workload] else None
        decided: list[ObservedDecision] = []
        if isinstance(event, Applied) and isinstance(event.object, Workload):
            decided = list(_decisions(known, event.object))
        if decided:
            self._observation.update_queues(now)
        for decision in decided:
            self._check(decision, now)
        self._states.note(self._current(now), event, changes_state=_changes_state(known, event))
        self._follow(event, now)
        if self._without_history:
            self._without_history -= self._observation.requeued_trees
            if not self._without_history:
                self._known_since = now

    def _current(self, now: Time) -> "_PastState":
        return _PastState(self._changes, now, self._observation, self._workloads.freeze())

    def _follow(self, event: Applied | Deleted, now: Time) -> None:
        _store(self._workloads, event)
        self._changes += 1
        self._observation.follow(event, now)
        session = self._observation.session
        if session.next_sample is not None and session.next_sample <= now:
            session.take_due_samples(now)

    def _check(self, decision: ObservedDecision, now: Time) -> None:
        origin = self._explain(decision, now)
        self._decided.append((now, decision.workload))
        counts = AgreementCounts(decisions=1, agreed=1)
        if origin is not None:
            self._found[origin] += 1
        elif self._budget.is_spent or self._is_without_history(decision.workload):
            counts = AgreementCounts(decisions=1, unknown=1)
        else:
            counts = AgreementCounts(decisions=1)
            found = self._disagreement(decision, now)
            self._causes[found.cause] += 1
            self._disagreements.append(found)
        self._kinds[decision.kind] = self._kinds.get(decision.kind, AgreementCounts()) + counts
        self._hours[now // HOUR] = self._hours.get(now // HOUR, AgreementCounts()) + counts

    def _is_without_history(self, workload: str) -> bool:
        known: Workload | None = self._workloads.get(workload)
        return known is not None and self._observation.session.tree_name(known.local_queue) in self._without_history

    def _explain(self, decision: ObservedDecision, now: Time) -> StateOrigin | None:
        """Return the first state on which the engine decides as Kueue did; None if there is none."""
        self._predictions = {key: one for key, one in self._predictions.items() if now - one.time <= WINDOW}
        for (_, origin), prediction in reversed(self._predictions.items()):
            if decision in prediction.decisions:
                return origin
        if decision.kind is DecisionKind.PENDING and self._is_obstacle(decision):
            return StateOrigin.CURRENT
        self._budget.refill(now)
        if self._budget.is_spent:
            return None
        states = [self._current(now)]
        if decision in self._predicted(states[0], StateOrigin.CURRENT).decisions:
            return StateOrigin.CURRENT
        states += islice(self._states.newest_first(now), MOST_STATES)
        for state in self._budget.limited(states[1:]):
            if decision in self._predicted(state, StateOrigin.EARLIER).decisions:
                return StateOrigin.EARLIER
        for state in self._budget.limited(states):
            if decision in self._predicted(state, StateOrigin.REQUEUED).decisions:
                return StateOrigin.REQUEUED
        tried, other = self._subjects(decision)
        others = [other, *(key for key in self._recently_decided(now) if key not in (tried, other))]
        candidates = (self._with_possible_queues(state, tried, one) for one in others for state in states)
        for prediction in self._budget.limited(islice(chain.from_iterable(candidates), MOST_QUEUE_STATES)):
            if decision in prediction.decisions:
                return StateOrigin.QUEUES
        return None

    def _recently_decided(self, now: Time) -> list[str]:
        """Return the workloads of the decisions of the last second, newest first: they may have been in the cycle."""
        while self._decided and now - self._decided[0][0] > WINDOW:
            self._decided.popleft()
        return list(dict.fromkeys(key for _, key in reversed(self._decided)))

    def _predicted(self, state: "_PastState", origin: StateOrigin) -> "_Prediction":
        """Return the engine's decisions on a state, from the cache of the last second if they are there."""
        requeued = origin is StateOrigin.REQUEUED
        for known in (origin,) if requeued else (StateOrigin.CURRENT, StateOrigin.EARLIER):
            if (state.changes, known) in self._predictions:
                return self._predictions[state.changes, known]
        fork = state.observation.session.fork()
        state.observation.requeue_ended_batches(fork, state.time)
        if requeued:
            fork.requeue_all_inadmissible(state.time)
        made = self._predictions[state.changes, origin] = self._simulated(fork, state)
        return made

    def _simulated(self, session: KueueSession, state: "_PastState") -> "_Prediction":
        """Simulate what the engine decides in a fork of a state, and charge what it costs."""
        made = _Prediction(session, state.time, state.workloads)
        self._budget.charge(1 + made.simulated / DECISIONS_PER_UNIT + len(state.workloads) / WORKLOADS_PER_UNIT)
        return made

    def _with_possible_queues(self, state: "_PastState", workload: str, other: str) -> Iterator["_Prediction"]:
        session = state.observation.session
        for possible in possible_scheduler_states(session, workload, other):
            yield self._simulated(possible, state)

    def _subjects(self, decision: ObservedDecision) -> tuple[str, str]:
        """Return the workload that the scheduler tried for this decision, and its victim; empty if there is none."""
        if decision.kind is not DecisionKind.PREEMPTED:
            return decision.workload, ""
        return self._key_of(decision.outcome[0]), decision.workload

    def _key_of(self, uid: str) -> str:
        return next((one.key for one in self._workloads.all() if one.uid == uid), "") if uid else ""

    def _is_obstacle(self, decision: ObservedDecision) -> bool:
        """True if Kueue's workload controller, not its scheduler, writes this condition on the current state."""
        workload: Workload | None = self._workloads.get(decision.workload)
        if workload is None or workload.reserved or workload.finished:
            return False
        written = with_obstacle(self._observation.session, workload, self._now)
        return written is not None and decision.outcome == _refusal(written.condition(QUOTA_RESERVED))

    def _disagreement(self, decision: ObservedDecision, now: Time) -> ShadowDisagreement:
        own = self._predicted(self._current(now), StateOrigin.CURRENT).of(decision.workload)
        expected = next((one for one in own if one.kind is decision.kind), own[0] if own else None)
        workload: Workload | None = self._workloads.get(decision.workload)
        session = self._observation.session
        return ShadowDisagreement(
            time=now,
            workload=decision.workload,
            queue=session.compiled_config.cluster_queue_of(workload.local_queue) if workload is not None else "",
            kind=decision.kind,
            expected=self._in_words(expected) if expected is not None else _untried(session, decision.workload),
            actual=self._in_words(decision),
            cause=_cause(decision.kind, expected.kind if expected is not None else None),
        )

    def _in_words(self, decision: ObservedDecision) -> str:
        match decision.kind:
            case DecisionKind.RESERVED:
                return f"reserves quota: {'; '.join(decision.outcome)}"
            case DecisionKind.PREEMPTED:
                uid, rule = decision.outcome
                return f"preempted by {self._key_of(uid) or 'an unknown workload'} ({rule})"
            case DecisionKind.EVICTED | DecisionKind.PENDING:
                reason, message = decision.outcome
                return f"{decision.kind}, {reason}: {message}"


def _untried(session: KueueSession, workload: str) -> str:
    if session.is_inadmissible(workload):
        return "not tried: it is inadmissible until its cohort changes"
    return "not tried: others are before it in its queue"


_CAUSES: Mapping[tuple[DecisionKind, DecisionKind], DisagreementCause] = {
    (DecisionKind.RESERVED, DecisionKind.RESERVED): DisagreementCause.OTHER_FLAVORS,
    (DecisionKind.RESERVED, DecisionKind.PENDING): DisagreementCause.NOT_RESERVED,
    (DecisionKind.PENDING, DecisionKind.RESERVED): DisagreementCause.NOT_REFUSED,
    (DecisionKind.PENDING, DecisionKind.PENDING): DisagreementCause.OTHER_MESSAGE,
    (DecisionKind.PREEMPTED, DecisionKind.PREEMPTED): DisagreementCause.OTHER_PREEMPTOR,
}


def _cause(actual: DecisionKind, expected: DecisionKind | None) -> DisagreementCause:
    evicted = actual in (DecisionKind.PREEMPTED, DecisionKind.EVICTED)
    otherwise = DisagreementCause.NOT_PREEMPTED if evicted else DisagreementCause.NOT_TRIED
    return _CAUSES.get((actual, expected), otherwise) if expected is not None else otherwise


def _decisions(known: Workload | None, workload: Workload) -> Iterator[ObservedDecision]:
    """Yield the decisions of Kueue's scheduler that a change of a workload shows."""
    if known is not None and known.uid != workload.uid:
        known = None
    for fact in workload_facts(known, workload):
        if fact.preempted:
            yield ObservedDecision(DecisionKind.PREEMPTED, workload.key, (fact.by, _preemption_rule(workload)))
        else:
            yield ObservedDecision(DecisionKind.RESERVED, workload.key, fact.given)
    last, refused = (_refusal(one.condition(QUOTA_RESERVED)) if one else ("", "") for one in (known, workload))
    if _is_refused(workload) and not (known and known.reserved) and last != refused:
        yield ObservedDecision(DecisionKind.PENDING, workload.key, refused)
    evicted = newly_true(known, workload, EVICTED)
    if evicted is not None and evicted.reason == NODE_FAILURES and known is not None and known.reserved:
        yield ObservedDecision(DecisionKind.EVICTED, workload.key, (evicted.reason, evicted.message))


def _preemption_rule(victim: Workload) -> str:
    """Return the rule of a preemption from Kueue's message, or from the condition where the message has none."""
    evicted, preempted = victim.condition(EVICTED), victim.condition(PREEMPTED)
    rule = rule_in(evicted.message) if evicted is not None else None
    return rule.value if rule is not None else preempted.reason if preempted is not None else ""


def _refusal(condition: Condition | None) -> tuple[str, str]:
    return (condition.reason, condition.message) if condition is not None else ("", "")


def _is_refused(workload: Workload) -> bool:
    condition = workload.condition(QUOTA_RESERVED)
    return condition is not None and not condition.status and workload.active and not workload.finished


def _changes_state(known: Workload | None, event: Applied | Deleted) -> bool:
    """True if an event changes what the next cycle may decide."""
    if not isinstance(event, Applied) or not isinstance(event.object, Workload):
        return event.table not in _INERT
    workload = event.object
    return known is None or known.uid != workload.uid or _decisive(known) != _decisive(workload)


def _decisive(workload: Workload) -> tuple[object, ...]:
    """Return the parts of a workload that the scheduler reads."""
    return (
        workload.admission,
        workload.active,
        workload.priority,
        workload.finished,
        workload.pod_sets,
        workload.checks,
        workload.condition(QUOTA_RESERVED),
        workload.condition(EVICTED),
        workload.condition(conditions.REQUEUED),
    )


_Item = TypeVar("_Item")


class _SearchBudget:
    """What searching states may still cost, so that a large or different cluster costs a bounded time. Mutates."""

    def __init__(self, now: Time) -> None:
        self._left = float(MOST_COST)
        self._refilled = now

    def refill(self, now: Time) -> None:
        """Add what the time since the last call allows."""
        self._left = min(MOST_COST, self._left + COST_PER_SECOND * (now - self._refilled) / SECOND)
        self._refilled = now

    @property
    def is_spent(self) -> bool:
        """True if nothing more may be searched now."""
        return self._left < 1

    def charge(self, cost: float) -> None:
        """Count what a state cost."""
        self._left -= cost

    def limited(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items as long as there is a budget; who searches one charges what it costs."""
        iterator = iter(items)
        while not self.is_spent and (item := next(iterator, None)) is not None:
            yield item


class _PastState(NamedTuple):
    """The cluster and Kueue's queues at one moment."""

    changes: int
    """Number of changes before it, which identifies it."""
    time: Time
    observation: Observation
    workloads: TableView[Workload]


class _Checkpoint(NamedTuple):
    """A copy of the state, and the changes after it with their times and whether they are decisive."""

    state: _PastState
    events: list[tuple[Time, Applied | Deleted, bool]]


class _RecentStates:
    """The states of the last second: copies, and the changes between them. Mutates by `note`."""

    def __init__(self) -> None:
        self._checkpoints: deque[_Checkpoint] = deque()

    def note(self, state: _PastState, event: Applied | Deleted, *, changes_state: bool) -> None:
        """Remember a change before it is applied to the current state."""
        now = state.time
        while len(self._checkpoints) > 1 and now - self._checkpoints[1].state.time > WINDOW:
            self._checkpoints.popleft()
        if not self._checkpoints or self._is_checkpoint_due(now, changes_state=changes_state):
            self._checkpoints.append(_Checkpoint(state._replace(observation=state.observation.fork()), []))
        self._checkpoints[-1].events.append((now, event, changes_state))

    def _is_checkpoint_due(self, now: Time, *, changes_state: bool) -> bool:
        last = self._checkpoints[-1]
        is_old = now - last.state.time >= CHECKPOINT
        return is_old and (changes_state or len(last.events) >= MOST_REPLAYED)

    def newest_first(self, now: Time) -> Iterator[_PastState]:
        """Yield the states before each decisive change of the last second, newest first."""
        for checkpoint in reversed(self._checkpoints):
            yield from reversed([state for state in _replayed(checkpoint) if now - state.time <= WINDOW])


def _replayed(checkpoint: _Checkpoint) -> Iterator[_PastState]:
    state = checkpoint.state
    observation, changes, workloads = state.observation.fork(), state.changes, ObjectTable.of(state.workloads)
    for time, event, changes_state in checkpoint.events:
        if changes_state:
            yield _PastState(changes, time, observation.fork(), workloads.freeze())
        observation.follow(event, time)
        _store(workloads, event)
        changes += 1


def _store(workloads: ObjectTable, event: Applied | Deleted) -> None:
    """Apply an event to a table of workloads, if it is about one."""
    match event:
        case Applied(_, Workload() as workload):
            workloads.put(workload.key, workload)
        case Deleted(_, "workloads", key):
            workloads.drop(key)
        case _:
            pass


class _Prediction:
    """What the engine decides on one state, cycle after cycle, until another cycle would change nothing."""

    def __init__(self, session: KueueSession, now: Time, workloads: TableView[Workload]) -> None:
        """Run the cycles in `session`, a fork that is not used for anything else; `workloads` are those it has."""
        self.time = now
        self.decisions: dict[ObservedDecision, None] = {}
        """The decisions, in their order."""
        self.simulated = 0
        """How many decisions were simulated, repeated ones and those that are not compared included."""
        self._simulator = AdmissionSimulator(
            session, now, workloads, victims_keep_quota=True, requeues_at_once=False, report=ReportRefusals.EVERY
        )
        for _, decided in self._simulator.run_until_settled(MOST_CYCLES):
            self.simulated += len(decided)
            self.decisions.update(dict.fromkeys(filter(None, map(self._comparable, decided))))

    def of(self, workload: str) -> list[ObservedDecision]:
        """Return the decisions about a workload, in their order."""
        return [decision for decision in self.decisions if decision.workload == workload]

    def _comparable(self, decision: AdmissionDecision) -> ObservedDecision | None:
        match decision:
            case Admit():
                return ObservedDecision(DecisionKind.RESERVED, decision.workload, assigned(decision.admission))
            case Refuse():
                # With granular reasons Kueue writes another reason than the scheduler decides on.
                written = self._simulator.workloads[decision.workload].condition(QUOTA_RESERVED)
                return ObservedDecision(DecisionKind.PENDING, decision.workload, _refusal(written))
            case Preempt():
                by = self._simulator.workloads.get(decision.by)
                outcome = (by.uid if by is not None else "", decision.rule.value)
                return ObservedDecision(DecisionKind.PREEMPTED, decision.workload, outcome)
            case Evict():
                return ObservedDecision(DecisionKind.EVICTED, decision.workload, (decision.reason, decision.message))
            case KeepWaiting():
                return None
            case _:
                assert_never(decision)
