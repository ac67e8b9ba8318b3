"""The Cluster Autoscaler in the simulation: scales node groups up for unschedulable pods and removes unneeded nodes.

It scans every ten seconds while anything may change. ProvisioningRequests are answered first: check-capacity by free
capacity, best-effort-atomic-scale-up by nodes for all of its pods or none. Then one group may grow: pods are packed on
template nodes first-fit by decreasing size, and the expander chooses among the groups that would help. A machine that
has not joined after fifteen minutes is given up, and its group backs off for five minutes, doubled at each further
failure, up to thirty. A node is unneeded if less than half of it is requested and its pods fit elsewhere; it is removed
after ten minutes of that, unless a group grew in the last ten. Except the backoff's, these durations are defaults of
`AutoscalerPolicy`. (Cluster Autoscaler FAQ, core/static_autoscaler.go.)
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.autoscaling import (
    GROUP,
    SPOT,
    NodeGroup,
    Offering,
    ProvisionedInstance,
    ProvisioningRequest,
    StoredTemplate,
)
from gpuconsole.model.clock import MINUTE, Time, next_multiple
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.objects import TABLES
from gpuconsole.model.resources import CPU, GPU_RESOURCES, MEMORY, gpus
from gpuconsole.model.workloads import Condition
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.kueue.admission_checks import FAILED, PROVISIONED
from gpuconsole.sim.autoscaling import machines
from gpuconsole.sim.autoscaling.disruption import AutoscalerView, EvictionAllowances, annotation_of
from gpuconsole.sim.autoscaling.machines import TO_BE_DELETED
from gpuconsole.sim.autoscaling.provisioning import NodeFit, first_fit, is_unavailable, node_of
from gpuconsole.sim.kernel import AutoscalerAction, AutoscalerTick
from gpuconsole.sim.policy import AutoscalerPolicy, Expander, GroupBackoff, ScalingGroup
from gpuconsole.sim.run_times import random_for
from gpuconsole.sim.world import World

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Annotation of a pod: names of local volumes, with commas, that may be lost."""
NO_SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


class ExpansionOption(Struct, frozen=True):
    """One possible scale-up of a node group: the number of nodes to add, and the pods that fit on them."""

    group: ScalingGroup
    nodes: int
    pods: tuple[str, ...]
    cost: float
    """USD an hour for the added nodes."""
    waste: float
    """Fraction of cpu plus fraction of memory that the pods leave unused on the new nodes."""


def estimate_scale_up(
    group: ScalingGroup, template: Node, price: float, pods: Sequence[Pod], most: int
) -> ExpansionOption | None:
    """The scale-up of a group (`price` in USD an hour) for these pods, at most `most` nodes; None if it helps none."""
    pod_classes = PodClasses()
    capacities: list[NodeFit] = []
    helped = []
    for pod in sorted(pods, key=lambda pod: _size_key(pod, template)):
        pod_class = pod_classes.of(pod.template)
        if first_fit(capacities, pod_class) is not None:
            helped.append(pod)
        elif len(capacities) < most and (room := NodeFit(template)).place(pod_class):
            capacities.append(room)
            helped.append(pod)
    if not helped:
        return None
    waste = sum(_unused_fraction(capacities, template, helped, name) for name in (CPU, MEMORY))
    return ExpansionOption(group, len(capacities), tuple(pod.key for pod in helped), price * len(capacities), waste)


def choose_option(options: Sequence[ExpansionOption], expander: Expander, random: Random) -> ExpansionOption | None:
    """The option that the expander picks; of equal ones the first by name."""
    named = sorted(options, key=lambda option: option.group.name)
    match expander:
        case Expander.LEAST_WASTE:
            return min(named, key=lambda option: round(option.waste, 9), default=None)
        case Expander.MOST_PODS:
            return min(named, key=lambda option: -len(option.pods), default=None)
        case Expander.LEAST_NODES:
            return min(named, key=lambda option: option.nodes, default=None)
        case Expander.PRICE:
            return min(named, key=lambda option: option.cost / len(option.pods), default=None)
        case Expander.PRIORITY:
            return min(named, key=lambda option: -option.group.priority, default=None)
        case Expander.RANDOM:
            return random.choice(named) if named else None


