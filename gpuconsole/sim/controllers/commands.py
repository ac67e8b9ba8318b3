"""Dispatch of commands: each is carried out, or refused with the reason and the valid alternatives.

`reconfigure` is carried out here: Kueue or the scheduler restarts, and keeps only what the cluster's objects show.

Here are also the commands on nodes, queue quotas, stop policies and single pods. Each returns why it was refused, or
nothing.
"""

from itertools import count
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import (
    AddNodes,
    AnswerCheck,
    Command,
    Copy,
    Cordon,
    Delete,
    Divide,
    Drain,
    Edit,
    FailNode,
    FailPod,
    Finish,
    InCluster,
    InterruptSpot,
    Later,
    LoseCluster,
    MoveToQueue,
    Reconfigure,
    Requeue,
    RestoreCluster,
    RestoreNode,
    Scale,
    SetActive,
    SetCohort,
    SetPreemption,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    SetWeight,
    Submit,
)
from gpuconsole.model.devices import ResourceSlice
from gpuconsole.model.documents.pods_and_selectors import taint_problem
from gpuconsole.model.documents.reader import decode_strictly
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.gpus.mig_reconfiguration import DYNAMIC, LAYOUT, MigStrategy, division_of, mig_node_changes
from gpuconsole.model.gpus.models import model_of
from gpuconsole.model.labels import Taint
from gpuconsole.model.queues import ClusterQueue, LocalQueue, Quota, StopPolicy
from gpuconsole.model.resources import GPU, Resources, is_mig
from gpuconsole.scheduling.kueue.config import (
    KueueConfig,
    contradictory_gates,
    gate_refusals,
    gate_remedy,
    resolve_gates,
)
from gpuconsole.sim.autoscaling import machines
from gpuconsole.sim.controllers import (
    elastic_jobs,
    multikueue,
    nodes,
    object_commands,
    queue_commands,
    reconcile,
    volcano_jobs,
    workload_commands,
    workload_controller,
)
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, NoChange, Refusal
from gpuconsole.sim.controllers.workload_commands import resolve_workload_key
from gpuconsole.sim.kernel import RunCommands
from gpuconsole.sim.policy import GpuSetup, Mig, SharingRule, SimPolicy, apply_gpu_setup
from gpuconsole.sim.scenario_form import PlacementForm
from gpuconsole.sim.scenario_policy import read_kueue_config, read_placement
from gpuconsole.sim.world import World


def reconfigure(world: World, command: Reconfigure) -> Refusal:
    """Restart the schedulers with other settings; a command that changes none of them does nothing."""
    problems: list[str] = []
    policy = _new_policy(world.policy, command, problems)
    if problems:
        return "; ".join(problems)
    if policy != world.policy:
        world.restart(policy)
    return CARRIED_OUT


def _new_policy(old: SimPolicy, command: Reconfigure, problems: list[str]) -> SimPolicy:
    policy = old
    if command.kueue_config or command.feature_gates or command.fair_sharing is not None:
        if old.kueue is None:
            problems.append("there is no Kueue to configure")
            return old
        policy = replace(policy, kueue=_new_kueue_config(old.kueue, command, problems))
    if command.placement:
        form = decode_strictly(dict(command.placement), PlacementForm, "placement", problems)
        if form is not None:
            policy = replace(policy, placement=read_placement(form, None, problems))
    return policy


def _new_kueue_config(config: KueueConfig, command: Reconfigure, problems: list[str]) -> KueueConfig:
    if command.kueue_config:
        config = read_kueue_config(dict(command.kueue_config), None, problems)
    if command.fair_sharing is not None:
        config = replace(config, fair_sharing=command.fair_sharing)
    wrong = dict(gate_refusals(command.feature_gates))
    problems.extend(f"feature gate {gate}: {why}; {gate_remedy(gate)}" for gate, why in wrong.items())
    if wrong or not command.feature_gates:
        return config
    chosen = resolve_gates({**config.gates, **command.feature_gates})
    problems.extend(f"feature gates: {why}" for _, why in contradictory_gates(chosen))
    return replace(config, gates=chosen)


