"""The PodGroup of a job: its minimum, what that needs, partitions as gangs of their own, changes later."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.volcano import JobAction, NetworkTopology, PartitionPolicy, SubGroupPolicy, TaskSpec
from gpuconsole.scheduling.volcano.jobs.pod_group import group_of, min_resources, quota_usage, updated_group
from gpuconsole.scheduling.volcano.jobs.pods import action_message
from tests.support.volcano_jobs import GPU, job, template

SIZES = {"master": template(cpu=50), "worker": template(cpu=100)}


def needs(pods: int, cpu: int) -> dict[str, int]:
    return {"count/pods": pods, "pods": pods, "requests.cpu": cpu, "cpu": cpu}


@pytest.mark.parametrize(
    ("master", "worker", "least", "high", "wanted"),
    [
        (2, 1, 3, "master", needs(3, 200)),
        (1, 1, 2, "", needs(2, 150)),
        (1, 1, 3, "master", needs(3, 200)),
        (0, 1, 3, "worker", needs(3, 250)),
        (2, 1, 2, "master", needs(2, 100)),
        (2, 1, 2, "worker", needs(2, 200)),
        (2, 2, 0, "", {}),
    ],
    ids=[
        "what the tasks need",
        "one of each",
        "filled up by the first in rank",
        "filled up by the first in rank, then by the other",
        "fewer than the tasks need: the first in rank",
        "fewer than the tasks need: the other in rank",
        "nothing at all",
    ],
)
def test_a_gang_needs(master: int, worker: int, least: int, high: str, wanted: dict[str, int]) -> None:
    one = job(
        ("master", 2, TaskSpec(min_available=master, priority_class="master")),
        ("worker", 2, TaskSpec(min_available=worker, priority_class="worker")),
        templates=SIZES,
        min_available=least,
    )
    assert min_resources(one, {high: 9} if high else {}) == wanted


def test_a_quota_counts_requests_limits_and_extended_resources() -> None:
    pod = template(cpu=500, memory=64, gpu=2)
    (container,) = pod.containers
    limited = replace(pod, containers=(replace(container, limits={"cpu": 700, GPU: 2}),))
    assert quota_usage(limited) == {
        "count/pods": 1,
        "pods": 1,
        "requests.cpu": 500,
        "cpu": 500,
        "requests.memory": 64,
        "memory": 64,
        f"requests.{GPU}": 2,
        GPU: 2,
        "limits.cpu": 700,
    }


NEAR = NetworkTopology(mode="hard", highest_tier=1)
PARTED = TaskSpec(partition=PartitionPolicy(total=3, size=2, least=2, network_topology=NEAR))


def test_a_pod_group_has_a_minimum_for_each_task_and_a_gang_for_each_partition() -> None:
    one = job(("w", 6, PARTED), ("x", 3, TaskSpec(min_available=1)), ("y", 2), min_available=5, queue="ml")
    group = group_of(one, {})
    assert (group.key, group.min_member, group.queue) == ("red/train-uid", 5, "ml")
    assert group.min_task_member == {"w": 4, "x": 1, "y": 2}
    assert group.sub_groups == (
        SubGroupPolicy(
            name="w",
            size=2,
            least=2,
            network_topology=NEAR,
            selector=LabelSelector(match_labels={"volcano.sh/task-spec": "w"}),
            match_label_keys=("volcano.sh/partition-id",),
        ),
    )


def test_a_pod_group_follows_its_job_and_keeps_what_is_not_the_jobs() -> None:
    before = job(("w", 6, PARTED), ("x", 1), network_topology=NEAR)
    group = replace(group_of(before, {}), phase="Running", uid="g")
    assert updated_group(group, before, {}) is group
    after = job(("w", 4), min_available=3, priority_class="high")
    changed = updated_group(group, after, {})
    assert (changed.min_member, changed.priority_class, changed.sub_groups) == (3, "high", ())
    assert changed.min_task_member == {"w": 4, "x": 1}
    assert (changed.phase, changed.uid, changed.network_topology) == ("Running", "g", NEAR)


def test_actions_are_announced() -> None:
    assert action_message(JobAction.RESTART_JOB) == "Start to execute action RestartJob "
    assert action_message(JobAction.RESTART_JOB, "5m0s") == "Execute action RestartJob after 5m0s"
