"""Dispatch of commands: each is carried out, or refused with the reason and the valid alternatives.

`reconfigure` is carried out here: Kueue or the scheduler restarts, and keeps only what the cluster's objects show.
"""

from typing import assert_never

from msgspec.structs import replace

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
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.scheduling.kueue.config import (
    KueueConfig,
    contradictory_gates,
    gate_refusals,
    gate_remedy,
    resolve_gates,
)
from gpuconsole.sim.autoscaling import machines
from gpuconsole.sim.controllers import (
    admission_checks,
    cluster_commands,
    elastic_jobs,
    multikueue,
    object_commands,
    queue_commands,
    workload_commands,
)
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, NoChange, Refusal
from gpuconsole.sim.controllers.workload_commands import resolve_workload_key
from gpuconsole.sim.kernel import RunCommands
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario_form import PlacementForm
from gpuconsole.sim.scenario_policy import read_kueue_config, read_placement
from gpuconsole.sim.strict_decode import convert
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
        form = convert(dict(command.placement), PlacementForm, "placement", problems)
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
            return cluster_commands.stop_queue(world, key, policy)
        case SetQuota():
            return cluster_commands.set_quota(world, command)
        case SetWeight():
            return queue_commands.set_weight(world, command)
        case SetCohort():
            return queue_commands.set_cohort(world, command)
        case SetPreemption():
            return queue_commands.set_preemption(world, command)
        case SetTaint():
            return cluster_commands.set_taint(world, command)
        case AddNodes(like, count):
            return cluster_commands.add_nodes(world, like, count)
        case Divide():
            return cluster_commands.repartition_gpus(world, command)
        case Reconfigure():
            return reconfigure(world, command)
        case Later(after, order):
            world.kernel.set_timer(world.now + after, RunCommands((order,), place))
            return CARRIED_OUT
        case Cordon(name, cordoned):
            return cluster_commands.cordon_node(world, name, cordoned)
        case Drain(name):
            return cluster_commands.drain_node(world, name)
        case Edit(_, key):
            return f"{key} has no manifest that could be edited: it is simulated; change it by its own action"
        case FailNode(name):
            return cluster_commands.fail_node(world, name)
        case RestoreNode(name):
            return cluster_commands.restore_node(world, name)
        case InterruptSpot(name):
            return machines.order_interruption(world, name)
        case InCluster(name, order):
            return multikueue.forward_command(world, name, order)
        case LoseCluster(name):
            return multikueue.set_disconnected(world, name, True)
        case RestoreCluster(name):
            return multikueue.set_disconnected(world, name, False)
        case AnswerCheck(key, name, state, message):
            return admission_checks.set_check_state(world, resolve_workload_key(world, key), name, state, message)
        case FailPod(key):
            return cluster_commands.fail_pod(world, key)
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
