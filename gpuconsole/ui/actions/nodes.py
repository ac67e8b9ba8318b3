"""Actions on nodes, topology domains and cost."""

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
        help="Add a taint (key=value:Effect); NoExecute evicts pods without a toleration.",
        scope=Scope.NODE,
        aliases=("taint",),
        changes=True,
        footer=True,
    ),
    Action(
        id="node.untaint",
        keys=("m t",),
        label="remove taint",
        help="Remove a taint chosen from a list.",
        scope=Scope.NODE,
        aliases=("untaint",),
        changes=True,
    ),
    Action(
        id="node.fail",
        keys=("m f",),
        label="fail node",
        help="Simulate a node failure: NotReady, and its pods fail.",
        scope=Scope.NODE,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="node.restore",
        keys=("m r",),
        label="restore node",
        help="Restore a failed node.",
        scope=Scope.NODE,
        changes=True,
    ),
    Action(
        id="node.left",
        keys=("left", "h"),
        label="left",
        help="Move one node to the left on the map.",
        scope=Scope.NODE,
    ),
    Action(
        id="node.right",
        keys=("right", "l"),
        label="right",
        help="Move one node to the right on the map.",
        scope=Scope.NODE,
    ),
    Action(
        id="node.layout",
        keys=("M",),
        label="layout",
        help="Cycle layout: GPU map, node list, devices (NVLink, MIG, time-slicing).",
        scope=Scope.NODE,
        footer=True,
    ),
    Action(
        id="node.colour",
        keys=("B",),
        label="colour by",
        help="Colour GPUs by state, queue, owner, age, utilization or temperature.",
        scope=Scope.NODE,
        footer=True,
    ),
)

TOPOLOGY: tuple[Action, ...] = (
    Action(
        id="topology.fold",
        keys=("left", "h"),
        label="fold",
        help="Fold the domain, or move to its parent.",
        scope=Scope.TOPOLOGY,
        footer=True,
    ),
    Action(
        id="topology.unfold",
        keys=("right", "l"),
        label="unfold",
        help="Unfold the domain: blocks, racks, hosts.",
        scope=Scope.TOPOLOGY,
        footer=True,
    ),
)

COST: tuple[Action, ...] = (
    Action(
        id="cost.by",
        keys=("B",),
        label="group by",
        help="Group cost by queue, team (namespace) or workload.",
        scope=Scope.COST,
        footer=True,
    ),
)
