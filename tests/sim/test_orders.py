"""Commands that cannot be carried out are refused, with what would be right, and change nothing."""

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import (
    Command,
    Cordon,
    Delete,
    Drain,
    FailNode,
    FailPod,
    Finish,
    MoveToQueue,
    Requeue,
    RestoreNode,
    SetActive,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    Submit,
)
from gpuconsole.model.events import Happened, What
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import StopPolicy
from tests.sim.cluster import GPU, START, job, start, submit, two_teams, workload

REFUSED: dict[str, tuple[Command, str]] = {
    "an unknown workload": (Requeue("red/nobody"), "there is no workload red/nobody"),
    "a finished one": (SetPriority("red/over", 3), "workload red/over is finished"),
    "one that waits already": (
        Requeue("red/waits"),
        "workload red/waits waits in its queue already; only one that holds quota can be requeued",
    ),
    "one that is active already": (SetActive("red/runs", True), "workload red/runs is active already"),
    "a priority beyond 32 bits": (
        SetPriority("red/runs", 2**31),
        "priority 2147483648 is outside the 32-bit range that Kubernetes allows",
    ),
    "a move of what runs": (
        MoveToQueue("red/runs", "lq"),
        "workload red/runs holds quota in red; stop it first, then move it, then resume it",
    ),
    "a move to nowhere": (MoveToQueue("red/waits", "nowhere"), "namespace red has no LocalQueue nowhere; it has: lq"),
    "a move to where it is": (MoveToQueue("red/waits", "lq"), "workload red/waits is in lq already"),
    "an unknown queue": (SetStopPolicy("green", StopPolicy.HOLD), "there is no ClusterQueue green"),
    "an unknown local queue": (SetStopPolicy("green/lq", StopPolicy.HOLD), "there is no LocalQueue green/lq"),
    "a quota of an unknown flavor": (
        SetQuota("red", "h100", GPU, 4),
        "ClusterQueue red has no quota of nvidia.com/gpu in h100; it has: a100/nvidia.com/gpu",
    ),
    "a negative quota": (SetQuota("red", "a100", GPU, -1), "nominal -1 is not 0 or more"),
    "a negative limit": (SetQuota("red", "a100", GPU, 4, -2), "borrowingLimit -2 is not 0 or more"),
    "lending more than there is": (
        SetQuota("red", "a100", GPU, 4, None, 5),
        "lendingLimit 5 is more than the nominal quota 4",
    ),
    "an unknown node": (Cordon("n9", True), "there is no node n9"),
    "draining an unknown node": (Drain("n9"), "there is no node n9"),
    "failing what is down": (FailNode("n2"), "node n2 is down already"),
    "restoring what is up": (RestoreNode("n1"), "node n1 is up already"),
    "failing an unknown pod": (FailPod("red/nobody-0"), "there is no pod red/nobody-0"),
    "failing a pod that is done": (
        FailPod("red/over-0"),
        "pod red/over-0 is succeeded; only a running pod can fail",
    ),
    "finishing nobody": (Finish("red/nobody"), "there is no unfinished workload, job or pod red/nobody"),
    "deleting nobody": (Delete("jobs", "Job/red/nobody"), "there is no Job Job/red/nobody"),
    "deleting from nowhere": (
        Delete("cats", "tom"),
        f"there is no table cats; the tables are {', '.join(TABLES.values())}",
    ),
    "a second of the same name": (
        Submit((workload("runs"),)),
        "Workload red/runs exists already; delete it first, or choose another name",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refusals_say_why_and_change_nothing(case: tuple[Command, str]) -> None:
    command, why = case
    simulation = start(two_teams())
    submit(simulation, workload("over", duration="30s"), workload("runs", gpus=4, duration="1h"))
    simulation.submit(FailNode("n2"))
    simulation.advance(START + MINUTE)
    submit(simulation, workload("waits", gpus=4, pods=2))
    before = list(simulation.snapshot().objects())
    simulation.drain()
    simulation.submit(command)
    refused = [event for event in simulation.drain() if isinstance(event, Happened)]
    assert [(line.what, line.reason, line.message) for line in refused] == [
        (What.COMMAND_REFUSED, type(command).__name__, why)
    ]
    assert list(simulation.snapshot().objects()) == before


def test_of_several_objects_those_that_can_be_created_are() -> None:
    simulation = start(two_teams())
    submit(simulation, job("a"))
    simulation.drain()
    submit(simulation, job("a"), job("b"))
    lines = [e.what for e in simulation.drain() if isinstance(e, Happened)]
    assert What.COMMAND_REFUSED in lines
    assert list(simulation.snapshot().jobs) == ["Job/red/a", "Job/red/b"]
