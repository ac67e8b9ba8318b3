"""Events of a live cluster: changes of objects joined from all watches, and history events derived from them.

Watches deliver messages in any order, and each knows only its own kind. `OwnerJoin` assigns a pod to its Workload, even
if that arrives later, and turns changes of objects into the events that the rest of the console uses. `WorkloadPods`
keeps the pods of each Workload, including recently deleted ones, to know what ran when it was evicted.
`GpuIndexAllocator` assumes GPU indices of pods for display, the lowest free ones, because Kubernetes does not report
them.

`ChangeEvents` derives history events from the difference between two states of an object, because a watch reports
states, not changes. Kueue records what it does in conditions, with its own reasons and texts. `KubeEventReader` reads
Kubernetes Events, which also tell what Kueue and the schedulers did before the console connected or while it was
offline. An Event of the same kind about the same workload within 15 seconds (`SAME_CHANGE`) of a history event is the
same change, and is not reported again.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from gpuconsole.backends.kube.decode import CommandOutcome, CoreEvent, ObjectChanged, ObjectGone, WatchMessage
from gpuconsole.insight.index.gpu_time import gpu_time, uncheckpointed
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.device_requests import DeviceCounter
from gpuconsole.model.devices import ResourceClaim, ResourceClaimTemplate
from gpuconsole.model.events import SAME_CHANGE, Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import ClusterQueue, LocalQueue, StopPolicy
from gpuconsole.model.resources import gpus
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.apply_decisions import queued_since
from gpuconsole.scheduling.kueue.messages import preemptor_uid, rule_in

_PATH = re.compile(r"preemptor path: (\S*?);")
ABSENT = Condition("", False)


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
    return any(abs(at - time) <= SAME_CHANGE for time, _ in times)


LATELY: Span = MINUTE
"""Time for which a deleted pod is remembered, because its workload's eviction may be reported later."""