def utilization(node: Node, pods: Iterable[Pod]) -> float:
    """The requested fraction of a node: of GPUs if it has some, else the greater one of cpu and memory."""
    requested: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.template.requests.items():
            requested[name] = requested.get(name, 0) + amount
    names = [name for name in GPU_RESOURCES if node.allocatable.get(name)] if gpus(node.allocatable) else [CPU, MEMORY]
    return max((requested.get(n, 0) / node.allocatable[n] for n in names if node.allocatable.get(n)), default=0.0)


def eviction_blocker(node: Node, pods: Iterable[Pod], allowances: EvictionAllowances) -> str:
    """Why the Cluster Autoscaler cannot evict a node's pods; empty if it can (its drainability rules)."""
    if node.annotations.get(NO_SCALE_DOWN) == "true":
        return "scale down is disabled by annotation"
    for pod in sorted(pods, key=lambda pod: pod.key):
        safe = annotation_of(pod, SAFE_TO_EVICT)
        if safe == "false":
            return f"pod {pod.key} has annotation {SAFE_TO_EVICT}: false (NotSafeToEvictAnnotation)"
        if safe != "true" and not (pod.job or pod.workload):
            return f"pod {pod.key} is not replicated (NotReplicated)"
        if safe != "true" and pod.namespace == "kube-system" and not allowances.covers(pod):
            return f"pod {pod.key} is of kube-system and has no PodDisruptionBudget (UnmovableKubeSystemPod)"
        local = set(pod.template.local_volumes) - set(annotation_of(pod, SAFE_LOCAL_VOLUMES).split(","))
        if safe != "true" and local:
            return f"pod {pod.key} has local storage: {', '.join(sorted(local))} (LocalStorageRequested)"
        budget = allowances.blocker(pod)
        if budget:
            return f"not enough pod disruption budget to move {pod.key}: {budget} (NotEnoughPdb)"
    return ""


def find_unneeded(
    nodes: Sequence[Node],
    pods: Mapping[str, Sequence[Pod]],
    capacities: Sequence[NodeFit],
    allowances: EvictionAllowances,
    policy: AutoscalerPolicy,
) -> tuple[list[str], dict[str, str]]:
    """Return nodes that can be removed together, and for other underutilized nodes what blocks their removal.

    `capacities` is the free capacity of all nodes. Each node's pods are placed on others before the next node is
    checked; a node that received some is kept.
    """
    by_name = {room.node.name: room for room in capacities}
    found: list[str] = []
    kept: dict[str, str] = {}
    hosts: set[str] = set()
    pod_classes = PodClasses()
    for node in sorted(nodes, key=lambda node: (bool(_pods_to_move(pods, node, policy)), node.name)):
        own = _pods_to_move(pods, node, policy)
        bound = policy.gpu_utilization if node.gpus else policy.utilization
        if node.name in hosts or utilization(node, own) >= bound:
            continue
        why = eviction_blocker(node, own, allowances)
        if not why:
            others = [by_name[name] for name in sorted(by_name) if name != node.name and name not in found]
            homes = _simulate_move(own, others, pod_classes)
            why = "" if homes is not None else "its pods do not fit elsewhere (NoPlaceToMovePods)"
        if why:
            kept[node.name] = why
        else:
            hosts.update(homes or ())
            found.append(node.name)
    return found, kept


def _pods_to_move(pods: Mapping[str, Sequence[Pod]], node: Node, policy: AutoscalerPolicy) -> list[Pod]:
    """The pods that have to move before a node is removed: neither terminating nor below the priority cutoff."""
    return [pod for pod in pods.get(node.name, ()) if not pod.deleted and pod.priority >= policy.cutoff]


def _simulate_move(pods: Sequence[Pod], capacities: Sequence[NodeFit], pod_classes: PodClasses) -> list[str] | None:
    """New nodes for the pods; None, and nothing is reserved, if one of them does not fit."""
    before = [(room, dict(room.left)) for room in capacities]
    homes = []
    for pod in pods:
        room = first_fit(capacities, pod_classes.of(pod.template))
        if room is None:
            for old, left in before:
                old.reset(left)
            return None
        homes.append(room.node.name)
    return homes


