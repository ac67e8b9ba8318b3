"""Kueue's decisions between two Snapshots, the cluster before them, and the preemption candidates of each.

Kueue decides several times between two observations. So the forecast is also compared in hindsight: on the later
Snapshot with the decisions undone, which contains everything that arrived and ended in between. On such states the
candidates of a preemption are reconstructed, as Kueue does not publish them. The result is marked as reconstructed,
with the time of that state, and used only if our engine chooses the same victim for the same preemptor.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.forecast.forecast import Forecaster, assigned
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import Applied, HistoryEvent, HistoryEventKind, Preempt, PreemptionTrace
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.messages import preemptor_uid
from gpuconsole.sim.policy import SimPolicy


class AdmissionFact(Struct, frozen=True, kw_only=True):
    """One decision of Kueue about a workload: it reserved quota, or it was preempted."""

    workload: str
    time: Time
    """From Kueue's condition, in whole seconds."""
    queue: str = ""
    preempted: bool = False
    """True if it was preempted, False if it reserved quota."""
    given: tuple[str, ...] = ()
    """Flavors of each pod set, as `forecast.assigned` formats them."""
    by: str = ""
    """UID of its preemptor; empty if it was not preempted, or if Kueue's message does not name one."""

    def in_words(self) -> str:
        """Describe the decision in words."""
        if self.preempted:
            return "preempted"
        return f"admitted: {'; '.join(self.given)}"


def facts(before: Snapshot, after: Snapshot) -> list[AdmissionFact]:
    """Return Kueue's decisions between two Snapshots, sorted by workload; decisions undone in between are unknown."""
    found = (
        fact
        for workload in after.workloads.all()
        if (known := before.workloads.get(workload.key)) is not workload
        for fact in workload_facts(known, workload)
    )
    return sorted(found, key=lambda fact: (fact.workload, fact.preempted))


def workload_facts(before: Workload | None, after: Workload) -> Iterator[AdmissionFact]:
    """Yield Kueue's decisions between two states of a workload; `before` is None for a new one."""
    if before is not None and before.uid != after.uid:
        before = None
    reserved = newly_true(before, after, "QuotaReserved")
    if reserved is not None and after.admission is not None and after.admission != (before and before.admission):
        queue = after.admission.cluster_queue
        yield AdmissionFact(workload=after.key, time=reserved.since, queue=queue, given=assigned(after.admission))
    evicted = newly_true(before, after, "Evicted")
    if evicted is not None and evicted.reason == "Preempted" and before is not None and before.reserved:
        by = preemptor_uid(evicted.message)
        yield AdmissionFact(workload=after.key, time=evicted.since, queue=before.cluster_queue, preempted=True, by=by)


def newly_true(before: Workload | None, after: Workload, type: str) -> Condition | None:
    """Return the condition if it became true, or true again, between two states of a workload."""
    new, old = after.condition(type), before.condition(type) if before is not None else None
    if new is None or not new.status:
        return None
    return None if old is not None and old.status and old.since == new.since else new


def hindsight(
    before: Snapshot, after: Snapshot, decided: Iterable[AdmissionFact], moment: Time | None = None
) -> Snapshot:
    """Return the cluster of `after` as if Kueue had not made the decisions `decided`.

    With `moment`, the cluster as of then: only decisions from then on are undone, later arrivals are left out, and
    workloads that ended later are as in `before`.
    """
    undone = {fact.workload for fact in decided if moment is None or fact.time >= moment}
    state, restored = ClusterState(after.time), set[str]()
    for workload in after.workloads.all():
        known = before.workloads.get(workload.key)
        same = known if known is not None and known.uid == workload.uid else None
        if moment is None or workload.created <= moment:
            kept = _as_it_was(same, workload, workload.key in undone, moment)
            state.apply(Applied(after.time, kept))
        if workload.key in undone:
            restored.add(workload.key)
    for obj in after.objects():
        if not (isinstance(obj, Workload) or (isinstance(obj, Pod) and obj.workload in restored)):
            state.apply(Applied(after.time, obj))
    for pod in before.pods.all():
        held = state.get(Workload, pod.workload) if pod.workload in restored else None
        if held is not None and held.reserved:
            state.apply(Applied(after.time, pod))
    return state.freeze()


def _as_it_was(known: Workload | None, later: Workload, undone: bool, moment: Time | None) -> Workload:
    """Return a workload as before a decision; `known` is its state at the previous observation, if it existed."""
    finished = later.condition("Finished")
    if finished is not None and finished.status:
        ended_later = moment is not None and finished.since > moment
        return known if known is not None and ended_later else later
    if not undone:
        return later
    if known is None or (moment is not None and _came_back(known, later)):
        return replace(later, conditions=(), admission=None, checks=(), resource_requests=())
    return known


def _came_back(known: Workload, later: Workload) -> bool:
    """True if the workload lost its quota and reserved it again, so that it was pending in between."""
    old, new = known.condition("QuotaReserved"), later.condition("QuotaReserved")
    return old is not None and new is not None and old.status and new.status and new.since > old.since


def workload_with_uid(uid: str, *snapshots: Snapshot) -> str:
    """Return the key of the workload with this UID in any of the Snapshots; empty if there is none."""
    everything = (workload for snapshot in snapshots for workload in snapshot.workloads.all())
    return next((workload.key for workload in everything if workload.uid == uid), "") if uid else ""


MOST_MOMENTS = 5
"""Maximum number of states to reconstruct at a time; each costs as much as a forecast."""


def replayed_choices(
    before: Snapshot, after: Snapshot, decided: Sequence[AdmissionFact], policy: SimPolicy, foreseer: Forecaster
) -> tuple[HistoryEvent, ...]:
    """Reconstruct how Kueue chose victims between two Snapshots: a history line with the candidates for each.

    Victims without a known preemptor are left out. `decided` has all of Kueue's decisions in between (see `facts`).
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
