"""Backtest of the forecast against Kueue's decisions, with the cause of each difference.

Each decision of Kueue between two observations is compared with the forecast of the first one (`compare`). If they
differ, the decision is simulated again in hindsight (`HindsightTrial`), to distinguish a change in between from a
disagreement. If the engine decides differently in hindsight, too, Kueue may have chosen a workload of equal priority
and age, have seen an object in another state (`Races`: Kueue decides within milliseconds, and observations are seconds
apart), or have another in-memory state (`possible_scheduler_states`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.forecast.decisions import AdmissionFact, facts, hindsight, replayed_choices, workload_with_uid
from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction, Forecaster, WorkloadForecast, in_words
from gpuconsole.model.clock import SECOND, Span, Time, format_span
from gpuconsole.model.events import Applied, Deleted, HistoryEvent
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from gpuconsole.model.snapshot import Snapshot, change_events
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.sim.policy import SimPolicy

_KINDS = (AdmissionCheck, ResourceFlavor, Cohort, ClusterQueue, LocalQueue, Workload)
_NAMES = {TABLES[kind]: kind for kind in _KINDS}


class Race(Struct, frozen=True, kw_only=True):
    """A change of an object between two observations that explains a decision of Kueue."""

    object: str
    """Kind and name: `Workload ns/name`."""
    change: str
    """Its change, in words."""
    span: Span
    """Time between the two observations."""


class _Change(Struct, frozen=True):
    """An object at two observations; None where it did not exist."""

    kind: type[Object]
    key: str
    old: Object | None
    new: Object | None


class Races:
    """The changes between two observations that admission depends on, to be tried one by one."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before, self._after = before, after
        self._changes = [
            _Change(_NAMES[event.table], event.key, *_pair(before, after, event))
            for event in change_events(before, after)
            if event.table in _NAMES
        ]

    def supposed(self, fact: AdmissionFact, clusters: Sequence[Snapshot]) -> Iterator[tuple[Race, Snapshot]]:
        """Yield hypothetical clusters for a decision: `clusters` with one object in another state, and that change.

        Changes of the workload and its preemptor come first, then the changes closest in time to the decision.
        """
        tree = self._tree(fact.queue)
        concerned = [one for one in self._changes if self._is_in(one, tree)]
        certain = []
        for cluster in clusters:
            found, race = self._as_decided_on(cluster, fact)
            certain.append(found)
            if race is not None:
                yield race, found
        for change in sorted(concerned, key=lambda one: self._distance(one, fact)):
            for cluster in certain:
                known = getattr(cluster, TABLES[change.kind]).get(change.key)
                for state in _states(change, fact):
                    if state != known:
                        yield self._race(change), _with(cluster, change, state)

    def _as_decided_on(self, cluster: Snapshot, fact: AdmissionFact) -> tuple[Snapshot, Race | None]:
        """Return the cluster with the decision's workloads in the state that the decision implies, and that change."""
        race = None
        by = workload_with_uid(fact.by, self._after, self._before)
        for key, holds in ((by, False), (fact.workload, fact.preempted)):
            change = next((one for one in self._changes if one.kind is Workload and one.key == key), None)
            known = cluster.workloads.get(key)
            state = _in_state(change, holds=holds) if change is not None else None
            if change is None or state is None or (known is not None and _is_in_state(known, holds=holds)):
                continue
            cluster, race = _with(cluster, change, state), self._race(change)
        return cluster, race

    def _race(self, change: _Change) -> Race:
        span = self._after.time - self._before.time
        return Race(object=f"{change.kind.__name__} {change.key}", change=_words(change), span=span)

    def _distance(self, change: _Change, fact: AdmissionFact) -> tuple[bool, Span, str]:
        """Return the sort key of a change: the decision's own workloads first, then by distance in time."""
        subjects = (fact.workload, workload_with_uid(fact.by, self._after, self._before))
        workload = change.new or change.old
        moment = _moment(change.old, workload) if isinstance(workload, Workload) else fact.time
        return change.key not in subjects, abs(moment - fact.time), change.key

    def _is_in(self, change: _Change, tree: str) -> bool:
        obj = change.new or change.old
        if not isinstance(obj, Workload):
            return True
        local_queue = self._after.local_queues.get(obj.local_queue) or self._before.local_queues.get(obj.local_queue)
        return local_queue is not None and self._tree(local_queue.cluster_queue) == tree

    def _tree(self, cluster_queue: str) -> str:
        """Return the root of a ClusterQueue's cohort tree; its own name without a cohort."""
        queue = self._after.cluster_queues.get(cluster_queue) or self._before.cluster_queues.get(cluster_queue)
        name, passed = queue.cohort if queue is not None else "", set[str]()
        while name not in passed and (parent := _parent(self._after, name)):
            passed.add(name)
            name = parent
        return f"Cohort/{name}" if name else f"ClusterQueue/{cluster_queue}"