def _size_key(pod: Pod, template: Node) -> tuple[float, str]:
    """Sort key, the largest pod first: cpu and memory as fractions of the node."""
    requests = pod.template.requests
    parts = (requests.get(name, 0) / (template.allocatable.get(name) or 1) for name in (CPU, MEMORY))
    return (-sum(parts), pod.key)


def _unused_fraction(capacities: Sequence[NodeFit], template: Node, pods: Sequence[Pod], resource: str) -> float:
    total = template.allocatable.get(resource, 0) * len(capacities)
    asked = sum(pod.template.requests.get(resource, 0) for pod in pods)
    return (total - asked) / total if total else 0.0


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


def starting_machines(world: World) -> Iterable[ProvisionedInstance]:
    """Machines that were launched and have not joined yet."""
    for group in world.state.table("node_groups").all():
        yield from (instance for instance in group.instances if instance.ready is None)


def scale_up(world: World, policy: AutoscalerPolicy, view: AutoscalerView) -> bool:
    """Scale up one group for unschedulable pods; True if one grows. Otherwise an event of each pod says why not."""
    old = [
        pod
        for pod in view.unschedulable
        if pod.priority >= policy.cutoff
        and world.autoscaler_state.unschedulable_since[pod.key] + policy.new_pod_delay <= world.now
    ]
    left = place_or_return(
        view, free_capacity(world, view, policy), sorted(old, key=lambda pod: (-pod.priority, pod.created, pod.key))
    )
    if not left:
        return False
    options, reasons = scale_up_options(world, policy, view, left)
    random = random_for(world.seed, "expander", world.now)
    best = choose_option(options, policy.expander, random)
    if best is None:
        text = ", ".join(f"{count} {reason}" for reason, count in sorted(_count_reasons(reasons).items()))
        for pod in left:
            message = f"pod didn't trigger scale-up: {text}" if text else "pod didn't trigger scale-up"
            machines.record_event(world, "NotTriggerScaleUp", message, about=f"Pod/{pod.key}", pod=pod.key)
        return False
    execute_scale_up(world, policy, best, view)
    return True


def free_capacity(world: World, view: AutoscalerView, policy: AutoscalerPolicy) -> list[NodeFit]:
    """Free capacity for pending pods: of existing and starting nodes, less what is promised to ProvisioningRequests."""
    there = [room for room in view.free_capacity() if room.node.name in view.nodes]
    known = {group.name: group for group in policy.groups}
    for instance in view.starting_machines:
        group = known.get(instance.name.rpartition("-")[0])
        if group is not None and (template := _template_node(world, policy, group)) is not None:
            there.append(NodeFit(replace(template, name=instance.name)))
    for request in _booked_requests(world):
        if not any(pod.workload == workload_of_request(request) for pod in view.all_pods):
            place_or_return(view, there, pods_of_request(world, request))
    return there


def _booked_requests(world: World) -> Iterable[ProvisioningRequest]:
    """ProvisioningRequests that hold capacity until their pods are created, for ten minutes."""
    for request in world.state.table(TABLES[ProvisioningRequest]).all():
        if any(c.type == PROVISIONED and c.status and world.now < c.since + RESERVATION for c in request.conditions):
            yield request


def workload_of_request(request: ProvisioningRequest) -> str:
    """The key of the Workload that owns a ProvisioningRequest; empty without an owner."""
    return f"{request.namespace}/{request.owners[0]}" if request.owners else ""


def place_or_return(view: AutoscalerView, capacities: Sequence[NodeFit], pods: Iterable[Pod]) -> list[Pod]:
    """Place pods on the first node that they fit, reducing its capacity; returns those that fit nowhere."""
    return [pod for pod in pods if first_fit(capacities, view.pod_classes.of(pod.template)) is None]


def scale_up_options(
    world: World, policy: AutoscalerPolicy, view: AutoscalerView, pods: Sequence[Pod]
) -> tuple[list[ExpansionOption], list[str]]:
    """Return the scale-ups that would help one of these pods, and for each other group why it does not help."""
    options, reasons = [], []
    for group in policy.groups:
        backoff = world.autoscaler_state.backoffs.get(group.name)
        size = len(view.groups[group.name].instances) if group.name in view.groups else 0
        template, offering = _template_node(world, policy, group), offering_of(policy, group)
        if backoff is not None and world.now < backoff.until:
            reasons.append("in backoff after failed scale-up")
        elif template is None or offering is None:
            reasons.append("node group has no machine in the catalogue")
        elif size >= group.max_size:
            reasons.append("max node group size reached")
        elif option := estimate_scale_up(
            group, template, offering.price, _pods_for_group(world, group, pods), group.max_size - size
        ):
            options.append(option)
        else:
            reasons.append("node(s) didn't fit the pod")
    return options, reasons