def execute_command(world: World, command: Command, place: str = "") -> None:
    """Carry a command out; a refusal becomes a history event, whose message begins with the command's position."""
    refusal = _execute(world, command, place)
    if refusal:
        what = HistoryEventKind.COMMAND_NEEDLESS if isinstance(refusal, NoChange) else HistoryEventKind.COMMAND_REFUSED
        message = f"{place}: {refusal}" if place else str(refusal)
        world.record_event(what, reason=type(command).__name__, message=message, **_event_subject(command))


def _execute(world: World, command: Command, place: str) -> Refusal:
    match command:
        case Submit(objects):
            return "; ".join(filter(None, [object_commands.create_object(world, obj) for obj in objects]))
        case Copy(key, name):
            return object_commands.copy_work(world, key, name)
        case Delete(table, key):
            return object_commands.delete_object(world, table, key)
        case SetActive(key, active, cause, why):
            return workload_commands.set_active(world, resolve_workload_key(world, key), active, cause, why)
        case Requeue(key):
            return workload_commands.requeue_workload(world, resolve_workload_key(world, key))
        case SetPriority(key, priority, class_name):
            return workload_commands.set_priority(world, resolve_workload_key(world, key), priority, class_name)
        case MoveToQueue(key, queue):
            return workload_commands.move_to_queue(world, resolve_workload_key(world, key), queue)
        case SetStopPolicy(key, policy):
            return stop_queue(world, key, policy)
        case SetQuota():
            return set_quota(world, command)
        case SetWeight():
            return queue_commands.set_weight(world, command)
        case SetCohort():
            return queue_commands.set_cohort(world, command)
        case SetPreemption():
            return queue_commands.set_preemption(world, command)
        case SetTaint():
            return set_taint(world, command)
        case AddNodes(like, count):
            return add_nodes(world, like, count)
        case Divide():
            return repartition_gpus(world, command)
        case Reconfigure():
            return reconfigure(world, command)
        case Later(after, order):
            world.kernel.set_timer(world.now + after, RunCommands((order,), place))
            return CARRIED_OUT
        case Cordon(name, cordoned):
            return cordon_node(world, name, cordoned)
        case Drain(name):
            return drain_node(world, name)
        case Edit(_, key):
            return f"{key} has no manifest that could be edited: it is simulated; change it by its own action"
        case FailNode(name):
            return set_node_ready(world, name, False)
        case RestoreNode(name):
            return set_node_ready(world, name, True)
        case InterruptSpot(name):
            return machines.order_interruption(world, name)
        case InCluster(name, order):
            return multikueue.forward_command(world, name, order)
        case LoseCluster(name):
            return multikueue.set_disconnected(world, name, True)
        case RestoreCluster(name):
            return multikueue.set_disconnected(world, name, False)
        case AnswerCheck(key, name, state, message):
            return workload_controller.set_check_state(world, resolve_workload_key(world, key), name, state, message)
        case FailPod(key):
            return fail_pod(world, key)
        case Scale():
            return elastic_jobs.scale(world, command)
        case Finish(key):
            return workload_commands.finish_work(world, key)
        case _:
            assert_never(command)


def _event_subject(command: Command) -> dict[str, str]:
    match command:
        case (
            SetActive(key)
            | Requeue(key)
            | SetPriority(key)
            | MoveToQueue(key)
            | AnswerCheck(key)
            | Finish(key)
            | Delete("workloads", key)
        ):
            return {"workload": key}
        case (
            Cordon(name)
            | Drain(name)
            | FailNode(name)
            | RestoreNode(name)
            | InterruptSpot(name)
            | SetTaint(name)
            | Divide(name)
            | Delete("nodes", name)
        ):
            return {"node": name}
        case Copy(of):
            return {"workload": of}
        case FailPod(key) | Delete("pods", key):
            return {"pod": key}
        case SetStopPolicy(name) | SetQuota(name) | SetPreemption(name) | Delete("cluster_queues", name):
            return {"queue": name}
        case _:
            return {}


