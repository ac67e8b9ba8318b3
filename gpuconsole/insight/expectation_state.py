"""State of a cluster and events since the last check, in the terms of a scenario's `expect`."""

from collections.abc import Sequence
from functools import cached_property

from gpuconsole.insight.names import ObjectNames
from gpuconsole.insight.pending import explain
from gpuconsole.insight.pending_reasons import UNDER_WAY
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, every
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot

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