def _pods_for_group(world: World, group: ScalingGroup, pods: Sequence[Pod]) -> Sequence[Pod]:
    """The pods that a group may take: critical work that lost a spot node does not wait for another spot node."""
    if group.capacity_type != SPOT:
        return pods
    return [
        pod for pod in pods if (pod.workload or pod.job or pod.key) not in world.autoscaler_state.lost_spot_workloads
    ]


def _count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def _template_node(world: World, policy: AutoscalerPolicy, group: ScalingGroup) -> Node | None:
    """A template node of the group."""
    offering = offering_of(policy, group)
    if offering is None:
        return None
    instance = ProvisionedInstance(name="", type=group.type, zone=offering.zone, capacity_type=group.capacity_type)
    return node_of(
        instance, offering.type, 0, {**group.labels, GROUP: group.name}, group.taints, world.policy.equipment
    )


def execute_scale_up(world: World, policy: AutoscalerPolicy, option: ExpansionOption, view: AutoscalerView) -> None:
    """Scale up a group: request its machines. Unavailable ones never join, which the provisioning timeout shows."""
    offering = offering_of(policy, option.group)
    assert offering is not None
    name = option.group.name
    before = len(machines.group_of(world, name).instances)
    for _ in range(option.nodes):
        instance = machines.launch(world, name, offering)
        if not is_unavailable(offering.key, policy.unavailable):
            machines.start_machine(world, instance)
    text = f"pod triggered scale-up: [{{{name} {before}->{before + option.nodes} (max: {option.group.max_size})}}]"
    for pod in option.pods:
        machines.record_event(world, "TriggeredScaleUp", text, about=f"Pod/{pod}", pod=pod)


def cancel_late_machines(world: World, policy: AutoscalerPolicy) -> None:
    """Give up machines that did not join in time, and back off from their group."""
    fleet = world.autoscaler_state
    late = [i for i in starting_machines(world) if world.now >= i.launched + policy.provision_time]
    for name in dict.fromkeys(instance.name.rpartition("-")[0] for instance in late):
        old = fleet.backoffs.get(name)
        span = FIRST_BACKOFF if old is None else min(LONGEST_BACKOFF, 2 * old.span)
        fleet.backoffs[name] = GroupBackoff(world.now + span, span)
        minutes = policy.provision_time // MINUTE
        machines.record_event(
            world, "ScaleUpTimedOut", f"Nodes added to group {name} failed to register within {minutes}m0s"
        )
    for instance in late:
        # The cloud never delivered it, so it costs nothing.
        machines.store_machine(world, replace(instance, price=0.0))
        machines.remove_machine(world, instance.name)
        fleet.last_failed_scale_up = world.now


def pods_of_request(world: World, request: ProvisioningRequest) -> list[Pod]:
    """Return pods as a ProvisioningRequest describes them, to test where they would fit."""
    pods = []
    for number, asked in enumerate(request.pod_sets):
        stored: StoredTemplate | None = world.state.get(StoredTemplate, f"{request.namespace}/{asked.template}")
        if stored is not None:
            name = f"{request.name}-{number}"
            pods += [Pod(name=f"{name}-{n}", template=stored.template) for n in range(asked.count)]
    return pods


ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
FOUND = Condition(PROVISIONED, True, "CapacityIsFound", "Capacity is found in the cluster.")
SCALED = Condition(PROVISIONED, True, "CapacityIsProvisioned", "Capacity is found in the cluster.")
NOT_FOUND = Condition(FAILED, True, "CapacityIsNotFound", "Capacity is not found, CA will try to find it later.")


