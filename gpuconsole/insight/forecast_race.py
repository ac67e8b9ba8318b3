"""Races: decisions of Kueue that depend on a state that an object had between two observations.

Kueue decides within milliseconds, and observations are seconds apart. Each object that was created, deleted or changed
between two of them is tried in each state that it had in between, one object at a time.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.forecast_facts import AdmissionFact, workload_with_uid
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from gpuconsole.model.snapshot import Snapshot, change_events
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload

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
        """Yield the clusters with one object in another of its states; the change closest in time first."""
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
