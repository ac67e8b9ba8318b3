"""Scale-up of the Cluster Autoscaler: adds nodes to one group per scan, and gives up nodes that do not join in time."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.autoscaling import GROUP, SPOT, ProvisionedInstance, ProvisioningRequest, StoredTemplate
from gpuconsole.model.catalogue import Offering
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.objects import TABLES
from gpuconsole.scheduling.kueue.provisioning.controller import PROVISIONED
from gpuconsole.sim.autoscaling import groups, machines
from gpuconsole.sim.autoscaling.autoscaler_state import GroupBackoff
from gpuconsole.sim.autoscaling.groups import ExpansionOption
from gpuconsole.sim.autoscaling.node_fit import NodeFit, first_fit, node_of
from gpuconsole.sim.autoscaling.offerings import is_unavailable
from gpuconsole.sim.autoscaling.policy import AutoscalerPolicy, ScalingGroup
from gpuconsole.sim.autoscaling.view import AutoscalerView
from gpuconsole.sim.random_streams import draw
from gpuconsole.sim.world import World

FIRST_BACKOFF, LONGEST_BACKOFF = 5 * MINUTE, 30 * MINUTE
RESERVATION = 10 * MINUTE


def offering_of(policy: AutoscalerPolicy, group: ScalingGroup) -> Offering | None:
    """The offering that a group launches; None if it is not in the instance-type catalogue."""
    kind = policy.catalogue.types.get(group.type)
    if kind is None:
        return None
    if group.capacity_type == SPOT:
        zone = group.zone or next(iter(kind.spot), "")
        price = kind.spot.get(zone)
    else:
        zone = group.zone or next(iter(kind.zones), "")
        price = kind.on_demand if zone in kind.zones else None
    return None if price is None else Offering(kind, zone, group.capacity_type, price)


def starting(world: World) -> Iterable[ProvisionedInstance]:
    """Machines that were launched and have not joined yet."""
    for group in world.state.table("node_groups").all():
        yield from (instance for instance in group.instances if instance.ready is None)


def scale_up(world: World, policy: AutoscalerPolicy, view: AutoscalerView) -> bool:
    """Scale up one group for unschedulable pods; True if one grows."""
    old = [
        pod
        for pod in view.waiting
        if pod.priority >= policy.cutoff and world.fleet.waiting[pod.key] + policy.new_pod_delay <= world.now
    ]
    left = without_room(
        view, rooms_left(world, view, policy), sorted(old, key=lambda pod: (-pod.priority, pod.created, pod.key))
    )
    if not left:
        return False
    options, reasons = options_for(world, policy, view, left)
    random = draw(world.seed, "expander", world.now)
    best = groups.choose(options, policy.expander, random)
    if best is None:
        text = ", ".join(f"{count} {reason}" for reason, count in sorted(_counted(reasons).items()))
        for pod in left:
            message = f"pod didn't trigger scale-up: {text}" if text else "pod didn't trigger scale-up"
            machines.say(world, "NotTriggerScaleUp", message, about=f"Pod/{pod.key}", pod=pod.key)
        return False
    grow(world, policy, best, view)
    return True


def rooms_left(world: World, view: AutoscalerView, policy: AutoscalerPolicy) -> list[NodeFit]:
    """Free capacity of remaining and starting nodes of the groups, less what is promised to ProvisioningRequests."""
    there = [room for room in view.rooms() if room.node.name in view.nodes]
    known = {group.name: group for group in policy.groups}
    for instance in view.starting:
        group = known.get(instance.name.rpartition("-")[0])
        if group is not None and (template := _template(world, policy, group)) is not None:
            there.append(NodeFit(replace(template, name=instance.name)))
    for request in _promised(world):
        if not any(pod.workload == workload_of(request) for pod in view.everyone):
            without_room(view, there, pods_of(world, request))
    return there


def _promised(world: World) -> Iterable[ProvisioningRequest]:
    """ProvisioningRequests that hold capacity until their pods are created, for ten minutes."""
    for request in world.state.table(TABLES[ProvisioningRequest]).all():
        if any(c.type == PROVISIONED and c.status and world.now < c.since + RESERVATION for c in request.conditions):
            yield request


def workload_of(request: ProvisioningRequest) -> str:
    """The key of the Workload that owns a ProvisioningRequest; empty without an owner."""
    return f"{request.namespace}/{request.owners[0]}" if request.owners else ""


def without_room(view: AutoscalerView, rooms: Sequence[NodeFit], pods: Iterable[Pod]) -> list[Pod]:
    """Place pods first-fit, which takes capacity from `rooms`; returns those that fit nowhere."""
    return [pod for pod in pods if first_fit(rooms, view.shapes.of(pod.template)) is None]


def options_for(
    world: World, policy: AutoscalerPolicy, view: AutoscalerView, pods: Sequence[Pod]
) -> tuple[list[ExpansionOption], list[str]]:
    """The groups whose scale-up would help, and why the others would not."""
    options, reasons = [], []
    for group in policy.groups:
        backoff = world.fleet.backoffs.get(group.name)
        size = len(view.groups[group.name].instances) if group.name in view.groups else 0
        template, offering = _template(world, policy, group), offering_of(policy, group)
        if backoff is not None and world.now < backoff.until:
            reasons.append("in backoff after failed scale-up")
        elif template is None or offering is None:
            reasons.append("node group has no machine in the catalogue")
        elif size >= group.most:
            reasons.append("max node group size reached")
        elif option := groups.estimate(
            group, template, offering.price, _welcome(world, group, pods), group.most - size
        ):
            options.append(option)
        else:
            reasons.append("node(s) didn't fit the pod")
    return options, reasons


def _welcome(world: World, group: ScalingGroup, pods: Sequence[Pod]) -> Sequence[Pod]:
    """The pods that a group may take: critical work that lost a spot node does not wait for another spot node."""
    if group.capacity_type != SPOT:
        return pods
    return [pod for pod in pods if (pod.workload or pod.job or pod.key) not in world.fleet.fallen]


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def _template(world: World, policy: AutoscalerPolicy, group: ScalingGroup) -> Node | None:
    """A template node of the group."""
    offering = offering_of(policy, group)
    if offering is None:
        return None
    instance = ProvisionedInstance(name="", type=group.type, zone=offering.zone, capacity_type=group.capacity_type)
    return node_of(
        instance, offering.type, 0, {**group.labels, GROUP: group.name}, group.taints, world.policy.equipment
    )


def grow(world: World, policy: AutoscalerPolicy, option: ExpansionOption, view: AutoscalerView) -> None:
    """Request machines for a group. Unavailable ones never join, which is noticed after the provisioning timeout."""
    offering = offering_of(policy, option.group)
    assert offering is not None
    name = option.group.name
    before = len(machines.group_of(world, name).instances)
    for _ in range(option.nodes):
        instance = machines.launch(world, name, offering)
        if not is_unavailable(offering.key, policy.unavailable):
            machines.start(world, instance)
    text = f"pod triggered scale-up: [{{{name} {before}->{before + option.nodes} (max: {option.group.most})}}]"
    for pod in option.pods:
        machines.say(world, "TriggeredScaleUp", text, about=f"Pod/{pod}", pod=pod)


def give_up_late(world: World, policy: AutoscalerPolicy) -> None:
    """Give up machines that did not join in time, and back off from their group."""
    fleet = world.fleet
    late = [i for i in starting(world) if world.now >= i.launched + policy.provision_time]
    for name in dict.fromkeys(instance.name.rpartition("-")[0] for instance in late):
        old = fleet.backoffs.get(name)
        span = FIRST_BACKOFF if old is None else min(LONGEST_BACKOFF, 2 * old.span)
        fleet.backoffs[name] = GroupBackoff(world.now + span, span)
        minutes = policy.provision_time // MINUTE
        machines.say(world, "ScaleUpTimedOut", f"Nodes added to group {name} failed to register within {minutes}m0s")
    for instance in late:
        # The cloud never delivered it, so it costs nothing.
        machines.change(world, replace(instance, price=0.0))
        machines.leave(world, instance.name)
        fleet.failed = world.now


def pods_of(world: World, request: ProvisioningRequest) -> list[Pod]:
    """The pods that a ProvisioningRequest describes."""
    pods = []
    for number, asked in enumerate(request.pod_sets):
        stored: StoredTemplate | None = world.state.get(StoredTemplate, f"{request.namespace}/{asked.template}")
        if stored is not None:
            name = f"{request.name}-{number}"
            pods += [Pod(name=f"{name}-{n}", template=stored.template) for n in range(asked.count)]
    return pods
