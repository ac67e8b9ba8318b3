"""The phase of a workload: Kueue's conditions and its pods, in every list, document and count."""

import random

import pytest
from msgspec.structs import replace

from gpuconsole.insight.forecast.expected_start import current_position
from gpuconsole.insight.index.pods import phase_of, running
from gpuconsole.insight.index.quota_tree import every, quota_tree
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, Workload, WorkloadPhase
from gpuconsole.ui.workload_table import WorkloadRows
from tests.support.snapshots import ORG_QUEUES, START, node, unseen, world

CREATING = PodPhase.PENDING


def gang(*conditions: str, count: int = 2, reclaimed: int = 0, owner: str = "Job/prod/train") -> Workload:
    """A gang of 2-GPU pods in prod with quota, and these conditions."""
    template = PodTemplate(containers=(Container(requests={GPU: 2}),))
    assignment = PodSetAssignment(flavors={GPU: "a100"}, usage={GPU: 2 * count}, count=count)
    return Workload(
        namespace="prod",
        name="train",
        uid="train",
        created=START,
        queue="lq",
        owner=owner,
        pod_sets=(PodSet(count=count, template=template),),
        conditions=tuple(Condition(type, True, type, "", START) for type in ("QuotaReserved", *conditions)),
        admission=Admission(cluster_queue="cq-prod", pod_sets=(assignment,)),
        reclaimable={"main": reclaimed} if reclaimed else {},
    )


def member(number: int, where: str = "n", phase: PodPhase = PodPhase.RUNNING, **fields: object) -> Pod:
    """A pod of the gang, on node n unless it is said otherwise."""
    template = PodTemplate(containers=(Container(requests={GPU: 2}),))
    given: dict[str, object] = {"job": "Job/prod/train", "workload": "prod/train", "created": START, **fields}
    return Pod(namespace="prod", name=f"train-{number}", template=template, node=where, phase=phase, **given)  # type: ignore[arg-type]


def job() -> Job:
    return Job(kind="Job", namespace="prod", name="train", created=START, phase=JobPhase.RUNNING, queue="lq")


def cluster(*things: Object, seen: Visibility = EVERYTHING) -> Snapshot:
    return world([*ORG_QUEUES, node("n", labels={}), job(), *things], seen=seen)


ADMITTED = gang("Admitted")


@pytest.mark.parametrize(
    ("workload", "pods", "expected"),
    [
        (gang(), (), (WorkloadPhase.QUOTA_RESERVED, "", PendingReason.CHECKS)),
        (ADMITTED, (), (WorkloadPhase.ADMITTED, "no-pods", PendingReason.NO_PODS)),
        (
            ADMITTED,
            (member(0, "", CREATING), member(1, "", CREATING)),
            (WorkloadPhase.ADMITTED, "nodes", PendingReason.NODES),
        ),
        (ADMITTED, (member(0), member(1, "", CREATING)), (WorkloadPhase.ADMITTED, "nodes", PendingReason.NODES)),
        (
            ADMITTED,
            (member(0), member(1, phase=CREATING)),
            (WorkloadPhase.ADMITTED, "starting", PendingReason.STARTING),
        ),
        (
            ADMITTED,
            (member(0), member(1, phase=CREATING, reason="ImagePullBackOff")),
            (WorkloadPhase.ADMITTED, "image", PendingReason.IMAGE),
        ),
        (ADMITTED, (member(0, "", CREATING, gates=("hold",)),), (WorkloadPhase.ADMITTED, "gated", PendingReason.GATED)),
        (ADMITTED, (member(0),), (WorkloadPhase.ADMITTED, "no-pods", PendingReason.NO_PODS)),
        (ADMITTED, (member(0), member(1, deleted=START)), (WorkloadPhase.ADMITTED, "no-pods", PendingReason.NO_PODS)),
        (
            ADMITTED,
            (member(0), member(1, phase=PodPhase.FAILED)),
            (WorkloadPhase.ADMITTED, "no-pods", PendingReason.NO_PODS),
        ),
        (ADMITTED, (member(0), member(1)), (WorkloadPhase.RUNNING, "", PendingReason.NOT_WAITING)),
        (
            ADMITTED,
            (member(0), member(1, phase=PodPhase.SUCCEEDED)),
            (WorkloadPhase.RUNNING, "", PendingReason.NOT_WAITING),
        ),
        (
            gang("Admitted", count=3, reclaimed=1),
            (member(0), member(1)),
            (WorkloadPhase.RUNNING, "", PendingReason.NOT_WAITING),
        ),
        (gang("Admitted", "PodsReady"), (), (WorkloadPhase.RUNNING, "", PendingReason.NOT_WAITING)),
        (
            gang("Admitted", "PodsReady"),
            (member(0), member(1, "", CREATING)),
            (WorkloadPhase.ADMITTED, "nodes", PendingReason.NODES),
        ),
        (
            gang("Admitted", "Evicted"),
            (member(0, deleted=START),),
            (WorkloadPhase.EVICTED, "Evicted", PendingReason.NOT_WAITING),
        ),
        (
            replace(ADMITTED, active=False),
            (member(0), member(1)),
            (WorkloadPhase.STOPPED, "", PendingReason.NOT_WAITING),
        ),
        (gang("Admitted", "Finished"), (), (WorkloadPhase.FINISHED, "Finished", PendingReason.NOT_WAITING)),
    ],
)
def test_the_phase_follows_conditions_and_pods_in_the_list_and_on_the_page(
    workload: Workload, pods: tuple[Pod, ...], expected: tuple[WorkloadPhase, str, PendingReason]
) -> None:
    snapshot = cluster(workload, *pods)
    (row,) = WorkloadRows().update(snapshot).rows
    assert (row.phase, row.reason, explain(snapshot, "prod/train").code) == expected
    assert (phase_of(snapshot, workload), current_position(snapshot, "prod/train").phase) == (expected[0],) * 2


