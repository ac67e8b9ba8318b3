"""Backtest of the forecast against Kueue's decisions, with the cause of each difference.

Each decision of Kueue between two observations is compared with the forecast of the first one. If they differ, the
decision is simulated again in hindsight (`forecast_trial`), to distinguish a change in between from a disagreement.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.forecast import Forecast, ForecastAction, Forecaster, WorkloadForecast, in_words
from gpuconsole.insight.forecast_facts import AdmissionFact, facts
from gpuconsole.insight.forecast_trial import DifferenceCause as DifferenceCause
from gpuconsole.insight.forecast_trial import DifferenceExplanation, HindsightTrial, agrees
from gpuconsole.insight.preemption_replay import replayed_choices
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.sim.policy import SimPolicy

PATIENCE: Span = 10 * SECOND
"""A decision that stays forecast for this long and does not happen is a difference."""
KEPT = 200
"""Maximum number of differences that are kept."""
MOST_TRIES, MOST_MISSED = 20, 5
"""Maximum numbers of decisions, and of missing decisions, that are analysed in depth per observation; each costs
as much as several forecasts."""


class ForecastDifference(Struct, frozen=True, kw_only=True):
    """A decision of Kueue that differs from the forecast, or a forecast decision that did not happen."""

    time: Time
    workload: str
    queue: str
    forecast: str = field(name="foreseen")
    """In words."""
    fact: str
    cause: DifferenceCause
    detail: str = ""
    """Evidence for the cause."""
    object: str = ""
    """Kind and name of the object that changed between two observations, of a race."""
    span: Span = 0
    """Time between the two observations, of a race."""


class ForecastDifferences(Struct, frozen=True, kw_only=True):
    """Result of comparing one or more observations with the forecasts."""

    decisions: int = 0
    """Decisions that Kueue made, or should have made."""
    agreed: int = 0
    differences: tuple[ForecastDifference, ...] = ()
    """The newest ones."""
    earlier: Mapping[DifferenceCause, int] = {}
    """Number of earlier differences, by cause."""
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
        """These counts with the newest differences only."""
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
    """Compare the forecast at `before` with Kueue's decisions up to `after` (see `forecast_facts.facts`).

    `unseen` names objects that decisions depend on and that are not visible; `foreseer` made the forecasts so far.
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
        """Expected decisions, as first forecast; `_told` are those that took too long."""
        self._reported: dict[str, ForecastDifference] = {}

    def followed(self, policy: SimPolicy) -> tuple[Snapshot, Observation] | None:
        """The last observed cluster and the state of Kueue's queues; see `Forecaster.followed`."""
        return self._foreseer.followed(policy)

    def look(
        self, snapshot: Snapshot, policy: SimPolicy, assumed: Iterable[str] = (), unseen: Sequence[str] = ()
    ) -> tuple[Forecast, ForecastDifferences]:
        """Return the next forecast, and the differences between the previous one and this Snapshot."""
        said = ForecastDifferences()
        if self._before is not None:
            decided = facts(self._before, snapshot)
            said = compare(self._forecast, self._before, snapshot, decided, policy, unseen, self._foreseer)
            said = replace(said, trace_lines=replayed_choices(self._before, snapshot, decided, policy, self._foreseer))
        self._before, self._forecast = snapshot, self._foreseer.forecast(snapshot, policy, assumed=assumed)
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
