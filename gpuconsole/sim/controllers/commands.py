"""Dispatch of commands: each is carried out, or refused with the reason and the valid alternatives."""

from typing import assert_never

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
from gpuconsole.sim.autoscaling import spot
from gpuconsole.sim.controllers import (
    checks,
    cluster_orders,
    copying,
    creating,
    deleting,
    federation,
    node_orders,
    queue_orders,
    reconfiguring,
    scaling,
    workload_orders,
)
from gpuconsole.sim.controllers.refusals import DONE, NoChange, Refusal
from gpuconsole.sim.controllers.workload_orders import meant
from gpuconsole.sim.kernel import RunCommands
from gpuconsole.sim.world import World


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
            return "; ".join(filter(None, [creating.create(world, obj) for obj in objects]))
        case Copy(key, name):
            return copying.copy(world, key, name)
        case Delete(table, key):
            return deleting.delete(world, table, key)
        case SetActive(key, active, cause, why):
            return workload_orders.set_active(world, meant(world, key), active, cause, why)
        case Requeue(key):
            return workload_orders.requeue(world, meant(world, key))
        case SetPriority(key, priority, class_name):
            return workload_orders.set_priority(world, meant(world, key), priority, class_name)
        case MoveToQueue(key, queue):
            return workload_orders.move(world, meant(world, key), queue)
        case SetStopPolicy(key, policy):
            return cluster_orders.stop_queue(world, key, policy)
        case SetQuota():
            return cluster_orders.set_quota(world, command)
        case SetWeight():
            return queue_orders.set_weight(world, command)
        case SetCohort():
            return queue_orders.set_cohort(world, command)
        case SetPreemption():
            return queue_orders.set_preemption(world, command)
        case SetTaint():
            return node_orders.set_taint(world, command)
        case AddNodes(like, count):
            return node_orders.add_nodes(world, like, count)
        case Divide():
            return node_orders.divide_gpus(world, command)
        case Reconfigure():
            return reconfiguring.reconfigure(world, command)
        case Later(after, order):
            world.kernel.at(world.now + after, RunCommands((order,), place))
            return DONE
        case Cordon(name, cordoned):
            return cluster_orders.cordon_node(world, name, cordoned)
        case Drain(name):
            return cluster_orders.drain_node(world, name)
        case Edit(_, key):
            return f"{key} has no manifest that could be edited: it is simulated; change it by its own action"
        case FailNode(name):
            return cluster_orders.fail_node(world, name)
        case RestoreNode(name):
            return cluster_orders.restore_node(world, name)
        case InterruptSpot(name):
            return spot.order_interruption(world, name)
        case InCluster(name, order):
            return federation.pass_on(world, name, order)
        case LoseCluster(name):
            return federation.lose(world, name, True)
        case RestoreCluster(name):
            return federation.lose(world, name, False)
        case AnswerCheck(key, name, state, message):
            return checks.answer(world, meant(world, key), name, state, message)
        case FailPod(key):
            return cluster_orders.fail_pod(world, key)
        case Scale():
            return scaling.scale(world, command)
        case Finish(key):
            return workload_orders.finish(world, key)
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