def _parent(snapshot: Snapshot, cohort: str) -> str:
    known = snapshot.cohorts.get(cohort)
    return known.parent if known is not None else ""


def _pair(before: Snapshot, after: Snapshot, event: Applied | Deleted) -> tuple[Object | None, Object | None]:
    return getattr(before, event.table).get(event.key), getattr(after, event.table).get(event.key)


def _states(change: _Change, fact: AdmissionFact) -> Iterator[Object | None]:
    """Yield the known states of an object between two observations."""
    if change.kind is not Workload:
        yield from (change.old, change.new)
        return
    states = [one if isinstance(one, Workload) else None for one in (change.old, change.new)]
    old, new = states
    if new is not None and (old is None or old.uid != new.uid or _moved(old, new)):
        states.append(_pending(new))
    for state in states:
        if change.key != fact.workload or (state is not None and _is_in_state(state, holds=fact.preempted)):
            yield state


def _is_in_state(workload: Workload, *, holds: bool) -> bool:
    """True if a workload holds quota and is not evicted; without `holds`, if it is pending."""
    if workload.finished or not holds:
        return not (workload.finished or workload.reserved)
    return workload.reserved and not workload.is_true("Evicted")


def _in_state(change: _Change, *, holds: bool) -> Workload | None:
    """Return the workload in a state between two observations in which it holds quota or not; None if unknown."""
    known = [one for one in (change.old, change.new) if isinstance(one, Workload)]
    found = next((one for one in known if _is_in_state(one, holds=holds)), None)
    if found is not None or not known:
        return found
    last = known[-1]
    if not holds:
        return _pending(last)
    kept = tuple(one for one in last.conditions if one.type not in ("Evicted", "Preempted"))
    return replace(last, conditions=kept) if last.reserved and not last.finished else None


def _moved(old: Workload, new: Workload) -> bool:
    """True if the workload reserved or lost quota."""
    return old.condition("QuotaReserved") != new.condition("QuotaReserved") or old.admission != new.admission


def _pending(workload: Workload) -> Workload:
    return replace(workload, conditions=(), admission=None, checks=(), resource_requests=())


def _with(cluster: Snapshot, change: _Change, state: Object | None) -> Snapshot:
    changed = ClusterState.of(cluster, ())
    if state is None:
        changed.apply(Deleted(cluster.time, TABLES[change.kind], change.key))
    else:
        changed.apply(Applied(cluster.time, state))
    return changed.freeze()


def _moment(old: Object | None, new: Workload) -> Time:
    """Return the time of a workload's last change, in whole seconds."""
    known = old.conditions if isinstance(old, Workload) else ()
    return max((one.since for one in new.conditions if one not in known), default=new.created)


def _words(change: _Change) -> str:
    old, new = change.old, change.new
    if old is None:
        return "was created"
    if new is None:
        return "was deleted"
    if not (isinstance(old, Workload) and isinstance(new, Workload)):
        return "changed"
    if old.uid != new.uid:
        return "was recreated"
    if new.finished and not old.finished:
        return "finished"
    if new.reserved and new.condition("QuotaReserved") != old.condition("QuotaReserved"):
        return "reserved quota"
    if new.is_true("Evicted") and new.condition("Evicted") != old.condition("Evicted"):
        return "was evicted"
    return "released its quota" if old.reserved and not new.reserved else "changed"


MOST_RACES, MOST_OF_A_LOOK = 40, 120
"""Maximum numbers of object states that are tried per decision, and per observation; each costs as much as a
forecast."""


