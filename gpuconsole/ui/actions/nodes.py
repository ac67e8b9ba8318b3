"""What can be done with nodes, with the domains that they are in, and with their cost."""

from gpuconsole.ui.actions.action import Action, Scope

NODES: tuple[Action, ...] = (
    Action(
        id="node.cordon",
        keys=("c",),
        label="cordon",
        help="Cordon the node.",
        scope=Scope.NODE,
        changes=True,
        footer=True,
    ),
    Action(
        id="node.uncordon",
        keys=("u",),
        label="uncordon",
        help="Uncordon the node.",
        scope=Scope.NODE,
        changes=True,
        footer=True,
    ),
    Action(
        id="node.drain",
        keys=("r",),
        label="drain",
        help="Cordon the node and evict its pods.",
        scope=Scope.NODE,
        changes=True,
        dangerous=True,
        footer=True,
    ),
    Action(
        id="node.taint",
        keys=("t",),
        label="taint",
        help="Add a taint, key=value:Effect; NoExecute evicts pods that do not tolerate it.",
        scope=Scope.NODE,
        aliases=("taint",),
        changes=True,
        footer=True,
    ),
    Action(
        id="node.untaint",
        keys=("m t",),
        label="remove taint",
        help="Remove one of its taints, chosen from a list.",
        scope=Scope.NODE,
        aliases=("untaint",),
        changes=True,
    ),
    Action(
        id="node.fail",
        keys=("m f",),
        label="fail node",
        help="Let the node stop answering: its pods fail.",
        scope=Scope.NODE,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="node.restore",
        keys=("m r",),
        label="restore node",
        help="Bring a failed node back.",
        scope=Scope.NODE,
        changes=True,
    ),
    Action(
        id="node.left",
        keys=("left", "h"),
        label="left",
        help="Move to the node on the left in the map.",
        scope=Scope.NODE,
    ),
    Action(
        id="node.right",
        keys=("right", "l"),
        label="right",
        help="Move to the node on the right in the map.",
        scope=Scope.NODE,
    ),
    Action(
        id="node.layout",
        keys=("M",),
        label="map, list, inside",
        help="Change between the map of GPUs, the list of nodes, and what is inside them: NVLink, MIG, turns.",
        scope=Scope.NODE,
        footer=True,
    ),
    Action(
        id="node.colour",
        keys=("B",),
        label="colour by",
        help="Colour GPUs by state, queue, owner, age, use or temperature.",
        scope=Scope.NODE,
        footer=True,
    ),
)

TOPOLOGY: tuple[Action, ...] = (
    Action(
        id="topology.fold",
        keys=("left", "h"),
        label="fold",
        help="Fold what is below, or move to the domain above.",
        scope=Scope.TOPOLOGY,
        footer=True,
    ),
    Action(
        id="topology.unfold",
        keys=("right", "l"),
        label="unfold",
        help="Unfold what is below: blocks, racks, hosts.",
        scope=Scope.TOPOLOGY,
        footer=True,
    ),
)

COST: tuple[Action, ...] = (
    Action(
        id="cost.by",
        keys=("B",),
        label="whose cost",
        help="Divide the cost by queue, by team (namespace) or by workload.",
        scope=Scope.COST,
        footer=True,
    ),
)
