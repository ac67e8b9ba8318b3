"""Machines of node pools and groups: launched, joined as nodes, drained, interrupted, removed; and their cost.

The functions change the world. A spot interruption has two minutes' notice, in which the node is cordoned and drained
so that workloads can write a checkpoint; then the machine is gone with everything on it. Karpenter deletes its node as
soon as it is empty; any other node stays until the interruption. Critical work gets on-demand machines only, once it
has lost a spot node.
"""

from msgspec.structs import replace

from gpuconsole.model.autoscaling import (
    CAPACITY_TYPE,
    GROUP,
    INSTANCE_TYPE,
    ON_DEMAND,
    POOL,
    SPOT,
    ZONE,
    InstanceTypeCatalogue,
    NodeGroup,
    NodePool,
    Offering,
    ProvisionedInstance,
)
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.labels import NO_LABELS, Taint
from gpuconsole.model.prices import is_spot
from gpuconsole.sim.autoscaling.disruption import DO_NOT_DISRUPT, EvictionAllowances, annotation_of
from gpuconsole.sim.autoscaling.provisioning import node_of, with_taint
from gpuconsole.sim.controllers import nodes
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, NoChange, Refusal
from gpuconsole.sim.kernel import AutoscalerAction, AutoscalerTick
from gpuconsole.sim.policy import (
    INTERRUPTED,
    MONTH,
    SPOT_INTERRUPTION,
    AutoscalerPolicy,
    FixedCapacity,
    KarpenterPolicy,
)
from gpuconsole.sim.run_times import random_for
from gpuconsole.sim.world import World

DISRUPTED = Taint("karpenter.sh/disrupted")
TO_BE_DELETED = Taint("ToBeDeletedByClusterAutoscaler")
NO_CATALOGUE = InstanceTypeCatalogue()


def record_event(world: World, reason: str, message: str, *, node: str = "", about: str = "", pod: str = "") -> None:
    """Add an event of an autoscaler or the cloud to the history, unless it repeats the last one of its subject."""
    subject = about or node
    text = f"{reason}: {message}"
    if subject:
        if world.autoscaler_state.last_messages.get(subject) == text:
            return
        world.autoscaler_state.last_messages[subject] = text
    world.record_event(HistoryEventKind.CAPACITY, reason=reason, message=message, node=node, pod=pod)


def group_of(world: World, name: str) -> NodeGroup:
    """Return the node group that holds the machines of a pool or group; an empty one if it has none yet."""
    found: NodeGroup | None = world.state.table("node_groups").get(name)
    return found or NodeGroup(name=name, autoscaler=str(world.policy.capacity.__struct_config__.tag))


def find_machine(world: World, node: str) -> tuple[NodeGroup, ProvisionedInstance] | None:
    """Return the group and the machine of a node; None if no group launched it."""
    for group in world.state.table("node_groups").all():
        for instance in group.instances:
            if instance.name == node:
                return group, instance
    return None


def store_machine(world: World, instance: ProvisionedInstance) -> None:
    """Store the new state of a machine in its group, in place of its previous state."""
    found = find_machine(world, instance.name)
    if found is not None:
        group = found[0]
        changed = tuple(instance if one.name == instance.name else one for one in group.instances)
        world.put(replace(group, instances=changed))


def launch(world: World, name: str, offering: Offering) -> ProvisionedInstance:
    """Add a launched machine to the group `name`; its node joins only if `start_machine` is called."""
    group = group_of(world, name)
    number = group.launched + 1
    instance = ProvisionedInstance(
        name=f"{name}-{number}",
        type=offering.type.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price=offering.price,
        list_price=offering.type.on_demand or 0.0,
        gpus=offering.type.gpus,
        launched=world.now,
    )
    world.put(replace(group, instances=(*group.instances, instance), launched=number))
    return instance


def start_machine(world: World, instance: ProvisionedInstance) -> None:
    """Set the timer at which the machine's node joins, after a start-up time drawn from the policy."""
    policy = world.policy.capacity
    assert not isinstance(policy, FixedCapacity)
    wait = policy.startup.sample(random_for(world.seed, "startup", instance.name))
    world.kernel.set_timer(
        max(world.now, instance.launched + wait), AutoscalerTick(AutoscalerAction.JOIN, instance.name)
    )


