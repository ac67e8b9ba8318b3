"""Where pods are: those of each node and those without one, kept from Snapshot to Snapshot."""

from collections.abc import Mapping, Sequence

from gpuconsole.insight.scan import changes
from gpuconsole.model.cluster import Pod
from gpuconsole.model.snapshot import Snapshot

Pods = Mapping[str, Pod]
"""Key → pod."""
NO_PODS: Pods = {}


class Whereabouts:
    """Pods that are not done, by node. Never changed after it was made; nodes without a change share their pods."""

    def __init__(self, rows: Sequence[Pod | None], by_node: Mapping[str, Pods]) -> None:
        self.rows = rows
        self.by_node = by_node
        """Node → its pods, in order of arrival; those without a node are under ``""``."""

    def on(self, node: str) -> Pods:
        return self.by_node.get(node, NO_PODS)

    @property
    def waiting(self) -> Pods:
        """Pods without a node."""
        return self.by_node.get("", NO_PODS)


NOWHERE = Whereabouts((), {})
_kept: list[Whereabouts] = [NOWHERE]


def whereabouts(snapshot: Snapshot) -> Whereabouts:
    """Where the pods of a Snapshot are; only nodes whose pods changed since the last call are looked at."""
    known = _kept[0]
    rows = snapshot.pods.rows
    if known.rows is not rows:
        known = _kept[0] = carried_on(known, rows)
    return known


def carried_on(old: Whereabouts, rows: Sequence[Pod | None]) -> Whereabouts:
    """The whereabouts after the rows changed."""
    gone, come = changes(old.rows, rows)
    nodes: dict[str, dict[str, Pod]] = {}
    for pod in gone:
        if not pod.done:
            _open(old, nodes, pod.node).pop(pod.key, None)
    for pod in come:
        if not pod.done:
            _open(old, nodes, pod.node)[pod.key] = pod
    return Whereabouts(rows, {**old.by_node, **nodes})


def _open(old: Whereabouts, nodes: dict[str, dict[str, Pod]], node: str) -> dict[str, Pod]:
    """A node's pods as a copy that may be changed."""
    if node not in nodes:
        nodes[node] = dict(old.on(node))
    return nodes[node]
