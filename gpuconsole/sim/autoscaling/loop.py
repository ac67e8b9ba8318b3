"""Triggers the autoscalers: when pods or nodes have changed and nothing else is due, and when a timer is due."""

from typing import assert_never

from gpuconsole.model.autoscaling import GROUP, POOL
from gpuconsole.sim.autoscaling import cluster_autoscaler, karpenter, machines
from gpuconsole.sim.autoscaling.policy import AutoscalerPolicy, AutoscalerState, FixedCapacity, KarpenterPolicy
from gpuconsole.sim.kernel import Act, AutoscalerTick
from gpuconsole.sim.world import World


def begin(world: World) -> None:
    """Adopt the nodes of pools or groups, and create the initial nodes of groups."""
    policy = world.policy.capacity
    match policy:
        case FixedCapacity():
            return
        case KarpenterPolicy():
            label = POOL
        case AutoscalerPolicy():
            label = GROUP
        case _:
            assert_never(policy)
    for node in list(world.state.table("nodes").all()):
        if label in node.labels:
            machines.adopt(world, node, node.labels[label])
    if isinstance(policy, AutoscalerPolicy):
        cluster_autoscaler.fill(world, policy)
    for group in list(world.state.table("node_groups").all()):
        for instance in group.instances:
            machines.watch(world, instance.name)


def resume(world: World) -> None:
    """Resume from a cluster with known groups: starting machines keep starting, draining ones keep draining.

    Other state is unknown: unschedulable pods count as pending from now on.
    """
    if isinstance(world.policy.capacity, FixedCapacity):
        return
    world.fleet = AutoscalerState(stirred=world.fleet.stirred)
    for pod in world.state.table("pods").all():
        world.fleet.see(pod, world.now)
    for group in list(world.state.table("node_groups").all()):
        for instance in group.instances:
            if instance.ready is None:
                machines.start(world, instance)
            elif instance.leaving is None:
                machines.watch(world, instance.name)
            else:
                world.fleet.draining[instance.name] = None


def gather(world: World) -> bool:
    """Let the autoscalers react to changes of pods and nodes; True if they changed something themselves."""
    world.fleet.stirred = False
    before = len(world.out)
    policy = world.policy.capacity
    _finish_drains(world)
    match policy:
        case FixedCapacity():
            pass
        case KarpenterPolicy():
            karpenter.gather(world, policy)
        case AutoscalerPolicy():
            cluster_autoscaler.gather(world, policy)
        case _:
            assert_never(policy)
    return len(world.out) > before


def _finish_drains(world: World) -> None:
    """Remove drained nodes; on the others, evict pods that were blocked before."""
    for name in list(world.fleet.draining):
        found = machines.find(world, name)
        if machines.is_drained(world, name):
            machines.leave(world, name)
        elif found is not None:
            machines.evict(world, name, found[1].reason, world.fleet.interrupted.get(name))


def go_off(world: World, timer: AutoscalerTick) -> None:
    """Run what an autoscaler's timer that is due stands for, such as a scan or the joining of a node."""
    policy = world.policy.capacity
    match timer.act:
        case Act.JOIN:
            machines.join(world, timer.node)
        case Act.RECLAIM:
            machines.reclaim_spot(world, timer.node)
        case Act.GONE:
            machines.remove_interrupted(world, timer)
        case Act.EXPIRE:
            karpenter.expire(world, timer.node)
        case Act.PROVISION:
            if isinstance(policy, KarpenterPolicy):
                karpenter.provision_nodes(world, policy)
            elif isinstance(policy, AutoscalerPolicy):
                cluster_autoscaler.scan(world, policy)
        case Act.DISRUPT:
            if isinstance(policy, KarpenterPolicy):
                karpenter.disrupt(world, policy)
        case _:
            assert_never(timer.action)