def join_node(world: World, name: str) -> None:
    """Add the node of a started machine."""
    found = find_machine(world, name)
    policy = world.policy.capacity
    if found is None or isinstance(policy, FixedCapacity) or found[1].ready is not None:
        return
    group, instance = found
    kind = policy.catalogue.types[instance.type]
    labels, taints = _group_labels_and_taints(world, policy, group.name, instance)
    node = node_of(instance, kind, world.now, labels, taints, world.policy.equipment)
    store_machine(world, replace(instance, ready=world.now))
    world.put(node)
    world.record_event(HistoryEventKind.NODE_UP, node=name, **world.devices.of_node(node))
    world.autoscaler_state.last_pod_event[name] = world.now
    world.autoscaler_state.batched_pods = ()
    world.autoscaler_state.has_changes = True
    set_node_timers(world, name)


def set_node_timers(world: World, name: str) -> None:
    """Set the timers of a node: expiry and spot interruption."""
    found, policy = find_machine(world, name), world.policy.capacity
    if found is None or isinstance(policy, FixedCapacity):
        return
    group, instance = found
    pool: NodePool | None = world.state.table("node_pools").get(group.name)
    if isinstance(policy, KarpenterPolicy) and pool is not None and pool.expire_after is not None:
        world.kernel.set_timer(
            max(world.now, instance.launched + pool.expire_after), AutoscalerTick(AutoscalerAction.EXPIRE, name)
        )
    kind = policy.catalogue.types.get(instance.type)
    rate = 0.0 if kind is None else kind.interrupted / 100 * world.policy.spot.interruptions
    if instance.capacity_type == SPOT and rate > 0:
        life = random_for(world.seed, "reclaim", name, instance.launched).expovariate(rate)
        world.kernel.set_timer(
            max(world.now, instance.launched + round(life * MONTH)), AutoscalerTick(AutoscalerAction.RECLAIM, name)
        )


def _group_labels_and_taints(
    world: World, policy: KarpenterPolicy | AutoscalerPolicy, group: str, instance: ProvisionedInstance
) -> tuple[dict[str, str], tuple[Taint, ...]]:
    """The labels and taints that a group gives its nodes."""
    if isinstance(policy, KarpenterPolicy):
        pool: NodePool | None = world.state.table("node_pools").get(group)
        labels = pool.labels if pool is not None else NO_LABELS
        return {**labels, POOL: group}, pool.taints if pool is not None else ()
    known = next(one for one in policy.groups if one.name == group)
    kind = "SPOT" if instance.capacity_type == SPOT else "ON_DEMAND"
    return {**known.labels, GROUP: group, "eks.amazonaws.com/capacityType": kind}, known.taints


def adopt_node(world: World, node: Node, group: str) -> None:
    """Treat an existing node as a machine of this group, at the catalogue's price."""
    policy = world.policy.capacity
    catalogue = NO_CATALOGUE if isinstance(policy, FixedCapacity) else policy.catalogue
    instance = ProvisionedInstance(
        name=node.name,
        type=node.labels.get(INSTANCE_TYPE, ""),
        zone=node.labels.get(ZONE, ""),
        capacity_type=node.labels.get(CAPACITY_TYPE, ON_DEMAND),
        price=catalogue.price(node.labels) or 0.0,
        list_price=catalogue.price({**node.labels, CAPACITY_TYPE: ON_DEMAND}) or 0.0,
        gpus=node.gpus,
        launched=world.now,
        ready=world.now,
    )
    known = group_of(world, group)
    world.put(replace(known, instances=(*known.instances, instance)))
    world.autoscaler_state.last_pod_event[node.name] = world.now


# Removal


def drain_node(world: World, name: str, reason: str, taint: Taint) -> None:
    """Taint the node, and evict its pods as their budgets allow.

    If its NodePool has a terminationGracePeriod, the node is removed after that in any case.
    """
    node, found = world.node(name), find_machine(world, name)
    if found is not None and found[1].leaving is None:
        store_machine(world, replace(found[1], leaving=world.now, reason=reason))
    if node is None:
        if found is not None:
            remove_machine(world, name)
        return
    if taint not in node.taints:
        world.put(with_taint(node, taint))
    world.autoscaler_state.draining[name] = None
    pool: NodePool | None = world.state.table("node_pools").get(found[0].name) if found is not None else None
    if pool is not None and pool.termination_grace is not None:
        world.kernel.set_timer(
            world.now + pool.termination_grace, AutoscalerTick(AutoscalerAction.GONE, name, node.uid)
        )
    evict_pods(world, name, reason)


