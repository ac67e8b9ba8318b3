"""Pods by node and by workload, updated incrementally from Snapshot to Snapshot."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.snapshot import Snapshot, row_changes

Pods = Mapping[str, Pod]
"""Key → pod."""
NO_PODS: Pods = {}


class PodsByNode:
    """Pods that have not finished, by node and by workload. Immutable; unchanged nodes share their pods."""

    def __init__(
        self,
        rows: Sequence[Pod | None],
        by_node: Mapping[str, Pods],
        by_workload: Mapping[str, Pods],
        succeeded: Mapping[str, int],
    ) -> None:
        self.rows = rows
        self.by_node = by_node
        """Node → its pods, in order of arrival; unscheduled pods are under ``""``."""
        self.by_workload = by_workload
        """Workload → its pods; those without one are under ``""``."""
        self.succeeded = succeeded
        """Workload → number of its succeeded pods, if any."""

    def on(self, node: str) -> Pods:
        """Return the pods on a node."""
        return self.by_node.get(node, NO_PODS)

    def of(self, workload: str) -> Pods:
        """Return the pods of a workload."""
        return self.by_workload.get(workload, NO_PODS)

    @property
    def waiting(self) -> Pods:
        """Unscheduled pods."""
        return self.by_node.get("", NO_PODS)


NO_PODS_BY_NODE = PodsByNode((), {}, {}, {})
_kept: list[PodsByNode] = [NO_PODS_BY_NODE]


def pods_by_node(snapshot: Snapshot) -> PodsByNode:
    """Group the pods of a Snapshot; only nodes whose pods changed since the last call are updated."""
    known = _kept[0]
    rows = snapshot.pods.rows
    if known.rows is not rows:
        known = _kept[0] = updated(known, rows)
    return known


def updated(old: PodsByNode, rows: Sequence[Pod | None]) -> PodsByNode:
    """Update the groups after the rows changed."""
    gone, come = row_changes(old.rows, rows)
    nodes: dict[str, dict[str, Pod]] = {}
    workloads: dict[str, dict[str, Pod]] = {}
    ended = Counter[str]()
    for pod in gone:
        if not pod.done:
            _open(old.on, nodes, pod.node).pop(pod.key, None)
            _open(old.of, workloads, pod.workload).pop(pod.key, None)
        elif pod.workload and pod.phase is PodPhase.SUCCEEDED:
            ended[pod.workload] -= 1
    for pod in come:
        if not pod.done:
            _open(old.on, nodes, pod.node)[pod.key] = pod
            _open(old.of, workloads, pod.workload)[pod.key] = pod
        elif pod.workload and pod.phase is PodPhase.SUCCEEDED:
            ended[pod.workload] += 1
    owners = {**old.by_workload, **workloads}
    for name in [name for name, pods in workloads.items() if not pods]:
        del owners[name]
    return PodsByNode(rows, {**old.by_node, **nodes}, owners, _added(old.succeeded, ended))


def _added(before: Mapping[str, int], more: Counter[str]) -> Mapping[str, int]:
    """Return the counts with these added; the same object if none are."""
    changed = {name: before.get(name, 0) + number for name, number in more.items() if number}
    if not changed:
        return before
    return {name: number for name, number in {**before, **changed}.items() if number}


def _open(before: Callable[[str], Pods], now: dict[str, dict[str, Pod]], name: str) -> dict[str, Pod]:
    """Return the pods of a node or a workload as a copy that may be changed."""
    if name not in now:
        now[name] = dict(before(name))
    return now[name]
