"""Commands that add, taint or repartition nodes. Each returns why it was refused, or nothing."""

from itertools import count

from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Divide, SetTaint
from gpuconsole.model.devices import ResourceSlice
from gpuconsole.model.documents.pods_and_selectors import taint_problem
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.gpus.mig_reconfiguration import mig_node_changes
from gpuconsole.model.gpus.mig_resources import DYNAMIC, LAYOUT, MigStrategy, division_of
from gpuconsole.model.gpus.models import model_of
from gpuconsole.model.labels import Taint
from gpuconsole.model.resources import GPU, Resources, is_mig
from gpuconsole.sim.controllers import creating, nodes
from gpuconsole.sim.controllers.refusals import DONE, NoChange, Refusal
from gpuconsole.sim.gpu_setup import GpuSetup, Mig, SharingRule, apply_gpu_setup
from gpuconsole.sim.world import World

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
    world.tell(HistoryEventKind.NODE_CHANGED, node=node.name, reason="Untainted" if command.removed else "Tainted")
    if not command.removed and command.effect == "NoExecute":
        for pod in nodes.pods_on(world, node.name):
            if not pod.deleted and not any(one.tolerates(taint) for one in pod.template.tolerations):
                nodes.evict_pod(world, pod, reason=TAINTED, message=f"node {node.name} got taint {command.key}")
    return DONE


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
        twin = node.twin(next(names))
        creating.create(world, replace(twin, uid=world.uid("Node", twin.name), created=world.now))
        for part in [part for part in world.state.table("resource_slices").all() if part.node == like]:
            creating.create(world, _slice_of(part, like, twin.name))
    return DONE


def _slice_of(part: ResourceSlice, like: str, name: str) -> ResourceSlice:
    """The same devices on another node, in a pool of their own; pools are usually named after their nodes."""

    def renamed(old: str) -> str:
        return old.replace(like, name) if like in old else f"{old}-{name}"

    return replace(part, name=renamed(part.name), uid="", pool=renamed(part.pool), node=name)


def divide_gpus(world: World, command: Divide) -> Refusal:
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
    made = apply_gpu_setup(_whole(node), GpuSetup(rules=(SharingRule(node_selector={}, mig=mig),)), problems)
    if problems:
        return "; ".join(problems)
    leaving = {key for gpu in change.gpus for key in gpu.leavers}
    for pod in here:
        if pod.key in leaving:
            nodes.fail_pod(world, pod, DIVIDED, f"the GPUs of node {node.name} are being reconfigured (MIG)")
    world.put(made)
    amount = world.devices.of_node(made)
    world.tell(HistoryEventKind.NODE_CHANGED, node=node.name, reason=DIVIDED, message=command.config, **amount)
    return DONE


def _whole(node: Node) -> Node:
    """The node with unpartitioned GPUs."""
    division = division_of(node.allocatable, node.labels, node.annotations)
    if division is None:
        return node
    notes = {key: value for key, value in node.annotations.items() if key not in (LAYOUT, DYNAMIC)}
    return replace(
        node,
        annotations=notes,
        capacity=_undivided(node.capacity, division.gpus),
        allocatable=_undivided(node.allocatable, division.gpus),
    )


def _undivided(resources: Resources, gpus: int) -> Resources:
    return {**{name: amount for name, amount in resources.items() if not is_mig(name)}, GPU: gpus}


def _unknown_node(name: str) -> Refusal:
    return f"there is no node {name}"
