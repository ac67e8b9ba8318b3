"""Description of a node."""

from gpuconsole.model.cluster import Node
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.describing.parts import amounts, pod_list, taint_list
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.widgets.textpane import field


def node_facts(snapshot: Snapshot, node: Node) -> list[Painted]:
    """Conditions, capacity and pods of a node."""
    pods = [pod for pod in snapshot.pods.all() if pod.node == node.name and not pod.done]
    return [
        field("Ready", "yes" if node.ready else "no"),
        field("Cordoned", "yes" if node.unschedulable else "no"),
        *([field("Note", "synthesised: the input has no nodes")] if node.synthesised else []),
        *taint_list(node.taints),
        field("Capacity", amounts(node.capacity)),
        field("Allocatable", amounts(node.allocatable)),
        *pod_list(pods),
    ]