class DifferenceCause(StrEnum):
    """Cause of a difference between a forecast and a decision."""

    TIMING = "timing"
    """The cluster changed in between; on the changed cluster the engine agrees."""
    ORDER = "order"
    """Kueue chose another workload of the same priority and second; nanoseconds or chance decide."""
    UNSEEN = "unseen"
    """Objects that decisions depend on are not visible."""
    RACE = "race"
    """The engine agrees if an object had another state when Kueue decided, between two observations."""
    MEMORY = "memory"
    """The engine agrees if other workloads were inadmissible, or another flavor was next, in Kueue's memory."""
    DISAGREEMENT = "disagreement"
    """The engine decides differently from Kueue."""


class DifferenceExplanation(Struct, frozen=True):
    """Cause of one difference between forecast and decision, with its evidence."""

    cause: DifferenceCause
    detail: str = ""
    """Evidence for the cause."""
    race: Race | None = None
    """The change of an object, if the cause is RACE."""


class HindsightTrial:
    """Simulates the decisions of one observation in hindsight, to find the cause of each difference."""

    def __init__(
        self,
        before: Snapshot,
        after: Snapshot,
        decided: Sequence[AdmissionFact],
        policy: SimPolicy,
        foreseer: Forecaster,
    ) -> None:
        self._before = before
        self._after = after
        self._decided = decided
        self._policy = policy
        self._foreseer = foreseer
        self._left = MOST_OF_A_LOOK

    @cached_property
    def everything(self) -> Forecast:
        """Return the forecast on the later cluster with all decisions of the observation undone."""
        return self._forecast(None)

    def explain(self, fact: AdmissionFact, *, deep: bool) -> DifferenceExplanation:
        """Return the cause of a difference; without `deep` only the causes that are cheap to test are considered."""
        if self._right(self.everything, fact):
            return DifferenceExplanation(DifferenceCause.TIMING, "the cluster had changed before the decision")
        if deep and self._right(self._forecast(fact.time), fact):
            return DifferenceExplanation(DifferenceCause.TIMING, "other changes came after the decision")
        if deep and self._right(self._foreseer.forecast(self._last(fact), self._policy, supposed=True), fact):
            return DifferenceExplanation(DifferenceCause.TIMING, "the other workloads were decided first")
        rival = self._equal(fact)
        if rival:
            return DifferenceExplanation(DifferenceCause.ORDER, f"{rival} has the same priority and timestamp")
        race = self._race(fact) if deep else None
        if race is not None:
            between = f"within the {format_span(race.span)} between two observations"
            return DifferenceExplanation(DifferenceCause.RACE, f"{race.object} {race.change} {between}", race)
        if deep and self._remembered(fact):
            return DifferenceExplanation(
                DifferenceCause.MEMORY, "if others were inadmissible, or its search resumed at another flavor"
            )
        return DifferenceExplanation(DifferenceCause.DISAGREEMENT)

    def _race(self, fact: AdmissionFact) -> Race | None:
        """Return the change of an object that makes the engine agree with the decision; None if there is none."""
        clusters = (hindsight(self._before, self._after, self._decided), self._last(fact))
        for race, supposed in islice(self._races.supposed(fact, clusters), min(MOST_RACES, self._left)):
            self._left -= 1
            if self._right(self._foreseer.forecast(supposed, self._policy, supposed=True), fact):
                return race
        return None

    @cached_property
    def _races(self) -> Races:
        return Races(self._before, self._after)

    def _remembered(self, fact: AdmissionFact) -> bool:
        """True if the engine agrees with the decision in another possible in-memory state."""
        subject = workload_with_uid(fact.by, self._after, self._before) if fact.preempted else fact.workload
        clusters = (hindsight(self._before, self._after, self._decided), self._last(fact))
        possible = (one for supposed in clusters for one in self._foreseer.possible(supposed, self._policy, subject))
        return any(self._right(one, fact) for one in possible)

    def _last(self, fact: AdmissionFact) -> Snapshot:
        """Return the cluster with only this decision undone."""
        return hindsight(self._before, self._after, [fact])

    def _forecast(self, moment: Time | None) -> Forecast:
        supposed = hindsight(self._before, self._after, self._decided, moment)
        return self._foreseer.forecast(supposed, self._policy, supposed=True)

    def _right(self, forecast: Forecast, fact: AdmissionFact) -> bool:
        return agrees(forecast, fact, self._before, self._after)

    def _equal(self, fact: AdmissionFact) -> str:
        """Return a workload that the engine chose instead, with the same priority and timestamp; empty if none."""
        if fact.preempted:
            mine = self._known(fact.workload)
            taken = {one.workload for one in self._decided if one.preempted}
            others = self._workloads_with(ForecastAction.PREEMPTED) - taken
            return next((key for key in sorted(others) if mine and _held(mine) == _held(self._known(key))), "") or (
                self._rivals()
            )
        return self._rivals()

    def _rivals(self) -> str:
        """Return a workload that the engine would have admitted instead of an equal one that Kueue admitted."""
        admitted = {one.workload for one in self._decided if not one.preempted}
        expected = self._workloads_with(ForecastAction.ADMITTED) | self._workloads_with(ForecastAction.AFTER_VICTIMS)
        preferred = {_waited(self._known(key)) for key in admitted - expected}
        return next((key for key in sorted(expected - admitted) if _waited(self._known(key)) in preferred), "")

    def _workloads_with(self, action: ForecastAction) -> set[str]:
        return {key for key, prospect in self.everything.prospects.items() if prospect.fate is action}

    def _known(self, key: str) -> Workload:
        known = self._before.workloads.get(key) or self._after.workloads.get(key)
        assert known is not None, "forecast workloads are in one of the two Snapshots"
        return known


