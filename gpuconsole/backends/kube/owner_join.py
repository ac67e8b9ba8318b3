"""Joins the messages of all watches into events: pods to workloads, GPU indices to pods, names to history events.

Watches deliver messages in any order, and each knows only its own kind. `OwnerJoin` assigns a pod to its Workload, even
if that arrives later, and turns changes of objects into the events that the rest of the console uses. `WorkloadPods`
keeps the pods of each Workload, including recently deleted ones, to know what ran when it was evicted.
`GpuIndexAllocator` assumes GPU indices of pods for display, the lowest free ones, because Kubernetes does not report
them.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from gpuconsole.backends.kube.decode import CommandOutcome, CoreEvent, ObjectChanged, ObjectGone, WatchMessage
from gpuconsole.backends.kube.history_events import ChangeEvents, KubeEventReader
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.device_requests import DeviceCounter
from gpuconsole.model.devices import ResourceClaim, ResourceClaimTemplate
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent
from gpuconsole.model.job import Job
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.resources import gpus
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload

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
        self._taken: dict[str, set[int]] = {}
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
        self._taken.get(node, set()).difference_update(indices)

    def _sit(self, pod: Pod, wanted: int) -> tuple[int, ...]:
        taken = self._taken.setdefault(pod.node, set())
        indices: list[int] = []
        index = 0
        while len(indices) < wanted:
            if index not in taken:
                indices.append(index)
            index += 1
        taken.update(indices)
        self._pods[pod.key] = (pod.node, tuple(indices))
        return self._pods[pod.key][1]


REMEMBERED = 50_000
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
            if len(self._of_uid) > REMEMBERED + len(self._workloads):
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
