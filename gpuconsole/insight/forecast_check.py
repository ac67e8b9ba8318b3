"""How far the forecast agrees with what Kueue then did; each difference with its cause.

Each decision of Kueue between two looks is compared with what was foreseen at the first; one that was not foreseen so
is tried again in hindsight (`forecast_trial`), to tell a change that came between from a disagreement.
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
from gpuconsole.model.events import Happened
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.sim.policy import SimPolicy

PATIENCE: Span = 10 * SECOND
"""How long Kueue has for what is foreseen, while it stays foreseen."""
KEPT = 200
"""Differences that are kept in mind."""
MOST_TRIES, MOST_MISSED = 20, 5
"""So many decisions of one look are tried as of their own moment, and so many that did not come; each costs as much as
some forecasts."""


class Difference(Struct, frozen=True, kw_only=True):
    """One decision that was not foreseen so, or that was foreseen and did not come."""

    time: Time
    workload: str
    queue: str
    foreseen: str
    """In words."""
    fact: str
    cause: Cause
    detail: str = ""
    """What the cause is known by."""
    object: str = ""
    """Of a race: what changed between two looks, kind and name."""
    span: Span = 0
    """Of a race: the time between the two looks."""


class Differences(Struct, frozen=True, kw_only=True):
    """How one look, or several, compare with what was foreseen."""

    decisions: int = 0
    """That Kueue made, or should have made."""
    agreed: int = 0
    differences: tuple[Difference, ...] = ()
    """The newest ones."""
    earlier: Mapping[Cause, int] = {}
    """How many earlier ones there were, by cause."""
    told: tuple[Happened, ...] = ()
    """Lines for the history: how Kueue's victims were chosen, as the engine finds it in hindsight."""

    def __add__(self, other: "Differences") -> "Differences":
        return Differences(
            decisions=self.decisions + other.decisions,
            agreed=self.agreed + other.agreed,
            differences=(*self.differences, *other.differences),
            earlier=Counter(self.earlier) + Counter(other.earlier),
            told=(*self.told, *other.told),
        )

    def without(self, earlier: "Differences") -> "Differences":
        """What was added since it was `earlier`."""
        return Differences(
            decisions=self.decisions - earlier.decisions,
            agreed=self.agreed - earlier.agreed,
            differences=self.differences[len(earlier.differences) :],
        )

    def of(self, cause: Cause) -> int:
        """How many differences have this cause, of all there were."""
        return sum(one.cause is cause for one in self.differences) + self.earlier.get(cause, 0)

    def recent(self) -> "Differences":
        """The same counts; of the differences the newest."""
        if len(self.differences) <= KEPT:
            return self
        cut = Counter(one.cause for one in self.differences[:-KEPT])
        return replace(self, differences=self.differences[-KEPT:], earlier=Counter(self.earlier) + cut)

    @property
    def agreement(self) -> float:
        """Part of the decisions that the engine would have made on the same cluster; 1 where there were none."""
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
    """Hold what was foreseen at `before` against what Kueue had decided by `after` (see `facts`).

    `unseen` names what decisions depend on and may not be read; `foreseer` is who looked at the Snapshots so far.
    """
    trial = Trial(before, after, decided, policy, foreseer or Foreseer())
    wrong = [fact for fact in decided if not agrees(foreseen, fact, before, after)]
    differences = []
    agreed = len(decided) - len(wrong)
    for number, fact in enumerate(wrong):
        known = foreseen.of(fact.workload)
        why = trial.explain(fact, deep=number < MOST_TRIES)
        if why.cause is Cause.TIMING and known is None:
            agreed += 1  # Nobody was asked before; the engine agrees.
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
    """Looks on while Kueue decides, and foresees what comes next. Mutates by `look`."""

    def __init__(self, patience: Span = PATIENCE) -> None:
        self._patience = patience
        self._foreseer = Foreseer()
        self._before: Snapshot | None = None
        self._foreseen = Forecast()
        self._since: dict[str, tuple[Prospect, Time]] = {}
        """Who is to be admitted or to get victims, as it was first foreseen; `told` are those that took too long."""
        self._told: dict[str, Difference] = {}

    def followed(self, policy: SimPolicy) -> tuple[Snapshot, Observation] | None:
        """As `Foreseer.followed`."""
        return self._foreseer.followed(policy)

    def look(
        self, snapshot: Snapshot, policy: SimPolicy, assumed: Iterable[str] = (), unseen: Sequence[str] = ()
    ) -> tuple[Forecast, Differences]:
        """What comes next, and how the forecast of the look before compares with what is there now."""
        said = Differences()
        if self._before is not None:
            decided = facts(self._before, snapshot)
            said = compare(self._foreseen, self._before, snapshot, decided, policy, unseen, self._foreseer)
            said = replace(said, told=reconstructed(self._before, snapshot, decided, policy, self._foreseer))
        self._before, self._foreseen = snapshot, self._foreseer.forecast(snapshot, policy, assumed=assumed)
        return self._foreseen, said + self._overdue(snapshot, policy, unseen)

    def _overdue(self, snapshot: Snapshot, policy: SimPolicy, unseen: Sequence[str]) -> Differences:
        """What stays foreseen, and does not come."""
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
        """Nothing has changed: Kueue has something in mind that keeps it, or one before it, from being let in.

        Only where the engine, with that in mind, leaves it waiting, too.
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
