"""Failed and tainted nodes under workloads placed by topology (Kueue: TAS node controller)."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.labels import Taint
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.topology.node_failures import (
    TERMINATED,
    UNSCHEDULABLE,
    NodeFailureActions,
    NodeFailureInputs,
    examine,
)
from gpuconsole.sim.controllers import eviction, nodes, workloads
from gpuconsole.sim.controllers.ungating import ungate
from gpuconsole.sim.kernel import RecheckNode
from gpuconsole.sim.world import World

CORDONED = Taint("node.kubernetes.io/unschedulable")
"""The taint that Kubernetes puts on a cordoned node."""
UNHEALTHY = "UnhealthyNode"


def look(world: World, name: str) -> None:
    """Examine a node, and mark, ungate, evict or fail the workloads and pods that its state affects."""
    session = world.session
    if session is None or not session.places_pods:
        return
    known = NodeFailureInputs(
        world.state.table("workloads").freeze(),
        list(world.state.table("pods").all()),
        {flavor.name: flavor for flavor in world.state.table("flavors").all() if isinstance(flavor, ResourceFlavor)},
        session.config,
    )
    node = world.node(name)
    _carry_out(world, name, examine(name, _as_tainted(node), known, world.now))


def _as_tainted(node: Node | None) -> Node | None:
    if node is None or not node.unschedulable or CORDONED in node.taints:
        return node
    return replace(node, taints=(*node.taints, CORDONED))


def _carry_out(world: World, name: str, verdict: NodeFailureActions) -> None:
    for workload in verdict.changed:
        world.put(workload)
        if name in workload.unhealthy_nodes:
            _tell_lost(world, workload, name)
        else:
            ungate(world, workload)
    for key, message in verdict.evicted.items():
        victim = world.workload(key)
        if victim is not None:
            eviction.evict(world, victim, conditions.NODE_FAILURES, message)
    for pod in verdict.to_fail:
        current = world.pod(pod.key)
        if current is not None and not current.done:
            nodes.fail_pod(world, current, UNSCHEDULABLE, TERMINATED)
    if verdict.again:
        world.kernel.at(world.now + verdict.again, RecheckNode(name))


def _tell_lost(world: World, workload: Workload, name: str) -> None:
    message = f"Node {name} failed; the pods on it wait for another place"
    workloads.tell(world, HistoryEventKind.PLACES, workload, reason=UNHEALTHY, message=message, node=name)