def _waited(workload: Workload) -> tuple[int, Time]:
    """Return the sort key of a pending workload, in whole seconds as the API server stores times."""
    evicted = workload.condition("Evicted")
    since = evicted.since if evicted is not None and evicted.status else workload.created
    return workload.priority, since // SECOND


def _held(workload: Workload) -> tuple[int, Time]:
    """Return the sort key of a victim, in whole seconds."""
    since = workload.condition("QuotaReserved")
    return workload.priority, (since.since if since is not None else workload.created) // SECOND


def agrees(forecast: Forecast, fact: AdmissionFact, before: Snapshot, after: Snapshot) -> bool:
    """True if a forecast contains this decision of Kueue."""
    prospect = forecast.of(fact.workload)
    if prospect is None:
        return False
    if fact.preempted:
        return prospect.fate is ForecastAction.PREEMPTED and workload_with_uid(fact.by, after, before) in (
            "",
            prospect.by,
        )
    if prospect.fate is ForecastAction.AFTER_VICTIMS:
        return all(_gave_way(after.workloads.get(victim)) for victim in prospect.victims)
    return prospect.fate is ForecastAction.ADMITTED and prospect.given == fact.given


def _gave_way(victim: Workload | None) -> bool:
    return victim is None or not victim.reserved or victim.is_true("Evicted")


PATIENCE: Span = 10 * SECOND
"""A decision that stays forecast for this long and does not happen is a difference."""
KEPT = 200
"""Maximum number of differences that are kept."""
MOST_TRIES, MOST_MISSED = 20, 5
"""Maximum numbers of decisions, and of forecast decisions that did not happen, that are analysed in depth per
observation; each costs as much as several forecasts."""


class ForecastDifference(Struct, frozen=True, kw_only=True):
    """A decision of Kueue that differs from the forecast, or a forecast decision that did not happen."""

    time: Time
    workload: str
    queue: str
    forecast: str = field(name="foreseen")
    """What was forecast, in words."""
    fact: str
    cause: DifferenceCause
    detail: str = ""
    """Evidence for the cause."""
    object: str = ""
    """If the cause is RACE: kind and name of the object that changed between the two observations."""
    span: Span = 0
    """If the cause is RACE: time between the two observations."""


