"""Spot interruptions: two minutes' notice, then the machine is gone with everything on it.

On notice the node is cordoned and drained at once, so that workloads can write a checkpoint while their replacement
pods wait for another node. Karpenter deletes its node as soon as it is empty; any other node stays until the
interruption. Critical work then gets on-demand machines only.
"""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.prices import is_spot
from gpuconsole.sim.autoscaling.machines import DISRUPTED, change, evict, find, leave
from gpuconsole.sim.autoscaling.node_fit import tainted
from gpuconsole.sim.autoscaling.policy import INTERRUPTED, SPOT_INTERRUPTION, KarpenterPolicy
from gpuconsole.sim.controllers import nodes
from gpuconsole.sim.controllers.refusals import DONE, NoChange, Refusal
from gpuconsole.sim.kernel import Act, AutoscalerTick
from gpuconsole.sim.world import World

SPOT_WARNING = "Spot interruption warning was triggered"


def order_interruption(world: World, name: str) -> Refusal:
    """Interrupt a spot node, or return why that is not possible."""
    node = world.node(name)
    if node is None:
        return f"there is no node {name}"
    if not is_spot(node.labels):
        return f"node {name} is not spot capacity: it lacks a label such as karpenter.sh/capacity-type: spot"
    if name in world.fleet.interrupted:
        return NoChange(f"node {name} is already being reclaimed")
    notify_interruption(world, node)
    return DONE


def reclaim_spot(world: World, name: str) -> None:
    """Give notice to a spot node whose random interruption is due, unless it is leaving already."""
    node, found = world.node(name), find(world, name)
    if node is not None and name not in world.fleet.interrupted and (found is None or found[1].leaving is None):
        notify_interruption(world, node)


def notify_interruption(world: World, node: Node) -> None:
    """Interruption notice: drain the node at once, and remove it when the notice is over."""
    fleet, spot = world.fleet, world.policy.spot
    deadline = world.now + spot.notice
    fleet.interrupted[node.name] = deadline
    world.tell(
        HistoryEventKind.CAPACITY,
        reason=INTERRUPTED,
        message=SPOT_WARNING,
        node=node.name,
        **world.devices.of_node(node),
    )
    found = find(world, node.name)
    if found is not None:
        instance = found[1]
        fleet.shunned[f"{instance.type}/{instance.zone}/spot"] = world.now + spot.shun
        change(world, replace(instance, leaving=world.now, reason=SPOT_INTERRUPTION))
    _remember_critical(world, node.name)
    if isinstance(world.policy.capacity, KarpenterPolicy):
        world.put(tainted(node, DISRUPTED))
        fleet.draining[node.name] = None
    else:
        nodes.cordon(world, node, True)
    evict(world, node.name, SPOT_INTERRUPTION, deadline)
    world.kernel.at(deadline, AutoscalerTick(Act.GONE, node.name, node.uid))


def remove_interrupted(world: World, timer: AutoscalerTick) -> None:
    """Remove a machine whose interruption notice or terminationGracePeriod is over."""
    node = world.node(timer.node)
    if node is not None and node.uid == timer.uid:
        leave(world, timer.node)
    world.fleet.interrupted.pop(timer.node, None)


def _remember_critical(world: World, name: str) -> None:
    bound = world.policy.spot.critical
    if bound is None:
        return
    for pod in nodes.pods_on(world, name):
        if pod.priority >= bound:
            world.fleet.fallen[pod.workload or pod.job or pod.key] = None
