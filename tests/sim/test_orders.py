"""Commands that cannot be carried out are refused, with what would be right; what is so already says so."""

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
    SetCohort,
    SetPreemption,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    SetWeight,
    Submit,
)
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import StopPolicy
from tests.support.sim_cluster import GPU, START, job, start, submit, two_teams, workload

REFUSED: dict[str, tuple[Command, str]] = {
    "an unknown workload": (Requeue("red/nobody"), "there is no workload red/nobody"),
    "a finished one": (SetPriority("red/over", 3), "workload red/over is finished"),
    "a priority beyond 32 bits": (
        SetPriority("red/runs", 2**31),
        "priority 2147483648 is outside the 32-bit range that Kubernetes allows",
    ),
    "a move of what runs": (
        MoveToQueue("red/runs", "lq"),
        "workload red/runs holds quota in red; stop it first, then move it, then resume it",
    ),
    "a move to nowhere": (MoveToQueue("red/waits", "nowhere"), "namespace red has no LocalQueue nowhere; it has: lq"),
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

SO_ALREADY: dict[str, tuple[Command, str]] = {
    "one that waits": (
        Requeue("red/waits"),
        "workload red/waits is already pending; only workloads with reserved quota can be requeued",
    ),
    "one that is active": (SetActive("red/runs", True), "workload red/runs is active already"),
    "its own priority": (SetPriority("red/runs", 0), "workload red/runs has priority 0 already"),
    "a move to where it is": (MoveToQueue("red/waits", "lq"), "workload red/waits is in lq already"),
    "its own quota": (
        SetQuota("red", "a100", GPU, 4),
        "ClusterQueue red has this quota of nvidia.com/gpu in a100 already",
    ),
    "a queue that is open": (SetStopPolicy("red", StopPolicy.NONE), "ClusterQueue red has stopPolicy None already"),
    "a door that is open": (SetStopPolicy("red/lq", StopPolicy.NONE), "LocalQueue red/lq has stopPolicy None already"),
    "its own weight": (SetWeight("red", 1.0), "ClusterQueue red has weight 1 already"),
    "its own cohort": (SetCohort("red", "org"), "ClusterQueue red is in cohort org already"),
    "its own policies": (SetPreemption("red"), "ClusterQueue red preempts in this way already"),
    "failing what is down": (FailNode("n2"), "node n2 is down already"),
    "restoring what is up": (RestoreNode("n1"), "node n1 is up already"),
    "uncordoning what is open": (Cordon("n1", False), "node n1 is schedulable already"),
    "a taint that is there": (SetTaint("n1", "spare"), "node n1 has taint spare:NoSchedule already"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refusals_say_why_and_change_nothing(case: tuple[Command, str]) -> None:
    assert _told(case[0]) == [(HistoryEventKind.COMMAND_REFUSED, type(case[0]).__name__, case[1])]


@pytest.mark.parametrize("case", SO_ALREADY.values(), ids=SO_ALREADY)
def test_what_is_so_already_is_no_refusal_and_says_what_is_so(case: tuple[Command, str]) -> None:
    assert _told(case[0]) == [(HistoryEventKind.COMMAND_NEEDLESS, type(case[0]).__name__, case[1])]


def _told(command: Command) -> list[tuple[HistoryEventKind, str, str]]:
    """What is told of a command that changes nothing."""
    simulation = start(two_teams())
    submit(simulation, workload("over", duration="30s"), workload("runs", gpus=4, duration="1h"))
    simulation.submit(FailNode("n2"))
    simulation.submit(SetTaint("n1", "spare"))
    simulation.advance(START + MINUTE)
    submit(simulation, workload("waits", gpus=4, pods=2))
    before = list(simulation.snapshot().objects())
    simulation.drain()
    simulation.submit(command)
    told = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    assert list(simulation.snapshot().objects()) == before
    return [(line.what, line.reason, line.message) for line in told]


def test_of_several_objects_those_that_can_be_created_are() -> None:
    simulation = start(two_teams())
    submit(simulation, job("a"))
    simulation.drain()
    submit(simulation, job("a"), job("b"))
    lines = [e.what for e in simulation.drain() if isinstance(e, HistoryEvent)]
    assert HistoryEventKind.COMMAND_REFUSED in lines
    assert list(simulation.snapshot().jobs) == ["Job/red/a", "Job/red/b"]