class ForecastDifferences(Struct, frozen=True, kw_only=True):
    """Result of comparing one or more observations with the forecasts."""

    decisions: int = 0
    """Decisions that Kueue made, or should have made."""
    agreed: int = 0
    differences: tuple[ForecastDifference, ...] = ()
    """The newest differences, at most `KEPT`."""
    earlier: Mapping[DifferenceCause, int] = {}
    """Number of older differences that are not in `differences`, by cause."""
    trace_lines: tuple[HistoryEvent, ...] = field(default=(), name="told")
    """Lines for the history: how Kueue chose its victims, as reconstructed by the engine."""

    def __add__(self, other: "ForecastDifferences") -> "ForecastDifferences":
        return ForecastDifferences(
            decisions=self.decisions + other.decisions,
            agreed=self.agreed + other.agreed,
            differences=(*self.differences, *other.differences),
            earlier=Counter(self.earlier) + Counter(other.earlier),
            trace_lines=(*self.trace_lines, *other.trace_lines),
        )

    def without(self, earlier: "ForecastDifferences") -> "ForecastDifferences":
        """Return the counts and differences added since `earlier`."""
        return ForecastDifferences(
            decisions=self.decisions - earlier.decisions,
            agreed=self.agreed - earlier.agreed,
            differences=self.differences[len(earlier.differences) :],
        )

    def of(self, cause: DifferenceCause) -> int:
        """Number of all differences with this cause."""
        return sum(one.cause is cause for one in self.differences) + self.earlier.get(cause, 0)

    def recent(self) -> "ForecastDifferences":
        """Return the same counts with only the newest `KEPT` differences listed."""
        if len(self.differences) <= KEPT:
            return self
        cut = Counter(one.cause for one in self.differences[:-KEPT])
        return replace(self, differences=self.differences[-KEPT:], earlier=Counter(self.earlier) + cut)

    @property
    def agreement(self) -> float:
        """Fraction of decisions that the engine would have made on the same cluster; 1 without decisions."""
        return (self.agreed + self.of(DifferenceCause.TIMING)) / self.decisions if self.decisions else 1.0


def compare(
    forecast: Forecast,
    before: Snapshot,
    after: Snapshot,
    decided: Sequence[AdmissionFact],
    policy: SimPolicy,
    unseen: Sequence[str] = (),
    foreseer: Forecaster | None = None,
) -> ForecastDifferences:
    """Compare the forecast at `before` with Kueue's decisions up to `after` (`decided`, see `decisions.facts`).

    `unseen` names objects that decisions depend on and that are not visible. `foreseer` is the Forecaster that made the
    forecast; its engine simulates the decisions in hindsight (default: a new one).
    """
    trial = HindsightTrial(before, after, decided, policy, foreseer or Forecaster())
    wrong = [fact for fact in decided if not agrees(forecast, fact, before, after)]
    differences = []
    agreed = len(decided) - len(wrong)
    for number, fact in enumerate(wrong):
        known = forecast.of(fact.workload)
        why = trial.explain(fact, deep=number < MOST_TRIES)
        if why.cause is DifferenceCause.TIMING and known is None:
            agreed += 1  # The workload had no forecast; the engine agrees with the decision.
            continue
        if why.cause is DifferenceCause.DISAGREEMENT and unseen:
            why = DifferenceExplanation(DifferenceCause.UNSEEN, "; ".join(unseen))
        predicted = known or trial.everything.of(fact.workload)
        differences.append(
            ForecastDifference(
                time=fact.time,
                workload=fact.workload,
                queue=fact.queue,
                forecast=in_words(predicted) if predicted is not None else "no change",
                fact=fact.in_words(),
                cause=why.cause,
                detail=why.detail,
                object=why.race.object if why.race is not None else "",
                span=why.race.span if why.race is not None else 0,
            )
        )
    return ForecastDifferences(decisions=len(decided), agreed=agreed, differences=tuple(differences))


