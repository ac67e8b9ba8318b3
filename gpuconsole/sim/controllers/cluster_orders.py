"""Orders about queues, nodes and single pods. Each returns why it was refused, or nothing."""

from gpuconsole.model.commands import SetQuota
from gpuconsole.model.queues import ClusterQueue, LocalQueue, Quota, StopPolicy
from gpuconsole.sim.controllers import failing, nodes, queues
from gpuconsole.sim.controllers.refusals import DONE, Refusal
from gpuconsole.sim.controllers.volcano import queues as volcano
from gpuconsole.sim.world import World


def stop(world: World, key: str, policy: StopPolicy) -> Refusal:
    """Hold, drain or resume a ClusterQueue (`name`) or a LocalQueue (`namespace/name`); close or open Volcano's."""
    queue: ClusterQueue | LocalQueue | None = world.local_queue(key) if "/" in key else world.cluster_queue(key)
    theirs = volcano.volcano_queue(world, key)
    if queue is None and theirs is not None:
        return volcano.stop(world, theirs, policy)
    if queue is None:
        return f"there is no {'LocalQueue' if '/' in key else 'ClusterQueue'} {key}"
    queues.stop(world, queue, policy)
    return DONE


def set_quota(world: World, command: SetQuota) -> Refusal:
    """Change one quota, within what Kueue's webhook allows."""
    queue = world.cluster_queue(command.cluster_queue)
    if queue is None:
        return f"there is no ClusterQueue {command.cluster_queue}"
    quotas = queue.quotas()
    if (command.flavor, command.resource) not in quotas:
        known = ", ".join(f"{flavor}/{resource}" for flavor, resource in quotas)
        return f"ClusterQueue {queue.name} has no quota of {command.resource} in {command.flavor}; it has: {known}"
    limits = (command.nominal, command.borrowing_limit or 0, command.lending_limit or 0)
    if min(limits) < 0:
        return "a quota and its limits are 0 or more"
    if command.lending_limit is not None and command.lending_limit > command.nominal:
        return f"lendingLimit {command.lending_limit} is more than the nominal quota {command.nominal}"
    if queue.cohort == "" and (command.borrowing_limit is not None or command.lending_limit is not None):
        return f"ClusterQueue {queue.name} is in no cohort, so it can have no borrowing or lending limit"
    quota = Quota(command.nominal, command.borrowing_limit, command.lending_limit)
    queues.resize(world, queue, command.flavor, command.resource, quota)
    return DONE


def cordon(world: World, name: str, cordoned: bool) -> Refusal:
    """Cordon or uncordon a node."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    nodes.cordon(world, node, cordoned)
    return DONE


def drain(world: World, name: str) -> Refusal:
    """Cordon a node and evict its pods."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    nodes.drain(world, node)
    return DONE


def fail_node(world: World, name: str) -> Refusal:
    """Let a node stop answering."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    if not node.ready:
        return f"node {name} is down already"
    nodes.fail(world, node)
    return DONE


def restore(world: World, name: str) -> Refusal:
    """Bring a failed node back."""
    node = world.node(name)
    if node is None:
        return _no_node(name)
    if node.ready:
        return f"node {name} is up already"
    nodes.restore(world, node)
    return DONE


def fail_pod(world: World, key: str) -> Refusal:
    """Let a running pod fail."""
    pod = world.pod(key)
    if pod is None:
        return f"there is no pod {key}"
    if pod.done or pod.deleted or not pod.node:
        state = pod.phase.value.lower() if pod.done else "leaving" if pod.deleted else "waiting for a node"
        return f"pod {key} is {state}; only a running pod can fail"
    failing.fail_pod(world, pod)
    return DONE


def _no_node(name: str) -> Refusal:
    return f"there is no node {name}"
