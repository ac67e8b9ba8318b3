"""Which command or access an action would come to: that is what the API server is asked about before it is offered."""

from collections.abc import Mapping

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
from gpuconsole.services.desk import Access, Reach

REACHES: Mapping[str, Reach] = {
    "object.logs": Reach.LOGS,
    "object.previous": Reach.LOGS,
    "object.shell": Reach.SHELL,
    "object.forward": Reach.FORWARD,
}
SIMULATED: Mapping[str, str] = {
    "object.logs": "simulated pods have no logs",
    "object.previous": "simulated pods have no logs",
    "object.shell": "simulated pods have no shell",
    "object.forward": "simulated pods have no ports",
    "object.edit": "simulated objects have no manifest; press m for other actions",
    "queue.edit": "simulated objects have no manifest; press e to edit the quota",
}
"""Why a cluster without an API server cannot do it."""


def asked_by(action: str, table: str, key: str) -> Command | Access | None:
    """What an action would ask of the cluster for this object; None for what asks nothing."""
    match action:
        case "object.logs" | "object.previous" | "object.shell" | "object.forward":
            return Access(REACHES[action], key.rpartition("/")[0].rpartition("/")[2])
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
