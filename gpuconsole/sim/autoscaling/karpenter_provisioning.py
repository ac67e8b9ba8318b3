"""Karpenter's provisioning: batches unschedulable pods, plans nodes for them, and launches the machines."""

from collections.abc import Iterable

from gpuconsole.model.cluster import Pod
from gpuconsole.sim.autoscaling import machines
from gpuconsole.sim.autoscaling.offerings import PoolOffering, choose_offering, is_unavailable
from gpuconsole.sim.autoscaling.policy import KarpenterPolicy
from gpuconsole.sim.autoscaling.provisioning import PlannedNode, plan
from gpuconsole.sim.autoscaling.view import AutoscalerView
from gpuconsole.sim.kernel import Act, AutoscalerTick
from gpuconsole.sim.world import World

NO_CAPACITY = "insufficient capacity, all requested instance types were unavailable during launch"


def batch_pods(world: World, policy: KarpenterPolicy) -> None:
    """Batch unschedulable pods and pods of draining nodes; each new one extends the batch by a second, up to ten."""
    fleet, now = world.fleet, world.now
    known = set(fleet.batched)
    wanting = [*fleet.waiting, *(_homeless(world) if fleet.draining else ())]
    new = [key for key in wanting if key not in known]
    if not new:
        return
    if fleet.batch is None:
        fleet.batch = now
    fleet.batched = (*fleet.batched, *new)
    fleet.look = min(fleet.batch + policy.batch_most, now + policy.batch_idle)
    world.kernel.at(fleet.look, AutoscalerTick(Act.PROVISION))


def _homeless(world: World) -> list[str]:
    """Pods on draining nodes, whose owners will recreate them."""
    pods: Iterable[Pod] = world.state.table("pods").all()
    return [pod.key for pod in pods if pod.node in world.fleet.draining and not pod.done and (pod.job or pod.workload)]


def provision_nodes(world: World, policy: KarpenterPolicy) -> None:
    """End the batch: launch the nodes that its pods need."""
    fleet = world.fleet
    if fleet.look is None or world.now < fleet.look:
        return
    fleet.look = fleet.batch = None
    view = AutoscalerView(world, policy.catalogue)
    wanting = [*view.waiting, *view.homeless]
    if not wanting:
        return
    firm = [pod.key for pod in wanting if (pod.workload or pod.job or pod.key) in fleet.fallen]
    result = plan(wanting, view.rooms(), view.pools, view.shapes, firm)
    for key, reason in sorted(result.failed.items()):
        machines.say(world, "FailedScheduling", f"Failed to schedule pod, {reason}", about=f"Pod/{key}", pod=key)
    for planned in result.new:
        launch_planned(world, policy, planned)
    fleet.batched = tuple(pod.key for pod in wanting)
    _retry(world)


def _retry(world: World) -> None:
    """Retry the remaining pods when an unavailable offering may be tried again."""
    fleet = world.fleet
    later = min((until for until in fleet.shunned.values() if until > world.now), default=None)
    if later is not None and fleet.waiting and fleet.look is None:
        fleet.look = later
        world.kernel.at(later, AutoscalerTick(Act.PROVISION))


def launch_planned(world: World, policy: KarpenterPolicy, planned: PlannedNode, why: str = "") -> str:
    """Launch the planned node; returns its name, or an empty string if none of its offerings is available."""
    offer = _available(world, policy, planned)
    if offer is None:
        machines.say(world, "InsufficientCapacityError", NO_CAPACITY, about=f"NodePool/{planned.pool}")
        return ""
    instance = machines.launch(world, planned.pool, offer.offering)
    machines.start(world, instance)
    text = (
        f"Launching NodeClaim: {why}" if why else f"Launched {offer.type} ({instance.capacity_type}, {instance.zone})"
    )
    machines.say(world, "DisruptionLaunching" if why else "Launched", text, node=instance.name)
    return instance.name


def _available(world: World, policy: KarpenterPolicy, planned: PlannedNode) -> PoolOffering | None:
    """The offering to launch; an unavailable one is skipped for a while."""
    fleet, group = world.fleet, machines.group_of(world, planned.pool)

    def untried(offer: PoolOffering) -> bool:
        return fleet.shunned.get(offer.offering.key, world.now) <= world.now

    while (offer := choose_offering(planned.offers, group.instances, untried, world.policy.spot)) is not None:
        if not is_unavailable(offer.offering.key, policy.unavailable):
            return offer
        fleet.shunned[offer.offering.key] = world.now + world.policy.spot.shun
    return None
