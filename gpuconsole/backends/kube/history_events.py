"""History events of a live cluster, from changes of objects and from Kubernetes Events.

`ChangeEvents` derives history events from the difference between two states of an object, because a watch reports
states, not changes. Kueue records what it does in conditions, with its own reasons and texts.

`KubeEventReader` reads Kubernetes Events, which also tell what Kueue and the schedulers did before the console
connected or while it was offline. An Event of the same kind about the same workload within 15 seconds (`SAME`) of a
history event is the same change, and is not reported again.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from gpuconsole.backends.kube.decode import CoreEvent
from gpuconsole.insight.index.gpu_time import gpu_time, uncheckpointed
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.device_requests import DeviceCounter
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.queues import ClusterQueue, LocalQueue, StopPolicy
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.apply_decisions import queued_since
from gpuconsole.scheduling.kueue.messages import rule_in

_UID = re.compile(r"\(UID: ([^,)\s]+)")
_PATH = re.compile(r"preemptor path: (\S*?);")
ABSENT = Condition("", False)


def preemptor_uid(message: str) -> str:
    """Return the UID of a victim's preemptor from Kueue's message; empty if it names none."""
    found = _UID.search(message)
    return found[1] if found else ""


def preemptor_queue(message: str) -> str:
    """Return the preemptor's ClusterQueue from Kueue's message: the last part of its cohort path."""
    found = _PATH.search(message)
    return found[1].rpartition("/")[2] if found else ""


class ChangeEvents:
    """Derives history events from the states of an object before and after a change; callbacks find related objects."""

    def __init__(
        self,
        *,
        by_uid: Callable[[str], Workload | None],
        by_key: Callable[[str], Workload | None],
        queue_of: Callable[[Workload], str],
        job_of: Callable[[Workload], Job | None],
        pods_of: Callable[[str, Time], Collection[Pod]],
        devices: DeviceCounter,
    ) -> None:
        self._by_uid = by_uid
        self._by_key = by_key
        self._queue_of = queue_of
        self._job_of = job_of
        self._pods_of = pods_of
        self._devices = devices

    # Workloads

    def workload(self, before: Workload | None, after: Workload, now: Time, *, listed: bool) -> Iterator[HistoryEvent]:
        """Events for a workload whose previous state was `before` (None: new).

        A `listed` one existed before the console connected, so only its last eviction and release are reported.
        """
        if before is not None and before.uid != after.uid:
            yield from self.workload_gone(before, now)
            before = None
        if before is None:
            if listed:
                yield from self._evictions(after, after, now)
                yield from self._released(after)
                return
            yield self._line(HistoryEventKind.SUBMITTED, after, min(now, after.created))
        yield from self._changes(before, after, now)

    def workload_gone(self, workload: Workload, now: Time) -> Iterator[HistoryEvent]:
        """Event for a deleted workload; none if it had finished."""
        if not workload.finished:
            yield self._line(HistoryEventKind.DELETED, workload, now, reason="Deleted")

    def _changes(self, before: Workload | None, after: Workload, now: Time) -> Iterator[HistoryEvent]:
        if _turned(before, after, "QuotaReserved"):
            reserved = _condition(after, "QuotaReserved")
            if not after.admitted:
                yield self._line(HistoryEventKind.RESERVED, after, reserved.since, message=reserved.message)
        elif not after.reserved:
            yield from self._pending(before, after, now)
        if _turned(before, after, "Admitted"):
            yield self._admission(after, queued_since(before or after))
        if _turned(before, after, "PodsReady"):
            yield self._line(HistoryEventKind.STARTED, after, _condition(after, "PodsReady").since)
        if _again(before, after, "Evicted"):
            yield from self._evictions(before or after, after, now)
        if before is not None and before.reserved and not after.reserved and after.is_true("Requeued"):
            requeued, evicted = _condition(after, "Requeued"), _condition(after, "Evicted")
            waited = max(0, requeued.since - evicted.since) if evicted.status else 0
            yield self._line(HistoryEventKind.REQUEUED, after, now, reason=requeued.reason, waited=waited)
        if _turned(before, after, "Finished"):
            finished = _condition(after, "Finished")
            what = HistoryEventKind.FAILED if finished.reason == "Failed" else HistoryEventKind.FINISHED
            yield self._line(what, before or after, finished.since, reason=finished.reason, message=finished.message)

    def complete(self, lines: Sequence[HistoryEvent]) -> Iterator[HistoryEvent]:
        """Complete the history events of the first seconds, once all Workloads are loaded.

        It adds the names of preemptors, and admissions of preemptors and victims that no event reported.
        """
        let_in: dict[str, Time] = {}
        for line in lines:
            if line.what is HistoryEventKind.ADMITTED:
                let_in[line.workload] = max(line.time, let_in.get(line.workload, 0))
        for line in lines:
            by = self._by_uid(preemptor_uid(line.message)) if line.by else None
            yield replace(line, **self._named(by, line.by_queue)) if by is not None else line
            victim = self._by_key(line.workload) if line.what is HistoryEventKind.EVICTED else None
            for one in (by, victim):
                if one is not None and let_in.get(one.key, 0) < line.time <= _admitted_at(one):
                    yield (admission := self._admission(one, queued_since(one)))
                    let_in[one.key] = admission.time

    def _admission(self, after: Workload, queued: Time) -> HistoryEvent:
        admitted = _condition(after, "Admitted")
        waited = max(0, admitted.since - queued)
        return self._line(HistoryEventKind.ADMITTED, after, admitted.since, message=admitted.message, waited=waited)

    def _released(self, after: Workload) -> Iterator[HistoryEvent]:
        """Event that a workload released its quota after its last eviction.

        The time is that of `QuotaReserved`, because `Requeued` keeps the time of the first eviction.
        """
        evicted, reserved = _condition(after, "Evicted"), _condition(after, "QuotaReserved")
        if evicted.status and not reserved.status and reserved.since >= evicted.since:
            waited = reserved.since - evicted.since
            yield self._line(HistoryEventKind.REQUEUED, after, reserved.since, reason=evicted.reason, waited=waited)

    def _pending(self, before: Workload | None, after: Workload, now: Time) -> Iterator[HistoryEvent]:
        said = _condition(after, "QuotaReserved")
        before_message = _condition(before, "QuotaReserved").message if before is not None else ""
        if said.message and said.message != before_message and not after.finished:
            yield self._line(HistoryEventKind.PENDING, after, now, reason=said.reason, message=said.message)

    def _evictions(self, before: Workload, after: Workload, now: Time) -> Iterator[HistoryEvent]:
        """Event for the eviction in a workload's conditions, with the preemptor if it was preempted."""
        evicted, preempted = _condition(after, "Evicted"), _condition(after, "Preempted")
        if not evicted.status:
            return
        at = min(now, evicted.since)
        names: dict[str, Any] = {"message": evicted.message, **self._loss(before, at, seen=before is not after)}
        if evicted.reason == "Preempted":
            names |= self._preemptor(evicted.message)
            yield self._line(HistoryEventKind.PREEMPTED, before, at, reason=preempted.reason, **names)
        yield self._line(HistoryEventKind.EVICTED, before, at, reason=evicted.reason, **names)

    def _loss(self, before: Workload, at: Time, *, seen: bool) -> dict[str, Any]:
        """Work lost by an eviction; unknown if the workload or its pods were not observed before it (`seen`)."""
        if not self._devices.of_workload(before)["gpus"] or (seen and not before.admitted):
            return {}
        pods = self._pods_of(before.key, at)
        lost = uncheckpointed(before, self._job_of(before), pods, at, self._devices, all_seen=False) if seen else None
        if lost is None:
            return {"lost_unknown": True}
        return {"lost_gpu_seconds": seconds} if (seconds := gpu_time(lost) / SECOND) else {}

    def _preemptor(self, message: str) -> dict[str, Any]:
        uid = preemptor_uid(message)
        by = self._by_uid(uid)
        if by is None:
            return {"by": uid, "by_queue": preemptor_queue(message)}
        return self._named(by, preemptor_queue(message))

    def _named(self, by: Workload, queue: str) -> dict[str, Any]:
        return {"by": by.key, "by_queue": queue or self._queue_of(by), "by_priority": by.priority}

    def said(self, what: HistoryEventKind, workload: Workload, at: Time, reason: str, message: str) -> HistoryEvent:
        """Return the history event for a Kubernetes Event about a workload."""
        evicted = what in (HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED)
        more = self._preemptor(message) if evicted and "UID:" in message else {}
        return self._line(what, workload, at, reason=reason, message=message, lost_unknown=evicted, **more)

    def _line(self, what: HistoryEventKind, workload: Workload, time: Time, **more: Any) -> HistoryEvent:
        return HistoryEvent(
            time=time,
            what=what,
            workload=workload.key,
            queue=workload.cluster_queue or self._queue_of(workload),
            flavor=workload.flavor,
            priority=workload.priority,
            **self._devices.of_workload(workload),
            **more,
        )

    # Pods, nodes, queues

    def pod(self, before: Pod | None, after: Pod, now: Time) -> Iterator[HistoryEvent]:
        """Events for a pod whose previous state was `before`."""
        if before is None or before.uid != after.uid:
            return
        if after.node and not before.node:
            waited = max(0, after.bound - after.created) if after.bound else 0
            yield self._pod_line(HistoryEventKind.POD_BOUND, after, now, waited=waited)
        elif not after.node and after.message and after.message != before.message:
            yield self._pod_line(HistoryEventKind.PENDING, after, now)
        if after.phase is PodPhase.FAILED and before.phase is not PodPhase.FAILED:
            yield self._pod_line(HistoryEventKind.POD_FAILED, after, now)

    def _pod_line(self, what: HistoryEventKind, pod: Pod, now: Time, waited: Span = 0) -> HistoryEvent:
        return HistoryEvent(
            time=now,
            what=what,
            workload=pod.workload or pod.job,
            pod=pod.key,
            node=pod.node,
            reason=pod.reason,
            message=pod.message,
            priority=pod.priority,
            waited=waited,
            **self._devices.requested([pod]),
        )

    def node(self, before: Node | None, after: Node, now: Time) -> Iterator[HistoryEvent]:
        """Events for a node whose previous state was `before`, or that is new."""
        if before is None:
            yield HistoryEvent(
                time=now, what=HistoryEventKind.NODE_UP, node=after.name, reason="Added", **self._devices.of_node(after)
            )
            return
        if before.ready != after.ready:
            what = HistoryEventKind.NODE_UP if after.ready else HistoryEventKind.NODE_DOWN
            yield HistoryEvent(time=now, what=what, node=after.name, **self._devices.of_node(after))
        if before.unschedulable != after.unschedulable:
            reason = "Cordoned" if after.unschedulable else "Uncordoned"
            yield HistoryEvent(time=now, what=HistoryEventKind.NODE_CHANGED, node=after.name, reason=reason)
        amount = self._devices.of_node(after)
        if amount != self._devices.of_node(before):
            yield HistoryEvent(time=now, what=HistoryEventKind.NODE_CHANGED, node=after.name, reason="GPUs", **amount)

    def node_gone(self, name: str, node: Node | None, now: Time) -> Iterator[HistoryEvent]:
        """Event for a deleted node."""
        amount = self._devices.of_node(node) if node is not None else {}
        yield HistoryEvent(time=now, what=HistoryEventKind.NODE_DOWN, node=name, reason="Deleted", **amount)

    def queue(
        self, before: ClusterQueue | LocalQueue | None, after: ClusterQueue | LocalQueue, now: Time
    ) -> Iterator[HistoryEvent]:
        """Events for a queue whose previous state was `before`."""
        policy = before.stop_policy if before is not None else StopPolicy.NONE
        name = after.name if isinstance(after, ClusterQueue) else after.cluster_queue
        if policy is not after.stop_policy:
            reason = f"StopPolicy{after.stop_policy.value}"
            yield HistoryEvent(
                time=now, what=HistoryEventKind.QUEUE_CHANGED, queue=name, reason=reason, message=after.key
            )
        if isinstance(before, ClusterQueue) and isinstance(after, ClusterQueue) and before.quotas() != after.quotas():
            yield HistoryEvent(
                time=now, what=HistoryEventKind.QUEUE_CHANGED, queue=name, reason="Quota", message=after.key
            )