def test_a_workload_that_lost_its_quota_is_pending_again() -> None:
    evicted = replace(gang("Evicted"), admission=None)
    released = replace(evicted, conditions=(Condition("QuotaReserved", False, "Pending"), *evicted.conditions[1:]))
    assert phase_of(cluster(released), released) is WorkloadPhase.PENDING


def test_of_pods_that_are_not_seen_kueues_podsready_decides() -> None:
    """Where pods may not be listed, where a worker cluster has them, and where no pod is known as a workload's own."""
    blind = unseen(Pod)
    for held, seen in (
        (ADMITTED, blind),
        (replace(ADMITTED, cluster="east"), EVERYTHING),
        (replace(ADMITTED, owner="Notebook/prod/train"), EVERYTHING),
    ):
        row = next(row for row in WorkloadRows().update(cluster(held, seen=seen)).rows if row.key == held.key)
        assert (row.phase, row.reason) == (WorkloadPhase.ADMITTED, "unseen")
        ready = replace(held, conditions=(*held.conditions, Condition("PodsReady", True)))
        assert phase_of(cluster(ready, seen=seen), ready) is WorkloadPhase.RUNNING


def test_jobs_that_no_queue_manages_run_when_all_their_pods_do() -> None:
    alone = replace(job(), queue="")
    pods = [member(0, workload=""), member(1, workload="")]
    seen = []
    for second in (pods[1], replace(pods[1], phase=CREATING), replace(pods[1], node="", phase=CREATING)):
        rows = WorkloadRows().update(world([node("n", labels={}), alone, pods[0], second])).rows
        seen += [(row.phase, row.reason) for row in rows]
    assert seen == [(WorkloadPhase.RUNNING, ""), (WorkloadPhase.PENDING, "starting"), (WorkloadPhase.PENDING, "nodes")]


def test_a_row_changes_with_its_pods_alone() -> None:
    rows, state = WorkloadRows(), ClusterState(START)
    phases = []
    for thing in (*ORG_QUEUES, node("n", labels={}), job(), ADMITTED):
        state.apply(Applied(START, thing))
    for pod in (member(0), member(1, "", CREATING), member(1, phase=CREATING), member(1), member(1, "", CREATING)):
        state.apply(Applied(START, pod))
        (row,) = rows.update(state.freeze()).rows
        phases.append((row.phase, row.reason))
    assert phases == [
        (WorkloadPhase.ADMITTED, "no-pods"),
        (WorkloadPhase.ADMITTED, "nodes"),
        (WorkloadPhase.ADMITTED, "starting"),
        (WorkloadPhase.RUNNING, ""),
        (WorkloadPhase.ADMITTED, "nodes"),
    ]


def test_queues_count_those_that_run_apart_from_those_that_are_admitted() -> None:
    second = replace(ADMITTED, name="other", uid="other")
    waits = member(7, "", CREATING, workload="prod/other")
    snapshot = cluster(ADMITTED, member(0), member(1), second, waits, replace(gang(), name="checked"))
    counts = {
        node.name: (node.running, node.admitted, node.reserved)
        for node, _ in every(quota_tree(snapshot))
        if node.reserved
    }
    assert counts == {"org-cohort": (1, 2, 3), "cq-prod": (1, 2, 3), "prod/lq": (1, 2, 3)}


@pytest.mark.parametrize("seed", range(20))
def test_the_index_of_what_runs_is_that_of_a_fresh_look_after_any_change(seed: int) -> None:
    chance, state = random.Random(seed), ClusterState(START)
    for thing in (*ORG_QUEUES, node("n", labels={})):
        state.apply(Applied(START, thing))
    for _ in range(60):
        name = f"w{chance.randrange(6)}"
        held = replace(gang(*chance.sample(["Admitted", "PodsReady", "Evicted", "Finished"], 2)), name=name, uid=name)
        pod = member(chance.randrange(2), chance.choice(["", "n"]), chance.choice(list(PodPhase)))
        pod = replace(pod, workload=f"prod/{name}", name=f"{name}-{pod.name}")
        match chance.randrange(4):
            case 0:
                state.apply(Applied(START, held))
            case 1 | 2:
                state.apply(Applied(START, pod))
            case _:
                table, key = chance.choice([("workloads", f"prod/{name}"), ("pods", pod.key)])
                state.apply(Deleted(START, table, key))
        snapshot = state.freeze()
        by_hand = {w.key for w in snapshot.workloads.all() if phase_of(snapshot, w) is WorkloadPhase.RUNNING}
        index = running(snapshot)
        assert set(index.queues) == by_hand
        assert sum(index.count.values()) == len(by_hand)
