"""Commands on queues, nodes and single pods. Each returns why it was refused, or nothing."""

from msgspec import UNSET

from gpuconsole.model.commands import SetQuota
from gpuconsole.model.queues import ClusterQueue, LocalQueue, Quota, StopPolicy
from gpuconsole.sim.controllers import nodes, pod_failures, queues
from gpuconsole.sim.controllers.refusals import DONE, NoChange, Refusal
from gpuconsole.sim.controllers.volcano import queues as volcano
from gpuconsole.sim.world import World


def stop_queue(world: World, key: str, policy: StopPolicy) -> Refusal:
    """Hold, drain or resume a ClusterQueue (`name`) or LocalQueue (`namespace/name`); close or open a Volcano Queue."""
    queue: ClusterQueue | LocalQueue | None = world.local_queue(key) if "/" in key else world.cluster_queue(key)
    theirs = volcano.volcano_queue(world, key)
    if queue is None and theirs is not None:
        return volcano.stop(world, theirs, policy)
    if queue is None:
        return f"there is no {'LocalQueue' if '/' in key else 'ClusterQueue'} {key}"
    if queue.stop_policy is policy:
        return NoChange(f"{type(queue).__name__} {key} has stopPolicy {policy} already")
    queues.set_stop_policy(world, queue, policy)
    return DONE


def set_quota(world: World, command: SetQuota) -> Refusal:
    """Change one quota, within what Kueue's webhook allows."""
    queue = world.cluster_queue(command.cluster_queue)
    if queue is None:
        return f"there is no ClusterQueue {command.cluster_queue}"
    quotas = queue.quotas()
    old = quotas.get((command.flavor, command.resource))
    if old is None:
        known = ", ".join(f"{flavor}/{resource}" for flavor, resource in quotas)
        return f"ClusterQueue {queue.name} has no quota of {command.resource} in {command.flavor}; it has: {known}"
    borrowing = old.borrowing_limit if command.borrowing_limit is UNSET else command.borrowing_limit
    lending = old.lending_limit if command.lending_limit is UNSET else command.lending_limit
    for name, amount in (("nominal", command.nominal), ("borrowingLimit", borrowing), ("lendingLimit", lending)):
        if amount is not None and amount < 0:
            return f"{name} {amount} is not 0 or more"
    if lending is not None and lending > command.nominal:
        return f"lendingLimit {lending} is more than the nominal quota {command.nominal}"
    if queue.cohort == "" and (borrowing is not None or lending is not None):
        return f"ClusterQueue {queue.name} is in no cohort, so it can have no borrowing or lending limit"
    quota = Quota(command.nominal, borrowing, lending)
    if quota == old:
        return NoChange(f"ClusterQueue {queue.name} has this quota of {command.resource} in {command.flavor} already")
    queues.resize_quota(world, queue, command.flavor, command.resource, quota)
    return DONE


def cordon_node(world: World, name: str, cordoned: bool) -> Refusal:
    """Cordon or uncordon a node."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    if node.unschedulable == cordoned:
        return NoChange(f"node {name} is {'cordoned' if cordoned else 'schedulable'} already")
    nodes.cordon(world, node, cordoned)
    return DONE


def drain_node(world: World, name: str) -> Refusal:
    """Cordon a node and evict its pods."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    nodes.drain(world, node)
    return DONE


def fail_node(world: World, name: str) -> Refusal:
    """Make a node stop responding."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    if not node.ready:
        return NoChange(f"node {name} is down already")
    nodes.fail(world, node)
    return DONE


def restore_node(world: World, name: str) -> Refusal:
    """Restore a failed node."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    if node.ready:
        return NoChange(f"node {name} is up already")
    nodes.restore(world, node)
    return DONE


def fail_pod(world: World, key: str) -> Refusal:
    """Make a running pod fail."""
    pod = world.pod(key)
    if pod is None:
        return f"there is no pod {key}"
    if pod.done or pod.deleted or not pod.node:
        state = pod.phase.value.lower() if pod.done else "leaving" if pod.deleted else "waiting for a node"
        return f"pod {key} is {state}; only a running pod can fail"
    pod_failures.fail_pod(world, pod)
    return DONE


def _no_node(name: str) -> Refusal:
    return f"there is no node {name}"