class ForecastChecker:
    """Compares each observed Snapshot with the previous forecast, and makes the next forecast. Mutates by `look`."""

    def __init__(self, patience: Span = PATIENCE) -> None:
        self._patience = patience
        self._foreseer = Forecaster()
        self._before: Snapshot | None = None
        self._forecast = Forecast()
        self._since: dict[str, tuple[WorkloadForecast, Time]] = {}
        """Workload → the expected decision, and since when it has been forecast."""
        self._reported: dict[str, ForecastDifference] = {}
        """Expected decisions that took too long."""

    def followed(self, policy: SimPolicy) -> tuple[Snapshot, Observation] | None:
        """The last observed cluster and the state of Kueue's queues; see `Forecaster.followed`."""
        return self._foreseer.followed(policy)

    def look(
        self,
        snapshot: Snapshot,
        policy: SimPolicy,
        assumed: Iterable[str] = (),
        unseen: Sequence[str] = (),
        observed: Observation | None = None,
    ) -> tuple[Forecast, ForecastDifferences]:
        """Return the next forecast, and the differences between the previous one and this Snapshot.

        `assumed` are sentences that the forecast states as its assumptions. For `unseen` see `compare`, for `observed`
        see `Forecaster.forecast`.
        """
        said = ForecastDifferences()
        if self._before is not None:
            decided = facts(self._before, snapshot)
            said = compare(self._forecast, self._before, snapshot, decided, policy, unseen, self._foreseer)
            said = replace(said, trace_lines=replayed_choices(self._before, snapshot, decided, policy, self._foreseer))
        self._forecast = self._foreseer.forecast(snapshot, policy, assumed=assumed, observed=observed)
        self._before = snapshot
        return self._forecast, said + self._overdue(snapshot, policy, unseen)

    def _overdue(self, snapshot: Snapshot, policy: SimPolicy, unseen: Sequence[str]) -> ForecastDifferences:
        """Find decisions that stay forecast and do not happen."""
        now, expected = snapshot.time, self._forecast.expected
        self._since = {key: self._first(key, one, now) for key, one in expected.items()}
        self._reported = {key: said for key, said in self._reported.items() if key in self._since}
        late = [one for one, since in self._since.values() if now - since >= self._patience]
        late = sorted((one for one in late if one.workload not in self._reported), key=lambda one: one.cycle)
        for number, one in enumerate(late):
            deep = number < MOST_MISSED
            why = (
                (DifferenceCause.UNSEEN, "; ".join(unseen))
                if unseen
                else self._why_missed(snapshot, policy, one, deep=deep)
            )
            self._reported[one.workload] = _missed(snapshot, one, *why)
        differences = tuple(self._reported[one.workload] for one in late)
        return ForecastDifferences(decisions=len(differences), differences=differences)

    def _why_missed(
        self, snapshot: Snapshot, policy: SimPolicy, late: WorkloadForecast, *, deep: bool
    ) -> tuple[DifferenceCause, str]:
        """Return why a forecast decision does not happen: Kueue's in-memory state, or a disagreement.

        It is the in-memory state only if the engine, too, leaves the workload pending in a possible state.
        """
        if not deep:
            return DifferenceCause.DISAGREEMENT, ""
        if any(_waits(one, late.workload) for one in self._foreseer.possible(snapshot, policy, late.workload)):
            return DifferenceCause.MEMORY, "if others were inadmissible, or its search resumed at another flavor"
        before = (
            one.workload
            for one in self._reported.values()
            if one.queue == late.queue and one.cause is DifferenceCause.MEMORY
        )
        first = next((key for key in before if self._since[key][0].cycle < late.cycle), "")
        possible = self._foreseer.possible(snapshot, policy, first, late.workload) if first else ()
        if any(_waits(one, first) and _waits(one, late.workload) for one in possible):
            return DifferenceCause.MEMORY, f"behind {first}"
        return DifferenceCause.DISAGREEMENT, ""

    def _first(self, key: str, prospect: WorkloadForecast, now: Time) -> tuple[WorkloadForecast, Time]:
        known, since = self._since.get(key, (prospect, now))
        same = (known.fate, known.victims, known.given) == (prospect.fate, prospect.victims, prospect.given)
        return (known, since) if same else (prospect, now)


def _waits(forecast: Forecast, workload: str) -> bool:
    known = forecast.of(workload)
    return known is None or known.fate is ForecastAction.WAITS


def _missed(snapshot: Snapshot, prospect: WorkloadForecast, cause: DifferenceCause, detail: str) -> ForecastDifference:
    waits = snapshot.workloads[prospect.workload].condition("QuotaReserved")
    said = f": {waits.message}" if waits is not None and waits.message else ""
    return ForecastDifference(
        time=snapshot.time,
        workload=prospect.workload,
        queue=prospect.queue,
        forecast=in_words(prospect),
        fact=f"still pending{said}",
        cause=cause,
        detail=detail,
    )