def stop_queue(world: World, key: str, policy: StopPolicy) -> Refusal:
    """Hold, drain or resume a ClusterQueue (`name`) or LocalQueue (`namespace/name`); close or open a Volcano Queue."""
    queue: ClusterQueue | LocalQueue | None = world.local_queue(key) if "/" in key else world.cluster_queue(key)
    theirs = volcano_jobs.volcano_queue(world, key)
    if queue is None and theirs is not None:
        return volcano_jobs.set_queue_state(world, theirs, policy)
    if queue is None:
        return f"there is no {'LocalQueue' if '/' in key else 'ClusterQueue'} {key}"
    if queue.stop_policy is policy:
        return NoChange(f"{type(queue).__name__} {key} has stopPolicy {policy} already")
    queue_commands.set_stop_policy(world, queue, policy)
    return CARRIED_OUT


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
    queue_commands.resize_quota(world, queue, command.flavor, command.resource, quota)
    return CARRIED_OUT


def cordon_node(world: World, name: str, cordoned: bool) -> Refusal:
    """Cordon or uncordon a node."""
    node = world.node(name)
    if node is None:
        return _unknown_node(name)
    if node.unschedulable == cordoned:
        return NoChange(f"node {name} is {'cordoned' if cordoned else 'schedulable'} already")
    nodes.set_cordoned(world, node, cordoned)
    return CARRIED_OUT


def drain_node(world: World, name: str) -> Refusal:
    """Cordon a node and evict its pods."""
    node = world.node(name)
    if node is None:
        return _unknown_node(name)
    nodes.drain_node(world, node)
    return CARRIED_OUT


def set_node_ready(world: World, name: str, ready: bool) -> Refusal:
    """Make a node stop responding, or a failed one ready again."""
    node = world.node(name)
    if node is None:
        return _unknown_node(name)
    if node.ready == ready:
        return NoChange(f"node {name} is {'up' if ready else 'down'} already")
    change = nodes.restore_node if ready else nodes.fail_node
    change(world, node)
    return CARRIED_OUT


def fail_pod(world: World, key: str) -> Refusal:
    """Make a running pod fail."""
    pod = world.pod(key)
    if pod is None:
        return f"there is no pod {key}"
    if pod.done or pod.deleted or not pod.node:
        state = pod.phase.value.lower() if pod.done else "leaving" if pod.deleted else "waiting for a node"
        return f"pod {key} is {state}; only a running pod can fail"
    reconcile.fail_pod(world, pod)
    return CARRIED_OUT


def _unknown_node(name: str) -> Refusal:
    return f"there is no node {name}"


MAX_NEW_NODES = 10_000
"""Maximum nodes that one command adds."""
TAINTED, DIVIDED = "TaintManagerEviction", "GpusDivided"


def set_taint(world: World, command: SetTaint) -> Refusal:
    """Add or remove a taint. NoExecute evicts the pods that do not tolerate it."""
    node = world.node(command.node)
    if node is None:
        return _unknown_node(command.node)
    taint = Taint(command.key, command.value, command.effect)
    if not command.removed and (problem := taint_problem(taint)):
        return problem
    others = tuple(one for one in node.taints if (one.key, one.effect) != (taint.key, taint.effect))
    if command.removed and len(others) == len(node.taints):
        return f"node {node.name} has no taint {command.key}:{command.effect}"
    taints = others if command.removed else (*others, taint)
    if sorted(map(repr, taints)) == sorted(map(repr, node.taints)):
        return NoChange(f"node {node.name} has taint {command.key}:{command.effect} already")
    world.put(replace(node, taints=taints))
    world.record_event(
        HistoryEventKind.NODE_CHANGED, node=node.name, reason="Untainted" if command.removed else "Tainted"
    )
    if not command.removed and command.effect == "NoExecute":
        for pod in nodes.pods_on(world, node.name):
            if not pod.deleted and not any(one.tolerates(taint) for one in pod.template.tolerations):
                nodes.evict_pod(world, pod, reason=TAINTED, message=f"node {node.name} got taint {command.key}")
    return CARRIED_OUT