def _condition(workload: Workload, type: str) -> Condition:
    return workload.condition(type) or ABSENT


def _admitted_at(workload: Workload) -> Time:
    """Time of admission; -1 if not admitted."""
    admitted = _condition(workload, "Admitted")
    return admitted.since if admitted.status else -1


def _turned(before: Workload | None, after: Workload, type: str) -> bool:
    """True if a condition became true."""
    return after.is_true(type) and (before is None or not before.is_true(type))


def _again(before: Workload | None, after: Workload, type: str) -> bool:
    """True if a condition became true, or is true again with a new transition time."""
    old, new = (_condition(before, type) if before is not None else ABSENT), _condition(after, type)
    return new.status and (not old.status or old.since != new.since)


SAME: Span = 15 * SECOND
"""Time within which an Event and a history event of the same kind are the same change."""
REMEMBERED = 20_000
"""Number of (kind, workload) pairs whose history events are remembered."""
OF_A_KIND = 64
"""Most remembered history events of one kind about one workload: enough for a day of preemption loops."""
EVICTED_DUE_TO = "EvictedDueTo"
"""Kueue's prefix of the reasons of evictions, such as EvictedDueToPreempted."""
_WHAT = {
    "QuotaReserved": HistoryEventKind.RESERVED,
    "Admitted": HistoryEventKind.ADMITTED,
    "Preempted": HistoryEventKind.PREEMPTED,
}
"""Reason → kind of history event. The reason why a workload is pending is in its conditions."""
_UNSCHEDULABLE = "FailedScheduling"


