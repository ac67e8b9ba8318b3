"""Volcano's and KAI's texts, read back: in plain words, with what would help; and jobs that no Workload stands for."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.unqueued_work import unqueued_work
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import KAI, VOLCANO, read_engine, skipped, writer
from gpuconsole.insight.pending.unscheduled_pods import group_lines
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.kai import KaiCondition, KaiPodGroup
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.volcano import GroupCondition, PodGroup
from gpuconsole.model.workloads import phase
from tests.support.snapshots import ORG, START, node, pod, world

GROUP = {"scheduling.k8s.io/group-name": "g"}
TEXTS = {
    "resource in cluster is overused: overused nvidia.com/gpu": (
        VOLCANO,
        "Not enqueued by Volcano: enqueued jobs already request all nvidia.com/gpu (plugin overcommit).",
    ),
    "queue resource quota insufficient: insufficient nvidia.com/gpu": (
        VOLCANO,
        "Not enqueued by Volcano: its queue would exceed its capability for nvidia.com/gpu.",
    ),
    "4/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable; Pending: 4 Unschedulable": (
        VOLCANO,
        "Gang not scheduled: 4 Pending, 4 minAvailable.",
    ),
    "pod group is ready, 3 minAvailable, 4 Pending, 4 Running; Pending: 4 Unschedulable": (
        VOLCANO,
        "Partially scheduled gang: it has its minimum of pods, 3 minAvailable, 4 Pending, 4 Running.",
    ),
    "Pod a/b can possibly be assigned to node-1, once resource is released and minAvailable is satisfied": (
        VOLCANO,
        "It fits on node-1 once the evicted pods there have terminated.",
    ),
    "no nodes with enough resources were found: 3 node(s) didn't have enough resources: GPUs.": (
        KAI,
        "No node fits its pods: 3 node(s) didn't have enough resources: GPUs.",
    ),
    "OverLimit: queue q is over its limit": (KAI, "The job would exceed its queue's limit: queue q is over its limit"),
    "QueueDoesNotExist: q": (KAI, "Its queue does not exist: q"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_told_in_plain_words(text: str) -> None:
    told = read_engine(text)
    assert told is not None
    assert (told.source, told.headline) == TEXTS[text]
    assert writer(text) == told.source


def test_texts_of_others_are_left_to_them() -> None:
    assert read_engine("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.") is None
    assert writer("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.") == ""
    assert writer("0/3 nodes are unavailable: 3 Insufficient nvidia.com/gpu.") == VOLCANO
    assert skipped("Task a with role spec w has already predicated failed, skip")


def train(**fields: object) -> Job:
    return Job(namespace="team", name="train", uid="u", created=START, pod_sets=(PodSet(count=2),), **fields)  # type: ignore[arg-type]


def test_what_the_group_is_told_comes_before_what_a_pod_is_told() -> None:
    condition = GroupCondition(
        "Unschedulable", True, "NotEnoughResources", "resource in cluster is overused: cpu", START
    )
    things: list[Object] = [
        node("n1"),
        train(),
        PodGroup(namespace="team", name="g", conditions=(condition,)),
        pod(
            "p",
            wants=9,
            job="Job/team/train",
            annotations=GROUP,
            message="0/1 nodes are unavailable: 1 Insufficient cpu.",
        ),
    ]
    found = explain(world(things), "Job/team/train")
    assert (found.source, found.text) == (VOLCANO, "resource in cluster is overused: cpu")
    assert found.headline.startswith("Not enqueued by Volcano")
    assert found.lines == ("0/1 nodes are unavailable: 1 Insufficient cpu.",)
    assert [remedy.text for remedy in found.remedies][1:] == [
        "a node with enough free cpu (the GPU map shows where it is used)"
    ]


def test_a_job_without_pods_whose_group_is_not_let_in_says_so() -> None:
    group = PodGroup(namespace="team", name="train-u", phase="Pending")
    snapshot = world([train(), group])
    assert (
        explain(snapshot, "Job/team/train").headline == "Volcano has not enqueued its PodGroup, so it has no pods yet."
    )
    refused = GroupCondition("Unschedulable", True, "", "queue resource quota insufficient: insufficient cpu", START)
    told = explain(world([train(), replace(group, conditions=(refused,))]), "Job/team/train")
    assert "its queue would exceed its capability for cpu" in told.headline


def test_kais_group_says_which_of_its_rules_refused() -> None:
    condition = KaiCondition(type="UnschedulableOnNodePool", reasons=(("OverLimit", "limit is 4 GPUs"),))
    group = KaiPodGroup(namespace="team", name="g", queue="q", conditions=(condition,))
    waits = pod("p", wants=8, annotations={"pod-group-name": "g"})
    found = explain(world([node("n1"), group, waits]), "team/p")
    assert (found.source, found.headline) == (KAI, "The job would exceed its queue's limit: limit is 4 GPUs")
    assert group_lines(world([group, waits]), waits) == (
        "team/g · minMember 1 · queue q",
        "OverLimit: limit is 4 GPUs",
    )


def test_jobs_and_pods_stand_for_themselves_where_no_workload_does() -> None:
    things: list[Object] = [
        node("n1"),
        train(phase=JobPhase.RUNNING),
        pod("p", "n1", (0,), job="Job/team/train"),
        pod("lone", wants=1),
    ]
    found = unqueued_work(world(things))
    assert {key: (phase(one), one.owner) for key, one in found.items()} == {
        "Job/team/train": ("running", "Job/team/train"),
        "team/lone": ("pending", "Pod/team/lone"),
    }


def test_a_job_some_of_whose_pods_wait_waits() -> None:
    things: list[Object] = [
        node("n1"),
        train(phase=JobPhase.RUNNING),
        pod("p0", "n1", (0,), job="Job/team/train"),
        pod("p1", wants=1, job="Job/team/train"),
    ]
    assert [phase(one) for one in unqueued_work(world(things)).values()] == ["pending"]


def test_what_kueue_manages_has_no_stand_in() -> None:
    assert unqueued_work(world(ORG)) == {}