def add_nodes(world: World, like: str, number: int) -> Refusal:
    """Add nodes like an existing one: its labels, topology and capacity; empty and ready.

    DRA drivers publish the devices of each in ResourceSlices of its own.
    """
    node = world.node(like)
    if node is None:
        return _unknown_node(like)
    if not 0 < number <= MAX_NEW_NODES:
        return f"{number} nodes cannot join; 1 to {MAX_NEW_NODES:,} can"
    names = (name for n in count(1) if world.node(name := f"{like}-{n}") is None)
    for _ in range(number):
        copied = node.twin(next(names))
        object_commands.create_object(world, replace(copied, uid=world.uid("Node", copied.name), created=world.now))
        for part in [part for part in world.state.table("resource_slices").all() if part.node == like]:
            object_commands.create_object(world, _copy_resource_slice(part, like, copied.name))
    return CARRIED_OUT


def _copy_resource_slice(part: ResourceSlice, like: str, name: str) -> ResourceSlice:
    """The same devices on another node, in a pool of their own; pools are usually named after their nodes."""

    def renamed(old: str) -> str:
        return old.replace(like, name) if like in old else f"{old}-{name}"

    return replace(part, name=renamed(part.name), uid="", pool=renamed(part.pool), node=name)


def repartition_gpus(world: World, command: Divide) -> Refusal:
    """Change a node's MIG partitioning. Pods on GPUs that are reset, or whose instances are deleted, fail."""
    node = world.node(command.node)
    if node is None:
        return _unknown_node(command.node)
    model = model_of(node.labels)
    if model is None or model.mig is None:
        return f"node {node.name} has no GPUs with MIG"
    here = tuple(nodes.pods_on(world, node.name))
    change = mig_node_changes(node, model, here, command.config, {})
    problems = [change.problem] if change.problem else []
    if not problems and not change.gpus:
        return NoChange(f"the GPUs of node {node.name} already have this MIG configuration")
    mig = Mig(strategy=MigStrategy(command.strategy), name=command.config)
    made = apply_gpu_setup(_without_mig(node), GpuSetup(rules=(SharingRule(node_selector={}, mig=mig),)), problems)
    if problems:
        return "; ".join(problems)
    leaving = {key for gpu in change.gpus for key in gpu.leavers}
    for pod in here:
        if pod.key in leaving:
            nodes.fail_pod(world, pod, DIVIDED, f"the GPUs of node {node.name} are being reconfigured (MIG)")
    world.put(made)
    amount = world.devices.of_node(made)
    world.record_event(HistoryEventKind.NODE_CHANGED, node=node.name, reason=DIVIDED, message=command.config, **amount)
    return CARRIED_OUT


def _without_mig(node: Node) -> Node:
    """The node with unpartitioned GPUs."""
    division = division_of(node.allocatable, node.labels, node.annotations)
    if division is None:
        return node
    notes = {key: value for key, value in node.annotations.items() if key not in (LAYOUT, DYNAMIC)}
    return replace(
        node,
        annotations=notes,
        capacity=_whole_gpu_resources(node.capacity, division.gpus),
        allocatable=_whole_gpu_resources(node.allocatable, division.gpus),
    )


def _whole_gpu_resources(resources: Resources, gpus: int) -> Resources:
    return {**{name: amount for name, amount in resources.items() if not is_mig(name)}, GPU: gpus}
