"""Reconstruction of preemption candidates, which Kueue does not publish, on the state before the decision.

The result is marked as reconstructed, with the time of that state. It is used only if our engine chooses the same
victim for the same preemptor; otherwise only the difference is reported.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpuconsole.insight.forecast import Forecaster
from gpuconsole.insight.forecast_facts import AdmissionFact, hindsight, workload_with_uid
from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Preempt, PreemptionTrace
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.policy import SimPolicy

MOST_MOMENTS = 5
"""Maximum number of states to reconstruct at a time; each costs as much as a forecast."""


def replayed_choices(
    before: Snapshot, after: Snapshot, decided: Sequence[AdmissionFact], policy: SimPolicy, foreseer: Forecaster
) -> tuple[HistoryEvent, ...]:
    """Make a history line with the candidates for each victim between two Snapshots whose preemptor is known.

    `decided` has all of Kueue's decisions between them (see `forecast_facts.facts`).
    """
    if policy.kueue is None:
        return ()
    past = _ClusterBefore(before, after, decided, policy, foreseer)
    moments = sorted({fact.time for fact in decided if fact.preempted})[:MOST_MOMENTS]
    found = (_line(past, fact) for fact in decided if fact.preempted and fact.time in moments)
    return tuple(sorted(filter(None, found), key=lambda line: (line.time, line.workload)))


class _ClusterBefore:
    """The cluster before the decisions, and the decisions of our engine there."""

    def __init__(
        self,
        before: Snapshot,
        after: Snapshot,
        decided: Sequence[AdmissionFact],
        policy: SimPolicy,
        foreseer: Forecaster,
    ) -> None:
        self.before, self.after = before, after
        self._decided, self._policy, self._foreseer = decided, policy, foreseer
        self._asked: dict[Time | None, Sequence[Preempt]] = {}

    def choices(self, fact: AdmissionFact, by: str) -> Iterator[PreemptionTrace]:
        """Yield the choices of this victim for that preemptor, on the state of that time, else on the current one."""
        for moment in (fact.time, None):
            if moment not in self._asked:
                supposed = hindsight(self.before, self.after, self._decided, moment)
                self._asked[moment] = self._foreseer.preemptions(supposed, self._policy)
            for choice in _choices(self._asked[moment], fact.workload, by):
                yield replace(choice, as_of=self.after.time if moment is None else moment)


def _choices(decided: Iterable[Preempt], victim: str, by: str) -> Iterator[PreemptionTrace]:
    for one in decided:
        if (one.workload, one.by) == (victim, by) and one.choice is not None:
            yield one.choice


def _line(past: _ClusterBefore, fact: AdmissionFact) -> HistoryEvent | None:
    by = workload_with_uid(fact.by, past.before, past.after)
    if not by:
        return None
    choice = next(past.choices(fact, by), PreemptionTrace(as_of=fact.time, differs=True))
    return HistoryEvent(
        time=fact.time,
        what=HistoryEventKind.RECONSTRUCTED,
        workload=fact.workload,
        queue=fact.queue,
        by=by,
        choice=choice,
    )
