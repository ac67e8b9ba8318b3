"""How far the forecast agrees with what Kueue then did; each difference with its cause.

Each decision of Kueue between two looks is compared with what was foreseen at the first; one that was not foreseen so
is tried again in hindsight (`forecast_facts`), to tell a change that came between from a disagreement.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.forecast import Fate, Forecast, Foreseer, Prospect, in_words
from gpuconsole.insight.forecast_facts import Fact, facts, hindsight, workload_with_uid
from gpuconsole.insight.reconstruction import reconstructed
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import Happened
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy

PATIENCE: Span = 10 * SECOND
"""How long Kueue has for what is foreseen, while it stays foreseen."""
KEPT = 200
"""Differences that are kept in mind."""
MOST_TRIES = 5
"""So many decisions of one look are tried as of their own moment; each costs as much as a forecast."""


class Cause(StrEnum):
    """Why a forecast and a fact differ."""

    TIMING = "timing"
    """Something changed between the two: on the cluster as it stood by then, the engine decides what Kueue did."""
    ORDER = "order"
    """Kueue took another of equal priority and second, where chance or nanoseconds that nobody sees decide."""
    UNSEEN = "unseen"
    """Something that decisions depend on may not be read."""
    DISAGREEMENT = "disagreement"
    """The engine decides otherwise than Kueue."""


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


class Differences(Struct, frozen=True, kw_only=True):
    """How one look, or several, compare with what was foreseen."""

    decisions: int = 0
    """That Kueue made, or should have made."""
    agreed: int = 0
    differences: tuple[Difference, ...] = ()
    told: tuple[Happened, ...] = ()
    """Lines for the history: how Kueue's victims were chosen, as the engine finds it in hindsight."""

    def __add__(self, other: "Differences") -> "Differences":
        return Differences(
            decisions=self.decisions + other.decisions,
            agreed=self.agreed + other.agreed,
            differences=(*self.differences, *other.differences),
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
        return sum(one.cause is cause for one in self.differences)

    def recent(self) -> "Differences":
        """The same counts; of the differences the newest."""
        return self if len(self.differences) <= KEPT else replace(self, differences=self.differences[-KEPT:])

    @property
    def agreement(self) -> float:
        """Part of the decisions that the engine would have made on the same cluster; 1 where there were none."""
        return (self.agreed + self.of(Cause.TIMING)) / self.decisions if self.decisions else 1.0


def compare(
    foreseen: Forecast,
    before: Snapshot,
    after: Snapshot,
    policy: SimPolicy,
    unseen: Sequence[str] = (),
    foreseer: Foreseer | None = None,
) -> Differences:
    """Hold what was foreseen at `before` against what Kueue had decided by `after`.

    `unseen` names what decisions depend on and may not be read; `foreseer` is who looked at the Snapshots so far.
    """
    decided = facts(before, after)
    trial = _Trial(before, after, decided, policy, foreseer or Foreseer())
    wrong = [fact for fact in decided if not _agrees(foreseen, fact, before, after)]
    differences = []
    agreed = len(decided) - len(wrong)
    for number, fact in enumerate(wrong):
        known = foreseen.of(fact.workload)
        cause, detail = trial.cause(fact, deep=number < MOST_TRIES)
        if cause is Cause.TIMING and known is None:
            agreed += 1  # Nobody was asked before; the engine agrees.
            continue
        if cause is Cause.DISAGREEMENT and unseen:
            cause, detail = Cause.UNSEEN, "; ".join(unseen)
        told = known or trial.everything.of(fact.workload)
        differences.append(
            Difference(
                time=fact.time,
                workload=fact.workload,
                queue=fact.queue,
                foreseen=in_words(told) if told is not None else "it stays as it is",
                fact=fact.in_words(),
                cause=cause,
                detail=detail,
            )
        )
    return Differences(decisions=len(decided), agreed=agreed, differences=tuple(differences))


class _Trial:
    """The decisions of one look, tried again by the engine on what is known by now."""

    def __init__(
        self, before: Snapshot, after: Snapshot, decided: Sequence[Fact], policy: SimPolicy, foreseer: Foreseer
    ) -> None:
        self._before = before
        self._after = after
        self._decided = decided
        self._policy = policy
        self._foreseer = foreseer

    @cached_property
    def everything(self) -> Forecast:
        """With all decisions of the look taken back."""
        return self._forecast(None)

    def cause(self, fact: Fact, *, deep: bool) -> tuple[Cause, str]:
        if self._right(self.everything, fact):
            return Cause.TIMING, "the cluster had changed by then"
        if deep and self._right(self._forecast(fact.time), fact):
            return Cause.TIMING, "more came after it"
        rival = self._equal(fact)
        if rival:
            return Cause.ORDER, f"{rival} is its equal"
        return Cause.DISAGREEMENT, ""

    def _forecast(self, moment: Time | None) -> Forecast:
        supposed = hindsight(self._before, self._after, self._decided, moment)
        return self._foreseer.forecast(supposed, self._policy, supposed=True)

    def _right(self, foreseen: Forecast, fact: Fact) -> bool:
        return _agrees(foreseen, fact, self._before, self._after)

    def _equal(self, fact: Fact) -> str:
        """Somebody of whom the engine took one and Kueue the other, though nothing tells the two apart."""
        if fact.preempted:
            mine = self._known(fact.workload)
            taken = {one.workload for one in self._decided if one.preempted}
            others = self._foreseen(Fate.PREEMPTED) - taken
            return next((key for key in sorted(others) if mine and _held(mine) == _held(self._known(key))), "") or (
                self._rivals()
            )
        return self._rivals()

    def _rivals(self) -> str:
        """One that the engine would have let in before another that Kueue let in, and that is its equal."""
        admitted = {one.workload for one in self._decided if not one.preempted}
        expected = self._foreseen(Fate.ADMITTED) | self._foreseen(Fate.AFTER_VICTIMS)
        preferred = {_waited(self._known(key)) for key in admitted - expected}
        return next((key for key in sorted(expected - admitted) if _waited(self._known(key)) in preferred), "")

    def _foreseen(self, fate: Fate) -> set[str]:
        return {key for key, prospect in self.everything.prospects.items() if prospect.fate is fate}

    def _known(self, key: str) -> Workload:
        known = self._before.workloads.get(key) or self._after.workloads.get(key)
        assert known is not None, "it was foreseen from one of the two"
        return known


def _waited(workload: Workload) -> tuple[int, Time]:
    """What the order of those who wait depends on, to the second, which is all that an API server keeps."""
    evicted = workload.condition("Evicted")
    since = evicted.since if evicted is not None and evicted.status else workload.created
    return workload.priority, since // SECOND


def _held(workload: Workload) -> tuple[int, Time]:
    """What the order of victims depends on, to the second."""
    since = workload.condition("QuotaReserved")
    return workload.priority, (since.since if since is not None else workload.created) // SECOND


def _agrees(foreseen: Forecast, fact: Fact, before: Snapshot, after: Snapshot) -> bool:
    prospect = foreseen.of(fact.workload)
    if prospect is None:
        return False
    if fact.preempted:
        return prospect.fate is Fate.PREEMPTED and workload_with_uid(fact.by, after, before) in ("", prospect.by)
    if prospect.fate is Fate.AFTER_VICTIMS:
        return all(_gave_way(after.workloads.get(victim)) for victim in prospect.victims)
    return prospect.fate is Fate.ADMITTED and prospect.given == fact.given


def _gave_way(victim: Workload | None) -> bool:
    return victim is None or not victim.reserved or victim.is_true("Evicted")


class Observer:
    """Looks on while Kueue decides, and foresees what comes next. Mutates by `look`."""

    def __init__(self, patience: Span = PATIENCE) -> None:
        self._patience = patience
        self._foreseer = Foreseer()
        self._before: Snapshot | None = None
        self._foreseen = Forecast()
        self._since: dict[str, tuple[Prospect, Time]] = {}
        """Who is to be admitted or to get victims, as it was first foreseen; `told` are those that took too long."""
        self._told: set[str] = set()

    def look(
        self, snapshot: Snapshot, policy: SimPolicy, assumed: Iterable[str] = (), unseen: Sequence[str] = ()
    ) -> tuple[Forecast, Differences]:
        """What comes next, and how the forecast of the look before compares with what is there now."""
        said = Differences()
        if self._before is not None:
            said = compare(self._foreseen, self._before, snapshot, policy, unseen, self._foreseer)
            told = reconstructed(self._before, snapshot, policy, self._foreseer) if said.decisions else ()
            said = replace(said, told=told)
        self._before, self._foreseen = snapshot, self._foreseer.forecast(snapshot, policy, assumed=assumed)
        return self._foreseen, said + self._overdue(snapshot, unseen)

    def _overdue(self, snapshot: Snapshot, unseen: Sequence[str]) -> Differences:
        """What stays foreseen, and does not come."""
        now, expected = snapshot.time, self._foreseen.expected
        self._since = {key: self._first(key, one, now) for key, one in expected.items()}
        self._told &= self._since.keys()
        late = [key for key, (_, since) in self._since.items() if now - since >= self._patience]
        late = [key for key in late if key not in self._told]
        self._told.update(late)
        differences = tuple(_missed(snapshot, self._since[key][0], unseen) for key in late)
        return Differences(decisions=len(differences), differences=differences)

    def _first(self, key: str, prospect: Prospect, now: Time) -> tuple[Prospect, Time]:
        known, since = self._since.get(key, (prospect, now))
        same = (known.fate, known.victims, known.given) == (prospect.fate, prospect.victims, prospect.given)
        return (known, since) if same else (prospect, now)


def _missed(snapshot: Snapshot, prospect: Prospect, unseen: Sequence[str]) -> Difference:
    waits = snapshot.workloads[prospect.workload].condition("QuotaReserved")
    said = f": {waits.message}" if waits is not None and waits.message else ""
    return Difference(
        time=snapshot.time,
        workload=prospect.workload,
        queue=prospect.queue,
        foreseen=in_words(prospect),
        fact=f"still waits{said}",
        cause=Cause.UNSEEN if unseen else Cause.DISAGREEMENT,
        detail="; ".join(unseen),
    )
