"""Agreement of the forecast with Kueue's decisions, and the cause of each difference.

Each decision of Kueue between two observations is compared with the forecast of the first one. If they differ, the
decision is simulated again in hindsight (`forecast_trial`), to distinguish a change in between from a disagreement.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.forecast import Fate, Forecast, Foreseer, Prospect, in_words
from gpuconsole.insight.forecast_facts import Fact, facts
from gpuconsole.insight.forecast_trial import Cause as Cause
from gpuconsole.insight.forecast_trial import Explanation, Trial, agrees
from gpuconsole.insight.reconstruction import reconstructed
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


class Difference(Struct, frozen=True, kw_only=True):
    """A decision that differs from the forecast, or a forecast decision that did not happen."""

    time: Time
    workload: str
    queue: str
    foreseen: str
    """In words."""
    fact: str
    cause: Cause
    detail: str = ""
    """Evidence for the cause."""
    object: str = ""
    """Of a race: kind and name of the object that changed between two observations."""
    span: Span = 0
    """Of a race: the time between the two observations."""


class Differences(Struct, frozen=True, kw_only=True):
    """Result of comparing one or more observations with the forecasts."""

    decisions: int = 0
    """Decisions that Kueue made, or should have made."""
    agreed: int = 0
    differences: tuple[Difference, ...] = ()
    """The newest ones."""
    earlier: Mapping[Cause, int] = {}
    """How many earlier ones there were, by cause."""
    told: tuple[HistoryEvent, ...] = ()
    """Lines for the history: how Kueue chose its victims, as reconstructed by the engine."""

    def __add__(self, other: "Differences") -> "Differences":
        return Differences(
            decisions=self.decisions + other.decisions,
            agreed=self.agreed + other.agreed,
            differences=(*self.differences, *other.differences),
            earlier=Counter(self.earlier) + Counter(other.earlier),
            told=(*self.told, *other.told),
        )

    def without(self, earlier: "Differences") -> "Differences":
        """The part that was added since `earlier`."""
        return Differences(
            decisions=self.decisions - earlier.decisions,
            agreed=self.agreed - earlier.agreed,
            differences=self.differences[len(earlier.differences) :],
        )

    def of(self, cause: Cause) -> int:
        """Number of all differences with this cause."""
        return sum(one.cause is cause for one in self.differences) + self.earlier.get(cause, 0)

    def recent(self) -> "Differences":
        """The same counts with the newest differences only."""
        if len(self.differences) <= KEPT:
            return self
        cut = Counter(one.cause for one in self.differences[:-KEPT])
        return replace(self, differences=self.differences[-KEPT:], earlier=Counter(self.earlier) + cut)

    @property
    def agreement(self) -> float:
        """Fraction of decisions that the engine would have made on the same cluster; 1 without decisions."""
        return (self.agreed + self.of(Cause.TIMING)) / self.decisions if self.decisions else 1.0


def compare(
    foreseen: Forecast,
    before: Snapshot,
    after: Snapshot,
    decided: Sequence[Fact],
    policy: SimPolicy,
    unseen: Sequence[str] = (),
    foreseer: Foreseer | None = None,
) -> Differences:
    """Compare the forecast at `before` with Kueue's decisions up to `after` (see `facts`).

    `unseen` names objects that decisions depend on and that are not visible; `foreseer` made the forecasts so far.
    """
    trial = Trial(before, after, decided, policy, foreseer or Foreseer())
    wrong = [fact for fact in decided if not agrees(foreseen, fact, before, after)]
    differences = []
    agreed = len(decided) - len(wrong)
    for number, fact in enumerate(wrong):
        known = foreseen.of(fact.workload)
        why = trial.explain(fact, deep=number < MOST_TRIES)
        if why.cause is Cause.TIMING and known is None:
            agreed += 1  # There was no forecast for it; the engine agrees.
            continue
        if why.cause is Cause.DISAGREEMENT and unseen:
            why = Explanation(Cause.UNSEEN, "; ".join(unseen))
        told = known or trial.everything.of(fact.workload)
        differences.append(
            Difference(
                time=fact.time,
                workload=fact.workload,
                queue=fact.queue,
                foreseen=in_words(told) if told is not None else "no change",
                fact=fact.in_words(),
                cause=why.cause,
                detail=why.detail,
                object=why.race.object if why.race is not None else "",
                span=why.race.span if why.race is not None else 0,
            )
        )
    return Differences(decisions=len(decided), agreed=agreed, differences=tuple(differences))


class Observer:
    """Compares each observation with the previous forecast, and makes the next forecast. Mutates by `look`."""

    def __init__(self, patience: Span = PATIENCE) -> None:
        self._patience = patience
        self._foreseer = Foreseer()
        self._before: Snapshot | None = None
        self._foreseen = Forecast()
        self._since: dict[str, tuple[Prospect, Time]] = {}
        """Expected decisions, as first forecast; `_told` are those that took too long."""
        self._told: dict[str, Difference] = {}

    def followed(self, policy: SimPolicy) -> tuple[Snapshot, Observation] | None:
        """See `Foreseer.followed`."""
        return self._foreseer.followed(policy)

    def look(
        self, snapshot: Snapshot, policy: SimPolicy, assumed: Iterable[str] = (), unseen: Sequence[str] = ()
    ) -> tuple[Forecast, Differences]:
        """The next forecast, and the differences between the previous one and this observation."""
        said = Differences()
        if self._before is not None:
            decided = facts(self._before, snapshot)
            said = compare(self._foreseen, self._before, snapshot, decided, policy, unseen, self._foreseer)
            said = replace(said, told=reconstructed(self._before, snapshot, decided, policy, self._foreseer))
        self._before, self._foreseen = snapshot, self._foreseer.forecast(snapshot, policy, assumed=assumed)
        return self._foreseen, said + self._overdue(snapshot, policy, unseen)

    def _overdue(self, snapshot: Snapshot, policy: SimPolicy, unseen: Sequence[str]) -> Differences:
        """Decisions that stay forecast and do not happen."""
        now, expected = snapshot.time, self._foreseen.expected
        self._since = {key: self._first(key, one, now) for key, one in expected.items()}
        self._told = {key: said for key, said in self._told.items() if key in self._since}
        late = [one for one, since in self._since.values() if now - since >= self._patience]
        late = sorted((one for one in late if one.workload not in self._told), key=lambda one: one.cycle)
        for number, one in enumerate(late):
            deep = number < MOST_MISSED
            why = (Cause.UNSEEN, "; ".join(unseen)) if unseen else self._why_missed(snapshot, policy, one, deep=deep)
            self._told[one.workload] = _missed(snapshot, one, *why)
        differences = tuple(self._told[one.workload] for one in late)
        return Differences(decisions=len(differences), differences=differences)

    def _why_missed(self, snapshot: Snapshot, policy: SimPolicy, late: Prospect, *, deep: bool) -> tuple[Cause, str]:
        """The cause of a decision that does not happen: Kueue's in-memory state, or a disagreement.

        It is the in-memory state only if the engine leaves the workload pending, too, in such a state.
        """
        if not deep:
            return Cause.DISAGREEMENT, ""
        if any(_waits(one, late.workload) for one in self._foreseer.possible(snapshot, policy, late.workload)):
            return Cause.MEMORY, "if others were inadmissible, or its search resumed at another flavor"
        before = (one.workload for one in self._told.values() if one.queue == late.queue and one.cause is Cause.MEMORY)
        first = next((key for key in before if self._since[key][0].cycle < late.cycle), "")
        beside = self._foreseer.possible(snapshot, policy, first, late.workload) if first else ()
        if any(_waits(one, first) and _waits(one, late.workload) for one in beside):
            return Cause.MEMORY, f"behind {first}"
        return Cause.DISAGREEMENT, ""

    def _first(self, key: str, prospect: Prospect, now: Time) -> tuple[Prospect, Time]:
        known, since = self._since.get(key, (prospect, now))
        same = (known.fate, known.victims, known.given) == (prospect.fate, prospect.victims, prospect.given)
        return (known, since) if same else (prospect, now)


def _waits(foreseen: Forecast, workload: str) -> bool:
    known = foreseen.of(workload)
    return known is None or known.fate is Fate.WAITS


def _missed(snapshot: Snapshot, prospect: Prospect, cause: Cause, detail: str) -> Difference:
    waits = snapshot.workloads[prospect.workload].condition("QuotaReserved")
    said = f": {waits.message}" if waits is not None and waits.message else ""
    return Difference(
        time=snapshot.time,
        workload=prospect.workload,
        queue=prospect.queue,
        foreseen=in_words(prospect),
        fact=f"still pending{said}",
        cause=cause,
        detail=detail,
    )
