"""What a workload without quota is told before the scheduler looks at it, and where it is queued meanwhile."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, StopPolicy
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admissibility import (
    ADMISSION_GATED_BY,
    InadmissibleReason,
    inadmissible_reason,
    queue_inadmissible_reason,
    quota_loss_reason,
)
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap, RequeueReason
from gpuconsole.scheduling.kueue.conditions import Unadmitted, unadmitted_reason
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.state import FlavorScanProgress
from tests.support.kueue_cluster import GPU, World, queue, workload

GRANULAR = {"UnadmittedWorkloadsObservability": True}
EXPLICIT = {**GRANULAR, "UnadmittedWorkloadsExplicitStatus": True}
WAITS = workload("w", "q")
GATED = replace(WAITS, annotations={ADMISSION_GATED_BY: "budget, legal"})


def said(reason: str, message: str = "as before", of: Workload = WAITS) -> Workload:
    return of.with_condition(Condition("QuotaReserved", False, reason, message, 0))


def door(cluster_queue: str = "q", policy: StopPolicy = StopPolicy.NONE) -> LocalQueue:
    return LocalQueue(namespace="team", name="q", cluster_queue=cluster_queue, stop_policy=policy)


OPEN: tuple[Object, ...] = (queue("q", 4), door())
STOPPED_DOOR: tuple[Object, ...] = (queue("q", 4), door(policy=StopPolicy.HOLD))
STOPPED_QUEUE: tuple[Object, ...] = (replace(queue("q", 4), stop_policy=StopPolicy.HOLD), door())
CLOSED_TO_TEAM: tuple[Object, ...] = (queue("q", 4, selector=LabelSelector(match_labels={"a": "b"})), door())
NOTHING = ("", "")
EVALUATION = ("PendingEvaluation", "Workload is pending evaluation in the scheduling queue")
GATE = ("AdmissionGated", "Admission is gated by: budget, legal")


def told(things: tuple[Object, ...], subject: Workload, gates: Mapping[str, bool]) -> tuple[str, str]:
    """What the workload is told, in a world that knows only these queues."""
    world = World(config=KueueConfig(gates=gates))
    world.apply(*things, subject)
    return inadmissible_reason(subject, world.session.look_up_queues(subject), world.session.config)


CASES: dict[str, tuple[tuple[Object, ...], Workload, tuple[str, str], tuple[str, str]]] = {
    "its LocalQueue is missing": (
        (queue("q", 4),),
        WAITS,
        ("Inadmissible", "LocalQueue q doesn't exist"),
        ("Misconfigured", "LocalQueue q doesn't exist"),
    ),
    "its LocalQueue is stopped": (
        STOPPED_DOOR,
        WAITS,
        ("Inadmissible", "LocalQueue q is inactive"),
        ("Suspended", "LocalQueue q is inactive"),
    ),
    "its LocalQueue leads nowhere": (
        (door("nowhere"),),
        WAITS,
        ("Inadmissible", "ClusterQueue nowhere doesn't exist"),
        ("Misconfigured", "ClusterQueue nowhere doesn't exist"),
    ),
    "its ClusterQueue is stopped": (
        STOPPED_QUEUE,
        WAITS,
        ("Inadmissible", "ClusterQueue q is inactive"),
        ("Suspended", "ClusterQueue q is inactive"),
    ),
    "its namespace does not match": (
        CLOSED_TO_TEAM,
        WAITS,
        NOTHING,
        ("Misconfigured", "workload namespace doesn't match ClusterQueue selector"),
    ),
    "it is stopped itself": (
        OPEN,
        replace(WAITS, active=False),
        NOTHING,
        ("Deactivated", "The workload is deactivated"),
    ),
    "nothing stands in its way, and it was told nothing": (OPEN, WAITS, NOTHING, NOTHING),
    "what stood in its way is gone": (OPEN, said("Suspended"), NOTHING, EVALUATION),
    "the scheduler said why it waits": (OPEN, said("WaitingForQuota"), NOTHING, ("WaitingForQuota", "as before")),
    "its job wants nothing now": (OPEN, said("OnHold"), NOTHING, ("OnHold", "as before")),
    "somebody has to let it in first": (OPEN, GATED, GATE, GATE),
    "it was told so before": (OPEN, said("AdmissionGated", of=GATED), NOTHING, GATE),
    "it is gated, and its queue is missing": (
        (),
        said("AdmissionGated", of=GATED),
        ("Inadmissible", "LocalQueue q doesn't exist"),
        ("Misconfigured", "LocalQueue q doesn't exist"),
    ),
    "it was let in": (
        OPEN,
        said("AdmissionGated"),
        ("Pending", "AdmissionGatedBy cleared, waiting for quota reservation"),
        ("PendingEvaluation", "AdmissionGatedBy cleared, waiting for quota reservation"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_told_when(case: str) -> None:
    things, subject, plain, granular = CASES[case]
    assert (told(things, subject, {}), told(things, subject, GRANULAR)) == (plain, granular)


def test_behind_its_gate_a_new_workload_is_told_that_it_waits_for_evaluation() -> None:
    assert told(OPEN, WAITS, EXPLICIT) == EVALUATION


def test_without_its_gate_the_annotation_means_nothing() -> None:
    assert told(OPEN, GATED, {"AdmissionGatedBy": False}) == NOTHING


def test_a_look_alike_of_a_refused_workload_is_told_that_it_was_passed_over() -> None:
    world = World(queue("q", 4), config=KueueConfig(gates=GRANULAR))
    world.apply(workload("big", "q", gpus=9), workload("alike", "q", gpus=9, created=1))
    world.cycle()
    alike = said("Pending", of=world.workloads["alike"])
    world.apply(alike)
    message = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    assert inadmissible_reason(alike, world.session.look_up_queues(alike), world.session.config) == (
        "ExceedsMaxQuota",
        message,
    )


BLOCKERS: dict[str, tuple[tuple[Object, ...], Workload, InadmissibleReason | None]] = {
    "nothing": (OPEN, WAITS, None),
    "nothing, though its queue is stopped": (STOPPED_QUEUE, WAITS, None),
    "its gate": (OPEN, GATED, InadmissibleReason.NOT_WAITING),
    "that it is stopped": (OPEN, replace(WAITS, active=False), InadmissibleReason.NOT_WAITING),
    "that its job wants nothing now": (OPEN, said("OnHold"), InadmissibleReason.NOT_WAITING),
    "that it has quota": (
        OPEN,
        WAITS.with_condition(Condition("QuotaReserved", True, "", "", 0)),
        InadmissibleReason.NOT_WAITING,
    ),
    "that it waits for other pods in place of its own": (
        OPEN,
        WAITS.with_condition(Condition("WaitingForReplacementPods", True, "", "", 0)),
        InadmissibleReason.NOT_WAITING,
    ),
    "its LocalQueue, which is missing": ((), WAITS, InadmissibleReason.NO_LOCAL_QUEUE),
    "its LocalQueue, which is stopped": (STOPPED_DOOR, WAITS, InadmissibleReason.LOCAL_QUEUE_STOPPED),
    "a ClusterQueue that is missing": ((door("nowhere"),), WAITS, InadmissibleReason.NO_CLUSTER_QUEUE),
}


@pytest.mark.parametrize("case", BLOCKERS)
def test_what_keeps_it_out_of_the_queues_is(case: str) -> None:
    things, subject, wanted = BLOCKERS[case]
    world = World()
    world.apply(*things, subject)
    state = world.session._apply_noted_changes
    assert queue_inadmissible_reason(state.setup, subject, state.config) is wanted
    assert isinstance(state.workload_index.get(subject.key), WorkloadRequest) is (wanted is None)


LOSSES: dict[str, tuple[tuple[Object, ...], tuple[str, str] | None]] = {
    "neither queue is stopped": (OPEN, None),
    "its LocalQueue is gone": ((queue("q", 4),), ("Misconfigured", "LocalQueue q is terminating or missing")),
    "its LocalQueue is stopped": (STOPPED_DOOR, ("Suspended", "LocalQueue q is stopped")),
    "its ClusterQueue is gone": ((door(),), ("Misconfigured", "ClusterQueue q is terminating or missing")),
    "its ClusterQueue is stopped": (STOPPED_QUEUE, ("Suspended", "ClusterQueue q is stopped")),
}


@pytest.mark.parametrize("case", LOSSES)
def test_a_workload_that_is_not_admitted_yet_loses_its_quota_when(case: str) -> None:
    things, wanted = LOSSES[case]
    for gates in ({}, GRANULAR):
        world = World(config=KueueConfig(gates=gates))
        world.apply(*things, WAITS)
        got = quota_loss_reason(WAITS, world.session.look_up_queues(WAITS), world.session.config)
        plain = None if wanted is None else ("Inadmissible", wanted[1])
        assert got == (wanted if gates else plain)


WORDS: dict[str, tuple[Workload, Unadmitted | None]] = {
    "nothing was said yet": (WAITS, Unadmitted("NoReservation", "PendingEvaluation")),
    "it was refused": (said("WaitingForQuota"), Unadmitted("NoReservation", "WaitingForQuota")),
    "it was refused, and says that it is not admitted": (
        conditions.set_pending_reason(WAITS, "ExceedsMaxQuota", "", 0, granular=True),
        Unadmitted("NoReservation", "ExceedsMaxQuota"),
    ),
    "it has quota and open checks": (
        replace(
            WAITS,
            conditions=(
                Condition("QuotaReserved", True, "", "", 0),
                Condition("Admitted", False, "UnsatisfiedChecks", "", 0),
            ),
        ),
        Unadmitted("UnsatisfiedChecks"),
    ),
    "it is admitted": (WAITS.with_condition(Condition("Admitted", True, "", "", 0)), None),
    "it has ended": (WAITS.with_condition(Condition("Finished", True, "", "", 0)), None),
    "it stands for another workload": (replace(WAITS, owner="Workload/team/parent"), None),
}


@pytest.mark.parametrize("case", WORDS)
def test_the_words_for_not_being_admitted_when(case: str) -> None:
    subject, wanted = WORDS[case]
    assert unadmitted_reason(subject) == wanted


RETURNS: dict[RequeueReason, tuple[bool, bool, bool]] = {
    # Parked under BestEffortFIFO, with its look-alikes, parked under StrictFIFO.
    RequeueReason.GENERIC: (True, False, False),
    RequeueReason.FAILED_AFTER_NOMINATION: (False, False, False),
    RequeueReason.NAMESPACE_MISMATCH: (True, False, True),
    RequeueReason.PREEMPTION_GATED: (True, False, False),
    RequeueReason.PENDING_PREEMPTION: (False, False, False),
    RequeueReason.PENDING_MIGRATION: (False, False, False),
    RequeueReason.PREEMPTION_FAILED: (False, False, False),
    RequeueReason.NO_FIT: (True, True, False),
    RequeueReason.PREEMPTION_NO_CANDIDATES: (True, True, False),
}


@pytest.mark.parametrize("reason", list(RequeueReason), ids=lambda reason: reason.value or "Generic")
def test_where_a_head_goes_that_was_not_admitted(reason: RequeueReason) -> None:
    parked, alike, parked_in_strict = RETURNS[reason]
    for strict in (False, True):
        waiting = ClusterQueueHeap(strict=strict, hashing=True)
        for number in range(3):
            waiting.push(WorkloadRequest(workload(f"w{number}", "q", created=number), number, "q", KueueConfig()))
        head = waiting.head()
        assert head is not None
        waiting.take_head(head)
        waiting.requeue(head, reason, ready=True, more_flavors=False, granular="WaitingForQuota")
        assert waiting.is_inadmissible(0) is (parked_in_strict if strict else parked)
        assert waiting.is_inadmissible(1) is (alike and not strict)
        assert waiting.class_refusal(1) == ("WaitingForQuota" if alike and not strict else None)


@pytest.mark.parametrize("reason", [RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION])
def test_one_for_which_room_is_made_stays_first(reason: RequeueReason) -> None:
    for strict, first in ((False, "old"), (True, "urgent")):
        waiting = ClusterQueueHeap(strict=strict, hashing=True)
        waiting.push(WorkloadRequest(workload("old", "q"), 0, "q", KueueConfig()))
        head = waiting.head()
        assert head is not None
        waiting.take_head(head)
        waiting.requeue(head, reason, ready=True, more_flavors=False)
        waiting.push(WorkloadRequest(workload("urgent", "q", priority=9), 1, "q", KueueConfig()))
        found = waiting.head()
        assert found is not None
        assert found.workload.name == first


@pytest.mark.parametrize(("keeps", "left"), [(True, True), (False, False)], ids=["with its gate", "without"])
def test_progress_in_flavors_outlives_an_update(keeps: bool, left: bool) -> None:
    gates = {"FlavorFungibilityPreserveScanProgress": keeps}
    world = World(queue("q", 4), config=KueueConfig(gates=gates))
    world.apply(WAITS)
    state = world.session._apply_noted_changes
    number = state.workload_index.id_of(WAITS.key)
    state.progress[number] = FlavorScanProgress(({GPU: 0},), 0, 0, b"")
    world.apply(replace(WAITS, labels={"seen": "by somebody"}))
    assert (number in state.progress) is left
