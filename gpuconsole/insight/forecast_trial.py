"""Cause of a difference between the forecast and a decision of Kueue, found by simulating the decision in hindsight.

If the engine decides differently on the cluster at the time of the decision, too, Kueue may have chosen a workload of
equal priority and age, or its in-memory state is different (see `possible_scheduler_states`).
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from itertools import islice

from msgspec import Struct

from gpuconsole.insight.forecast import Forecast, ForecastAction, Forecaster
from gpuconsole.insight.forecast_facts import AdmissionFact, hindsight, workload_with_uid
from gpuconsole.insight.forecast_race import Race, Races
from gpuconsole.model.clock import SECOND, Time, format_span
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.policy import SimPolicy

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
    """The decision depends on a state that an object had between the two observations."""
    MEMORY = "memory"
    """The engine agrees with another in-memory state: inadmissible workloads, or the flavor to try next."""
    DISAGREEMENT = "disagreement"
    """The engine decides differently from Kueue."""


class DifferenceExplanation(Struct, frozen=True):
    """Cause of one difference between forecast and decision, with its evidence."""

    cause: DifferenceCause
    detail: str = ""
    """Evidence for the cause."""
    race: Race | None = None
    """The object and the span of a race."""


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
        """The forecast on the cluster with all decisions of the observation undone."""
        return self._forecast(None)

    def explain(self, fact: AdmissionFact, *, deep: bool) -> DifferenceExplanation:
        """Return the cause of a difference; all explanations are tried only with `deep`."""
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
