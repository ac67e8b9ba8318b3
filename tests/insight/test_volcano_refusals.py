"""Volcano Jobs that are refused say what is wrong with them, not that they wait."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.why import why
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import EVERYTHING, Visibility
from gpuconsole.model.volcano import PodGroup, VolcanoQueue, VolcanoSpec
from tests.support.snapshots import START, unseen, world

JOB = Job(kind="VolcanoJob", namespace="team", name="big", uid="u1", volcano=VolcanoSpec(queue="q"))
GROUP = PodGroup(namespace="team", name="big-u1", queue="q")
FAILED = HistoryEvent(
    time=START,
    what=HistoryEventKind.PENDING,
    workload=JOB.key,
    reason="FailedCreate",
    message="plugin sla is not known",
)
CASES: dict[str, tuple[list[Object], list[HistoryEvent], Visibility, tuple[PendingReason, str]]] = {
    "its queue does not exist": ([], [], EVERYTHING, (PendingReason.QUEUE_MISSING, "Queue q does not exist.")),
    "its PodGroup's queue does not exist": (
        [GROUP],
        [],
        EVERYTHING,
        (PendingReason.QUEUE_MISSING, "Queue q does not exist."),
    ),
    "nobody knows whether its queue exists": (
        [],
        [],
        unseen(VolcanoQueue),
        (PendingReason.QUEUED, "No pods exist yet."),
    ),
    "its queue is closed": (
        [VolcanoQueue(name="q", state="Closed"), GROUP],
        [],
        EVERYTHING,
        (PendingReason.QUEUE_STOPPED, "Queue q is Closed: it accepts no new jobs."),
    ),
    "its pods cannot be made": (
        [VolcanoQueue(name="q")],
        [FAILED],
        EVERYTHING,
        (PendingReason.INVALID, "Its pods cannot be created: plugin sla is not known"),
    ),
    "its gang is larger than its queue may be": (
        [VolcanoQueue(name="q", capability={GPU: 4}), replace(GROUP, min_resources={GPU: 8})],
        [],
        EVERYTHING,
        (
            PendingReason.EXCEEDS_MAX,
            "Its gang requests 8 GPUs; the capability of queue q is 4 GPUs: waiting does not help.",
        ),
    ),
    "it waits": (
        [VolcanoQueue(name="q"), GROUP],
        [],
        EVERYTHING,
        (PendingReason.GANG, "Volcano has not enqueued its PodGroup, so it has no pods yet."),
    ),
}


@pytest.mark.parametrize(("things", "recent", "seen", "told"), CASES.values(), ids=CASES.keys())
def test_a_volcano_job_says_why_it_is_refused(
    things: list[Object], recent: list[HistoryEvent], seen: Visibility, told: tuple[PendingReason, str]
) -> None:
    answer = why(world([JOB, *things], recent=recent, seen=seen), None, JOB.key)
    assert (answer.code, answer.explanation.headline) == told