def answer_requests(world: World, policy: AutoscalerPolicy, view: AutoscalerView) -> bool:
    """Answer ProvisioningRequests, oldest first, until a group grows for one; True if one grew."""
    requests: list[ProvisioningRequest] = list(world.state.table(TABLES[ProvisioningRequest]).all())
    for request in sorted(requests, key=lambda request: (request.created, request.key)):
        if request.conditions:
            continue
        pods = pods_of_request(world, request)
        left = place_or_return(view, free_capacity(world, view, policy), pods)
        if not left:
            _set_condition(world, request, FOUND)
        elif request.provisioning_class == ATOMIC:
            options, _ = scale_up_options(world, policy, view, left)
            whole = [option for option in options if len(option.pods) == len(left)]
            best = choose_option(whole, policy.expander, random_for(world.seed, "expander", request.key))
            if best is not None:
                execute_scale_up(world, policy, replace(best, pods=()), view)
                _set_condition(world, request, SCALED)
                return True
        elif request.parameters.get("noRetry") == "true":
            _set_condition(world, request, NOT_FOUND)
    return False


def _set_condition(world: World, request: ProvisioningRequest, condition: Condition) -> None:
    world.put(replace(request, conditions=(replace(condition, since=world.now),)))
    if request.owners:
        world.workloads_with_checks_due[workload_of_request(request)] = None


SCALE_DOWN = "ScaleDown"


def create_initial_machines(world: World, policy: AutoscalerPolicy) -> None:
    """At the start, create the initial machines of the node groups, which join at once."""
    for group in policy.groups:
        known = machines.group_of(world, group.name)
        offering = offering_of(policy, group)
        while offering is not None and len(known.instances) < max(group.initial_size, group.min_size):
            machines.join_node(world, machines.launch(world, group.name, offering).name)
            known = machines.group_of(world, group.name)


def schedule_scan(world: World, policy: AutoscalerPolicy) -> None:
    """After a change, schedule a scan at the next multiple of the scan interval."""
    _set_scan_timer(world, next_multiple(world.now, policy.scan_interval))


def run_scan(world: World, policy: AutoscalerPolicy) -> None:
    """Run the scan of the Cluster Autoscaler that is due now, if any, and schedule the next one."""
    fleet = world.autoscaler_state
    if fleet.next_scan is None or world.now < fleet.next_scan:
        return
    fleet.next_scan = None
    cancel_late_machines(world, policy)
    view = AutoscalerView(world, policy.catalogue)
    if _unhealthy(view, policy):
        machines.record_event(world, "ClusterUnhealthy", "Cluster is unhealthy", about="Cluster")
        fleet.unneeded.clear()
        return
    fleet.last_messages.pop("Cluster", None)
    grew = answer_requests(world, policy, view) or scale_up(world, policy, view)
    if grew:
        fleet.last_scale_up = world.now
        view = AutoscalerView(world, policy.catalogue)
    _scale_down(world, policy, view)
    later = world.now if grew else _next_scan_time(world, policy)
    if later is not None:
        _set_scan_timer(world, next_multiple(max(later, world.now + 1) - 1, policy.scan_interval))


def _unhealthy(view: AutoscalerView, policy: AutoscalerPolicy) -> bool:
    """True if too many nodes are not ready for scaling to be safe (IsClusterHealthy)."""
    unready = sum(not node.ready for node in view.nodes.values())
    return unready > policy.max_ok_unready and unready > policy.max_unready_fraction * len(view.nodes)


def _set_scan_timer(world: World, at: Time) -> None:
    fleet = world.autoscaler_state
    if fleet.next_scan is None or fleet.next_scan <= world.now or at < fleet.next_scan:
        fleet.next_scan = at
        world.kernel.set_timer(at, AutoscalerTick(AutoscalerAction.PROVISION))


def _next_scan_time(world: World, policy: AutoscalerPolicy) -> Time | None:
    """The next moment at which a scan could have another result without any change."""
    fleet, now = world.autoscaler_state, world.now
    dues = [since + policy.unneeded_time for since in fleet.unneeded.values()]
    dues += fleet.unremovable.values()
    if fleet.unneeded and fleet.last_scale_up is not None:
        dues.append(fleet.last_scale_up + policy.delay_after_add)
    if fleet.unneeded and fleet.last_failed_scale_up is not None:
        dues.append(fleet.last_failed_scale_up + policy.delay_after_failure)
    if fleet.unschedulable_since:
        dues += [backoff.until for backoff in fleet.backoffs.values()]
        dues += [since + policy.new_pod_delay for since in fleet.unschedulable_since.values()]
    dues += [i.launched + policy.provision_time for i in starting_machines(world)]
    unready = (node.not_ready_since for node in world.state.table("nodes").all() if not node.ready)
    dues += [since + policy.unready_time for since in unready if since is not None]
    return min((due for due in dues if due > now), default=None)


