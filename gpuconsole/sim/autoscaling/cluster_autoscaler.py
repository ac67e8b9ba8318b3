"""The Cluster Autoscaler in the simulated cluster: groups grow for pods that fit nowhere, and shrink by idle nodes.

It scans every ten seconds while there is something to look at: one group grows at a scan; a node goes that was unneeded
for ten minutes, unless a group grew in the last ten. Machines take minutes to start; what has not come in fifteen is
given up, and its group left alone for five minutes, for twice as long each further time, to thirty.
ProvisioningRequests are answered here: check-capacity by the room that there is, best-effort-atomic-scale-up by nodes
for all of its pods or none. (Cluster Autoscaler FAQ, core/static_autoscaler.go.)
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.autoscaling import GROUP, SPOT, Instance, NodeGroup
from gpuconsole.model.catalogue import Offering
from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.objects import TABLES
from gpuconsole.model.provisioning import ProvisioningRequest, StoredTemplate
from gpuconsole.model.workloads import Condition
from gpuconsole.scheduling.kueue.provisioning.answers import FAILED, PROVISIONED
from gpuconsole.sim.autoscaling import groups, machines
from gpuconsole.sim.autoscaling.fleet import Backoff
from gpuconsole.sim.autoscaling.groups import Option
from gpuconsole.sim.autoscaling.machines import TO_BE_DELETED
from gpuconsole.sim.autoscaling.offers import is_unavailable
from gpuconsole.sim.autoscaling.policy import AutoscalerPolicy, ScalingGroup
from gpuconsole.sim.autoscaling.rooms import Room, first_fit, node_of
from gpuconsole.sim.autoscaling.view import View
from gpuconsole.sim.chance import draw
from gpuconsole.sim.kernel import Act, Capacity
from gpuconsole.sim.world import World

FIRST_BACKOFF, LONGEST_BACKOFF = 5 * MINUTE, 30 * MINUTE
RESERVATION = 10 * MINUTE
SCALE_DOWN = "ScaleDown"
CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
FOUND = Condition(PROVISIONED, True, "CapacityIsFound", "Capacity is found in the cluster.")
SCALED = Condition(PROVISIONED, True, "CapacityIsProvisioned", "Capacity is found in the cluster.")
NOT_FOUND = Condition(FAILED, True, "CapacityIsNotFound", "Capacity is not found, CA will try to find it later.")


def fill(world: World, policy: AutoscalerPolicy) -> None:
    """The machines that groups have at the start are there at once."""
    for group in policy.groups:
        known = machines.group_of(world, group.name)
        offering = offering_of(policy, group)
        while offering is not None and len(known.instances) < max(group.size, group.least):
            machines.join(world, machines.launch(world, group.name, offering).name)
            known = machines.group_of(world, group.name)


def offering_of(policy: AutoscalerPolicy, group: ScalingGroup) -> Offering | None:
    """What a group buys; None if the catalogue does not sell it."""
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


def gather(world: World, policy: AutoscalerPolicy) -> None:
    """Something changed: scan at the next tick."""
    _scan_at(world, _next_tick(world.now, policy.scan_interval))


def scan(world: World, policy: AutoscalerPolicy) -> None:
    """One loop of the autoscaler."""
    fleet = world.fleet
    if fleet.look is None or world.now < fleet.look:
        return
    fleet.look = None
    _give_up_late(world, policy)
    view = View(world, policy.catalogue)
    grew = _answer_requests(world, policy, view) or _scale_up(world, policy, view)
    if grew:
        fleet.added = world.now
        view = View(world, policy.catalogue)
    _scale_down(world, policy, view)
    later = world.now if grew else _next_due(world, policy)
    if later is not None:
        _scan_at(world, _next_tick(max(later, world.now + 1) - 1, policy.scan_interval))


def _scan_at(world: World, at: Time) -> None:
    fleet = world.fleet
    if fleet.look is None or fleet.look <= world.now or at < fleet.look:
        fleet.look = at
        world.kernel.at(at, Capacity(Act.PROVISION))


def _next_due(world: World, policy: AutoscalerPolicy) -> Time | None:
    """When a scan could come to something else though nothing happens."""
    fleet, now = world.fleet, world.now
    dues = [since + policy.unneeded_time for since in fleet.unneeded.values()]
    dues += fleet.unremovable.values()
    if fleet.unneeded and fleet.added is not None:
        dues.append(fleet.added + policy.delay_after_add)
    if fleet.unneeded and fleet.failed is not None:
        dues.append(fleet.failed + policy.delay_after_failure)
    if fleet.waiting:
        dues += [backoff.until for backoff in fleet.backoffs.values()]
        dues += [since + policy.new_pod_delay for since in fleet.waiting.values()]
    dues += [i.launched + policy.provision_time for i in _starting(world)]
    unready = (node.not_ready_since for node in world.state.table("nodes").all() if not node.ready)
    dues += [since + policy.unready_time for since in unready if since is not None]
    return min((due for due in dues if due > now), default=None)


def _starting(world: World) -> Iterable[Instance]:
    for group in world.state.table("node_groups").all():
        yield from (instance for instance in group.instances if instance.ready is None)


# Growing


def _scale_up(world: World, policy: AutoscalerPolicy, view: View) -> bool:
    """Let one group grow for the pods that fit nowhere; True if one does."""
    old = [
        pod
        for pod in view.waiting
        if pod.priority >= policy.cutoff and world.fleet.waiting[pod.key] + policy.new_pod_delay <= world.now
    ]
    left = _without_room(
        view, _rooms(world, view, policy), sorted(old, key=lambda pod: (-pod.priority, pod.created, pod.key))
    )
    if not left:
        return False
    options, reasons = _options(world, policy, view, left)
    random = draw(world.seed, "expander", world.now)
    best = groups.choose(options, policy.expander, random)
    if best is None:
        text = ", ".join(f"{count} {reason}" for reason, count in sorted(_counted(reasons).items()))
        for pod in left:
            message = f"pod didn't trigger scale-up: {text}" if text else "pod didn't trigger scale-up"
            machines.say(world, "NotTriggerScaleUp", message, about=f"Pod/{pod.key}", pod=pod.key)
        return False
    _grow(world, policy, best, view)
    return True


def _rooms(world: World, view: View, policy: AutoscalerPolicy) -> list[Room]:
    """Nodes that stay, and those on their way, as their groups describe them, less what was promised to requests."""
    there = [room for room in view.rooms() if room.node.name in view.nodes]
    known = {group.name: group for group in policy.groups}
    for instance in view.starting:
        group = known.get(instance.name.rpartition("-")[0])
        if group is not None and (template := _template(policy, group)) is not None:
            there.append(Room(replace(template, name=instance.name)))
    for request in _promised(world):
        if not any(pod.workload == _workload_of(request) for pod in view.everyone):
            _without_room(view, there, _pods_of(world, request))
    return there


def _promised(world: World) -> Iterable[ProvisioningRequest]:
    """Requests that capacity was found for lately: it is theirs until their pods come, for ten minutes."""
    for request in world.state.table(TABLES[ProvisioningRequest]).all():
        if any(c.type == PROVISIONED and c.status and world.now < c.since + RESERVATION for c in request.conditions):
            yield request


def _workload_of(request: ProvisioningRequest) -> str:
    return f"{request.namespace}/{request.owners[0]}" if request.owners else ""


def _without_room(view: View, rooms: Sequence[Room], pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if first_fit(rooms, view.shapes.of(pod.template)) is None]


def _options(world: World, policy: AutoscalerPolicy, view: View, pods: Sequence[Pod]) -> tuple[list[Option], list[str]]:
    """The groups that would help, and why the others would not."""
    options, reasons = [], []
    for group in policy.groups:
        backoff = world.fleet.backoffs.get(group.name)
        size = len(view.groups[group.name].instances) if group.name in view.groups else 0
        template, offering = _template(policy, group), offering_of(policy, group)
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
    """The pods that a group is meant for: critical work that lost a spot machine does not wait for another one."""
    if group.capacity_type != SPOT:
        return pods
    return [pod for pod in pods if (pod.workload or pod.job or pod.key) not in world.fleet.fallen]


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def _template(policy: AutoscalerPolicy, group: ScalingGroup) -> Node | None:
    """A node of the group, as it would be."""
    offering = offering_of(policy, group)
    if offering is None:
        return None
    instance = Instance(name="", type=group.type, zone=offering.zone, capacity_type=group.capacity_type)
    return node_of(instance, offering.type, 0, {**group.labels, GROUP: group.name}, group.taints)


def _grow(world: World, policy: AutoscalerPolicy, option: Option, view: View) -> None:
    """Ask for the machines. Those that cannot be had never come, which is noticed when they should have."""
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


def _give_up_late(world: World, policy: AutoscalerPolicy) -> None:
    """Machines that should be here are given up, and their group is left alone for a while."""
    fleet = world.fleet
    late = [i for i in _starting(world) if world.now >= i.launched + policy.provision_time]
    for name in dict.fromkeys(instance.name.rpartition("-")[0] for instance in late):
        old = fleet.backoffs.get(name)
        span = FIRST_BACKOFF if old is None else min(LONGEST_BACKOFF, 2 * old.span)
        fleet.backoffs[name] = Backoff(world.now + span, span)
        minutes = policy.provision_time // MINUTE
        machines.say(world, "ScaleUpTimedOut", f"Nodes added to group {name} failed to register within {minutes}m0s")
    for instance in late:
        # The cloud never delivered it, so it costs nothing.
        machines.change(world, replace(instance, price=0.0))
        machines.leave(world, instance.name)
        fleet.failed = world.now


# Requests for capacity


def _answer_requests(world: World, policy: AutoscalerPolicy, view: View) -> bool:
    """Answer the oldest ProvisioningRequest that can be answered; True if a group grew for it."""
    requests: list[ProvisioningRequest] = list(world.state.table(TABLES[ProvisioningRequest]).all())
    for request in sorted(requests, key=lambda request: (request.created, request.key)):
        if request.conditions:
            continue
        pods = _pods_of(world, request)
        left = _without_room(view, _rooms(world, view, policy), pods)
        if not left:
            _answer(world, request, FOUND)
        elif request.provisioning_class == ATOMIC:
            options, _ = _options(world, policy, view, left)
            whole = [option for option in options if len(option.pods) == len(left)]
            best = groups.choose(whole, policy.expander, draw(world.seed, "expander", request.key))
            if best is not None:
                _grow(world, policy, replace(best, pods=()), view)
                _answer(world, request, SCALED)
                return True
        elif request.parameters.get("noRetry") == "true":
            _answer(world, request, NOT_FOUND)
    return False


def _pods_of(world: World, request: ProvisioningRequest) -> list[Pod]:
    pods = []
    for number, asked in enumerate(request.pod_sets):
        stored: StoredTemplate | None = world.state.get(StoredTemplate, f"{request.namespace}/{asked.template}")
        if stored is not None:
            name = f"{request.name}-{number}"
            pods += [Pod(name=f"{name}-{n}", template=stored.template) for n in range(asked.count)]
    return pods


def _answer(world: World, request: ProvisioningRequest, condition: Condition) -> None:
    world.put(replace(request, conditions=(replace(condition, since=world.now),)))
    if request.owners:
        world.unchecked[_workload_of(request)] = None


# Shrinking


def _scale_down(world: World, policy: AutoscalerPolicy, view: View) -> None:
    """Remember since when nodes are unneeded; let those go that were for long enough."""
    fleet, now = world.fleet, world.now
    for name in [name for name, until in fleet.unremovable.items() if until <= now]:
        del fleet.unremovable[name]
    eligible = [node for node in _managed(view) if node.name not in fleet.unremovable]
    found, kept = groups.unneeded(eligible, view.pods, view.rooms(), view.allowances, policy)
    for name, why in kept.items():
        fleet.unremovable[name] = now + policy.unremovable_recheck
        machines.say(world, "NoScaleDown", f"node {name} cannot be removed: {why}", node=name)
    since = {name: fleet.unneeded.get(name, now) for name in found}
    fleet.unneeded.clear()
    fleet.unneeded.update(since)
    _remove_unready(world, policy, view)
    if not _cooling(world, policy):
        _remove(world, policy, view, [name for name in found if now - since[name] >= policy.unneeded_time])


def _managed(view: View) -> list[Node]:
    """Ready nodes of groups that stay so far."""
    there = (i for i in view.instances() if i.ready is not None and i.leaving is None)
    return [node for i in there if (node := view.nodes.get(i.name)) is not None and node.ready]


def _remove_unready(world: World, policy: AutoscalerPolicy, view: View) -> None:
    """Nodes that have not answered for long enough go."""
    for instance in view.instances():
        node = view.nodes.get(instance.name)
        since = node.not_ready_since if node is not None and not node.ready else None
        if since is not None and instance.leaving is None and world.now >= since + policy.unready_time:
            text = f"removing unready node {instance.name}"
            machines.say(world, SCALE_DOWN, text, node=instance.name)
            machines.drain(world, instance.name, SCALE_DOWN, TO_BE_DELETED)


def _cooling(world: World, policy: AutoscalerPolicy) -> bool:
    """True shortly after a group grew or failed to."""
    fleet, now = world.fleet, world.now
    if fleet.added is not None and now < fleet.added + policy.delay_after_add:
        return True
    return fleet.failed is not None and now < fleet.failed + policy.delay_after_failure


def _remove(world: World, policy: AutoscalerPolicy, view: View, ripe: Sequence[str]) -> None:
    """Empty nodes go together, others one by one, and no group below its least size."""
    least = {group.name: group.least for group in policy.groups}
    sizes = {name: _staying(group) for name, group in view.groups.items()}
    drains = any(not machines.is_drained(world, name) for name in world.fleet.draining)
    gone = 0
    for name in ripe:
        group = name.rpartition("-")[0]
        own = machines.find(world, name)
        group = own[0].name if own is not None else group
        if sizes[group] <= least.get(group, 0):
            machines.say(world, "NoScaleDown", f"node {name} cannot be removed: node group min size reached", node=name)
            continue
        busy = bool([pod for pod in view.pods.get(name, ()) if not pod.deleted])
        if (busy and drains) or gone >= policy.empty_bulk:
            continue
        drains = drains or busy
        gone += 1
        sizes[group] -= 1
        machines.say(world, SCALE_DOWN, f"marked the node as toBeDeleted/unschedulable, removing {name}", node=name)
        machines.drain(world, name, SCALE_DOWN, TO_BE_DELETED)
        world.fleet.unneeded.pop(name, None)


def _staying(group: NodeGroup) -> int:
    return sum(instance.leaving is None for instance in group.instances)


def _next_tick(now: Time, interval: Span) -> Time:
    return (now // interval + 1) * interval
