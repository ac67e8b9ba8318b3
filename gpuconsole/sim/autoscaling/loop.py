"""Triggers the autoscalers: when pods or nodes have changed and nothing else is due, and when a timer is due."""

from typing import assert_never

from gpuconsole.model.autoscaling import GROUP, POOL
from gpuconsole.sim.autoscaling import cluster_autoscaler, karpenter, machines
from gpuconsole.sim.kernel import AutoscalerAction, AutoscalerTick
from gpuconsole.sim.policy import AutoscalerPolicy, AutoscalerState, FixedCapacity, KarpenterPolicy
from gpuconsole.sim.world import World


def start_autoscaling(world: World) -> None:
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
            machines.adopt_node(world, node, node.labels[label])
    if isinstance(policy, AutoscalerPolicy):
        cluster_autoscaler.create_initial_machines(world, policy)
    for group in list(world.state.table("node_groups").all()):
        for instance in group.instances:
            machines.set_node_timers(world, instance.name)


def resume_autoscaling(world: World) -> None:
    """Resume from a cluster with known groups: starting machines keep starting, draining ones keep draining.

    Other state is unknown: unschedulable pods count as pending from now on.
    """
    if isinstance(world.policy.capacity, FixedCapacity):
        return
    world.autoscaler_state = AutoscalerState(has_changes=world.autoscaler_state.has_changes)
    for pod in world.state.table("pods").all():
        world.autoscaler_state.note_pod(pod, world.now)
    for group in list(world.state.table("node_groups").all()):
        for instance in group.instances:
            if instance.ready is None:
                machines.start_machine(world, instance)
            elif instance.leaving is None:
                machines.set_node_timers(world, instance.name)
            else:
                world.autoscaler_state.draining[instance.name] = None


def react_to_changes(world: World) -> bool:
    """Let the autoscalers react to changes of pods and nodes; True if they changed something themselves."""
    world.autoscaler_state.has_changes = False
    before = len(world.events)
    policy = world.policy.capacity
    _finish_drains(world)
    match policy:
        case FixedCapacity():
            pass
        case KarpenterPolicy():
            karpenter.react_to_changes(world, policy)
        case AutoscalerPolicy():
            cluster_autoscaler.schedule_scan(world, policy)
        case _:
            assert_never(policy)
    return len(world.events) > before


def _finish_drains(world: World) -> None:
    """Remove drained nodes; on the others, evict pods that were blocked before."""
    for name in list(world.autoscaler_state.draining):
        found = machines.find_machine(world, name)
        if machines.is_drained(world, name):
            machines.remove_machine(world, name)
        elif found is not None:
            machines.evict_pods(world, name, found[1].reason, world.autoscaler_state.interruption_ends.get(name))


def handle_timer(world: World, timer: AutoscalerTick) -> None:
    """Run what an autoscaler's timer that is due stands for, such as a scan or the joining of a node."""
    policy = world.policy.capacity
    match timer.action:
        case AutoscalerAction.JOIN:
            machines.join_node(world, timer.node)
        case AutoscalerAction.RECLAIM:
            machines.reclaim_spot(world, timer.node)
        case AutoscalerAction.GONE:
            machines.remove_interrupted(world, timer)
        case AutoscalerAction.EXPIRE:
            karpenter.expire_node(world, timer.node)
        case AutoscalerAction.PROVISION:
            if isinstance(policy, KarpenterPolicy):
                karpenter.provision_nodes(world, policy)
            elif isinstance(policy, AutoscalerPolicy):
                cluster_autoscaler.run_scan(world, policy)
        case AutoscalerAction.DISRUPT:
            if isinstance(policy, KarpenterPolicy):
                karpenter.run_disruption(world, policy)
        case _:
            assert_never(timer.action)
