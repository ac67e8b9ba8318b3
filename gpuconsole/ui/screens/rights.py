"""Command or access that an action needs; the API server is asked for permission before the action is offered."""

from collections.abc import Mapping

from gpuconsole.backends.object_access import PodAccess, PodOperation
from gpuconsole.model.commands import (
    AnswerCheck,
    Command,
    Cordon,
    Delete,
    Drain,
    Edit,
    FailNode,
    MoveToQueue,
    Requeue,
    RestoreNode,
    SetActive,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
)
from gpuconsole.model.queues import StopPolicy

REACHES: Mapping[str, PodOperation] = {
    "object.logs": PodOperation.LOGS,
    "object.previous": PodOperation.LOGS,
    "object.shell": PodOperation.SHELL,
    "object.forward": PodOperation.FORWARD,
}
SIMULATED: Mapping[str, str] = {
    "object.logs": "simulated pods have no logs",
    "object.previous": "simulated pods have no logs",
    "object.shell": "simulated pods have no shell",
    "object.forward": "simulated pods have no ports",
    "object.edit": "simulated objects have no manifest; press m for other actions",
    "queue.edit": "simulated objects have no manifest; press e to edit the quota",
}
"""Reasons why these actions need an API server."""


def asked_by(action: str, table: str, key: str) -> Command | PodAccess | None:
    """Command or access that an action needs for this object; None if it needs none."""
    match action:
        case "object.logs" | "object.previous" | "object.shell" | "object.forward":
            return PodAccess(REACHES[action], key.rpartition("/")[0].rpartition("/")[2])
        case "object.edit" | "queue.edit":
            return Edit(table, key, "", "{}")
        case "object.delete":
            return Delete(table, key)
        case "workload.stop" | "workload.resume":
            return SetActive(key, False)
        case "workload.requeue":
            return Requeue(key)
        case "workload.priority":
            return SetPriority(key, 0)
        case "workload.move":
            return MoveToQueue(key, "")
        case "workload.check":
            return AnswerCheck(key, "", "Ready")
        case "queue.hold" | "queue.drain" | "queue.resume":
            return SetStopPolicy(key, StopPolicy.NONE)
        case "queue.quota":
            return SetQuota(key, "", "", 0)
        case "node.cordon" | "node.uncordon":
            return Cordon(key, True)
        case "node.taint" | "node.untaint":
            return SetTaint(key, "")
        case "node.drain":
            return Drain(key)
        case "node.fail":
            return FailNode(key)
        case "node.restore":
            return RestoreNode(key)
    return None