class KubeEventReader:
    """Converts Kubernetes Events to history events. Mutable: remembers recent ones to avoid duplicates."""

    def __init__(self, chronicler: ChangeEvents, workload: Callable[[str], Workload | None]) -> None:
        self._chronicler = chronicler
        self._workload = workload
        self._lately: OrderedDict[tuple[HistoryEventKind, str], deque[tuple[Time, str]]] = OrderedDict()

    def note_written(self, line: HistoryEvent) -> None:
        """Remember a history event of an object change, so that Kubernetes Events about that change add nothing."""
        key = (line.what, line.workload or line.pod)
        self._lately.setdefault(key, deque(maxlen=OF_A_KIND)).append((line.time, line.message))
        self._lately.move_to_end(key)
        if len(self._lately) > REMEMBERED:
            self._lately.popitem(last=False)

    def lines(self, event: CoreEvent) -> Iterator[HistoryEvent]:
        """Yield the history events that a Kubernetes Event adds."""
        line = self._line(event)
        if line is None or self._known(line):
            return
        self.note_written(line)
        yield line

    def _known(self, line: HistoryEvent) -> bool:
        times = self._lately.get((line.what, line.workload or line.pod))
        # If a workload was admitted at the same time, its admission has been reported instead.
        if line.what is HistoryEventKind.RESERVED and _lately(
            self._lately.get((HistoryEventKind.ADMITTED, line.workload), ()), line.time
        ):
            return True
        if not times:
            return False
        return _lately(times, line.time) or (line.what is HistoryEventKind.PENDING and times[-1][1] == line.message)

    def _line(self, event: CoreEvent) -> HistoryEvent | None:
        if event.kind == "Pod" and event.reason == _UNSCHEDULABLE:
            return HistoryEvent(
                time=event.time,
                what=HistoryEventKind.PENDING,
                pod=event.key,
                reason="Unschedulable",
                message=event.message,
            )
        if event.kind != "Workload":
            return None
        evicted = event.reason.startswith(EVICTED_DUE_TO)
        what = HistoryEventKind.EVICTED if evicted else _WHAT.get(event.reason)
        if what is None:
            return None
        namespace, _, name = event.key.rpartition("/")
        workload = self._workload(event.key) or Workload(namespace=namespace, name=name)
        reason = event.reason.removeprefix(EVICTED_DUE_TO) if evicted else ""
        if what is HistoryEventKind.PREEMPTED:
            reason = rule_in(event.message) or ""
        return self._chronicler.said(what, workload, event.time, reason, event.message)


def _lately(times: Iterable[tuple[Time, str]], at: Time) -> bool:
    return any(abs(at - time) <= SAME for time, _ in times)
