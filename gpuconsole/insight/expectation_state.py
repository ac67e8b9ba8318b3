"""State of a cluster since the last check, and the objects that a scenario's names mean.

State of a cluster and events since the last check, in the terms of a scenario's `expect`.

Names in a scenario, resolved to the objects that have existed so far.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, every, quota_tree
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import UNDER_WAY, PendingReason
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import Applied, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.queues import ClusterQueue, Cohort, LocalQueue
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.model.workloads import Workload

_DEEPEST = 4
"""Maximum length of an owner chain: a pod belongs to a job, which may belong to another; cycles end here."""


class UnknownName(LookupError):
    """A name that no object has had so far; the text has the name and the expected kind."""


class ObjectNames:
    """Index of all objects in a stream of events, by name. Mutates by `see`."""

    def __init__(self) -> None:
        self._subjects: dict[str, str] = {}
        """Display name (`ns/name`) → key in history: of a Workload, job or pod."""
        self._labels: dict[str, str] = {}
        self._pods: dict[str, set[str]] = {}
        """Bare name → keys."""
        self._owners: dict[str, str] = {}
        """Pod or job → the Workload or job that it belongs to."""
        self._queues: set[str] = set()
        self._nodes: set[str] = set()

    def copy(self) -> "ObjectNames":
        """Return an independent copy."""
        twin = ObjectNames()
        twin._subjects, twin._labels = self._subjects.copy(), self._labels.copy()
        twin._pods = {name: keys.copy() for name, keys in self._pods.items()}
        twin._owners = self._owners.copy()
        twin._queues, twin._nodes = self._queues.copy(), self._nodes.copy()
        return twin

    def see(self, events: Iterable[Event]) -> None:
        """Add the objects of these events."""
        for event in events:
            match event:
                case Applied(_, Workload() as workload):
                    self._workload(workload)
                case Applied(_, Job() as job):
                    self._job(job)
                case Applied(_, Pod() as pod):
                    self._pods.setdefault(pod.name, set()).add(pod.key)
                    self._subjects.setdefault(pod.key, pod.key)
                    self._owners[pod.key] = pod.workload or pod.job
                case Applied(_, Node() as node):
                    self._nodes.add(node.name)
                case Applied(_, ClusterQueue(cohort=cohort) as queue):
                    # A cohort may be implicit: queues name it although no Cohort object exists.
                    self._queues.update({queue.name, cohort} - {""})
                case Applied(_, Cohort() | LocalQueue() as queue):
                    self._queues.add(queue.key)

    def knows(self, name: str) -> bool:
        """True if a workload, job or pod of this name has existed."""
        return name in self._subjects

    def subject(self, name: object) -> str:
        """Return the key of a workload, job or single pod by its display name. Raises UnknownName."""
        found = self._subjects.get(str(name))
        if found is None:
            raise UnknownName(f"no workload, job or pod {_shown(name)} exists; use namespace/name")
        return found

    def label(self, key: str) -> str:
        """Return the display name of a subject: a Workload of a job has the job's name."""
        return self._labels.get(key, key)

    def top(self, key: str) -> str:
        """Return the key that represents a pod or job in a list of work: of its Workload, else of the outermost job."""
        for _ in range(_DEEPEST):
            key = self._owners.get(key) or key
        return key

    def pod(self, name: object) -> str:
        """Return the key of a pod by its key or, if unique, by its name alone. Raises UnknownName."""
        text = str(name)
        bare = text.rpartition("/")[2]
        keys = [key for key in self._pods.get(bare, ()) if text in (key, bare)]
        if len(keys) != 1:
            raise UnknownName(
                f"pod name {_shown(name)} is ambiguous; use namespace/name" if keys else f"no pod {_shown(name)} exists"
            )
        return keys[0]

    def node(self, name: object) -> str:
        """Check the name of a node and return it. Raises UnknownName."""
        if str(name) not in self._nodes:
            raise UnknownName(
                f"no node {_shown(name)} exists; there are {', '.join(sorted(self._nodes)[:8]) or 'none'}"
            )
        return str(name)

    def queue(self, name: object) -> str:
        """Check the name of a ClusterQueue or cohort, or the key of a LocalQueue, and return it. Raises UnknownName."""
        if str(name) not in self._queues:
            raise UnknownName(
                f"no queue {_shown(name)} exists; there are {', '.join(sorted(self._queues)[:8]) or 'none'}"
            )
        return str(name)

    def _workload(self, workload: Workload) -> None:
        self._subjects[workload.key] = workload.key
        if workload.owner:
            _, _, called = workload.owner.partition("/")
            self._subjects[workload.owner] = self._subjects[called] = workload.key
            self._labels[workload.key] = called

    def _job(self, job: Job) -> None:
        called = f"{job.namespace}/{job.name}"
        self._owners[job.key] = job.owner
        self._labels.setdefault(job.key, called)
        # If the job is queued, these names refer to its Workload.
        self._subjects.setdefault(job.key, job.key)
        self._subjects.setdefault(called, job.key)


