"""The Cluster Autoscaler in the simulation: scales node groups up for unschedulable pods and removes unneeded nodes.

It scans every ten seconds while anything may change: one group grows per scan; a node is removed after ten minutes of
being unneeded, unless a group grew in the last ten. Machines take minutes to start; one that has not joined after
fifteen is given up, and its group backs off for five minutes, doubled at each further failure, up to thirty.
ProvisioningRequests are answered first: check-capacity by free capacity, best-effort-atomic-scale-up by nodes for all
of its pods or none. (Cluster Autoscaler FAQ, core/static_autoscaler.go.)
"""

from collections.abc import Sequence

from gpuconsole.model.autoscaling import NodeGroup
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Node
from gpuconsole.sim.autoscaling import groups, machines
from gpuconsole.sim.autoscaling.ca_scale_up import give_up_late, offering_of, scale_up, starting
from gpuconsole.sim.autoscaling.machines import TO_BE_DELETED
from gpuconsole.sim.autoscaling.policy import AutoscalerPolicy
from gpuconsole.sim.autoscaling.requests import answer_requests
from gpuconsole.sim.autoscaling.view import AutoscalerView
from gpuconsole.sim.kernel import Act, AutoscalerTick
from gpuconsole.sim.world import World

SCALE_DOWN = "ScaleDown"


def fill(world: World, policy: AutoscalerPolicy) -> None:
    """Create the initial machines of the groups at once."""
    for group in policy.groups:
        known = machines.group_of(world, group.name)
        offering = offering_of(policy, group)
        while offering is not None and len(known.instances) < max(group.size, group.least):
            machines.join(world, machines.launch(world, group.name, offering).name)
            known = machines.group_of(world, group.name)


def gather(world: World, policy: AutoscalerPolicy) -> None:
    """Schedule a scan at the next tick after a change."""
    _scan_at(world, _next_tick(world.now, policy.scan_interval))


def scan(world: World, policy: AutoscalerPolicy) -> None:
    """Run one loop of the autoscaler."""
    fleet = world.fleet
    if fleet.look is None or world.now < fleet.look:
        return
    fleet.look = None
    give_up_late(world, policy)
    view = AutoscalerView(world, policy.catalogue)
    if _unhealthy(view, policy):
        machines.say(world, "ClusterUnhealthy", "Cluster is unhealthy", about="Cluster")
        fleet.unneeded.clear()
        return
    fleet.said.pop("Cluster", None)
    grew = answer_requests(world, policy, view) or scale_up(world, policy, view)
    if grew:
        fleet.added = world.now
        view = AutoscalerView(world, policy.catalogue)
    _scale_down(world, policy, view)
    later = world.now if grew else _next_due(world, policy)
    if later is not None:
        _scan_at(world, _next_tick(max(later, world.now + 1) - 1, policy.scan_interval))


def _unhealthy(view: AutoscalerView, policy: AutoscalerPolicy) -> bool:
    """True if too many nodes are not ready for scaling to be safe (IsClusterHealthy)."""
    unready = sum(not node.ready for node in view.nodes.values())
    return unready > policy.ok_unready and unready > policy.most_unready * len(view.nodes)


def _scan_at(world: World, at: Time) -> None:
    fleet = world.fleet
    if fleet.look is None or fleet.look <= world.now or at < fleet.look:
        fleet.look = at
        world.kernel.at(at, AutoscalerTick(Act.PROVISION))


def _next_due(world: World, policy: AutoscalerPolicy) -> Time | None:
    """The next moment at which a scan could have another result without any change."""
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
    dues += [i.launched + policy.provision_time for i in starting(world)]
    unready = (node.not_ready_since for node in world.state.table("nodes").all() if not node.ready)
    dues += [since + policy.unready_time for since in unready if since is not None]
    return min((due for due in dues if due > now), default=None)


def _scale_down(world: World, policy: AutoscalerPolicy, view: AutoscalerView) -> None:
    """Record since when nodes are unneeded; remove those that were unneeded for long enough."""
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


def _managed(view: AutoscalerView) -> list[Node]:
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
            machines.say(world, SCALE_DOWN, text, node=instance.name)
            machines.drain(world, instance.name, SCALE_DOWN, TO_BE_DELETED)


def _cooling(world: World, policy: AutoscalerPolicy) -> bool:
    """True shortly after a group grew or failed to grow."""
    fleet, now = world.fleet, world.now
    if fleet.added is not None and now < fleet.added + policy.delay_after_add:
        return True
    return fleet.failed is not None and now < fleet.failed + policy.delay_after_failure


def _remove(world: World, policy: AutoscalerPolicy, view: AutoscalerView, ripe: Sequence[str]) -> None:
    """Remove empty nodes together, others one by one, and keep each group's minimum size."""
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
