"""Reconstructs the queues of an external Kueue from its writes: inadmissible workloads and preemptors.

Kueue keeps both in memory only. A workload that it refused is inadmissible until something that may admit it changes in
its cohort tree, and is tried again about a second later; one whose victims are terminating is tried first in its queue.
"""

import re

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.snapshot import QueueAssumptions
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.conditions import EVICTED, FINISHED, PREEMPTED, QUOTA_RESERVED
from gpuconsole.scheduling.kueue.messages import is_pending_preemption, is_tried_again, is_unassigned
from gpuconsole.scheduling.kueue.session import KueueSession

WRITTEN: Span = SECOND
"""Precision of the timestamps in conditions."""
_PREEMPTOR = re.compile(r"\(UID: ([^,)\s]+)")


class Observation:
    """Tracks the queues of an external Kueue for a session that follows its objects. Stateful.

    The session itself runs no cycles; its forks do, after `hand_over`.
    """

    def __init__(self, session: KueueSession) -> None:
        self._session = session
        self._first = True
        """True until the first `settle`: releases and attempts are read from conditions."""
        self._counts_in = ""
        """The LocalQueue whose counts the current event changes, if any."""
        self._settled: Time = 0
        """Time of the last `settle`."""
        self._gathering: dict[str, Time] = {}
        """Tree, as `take_due_trees` names it → time at which its inadmissible workloads are requeued."""
        self._back: dict[str, Time] = {}
        """Tree → time at which they were requeued; nothing shows yet that Kueue tried them since."""
        self._released: dict[str, Time] = {}
        self._tried: dict[str, Time] = {}
        """By LocalQueue: the last release of quota, and the earliest time of the scheduler's last attempt."""
        self._refused: dict[str, None] = {}
        self._requeued: dict[str, None] = {}
        """Workloads refused since the last `settle`: inadmissible ones, and those that are retried."""
        self._preempting: dict[str, str] = {}
        """Workloads of `_requeued` whose victims are terminating → UID."""
        self._evicted: dict[str, Time] = {}
        """UID of a preemptor → time of the last eviction of a victim of it."""

    def before(self, event: Applied | Deleted, now: Time) -> None:
        """Note an event before it is applied to the session; `now` is when it was observed."""
        if event.table != "workloads":
            return
        # Configuration changes requeue trees once they are compiled; they are older than this event.
        self._gather(now)
        known = self._session.workload(event.key)
        self._counts_in = known.local_queue if known is not None else ""
        if isinstance(event, Applied) and isinstance(event.object, Workload):
            workload = event.object
            self._note(known, workload)
            same = known is not None and _standing(known) == _standing(workload)
            self._counts_in = "" if same else workload.local_queue

    def after(self, event: Applied | Deleted, now: Time) -> None:
        """Note an event after it was applied to the session."""
        released = now
        if isinstance(event, Applied) and isinstance(event.object, Workload):
            released = min(now, _latest(event.object) + WRITTEN)
        if event.table == "workloads":
            self._gather(released)
            self._wake(self._session.tree_woken_by_status(self._counts_in), released)

    def settle(self, now: Time) -> None:
        """Update the session's inadmissible workloads and preemptors from all events until `now`."""
        session = self._session
        self._gather(now)
        if self._first:
            self._gathering, self._back = {}, {}
            for queue, released in self._released.items():
                self._wake(session.tree_name(queue), min(now, released + WRITTEN))
        session.mark_unrefused_classes_admissible(
            name for name, at in list(self._gathering.items()) if at <= now and self._fire(name)
        )
        self._expire()
        session.requeue_observed(refused=self._refused, tried_again=self._requeued)
        session.set_preemptors(sorted(self._preempting, key=self._preempted_at))
        for noted in (self._released, self._tried, self._refused, self._requeued, self._preempting, self._evicted):
            noted.clear()
        self._first, self._settled = False, now

    def learn(self, other: "Observation") -> None:
        """Take over the queues that another observation of the same cluster reconstructed; this session must be new."""
        self._session.load(other._session.dump())
        self._gathering, self._back = other._gathering.copy(), other._back.copy()

    def renewed(self, session: KueueSession) -> "Observation":
        """Return an observation that continues this one in `session`, a new session of the same cluster."""
        session.take_due()
        session.load_queues(self._session)
        twin = Observation(session)
        twin._first, twin._settled = False, self._settled
        twin._gathering, twin._back = self._gathering.copy(), self._back.copy()
        return twin

    def hand_over(self, fork: KueueSession, now: Time) -> Time | None:
        """Prepare a fork to run cycles: requeue the inadmissible workloads of trees whose batch period is over.

        Returns when the first of the other trees is due; None if there is none. The fork's `assumptions` get the
        numbers of workloads assumed to be inadmissible and to be tried again.
        """
        fork.take_due()
        tried_again = fork.count_inadmissible({**self._back, **self._gathering})
        fork.assumptions = QueueAssumptions(fork.count_inadmissible() - tried_again, tried_again)
        fork.note_due(self._back)
        fork.requeue_inadmissible(now)
        fork.note_due(self._gathering)
        return min(self._gathering.values(), default=None)

    def _note(self, known: Workload | None, workload: Workload) -> None:
        old = known.condition(QUOTA_RESERVED) if known is not None and known.uid == workload.uid else None
        new = workload.condition(QUOTA_RESERVED)
        if new is not None and new != old:
            self._quota_changed(workload, old, new)
        evicted = workload.condition(EVICTED)
        if evicted is not None and evicted.status and evicted.reason == PREEMPTED:
            found = _PREEMPTOR.search(evicted.message)
            if found is not None:
                self._evicted[found[1]] = max(self._evicted.get(found[1], 0), evicted.since)
        finished = workload.condition(FINISHED)
        if self._first and finished is not None and finished.status:
            _raise(self._released, workload.local_queue, finished.since)

    def _quota_changed(self, workload: Workload, old: Condition | None, new: Condition) -> None:
        if new.status:
            _raise(self._tried, workload.local_queue, new.since)
            return
        if workload.finished or not workload.active:
            return
        if is_unassigned(new.message):
            self._refused[workload.key] = None
            if not self._first:
                _raise(self._tried, workload.local_queue, self._settled)
        elif is_pending_preemption(new.message):
            self._requeued[workload.key] = None
            self._preempting[workload.key] = workload.uid
        elif is_tried_again(new.message):
            self._requeued[workload.key] = None
        elif self._first and workload.condition(EVICTED) is not None:
            _raise(self._released, workload.local_queue, new.since)

    def _gather(self, time: Time) -> None:
        for name in self._session.take_due():
            self._wake(name, time)

    def _wake(self, name: str, time: Time) -> None:
        """Schedule the requeue of a tree's inadmissible workloads after Kueue's batch period."""
        if not name or time <= self._gathering.get(name, -1):
            return
        if name in self._gathering and self._fire(name):
            self._session.mark_unrefused_classes_admissible([name])
        self._gathering[name] = time + self._session.config.requeue_interval

    def _fire(self, name: str) -> bool:
        self._back[name] = self._gathering.pop(name)
        return True

    def _expire(self) -> None:
        """Forget requeued trees whose workloads the scheduler has tried since."""
        for queue, tried in self._tried.items():
            name = self._session.tree_name(queue)
            if name in self._back and tried >= self._back[name]:
                del self._back[name]

    def _preempted_at(self, workload: str) -> Time:
        return self._evicted.get(self._preempting[workload], 0)


def _latest(workload: Workload) -> Time:
    """Return the time of the last change of a workload's conditions."""
    return max((condition.since for condition in workload.conditions), default=workload.created)


def _standing(workload: Workload) -> tuple[bool, ...]:
    """Return the parts of a workload that the counts in a ClusterQueue's status depend on."""
    return workload.reserved, workload.admitted, workload.finished, workload.active


def _raise(times: dict[str, Time], key: str, time: Time) -> None:
    times[key] = max(times.get(key, 0), time)
