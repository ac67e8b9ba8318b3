"""Reconstructs the queues of an external Kueue from its writes: inadmissible workloads and preemptors.

Kueue keeps both in memory only. A workload that it refused is inadmissible until something that may admit it changes in
its cohort tree, and is tried again about a second later; one whose victims are terminating is tried first in its queue.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.snapshot import QueueAssumptions
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.conditions import EVICTED, FINISHED, PREEMPTED, QUOTA_RESERVED
from gpuconsole.scheduling.kueue.messages import (
    is_pending_preemption,
    is_retried_next_cycle,
    is_unassigned,
    preemptor_uid,
)
from gpuconsole.scheduling.kueue.session import KueueSession

TIMESTAMP_PRECISION: Span = SECOND
"""Precision of the timestamps in conditions."""
UNTRIED: Span = SECOND
"""How long after a requeue some workloads may not have been tried yet: a cycle tries one of each ClusterQueue."""


_REFUSALS = (is_unassigned, is_pending_preemption, is_retried_next_cycle)
"""Tell the messages that Kueue's scheduler writes from those of its workload controller."""


class _Attempt(NamedTuple):
    """A workload that Kueue's scheduler has tried, as its decision shows."""

    time: Time
    workload: str


class Observation:
    """Tracks the queues of an external Kueue for a session that follows its objects. Stateful.

    The session itself runs no cycles; its forks do, after `prepare_fork`.
    """

    def __init__(self, session: KueueSession) -> None:
        self._session = session
        self._first_seen = True
        """True until the first `update_queues`: releases and attempts are read from conditions."""
        self._tree_counts = ""
        """The LocalQueue whose counts the current event changes, if any."""
        self._settled: Time = 0
        """Time of the last `update_queues`."""
        self._batch_started: dict[str, Time] = {}
        """Tree, as `take_due_trees` names it → time at which its inadmissible workloads are requeued."""
        self._requeued_at: dict[str, Time] = {}
        """Tree → time at which they were requeued; nothing shows yet that Kueue tried them since."""
        self._released: dict[str, Time] = {}
        self._tried: dict[str, Time] = {}
        """By LocalQueue: the last release of quota, and the earliest time of the scheduler's last attempt."""
        self._refused: dict[str, None] = {}
        self._requeued: dict[str, None] = {}
        """Workloads refused since the last `update_queues`: inadmissible ones, and those that are retried."""
        self._preempting: dict[str, str] = {}
        """Workloads of `_requeued` whose victims are terminating → UID."""
        self._evicted: dict[str, Time] = {}
        """UID of a preemptor → time of the last eviction of a victim of it."""
        self.requeued_trees: set[str] = set()
        """Trees whose inadmissible workloads were requeued at least once while this observation followed them."""
        self._last_requeued: dict[str, Time] = {}
        """Tree → time at which they were requeued, if this was in the last second; only known event by event."""
        self._attempts: deque[_Attempt] = deque()
        """The workloads that were tried in the last second; only known event by event."""

    @property
    def session(self) -> KueueSession:
        """The session that follows the cluster's objects."""
        return self._session

    def apply(self, event: Applied | Deleted, now: Time) -> None:
        """Apply an event to the session; `now` is when it was observed. `update_queues` has to follow."""
        self.before_event(event, now)
        self._session.apply_event(event, now)
        self.after_event(event, now)

    def follow(self, event: Applied | Deleted, now: Time) -> None:
        """Apply one event to the session and update its queues."""
        self._note_attempt(event, now)
        self.apply(event, now)
        self.update_queues(now)
        if self._requeued_at or self._last_requeued:
            known = self._last_requeued | self._requeued_at
            self._last_requeued = {tree: at for tree, at in known.items() if now - at <= UNTRIED}

    def _note_attempt(self, event: Applied | Deleted, now: Time) -> None:
        """Note a workload that Kueue's scheduler has tried, if the event shows it; an eviction is no attempt."""
        while self._attempts and now - self._attempts[0].time > UNTRIED:
            self._attempts.popleft()
        if not isinstance(event, Applied) or not isinstance(event.object, Workload):
            return
        known, new = self._session.workload(event.key), event.object.condition(QUOTA_RESERVED)
        if new is None or new == (known.condition(QUOTA_RESERVED) if known is not None else None):
            return
        if new.status or any(is_said(new.message) for is_said in _REFUSALS):
            self._attempts.append(_Attempt(now, event.key))

    def _untried(self, now: Time) -> Iterator[str]:
        """Yield workloads that count as inadmissible although no decision shows that Kueue tried them since a requeue.

        Each cycle tries the head of a ClusterQueue, so that a decision about one says nothing about the others.
        """
        for tree, at in self._last_requeued.items():
            if now - at > UNTRIED:
                continue
            tried = {one.workload for one in self._attempts if one.time > at}
            for queue in self._session.queues_of_tree(tree):
                for pending in self._session.pending_workloads(queue):
                    if pending.inadmissible and pending.workload.key not in tried:
                        yield pending.workload.key

    def before_event(self, event: Applied | Deleted, now: Time) -> None:
        """Note an event before it is applied to the session; `now` is when it was observed."""
        if event.table != "workloads":
            return
        # Configuration changes requeue trees once they are compiled; they are older than this event.
        self._end_batches(now)
        known = self._session.workload(event.key)
        self._tree_counts = known.local_queue if known is not None else ""
        if isinstance(event, Applied) and isinstance(event.object, Workload):
            workload = event.object
            self._note_workload(known, workload)
            same = known is not None and _has_holding(known) == _has_holding(workload)
            self._tree_counts = "" if same else workload.local_queue

    def after_event(self, event: Applied | Deleted, now: Time) -> None:
        """Note an event after it was applied to the session."""
        released = now
        if isinstance(event, Applied) and isinstance(event.object, Workload):
            released = min(now, _latest(event.object) + TIMESTAMP_PRECISION)
        if event.table == "workloads":
            self._end_batches(released)
            self._requeue_tree(self._session.tree_requeued_by_status(self._tree_counts), released)

    def update_queues(self, now: Time) -> None:
        """Update the session's inadmissible workloads and preemptors from all events until `now`."""
        session = self._session
        self._end_batches(now)
        if self._first_seen:
            self._batch_started, self._requeued_at = {}, {}
            for queue, released in self._released.items():
                self._requeue_tree(session.tree_name(queue), min(now, released + TIMESTAMP_PRECISION))
        session.mark_unrefused_classes_admissible(
            name for name, at in list(self._batch_started.items()) if at <= now and self._end_batch(name)
        )
        self._forget_old_preemptions()
        session.requeue_observed(refused=self._refused, tried_again=self._requeued)
        session.set_preemptors(sorted(self._preempting, key=self._preempted_at))
        for noted in (self._released, self._tried, self._refused, self._requeued, self._preempting, self._evicted):
            noted.clear()
        self._first_seen, self._settled = False, now

    def adopt(self, other: "Observation") -> None:
        """Take over the queues that another observation of the same cluster reconstructed; this session must be new."""
        self._session.load(other._session.dump())
        self._batch_started, self._requeued_at = other._batch_started.copy(), other._requeued_at.copy()

    def continue_in(self, session: KueueSession) -> "Observation":
        """Return an observation that continues this one in `session`, a new session of the same cluster."""
        session.take_due_trees()
        session.load_queues(self._session)
        copied = Observation(session)
        copied._first_seen, copied._settled = False, self._settled
        copied._batch_started, copied._requeued_at = self._batch_started.copy(), self._requeued_at.copy()
        return copied

    def fork(self) -> "Observation":
        """Return an independent copy of an updated observation, with a fork of its session."""
        copied = Observation(self._session.fork())
        copied._first_seen, copied._settled = False, self._settled
        copied._batch_started, copied._requeued_at = self._batch_started.copy(), self._requeued_at.copy()
        copied._last_requeued, copied._attempts = self._last_requeued.copy(), self._attempts.copy()
        return copied

    def prepare_fork(self, fork: KueueSession, now: Time) -> Time | None:
        """Prepare a fork to run cycles: requeue the inadmissible workloads of trees whose batch period is over.

        Those that Kueue has not tried since are requeued, too, if this observation follows the cluster event by event.
        Returns when the first of the other trees is due; None if there is none. The fork's `assumptions` get the
        numbers of workloads assumed to be inadmissible and to be tried again.
        """
        fork.take_due_trees()
        count = fork.count_inadmissible()
        self.requeue_ended_batches(fork, now)
        fork.requeue_observed(refused=(), tried_again=list(self._untried(now)))
        inadmissible = fork.count_inadmissible() - fork.count_inadmissible(self._batch_started)
        fork.assumptions = QueueAssumptions(inadmissible, count - inadmissible)
        return min(self._batch_started.values(), default=None)

    def requeue_ended_batches(self, fork: KueueSession, now: Time) -> None:
        """Requeue in a fork the inadmissible workloads of trees whose batch period is over; the others become due."""
        fork.take_due_trees()
        fork.mark_trees_due(self._requeued_at)
        fork.requeue_inadmissible(now)
        fork.mark_trees_due(self._batch_started)

    def _note_workload(self, known: Workload | None, workload: Workload) -> None:
        old = known.condition(QUOTA_RESERVED) if known is not None and known.uid == workload.uid else None
        new = workload.condition(QUOTA_RESERVED)
        if new is not None and new != old:
            self._quota_changed(workload, old, new)
        evicted = workload.condition(EVICTED)
        if evicted is not None and evicted.status and evicted.reason == PREEMPTED:
            by = preemptor_uid(evicted.message)
            if by:
                self._evicted[by] = max(self._evicted.get(by, 0), evicted.since)
        finished = workload.condition(FINISHED)
        if self._first_seen and finished is not None and finished.status:
            _set_later(self._released, workload.local_queue, finished.since)

    def _quota_changed(self, workload: Workload, old: Condition | None, new: Condition) -> None:
        if new.status:
            _set_later(self._tried, workload.local_queue, new.since)
            return
        if workload.finished or not workload.active:
            return
        if is_unassigned(new.message):
            self._refused[workload.key] = None
            if not self._first_seen:
                _set_later(self._tried, workload.local_queue, self._settled)
        elif is_pending_preemption(new.message):
            self._requeued[workload.key] = None
            self._preempting[workload.key] = workload.uid
        elif is_retried_next_cycle(new.message):
            self._requeued[workload.key] = None
        elif self._first_seen and workload.condition(EVICTED) is not None:
            _set_later(self._released, workload.local_queue, new.since)

    def _end_batches(self, time: Time) -> None:
        for name in self._session.take_due_trees():
            self._requeue_tree(name, time)

    def _requeue_tree(self, name: str, time: Time) -> None:
        """Schedule the requeue of a tree's inadmissible workloads after Kueue's batch period."""
        if not name or time <= self._batch_started.get(name, -1):
            return
        if name in self._batch_started and self._end_batch(name):
            self._session.mark_unrefused_classes_admissible([name])
        self._batch_started[name] = time + self._session.config.requeue_interval

    def _end_batch(self, name: str) -> bool:
        self._requeued_at[name] = self._batch_started.pop(name)
        if not self._first_seen:
            self.requeued_trees.add(name)
        return True

    def _forget_old_preemptions(self) -> None:
        """Forget requeued trees whose workloads the scheduler has tried since."""
        for queue, tried in self._tried.items():
            name = self._session.tree_name(queue)
            if name in self._requeued_at and tried >= self._requeued_at[name]:
                del self._requeued_at[name]

    def _preempted_at(self, workload: str) -> Time:
        return self._evicted.get(self._preempting[workload], 0)


def _latest(workload: Workload) -> Time:
    """Return the time of the last change of a workload's conditions."""
    return max((condition.since for condition in workload.conditions), default=workload.created)


def _has_holding(workload: Workload) -> tuple[bool, ...]:
    """Return the parts of a workload that the counts in a ClusterQueue's status depend on."""
    return workload.reserved, workload.admitted, workload.finished, workload.active


def _set_later(times: dict[str, Time], key: str, time: Time) -> None:
    times[key] = max(times.get(key, 0), time)