def _scale_down(world: World, policy: AutoscalerPolicy, view: AutoscalerView) -> None:
    """Record since when nodes are unneeded; remove those that were unneeded for long enough."""
    fleet, now = world.autoscaler_state, world.now
    for name in [name for name, until in fleet.unremovable.items() if until <= now]:
        del fleet.unremovable[name]
    eligible = [node for node in _removable_nodes(view) if node.name not in fleet.unremovable]
    found, kept = find_unneeded(eligible, view.pods, view.free_capacity(), view.allowances, policy)
    for name, why in kept.items():
        fleet.unremovable[name] = now + policy.unremovable_recheck
        machines.record_event(world, "NoScaleDown", f"node {name} cannot be removed: {why}", node=name)
    since = {name: fleet.unneeded.get(name, now) for name in found}
    fleet.unneeded.clear()
    fleet.unneeded.update(since)
    _remove_unready(world, policy, view)
    if not _is_cooling_down(world, policy):
        _remove_nodes(world, policy, view, [name for name in found if now - since[name] >= policy.unneeded_time])


def _removable_nodes(view: AutoscalerView) -> list[Node]:
    """Ready nodes of groups that are not being removed."""
    there = (i for i in view.instances() if i.ready is not None and i.leaving is None)
    return [node for i in there if (node := view.nodes.get(i.name)) is not None and node.ready]


def _remove_unready(world: World, policy: AutoscalerPolicy, view: AutoscalerView) -> None:
    """Remove nodes that were unready for too long."""
    for instance in view.instances():
        node = view.nodes.get(instance.name)
        since = node.not_ready_since if node is not None and not node.ready else None
        if since is not None and instance.leaving is None and world.now >= since + policy.unready_time:
            text = f"removing unready node {instance.name}"
            machines.record_event(world, SCALE_DOWN, text, node=instance.name)
            machines.drain_node(world, instance.name, SCALE_DOWN, TO_BE_DELETED)


def _is_cooling_down(world: World, policy: AutoscalerPolicy) -> bool:
    """True shortly after a group grew or failed to grow."""
    fleet, now = world.autoscaler_state, world.now
    if fleet.last_scale_up is not None and now < fleet.last_scale_up + policy.delay_after_add:
        return True
    return fleet.last_failed_scale_up is not None and now < fleet.last_failed_scale_up + policy.delay_after_failure


def _remove_nodes(world: World, policy: AutoscalerPolicy, view: AutoscalerView, removable: Sequence[str]) -> None:
    """Remove empty nodes together, others one by one, and keep each group's minimum size."""
    least = {group.name: group.min_size for group in policy.groups}
    sizes = {name: _remaining_size(group) for name, group in view.groups.items()}
    drains = any(not machines.is_drained(world, name) for name in world.autoscaler_state.draining)
    gone = 0
    for name in removable:
        group = name.rpartition("-")[0]
        own = machines.find_machine(world, name)
        group = own[0].name if own is not None else group
        if sizes[group] <= least.get(group, 0):
            machines.record_event(
                world, "NoScaleDown", f"node {name} cannot be removed: node group min size reached", node=name
            )
            continue
        busy = bool([pod for pod in view.pods.get(name, ()) if not pod.deleted])
        if (busy and drains) or gone >= policy.empty_bulk:
            continue
        drains = drains or busy
        gone += 1
        sizes[group] -= 1
        machines.record_event(
            world, SCALE_DOWN, f"marked the node as toBeDeleted/unschedulable, removing {name}", node=name
        )
        machines.drain_node(world, name, SCALE_DOWN, TO_BE_DELETED)
        world.autoscaler_state.unneeded.pop(name, None)


def _remaining_size(group: NodeGroup) -> int:
    return sum(instance.leaving is None for instance in group.instances)