def evict_pods(world: World, name: str, reason: str, deadline: Time | None = None) -> None:
    """Evict the pods of a node that may be evicted now; the rest is retried after a change.

    `deadline` is when the node is gone: it limits the pods' time to write a checkpoint.
    """
    everyone = [pod for pod in world.state.table("pods").all() if not pod.done]
    allowances = EvictionAllowances(world.state.table("pod_disruption_budgets").all(), everyone)
    for pod in [pod for pod in everyone if pod.node == name]:
        current = world.pod(pod.key)
        if (
            current is None
            or current.deleted
            or annotation_of(pod, DO_NOT_DISRUPT) == "true"
            or allowances.blocker(pod)
        ):
            continue
        allowances.note_eviction(pod)
        notice = pod.template.grace_period
        if deadline is not None:
            notice = min(notice, deadline - world.now)
        nodes.evict_pod(world, current, reason=reason, message=f"node {name} is drained: {reason}", notice=notice)


def is_drained(world: World, name: str) -> bool:
    """True if no pod uses the node."""
    pods: list[Pod] = list(world.state.table("pods").all())
    return not any(pod.node == name and not pod.done for pod in pods)


def remove_machine(world: World, name: str) -> None:
    """Remove the machine with any remaining pods, and add its cost to the group's."""
    found, node = find_machine(world, name), world.node(name)
    if found is not None:
        group, instance = found
        left = tuple(one for one in group.instances if one.name != name)
        lost = int(instance.reason == "SpotInterruption")
        spent = group.spent + instance.cost(world.now)
        world.put(
            replace(group, instances=left, gone=group.gone + 1, spent=spent, interrupted=group.interrupted + lost)
        )
    if node is not None:
        nodes.remove_node(world, node)
    world.autoscaler_state.forget_node(name)
    world.autoscaler_state.batched_pods = ()


SPOT_WARNING = "Spot interruption warning was triggered"


def order_interruption(world: World, name: str) -> Refusal:
    """Interrupt a spot node, or return why that is not possible."""
    node = world.node(name)
    if node is None:
        return f"there is no node {name}"
    if not is_spot(node.labels):
        return f"node {name} is not spot capacity: it lacks a label such as karpenter.sh/capacity-type: spot"
    if name in world.autoscaler_state.interruption_ends:
        return NoChange(f"node {name} is already being reclaimed")
    notify_interruption(world, node)
    return CARRIED_OUT


def reclaim_spot(world: World, name: str) -> None:
    """Give notice to a spot node whose random interruption is due, unless it is leaving already."""
    node, found = world.node(name), find_machine(world, name)
    if (
        node is not None
        and name not in world.autoscaler_state.interruption_ends
        and (found is None or found[1].leaving is None)
    ):
        notify_interruption(world, node)


def notify_interruption(world: World, node: Node) -> None:
    """Interruption notice: drain the node at once, and remove it when the notice is over."""
    fleet, spot = world.autoscaler_state, world.policy.spot
    deadline = world.now + spot.notice
    fleet.interruption_ends[node.name] = deadline
    world.record_event(
        HistoryEventKind.CAPACITY,
        reason=INTERRUPTED,
        message=SPOT_WARNING,
        node=node.name,
        **world.devices.of_node(node),
    )
    found = find_machine(world, node.name)
    if found is not None:
        instance = found[1]
        fleet.unavailable_until[f"{instance.type}/{instance.zone}/spot"] = world.now + spot.retry_after
        store_machine(world, replace(instance, leaving=world.now, reason=SPOT_INTERRUPTION))
    _remember_critical(world, node.name)
    if isinstance(world.policy.capacity, KarpenterPolicy):
        world.put(with_taint(node, DISRUPTED))
        fleet.draining[node.name] = None
    else:
        nodes.set_cordoned(world, node, True)
    evict_pods(world, node.name, SPOT_INTERRUPTION, deadline)
    world.kernel.set_timer(deadline, AutoscalerTick(AutoscalerAction.GONE, node.name, node.uid))


def remove_interrupted(world: World, timer: AutoscalerTick) -> None:
    """Remove a machine whose interruption notice or terminationGracePeriod is over."""
    node = world.node(timer.node)
    if node is not None and node.uid == timer.uid:
        remove_machine(world, timer.node)
    world.autoscaler_state.interruption_ends.pop(timer.node, None)


def _remember_critical(world: World, name: str) -> None:
    bound = world.policy.spot.critical
    if bound is None:
        return
    for pod in nodes.pods_on(world, name):
        if pod.priority >= bound:
            world.autoscaler_state.lost_spot_workloads[pod.workload or pod.job or pod.key] = None
