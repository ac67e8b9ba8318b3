"""Which pods are made and deleted, what the status counts, and how a pod is named and labelled."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.volcano import DependsOn, PartitionPolicy, TaskSpec, VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.jobs.pods import plan_kill, plan_sync, pod_of, with_condition
from gpuconsole.scheduling.volcano.jobs.states import (
    FINISHED_PHASES,
    NO_PHASES,
    OUT_OF_SYNC,
    ActionPlan,
    ControllerCall,
    PodTarget,
    TargetType,
    tasks_of,
)
from tests.support.volcano_jobs import NOW, job, names, pods

P = VolcanoPhase


def test_missing_pods_are_made_and_surplus_ones_deleted() -> None:
    before = job(("w", 4))
    after = job(("w", 3))
    found = plan_sync(after, pods(before, w="R-PR"), "Inqueue", NOW)
    assert (names(found.create), names(found.delete)) == (["w-1"], ["w-3"])
    status = found.status
    assert (status.running, status.pending, status.terminating) == (1, 2, 1)
    assert status.tasks == {"w": {"Running": 1, "Pending": 2}}
    assert status.min_available == 3


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_nothing_is_made_before_the_pod_group_is_let_in(phase: str) -> None:
    one = job(("w", 2), status=VolcanoStatus())
    found = plan_sync(one, [], phase, NOW)
    assert (found.create, found.delete, found.status.phase) == ((), (), P.PENDING)
    assert found.status.conditions == ((P.PENDING, NOW),)


def test_pods_that_leave_are_counted_and_made_again_only_when_they_are_gone() -> None:
    one = job(("w", 2))
    found = plan_sync(one, pods(one, w="rR"), "Running", NOW)
    assert (names(found.create), found.status.terminating, found.status.running) == ([], 1, 1)


def test_pods_that_are_out_of_sync_are_deleted() -> None:
    one = job(("w", 2))
    first, second = pods(one, w="RR")
    marked = replace(first, annotations={**first.annotations, OUT_OF_SYNC: "true"})
    assert names(plan_sync(one, [marked, second], "Running", NOW).delete) == ["w-0"]


NEEDS_BOTH = TaskSpec(depends_on=DependsOn(("a", "b")))
NEEDS_ONE = TaskSpec(depends_on=DependsOn(("a", "b"), any=True))
HALF = TaskSpec(min_available=1)


@pytest.mark.parametrize(
    ("spec", "a", "b", "made"),
    [
        (NEEDS_BOTH, "RP", "P", []),
        (NEEDS_BOTH, "RP", "R", ["w-0"]),
        (NEEDS_BOTH, "SP", "S", ["w-0"]),
        (NEEDS_BOTH, "FP", "R", []),
        (NEEDS_ONE, "PP", "R", ["w-0"]),
        (NEEDS_ONE, "PP", "P", []),
    ],
    ids=["one is not up", "both are up", "succeeded is up", "failed is not", "any is up", "none is up"],
)
def test_a_task_waits_for_the_tasks_that_it_depends_on(spec: TaskSpec, a: str, b: str, made: list[str]) -> None:
    one = job(("a", 2, HALF), ("b", 1, HALF), ("w", 1, spec))
    assert names(plan_sync(one, pods(one, a=a, b=b), "Inqueue", NOW).create) == made


def test_a_running_pod_that_is_not_ready_does_not_count() -> None:
    one = job(("a", 1, HALF), ("w", 1, TaskSpec(depends_on=DependsOn(("a",)))))
    (pod,) = pods(one, a="R")
    assert names(plan_sync(one, [replace(pod, unready=True)], "Inqueue", NOW).create) == []


def killed(target: PodTarget | None = None, retries: int = 0, **phases: str) -> tuple[list[str], VolcanoStatus]:
    parted = TaskSpec(partition=PartitionPolicy(total=2, size=2))
    status = VolcanoStatus(phase=P.RUNNING, retry_count=retries, version=5, running=9)
    one = job(("w", 4, parted), ("x", 2), status=status)
    call = ControllerCall.KILL if target is None else ControllerCall.KILL_TARGET
    found = plan_kill(one, pods(one, **phases), ActionPlan(call, NO_PHASES, target), NOW)
    return ([], status) if found is None else (names(found.delete), found.status)


def test_a_killed_job_loses_all_pods_and_gets_a_new_version() -> None:
    deleted, status = killed(w="RPsF", x="S")
    assert deleted == ["w-0", "w-1", "w-3", "x-0"]
    assert (status.version, status.terminating, status.running) == (6, 5, 0)


def test_with_the_last_retry_pods_that_ended_stay() -> None:
    assert killed(retries=2, w="RFS")[0] == ["w-0"]
    assert killed(retries=1, w="RFS")[0] == ["w-0", "w-1", "w-2"]


def test_pods_that_ended_stay_where_the_course_says_so() -> None:
    one = job(("w", 3))
    found = plan_kill(one, pods(one, w="RFS"), ActionPlan(ControllerCall.KILL, FINISHED_PHASES), NOW)
    assert found is not None
    assert names(found.delete) == ["w-0"]


@pytest.mark.parametrize(
    ("target", "deleted"),
    [
        (PodTarget(TargetType.TASK, "w"), ["w-0", "w-1", "w-2"]),
        (PodTarget(TargetType.POD, "w", "train-w-1"), ["w-1"]),
        (PodTarget(TargetType.PARTITION, "w", "train-w-1", "0"), ["w-0", "w-1"]),
        (PodTarget(TargetType.PARTITION, "w", "train-w-9", "7"), []),
        (PodTarget(TargetType.PARTITION, "x", "train-x-0", "0"), []),
        (PodTarget(TargetType.TASK, "gone"), []),
    ],
    ids=["a task", "a pod", "a partition", "no such partition", "a task without partitions", "no such task"],
)
def test_only_the_target_is_deleted_and_the_version_stays(target: PodTarget, deleted: list[str]) -> None:
    found, status = killed(target, w="RRF", x="R")
    assert (found, status.version) == (deleted, 5)


def test_a_phase_that_comes_again_is_noted_once_and_last() -> None:
    before = ((P.PENDING, 1), (P.RUNNING, 2))
    assert with_condition(before, P.PENDING, 3) == ((P.RUNNING, 2), (P.PENDING, 3))


def test_a_pod_says_whose_it_is() -> None:
    one = job(
        ("w", 4, TaskSpec(partition=PartitionPolicy(total=2, size=2), topology_policy="restricted")),
        queue="ml",
        status=VolcanoStatus(version=2, retry_count=1),
        priority_class="high",
    )
    one = replace(
        one,
        labels={"volcano.sh/preemptable": "true", "team": "red"},
        annotations={"volcano.sh/jdb-min-available": "2", "volcano.sh/jdb-max-unavailable": "1", "other": "x"},
    )
    pod = pod_of(one, tasks_of(one)[0], 3)
    assert (pod.name, pod.key, pod.template.priority_class) == ("train-w-3", "red/train-w-3", "high")
    assert pod.labels == {
        "volcano.sh/task-index": "3",
        "volcano.sh/job-name": "train",
        "volcano.sh/task-spec": "w",
        "volcano.sh/job-namespace": "red",
        "volcano.sh/queue-name": "ml",
        "volcano.sh/preemptable": "true",
        "volcano.sh/partition-id": "1",
    }
    assert pod.annotations == {
        "volcano.sh/task-index": "3",
        "volcano.sh/task-spec": "w",
        "scheduling.k8s.io/group-name": "train-uid",
        "volcano.sh/job-name": "train",
        "volcano.sh/queue-name": "ml",
        "volcano.sh/job-version": "2",
        "volcano.sh/template-uid": "train-w",
        "volcano.sh/job-retry-count": "1",
        "volcano.sh/numa-topology-policy": "restricted",
        "volcano.sh/jdb-min-available": "2",
    }
