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
from gpuconsole.scheduling.kueue.config import KueueConfig, contradictions, refusals, remedy, resolve
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
from gpuconsole.sim.controllers.admission_plugins import DONE, NoChange, Refusal
from gpuconsole.sim.controllers.workload_commands import meant
from gpuconsole.sim.kernel import RunCommands
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario_form import PlacementForm
from gpuconsole.sim.scenario_policy import kueue_config, placement_of
from gpuconsole.sim.strict_decode import convert
from gpuconsole.sim.world import World


def reconfigure(world: World, command: Reconfigure) -> Refusal:
    """Restart the schedulers with other settings; a command that changes none of them does nothing."""
    problems: list[str] = []
    policy = _policy(world.policy, command, problems)
    if problems:
        return "; ".join(problems)
    if policy != world.policy:
        world.restart(policy)
    return DONE


def _policy(old: SimPolicy, command: Reconfigure, problems: list[str]) -> SimPolicy:
    policy = old
    if command.kueue_config or command.feature_gates or command.fair_sharing is not None:
        if old.kueue is None:
            problems.append("there is no Kueue to configure")
            return old
        policy = replace(policy, kueue=_kueue(old.kueue, command, problems))
    if command.placement:
        form = convert(dict(command.placement), PlacementForm, "placement", problems)
        if form is not None:
            policy = replace(policy, placement=placement_of(form, None, problems))
    return policy


def _kueue(config: KueueConfig, command: Reconfigure, problems: list[str]) -> KueueConfig:
    if command.kueue_config:
        config = kueue_config(dict(command.kueue_config), None, problems)
    if command.fair_sharing is not None:
        config = replace(config, fair_sharing=command.fair_sharing)
    wrong = dict(refusals(command.feature_gates))
    problems.extend(f"feature gate {gate}: {why}; {remedy(gate)}" for gate, why in wrong.items())
    if wrong or not command.feature_gates:
        return config
    chosen = resolve({**config.gates, **command.feature_gates})
    problems.extend(f"feature gates: {why}" for _, why in contradictions(chosen))
    return replace(config, gates=chosen)


def carry(world: World, command: Command, place: str = "") -> None:
    """Carry a command out; a refusal becomes a history event, whose message begins with the command's position."""
    refusal = _carry(world, command, place)
    if refusal:
        what = HistoryEventKind.COMMAND_NEEDLESS if isinstance(refusal, NoChange) else HistoryEventKind.COMMAND_REFUSED
        message = f"{place}: {refusal}" if place else str(refusal)
        world.tell(what, reason=type(command).__name__, message=message, **_about(command))


def _carry(world: World, command: Command, place: str) -> Refusal:
    match command:
        case Submit(objects):
            return "; ".join(filter(None, [object_commands.create(world, obj) for obj in objects]))
        case Copy(key, name):
            return object_commands.copy(world, key, name)
        case Delete(table, key):
            return object_commands.delete(world, table, key)
        case SetActive(key, active, cause, why):
            return workload_commands.set_active(world, meant(world, key), active, cause, why)
        case Requeue(key):
            return workload_commands.requeue(world, meant(world, key))
        case SetPriority(key, priority, class_name):
            return workload_commands.set_priority(world, meant(world, key), priority, class_name)
        case MoveToQueue(key, queue):
            return workload_commands.move(world, meant(world, key), queue)
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
            return cluster_commands.divide_gpus(world, command)
        case Reconfigure():
            return reconfigure(world, command)
        case Later(after, order):
            world.kernel.at(world.now + after, RunCommands((order,), place))
            return DONE
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
            return multikueue.pass_on(world, name, order)
        case LoseCluster(name):
            return multikueue.lose(world, name, True)
        case RestoreCluster(name):
            return multikueue.lose(world, name, False)
        case AnswerCheck(key, name, state, message):
            return admission_checks.answer(world, meant(world, key), name, state, message)
        case FailPod(key):
            return cluster_commands.fail_pod(world, key)
        case Scale():
            return elastic_jobs.scale(world, command)
        case Finish(key):
            return workload_commands.finish(world, key)
        case _:
            assert_never(command)


def _about(command: Command) -> dict[str, str]:
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