class WorkloadPods:
    """Finds the pods of a Workload, including recently deleted ones. Mutable; for one thread."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Pod]] = {}
        """Workload → key → pod."""
        self._workload: dict[str, str] = {}
        """Pod → its Workload."""
        self._gone: deque[tuple[Time, Pod]] = deque()
        self._left: dict[str, dict[str, tuple[Time, Pod]]] = {}
        """Workload → UID → pods of `_gone`."""

    def come(self, pod: Pod) -> None:
        """Add or update a pod."""
        if pod.workload:
            self._pods.setdefault(pod.workload, {})[pod.key] = pod
            self._workload[pod.key] = pod.workload

    def go(self, key: str, now: Time) -> None:
        """Remove a deleted pod."""
        workload = self._workload.pop(key, "")
        pods = self._pods.get(workload, {})
        pod = pods.pop(key, None)
        if not pods:
            self._pods.pop(workload, None)
        if pod is not None and not pod.done:
            self._gone.append((now, pod))
            self._left.setdefault(workload, {})[pod.uid] = (now, pod)
        while self._gone and self._gone[0][0] < now - LATELY:
            self._forget(self._gone.popleft()[1])

    def of(self, workload: str, at: Time) -> Collection[Pod]:
        """Return the pods that a Workload had at this recent time, including those deleted since."""
        left = [pod for time, pod in self._left.get(workload, {}).values() if time >= at]
        return [*left, *(pod for pod in self._pods.get(workload, {}).values() if pod.created <= at)]

    def _forget(self, pod: Pod) -> None:
        left = self._left[pod.workload]
        left.pop(pod.uid, None)
        if not left:
            del self._left[pod.workload]


class GpuIndexAllocator:
    """Assumes for each pod which GPUs of its node it has. Mutable; a pod keeps its indices while it holds its node."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        """Node → its taken indices, as bits."""
        self._pods: dict[str, tuple[str, tuple[int, ...]]] = {}

    def allocate(self, pod: Pod) -> Pod:
        """Return the pod with GPU indices assigned; without any if it is not bound to a node or has finished."""
        wanted = gpus(pod.template.requests) if pod.node and not pod.done else 0
        node, indices = self._pods.get(pod.key, ("", ()))
        if (node, len(indices)) != (pod.node, wanted):
            self.release(pod.key)
            indices = self._sit(pod, wanted) if wanted else ()
        return replace(pod, gpus=indices, guessed=True) if indices else pod

    def release(self, pod: str) -> None:
        """Release the indices of a pod."""
        node, indices = self._pods.pop(pod, ("", ()))
        for index in indices:
            self._taken[node] &= ~(1 << index)

    def _sit(self, pod: Pod, wanted: int) -> tuple[int, ...]:
        taken = self._taken.get(pod.node, 0)
        indices: list[int] = []
        index = 0
        while len(indices) < wanted:
            if not taken >> index & 1:
                indices.append(index)
                taken |= 1 << index
            index += 1
        self._taken[pod.node] = taken
        self._pods[pod.key] = (pod.node, tuple(indices))
        return self._pods[pod.key][1]


REMEMBERED_WORKLOADS = 50_000
"""Number of deleted workloads that are kept, because they may be named as preemptors."""
PATIENCE: Span = 5 * SECOND
"""Time for which a Kubernetes Event is held back, as the change of its object may report the same."""
DEEPEST = 4
"""Most levels of jobs that own each other which are followed from a pod."""


class OwnerJoin:
    """Turns watch messages into the console's events, by the state of all related objects. Mutable; for one thread."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        """Keys of jobs whose pods are kept even without GPUs. Other threads may test for a key."""
        self._workloads: dict[str, Workload] = {}
        self._jobs: dict[str, Job] = {}
        self._queues: dict[str, ClusterQueue | LocalQueue] = {}
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._of_owner: dict[str, str] = {}
        """Job → its Workload."""
        self._of_uid: dict[str, Workload] = {}
        self._alone: dict[str, set[str]] = {}
        """Job → its pods that have no Workload yet."""
        self._made: dict[str, dict[str, None]] = {}
        """Job → the jobs that it created, in the order of their arrival."""
        self._seats = GpuIndexAllocator()
        self._held: deque[ObjectChanged] = deque()
        self._members = WorkloadPods()
        self._devices = ClusterState()
        """Nodes and ResourceClaims, by which accelerators are counted."""
        self._chronicler = ChangeEvents(
            by_uid=self._of_uid.get,
            by_key=self._workloads.get,
            queue_of=self._queue_of,
            job_of=lambda workload: self._jobs.get(workload.owner),
            pods_of=self._members.of,
            devices=DeviceCounter.of_state(self._devices),
        )
        self._sayings = KubeEventReader(self._chronicler, self._workloads.get)

    def take(self, news: WatchMessage) -> list[Event]:
        """Return the events that follow from a watch message: object changes first, then history events."""
        events: list[Event] = []
        if isinstance(news, CommandOutcome):
            return [news.line]
        for event in self._put(news) if isinstance(news, ObjectChanged) else self._drop(news):
            if isinstance(event, HistoryEvent):
                self._sayings.note_written(event)
            events.append(event)
        return events

    def overdue(self, now: Time | None = None) -> list[Event]:
        """Return history events of the delayed Kubernetes Events, except of those that repeat an object change.

        With `now`, only those that have waited for the change long enough (`PATIENCE`).
        """
        lines: list[Event] = []
        while self._held and (now is None or self._held[0].time <= now - PATIENCE):
            held = self._held.popleft().obj
            if isinstance(held, CoreEvent):
                lines += self._sayings.lines(held)
        return lines

    def complete(self, lines: Sequence[HistoryEvent]) -> list[HistoryEvent]:
        """Complete the history of the first seconds with what all loaded objects show."""
        return list(self._chronicler.complete(lines))

    def workload(self, key: str) -> Workload | None:
        """Return a workload's latest state. Thread-safe."""
        return self._workloads.get(key)

    # Added and changed objects

    def _put(self, put: ObjectChanged) -> Iterator[Event]:
        now, obj = put.time, put.obj
        match obj:
            case CoreEvent():
                # The change of the object itself, with more details, usually arrives soon after its Event.
                self._held.append(put)
            case Workload():
                yield Applied(now, obj)
                yield from self._workload(obj, now, listed=put.listed)
            case Pod():
                yield from self._pod(obj, now)
            case Job():
                yield Applied(now, obj)
                self._jobs[obj.key] = obj
                if obj.owner:
                    self._made.setdefault(obj.owner, {})[obj.key] = None
                self.known.add(obj.key)
                yield from self._claim(obj.key, now)
            case Node():
                yield Applied(now, obj)
                before = self._nodes.get(obj.key)
                self._nodes[obj.key] = obj
                self._devices.apply(Applied(now, obj))
                if before is not None or not put.listed:
                    yield from self._chronicler.node(before, obj, now)
            case ClusterQueue() | LocalQueue():
                yield Applied(now, obj)
                known = self._queues.get(obj.key)
                self._queues[obj.key] = obj
                if known is not None or not put.listed:
                    yield from self._chronicler.queue(known, obj, now)
            case ResourceClaimTemplate() | ResourceClaim():
                yield (claim := Applied(now, obj))
                self._devices.apply(claim)
            case _:
                yield Applied(now, obj)

    def _workload(self, workload: Workload, now: Time, *, listed: bool) -> Iterator[Event]:
        before = self._workloads.get(workload.key)
        self._workloads[workload.key] = workload
        if workload.uid:
            self._of_uid[workload.uid] = workload
            if len(self._of_uid) > REMEMBERED_WORKLOADS + len(self._workloads):
                self._of_uid.pop(next(iter(self._of_uid)))
        if workload.owner:
            self.known.add(workload.owner)
            self._of_owner[workload.owner] = workload.key
        yield from self._chronicler.workload(before, workload, now, listed=listed)
        if before is None and workload.owner:
            yield from self._claim(workload.owner, now)

    def _pod(self, pod: Pod, now: Time) -> Iterator[Event]:
        before = self._pods.get(pod.key)
        joined = self._seats.allocate(self._with_workload(pod))
        self._pods[pod.key] = joined
        self._members.come(joined)
        yield Applied(now, joined)
        yield from self._chronicler.pod(before, joined, now)

    def _with_workload(self, pod: Pod) -> Pod:
        """Return the pod with its Workload: the one it names, if that exists, else its job's."""
        if pod.workload in self._workloads or not pod.job:
            return pod
        workload = self._workload_of(pod.job)
        if not workload:
            self._alone.setdefault(pod.job, set()).add(pod.key)
            return pod
        return replace(pod, workload=workload)

    def _workload_of(self, job: str) -> str:
        """Return the Workload of a job, or of a job that owns it."""
        for _ in range(DEEPEST):
            if job in self._of_owner:
                return self._of_owner[job]
            made = self._jobs.get(job)
            if made is None or not made.owner:
                return ""
            job = made.owner
        return ""

    def _claim(self, owner: str, now: Time) -> Iterator[Event]:
        """Assign pods that arrived before the Workload of their job (or of the job's owner)."""
        for job in (owner, *self._made.get(owner, ())) if self._alone else ():
            for key in self._alone.pop(job, ()):
                pod = self._pods.get(key)
                if pod is None:
                    continue
                joined = self._with_workload(pod)
                if joined is not pod:
                    self._pods[key] = joined
                    self._members.come(joined)
                    yield Applied(now, joined)

    def _queue_of(self, workload: Workload) -> str:
        """Return the ClusterQueue of a workload's LocalQueue; empty if unknown."""
        local_queue = self._queues.get(workload.local_queue)
        return local_queue.cluster_queue if isinstance(local_queue, LocalQueue) else ""

    # Deleted objects

    def _drop(self, drop: ObjectGone) -> Iterator[Event]:
        yield Deleted(drop.time, TABLES[drop.kind], drop.key)
        if drop.kind is Workload:
            yield from self._workload_gone(drop.key, drop.time)
        elif drop.kind is Pod:
            self._pods.pop(drop.key, None)
            self._members.go(drop.key, drop.time)
            self._seats.release(drop.key)
        elif drop.kind is Job:
            self._forget_job(drop.key)
            if drop.key not in self._of_owner:
                self.known.discard(drop.key)
        elif drop.kind is Node:
            node = self._nodes.pop(drop.key, None)
            yield from self._chronicler.node_gone(drop.key, node, drop.time)
            self._devices.apply(Deleted(drop.time, TABLES[Node], drop.key))
        elif drop.kind in (ResourceClaimTemplate, ResourceClaim):
            self._devices.apply(Deleted(drop.time, TABLES[drop.kind], drop.key))
        elif drop.kind in (ClusterQueue, LocalQueue):
            self._queues.pop(drop.key, None)

    def _forget_job(self, key: str) -> None:
        job = self._jobs.pop(key, None)
        made = self._made.get(job.owner) if job is not None else None
        if job is not None and made is not None:
            made.pop(key, None)
            if not made:
                del self._made[job.owner]

    def _workload_gone(self, key: str, now: Time) -> Iterator[Event]:
        workload = self._workloads.pop(key, None)
        if workload is None:
            return
        if self._of_owner.get(workload.owner) == key:
            del self._of_owner[workload.owner]
            if workload.owner not in self._jobs:
                self.known.discard(workload.owner)
        yield from self._chronicler.workload_gone(workload, now)
