"""Trial admission on an empty cluster, to find workloads that Kueue can never admit."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from gpuconsole.insight.blockers import dominant_blocker
from gpuconsole.insight.pending_reasons import PendingReason
from gpuconsole.insight.unblock.trial import examined
from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.autoscaling.policy import Capacity, FixedCapacity

FOR_GOOD = (PendingReason.EXCEEDS_MAX, PendingReason.QUOTA, PendingReason.FLAVOR_MISMATCH, PendingReason.TOPOLOGY)
"""Reasons that are permanent if they occur on the empty cluster."""
Refusal = tuple[PendingReason, str]
_PASSING = "node.kubernetes.io/"
"""Prefix of the node controller's taints, which are temporary."""


def repaired(node: Node) -> Node:
    """Return the node as healthy: ready, not cordoned, without the node controller's taints."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(_PASSING))
    return replace(node, ready=True, unschedulable=False, taints=taints)


def all_nodes(snapshot: Snapshot, capacity: Capacity) -> tuple[Node, ...]:
    """Return all nodes as healthy if their number is fixed; empty if nodes can be provisioned or none are known."""
    fixed = isinstance(capacity, FixedCapacity) and not len(snapshot.node_pools)
    return tuple(map(repaired, snapshot.nodes.all())) if fixed else ()


class EmptyCluster:
    """The queues of a cluster and its nodes, all healthy, without any work. Mutates nothing."""

    def __init__(self, snapshot: Snapshot, config: KueueConfig, capacity: Capacity, namespaces: Iterable[str]) -> None:
        """`namespaces` are those of the work to try: manifests rarely contain them."""
        self._cluster = AdmissionSimulator(KueueSession(config), 0)
        self._topologies = bool(all_nodes(snapshot, capacity))
        """False if nodes can be provisioned or none are known: topology domains may be added."""
        self._known: dict[tuple[str, bytes], Refusal | None] = {}
        for name in sorted(set(namespaces)):
            self._cluster.apply(Namespace(name=name))
        for obj in snapshot.objects():
            match obj:
                case Workload() | Job() | Pod():
                    pass
                case Node():
                    self._cluster.apply(repaired(obj))
                case _:
                    self._cluster.apply(obj)
        # Compile the applied objects once for all forks.
        self._cluster.wake()

    def refusal(self, namespace: str, queue: str, pod_sets: Sequence[PodSet]) -> Refusal | None:
        """Return why Kueue would never admit such a workload, as code and message; None if it would, or if that is
        unknown.
        """
        key = f"{namespace}/{queue}", msgspec.msgpack.encode(pod_sets)
        if key not in self._known:
            self._known[key] = self._asked(namespace, queue, tuple(pod_sets))
        return self._known[key]

    def _asked(self, namespace: str, queue: str, pod_sets: tuple[PodSet, ...]) -> Refusal | None:
        alone = Workload(namespace=namespace, name="asked", uid="asked", queue=queue, created=0, pod_sets=pod_sets)
        cluster = self._cluster.fork()
        cluster.apply(alone)
        entry = examined(cluster, alone.key)
        code = dominant_blocker(entry) if entry is not None else None
        if entry is None or code not in FOR_GOOD or (code is PendingReason.TOPOLOGY and not self._topologies):
            return None
        return code, entry.message