def _shown(name: object) -> str:
    return clean(repr(name), 80)


DELETED = "Deleted"
"""Reason of a pod that a user deleted: it was not evicted."""


class ExpectationState:
    """State of a cluster, and the events since the last check."""

    def __init__(self, snapshot: Snapshot, lines: Sequence[HistoryEvent], names: ObjectNames, queued: bool) -> None:
        self.snapshot = snapshot
        self.lines = lines
        self.names = names
        self.queued = queued
        """False without queueing: work whose pods are scheduled then counts as admitted."""

    @cached_property
    def admitted(self) -> list[str]:
        """Display names of the workloads that are admitted and not terminating."""
        workloads = self.snapshot.workloads.all()
        keys = [w.key for w in workloads if w.admitted and not w.finished and not w.is_true("Evicted")]
        if not self.queued:
            keys += [key for key in self._unqueued if explain(self.snapshot, key).code is PendingReason.NOT_WAITING]
        return sorted(self.names.label(key) for key in keys)

    @cached_property
    def pending(self) -> dict[str, str]:
        """Display name of pending work → reason code."""
        keys = [workload.key for workload in self.snapshot.workloads.all()] + self._unqueued
        codes = ((key, explain(self.snapshot, key).code) for key in keys)
        return {
            self.names.label(key): code.value
            for key, code in sorted(codes)
            if code not in (PendingReason.NOT_WAITING, *UNDER_WAY)
        }

    def code(self, key: str) -> PendingReason:
        """Reason code of a piece of work."""
        return explain(self.snapshot, key).code

    @cached_property
    def evicted(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """(victim, preemptor, reasons) of each eviction; a preemption has both its rule and `Preempted` as reasons."""
        rules = {line.workload: line.reason for line in self.lines if line.what is HistoryEventKind.PREEMPTED}
        return sorted(
            (self.names.label(subject), self.names.label(line.by), (rules.get(subject, line.reason), line.reason))
            for line in self.lines
            if line.what in (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED) and line.reason != DELETED
            for subject in [line.pod if line.what is HistoryEventKind.POD_EVICTED else line.workload]
        )

    @cached_property
    def queues(self) -> dict[str, QuotaNode]:
        """Every node of the quota tree by name; a ClusterQueue comes before a cohort of the same name."""
        found: dict[str, QuotaNode] = {}
        for node, _ in every(quota_tree(self.snapshot)):
            if node.name not in found or node.kind is NodeKind.CLUSTER_QUEUE:
                found[node.name] = node
        return found

    def on_node(self, node: str) -> list[str]:
        """Keys of the pods that are bound to a node."""
        return sorted(pod.key for pod in self.snapshot.pods.all() if pod.node == node and not pod.done)

    @property
    def free_nodes(self) -> int:
        """Number of schedulable nodes without pods, which could be removed."""
        busy = {pod.node for pod in self.snapshot.pods.all() if not pod.done}
        return sum(node.ready and node.name not in busy for node in self.snapshot.nodes.all())

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours of lost work; PREEMPTED lines are left out, as they repeat the loss of their EVICTED lines."""
        return sum(line.lost_gpu_seconds for line in self.lines if line.what is not HistoryEventKind.PREEMPTED) / 3600

    @property
    def cost(self) -> float:
        """USD of the lost work."""
        return sum(line.cost for line in self.lines if line.what is not HistoryEventKind.PREEMPTED)

    @cached_property
    def _unqueued(self) -> list[str]:
        """Jobs without a Workload, and pods without a job or Workload."""
        owners = {workload.owner for workload in self.snapshot.workloads.all()}
        jobs = [job.key for job in self.snapshot.jobs.all() if job.key not in owners and not job.ended]
        pods = [p.key for p in self.snapshot.pods.all() if not (p.job or p.workload or p.done or p.deleted)]
        return jobs + pods
