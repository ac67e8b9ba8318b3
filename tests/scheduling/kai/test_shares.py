"""Who may exceed what, who may take from whom, and whose turn it is, by KAI's fair shares."""

import pytest
from msgspec import Struct

from gpuconsole.model.clock import HOUR
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup, single_pod_set_tree, tasks_to_evict
from gpuconsole.scheduling.kai.api.tasks import KaiPodStatus, ResourceAmounts
from gpuconsole.scheduling.kai.fair_share.division import QueueShares, ResourceShares, UsageHistory, quantities
from gpuconsole.scheduling.kai.fair_share.reclaimable import (
    Reclaimer,
    find_exceeded_limit,
    find_exceeded_quota,
    may_reclaim,
    may_reclaim_victims,
)
from gpuconsole.scheduling.kai.functions import VictimJob
from gpuconsole.scheduling.kai.plugins.proportion import ComparedQueue, compare_queues, victim_losses
from tests.support.kai_clusters import job


def queue(
    name: str,
    *,
    held: float = 0,
    quota: float = 0,
    fair: float = 0,
    limit: float = -1,
    kept: float = 0,
    parent: str = "",
    priority: int = 100,
    created: int = 0,
) -> QueueShares:
    """A queue of GPUs alone; `kept` is what of it nobody can take back."""
    gpu = ResourceShares(deserved=quota, fair=fair, limit=limit, allocated=held, non_preemptible=kept)
    free = {"deserved": -1.0, "limit": -1.0}
    return QueueShares(
        name,
        parent=parent,
        priority=priority,
        created=created,
        gpu=gpu,
        cpu=ResourceShares(**free),
        memory=ResourceShares(**free),
    )


class Take(Struct, frozen=True):
    mine: QueueShares
    theirs: QueueShares
    needed: float
    taken: list[float]
    want: bool


TAKES = {
    "what is beyond the fair share may be taken": Take(
        queue("a", quota=2, fair=4), queue("b", held=6, quota=2, fair=4), 2, [2], True
    ),
    "what is within the fair share may not, though it is beyond the quota": Take(
        queue("a", held=2, quota=2, fair=4), queue("b", held=4, quota=2, fair=4), 2, [2], False
    ),
    "for a queue within its quota what is beyond the other's quota may be taken": Take(
        queue("a", quota=2, fair=2), queue("b", held=4, quota=2, fair=4), 2, [2], True
    ),
    "what is within the quota may never be taken": Take(
        queue("a", quota=2, fair=2), queue("b", held=2, quota=2, fair=2), 2, [2], False
    ),
    "each victim in turn must still be beyond": Take(
        queue("a", quota=1, fair=4), queue("b", held=5, quota=0, fair=4), 2, [1, 1], False
    ),
    "a queue that goes beyond its own fair share may not become as full as the other": Take(
        queue("a", held=4, quota=0, fair=4), queue("b", held=5, quota=0, fair=4), 1, [1], False
    ),
}


@pytest.mark.parametrize("name", TAKES)
def test_may_these_victims_be_taken(name: str) -> None:
    case = TAKES[name]
    reclaimer = Reclaimer("a", ResourceAmounts(gpus=case.needed), True)
    losses = {"b": [ResourceAmounts(gpus=gpus) for gpus in case.taken]}
    assert may_reclaim_victims({"a": case.mine, "b": case.theirs}, reclaimer, losses) is case.want


def test_a_job_may_reclaim_within_its_fair_share_and_one_for_good_within_its_quota() -> None:
    queues = {"a": queue("a", held=2, quota=2, fair=4, kept=2)}
    asked = [
        Reclaimer("a", ResourceAmounts(gpus=gpus), preemptible)
        for gpus, preemptible in ((2, True), (3, True), (1, False))
    ]
    assert [may_reclaim(queues, reclaimer) for reclaimer in asked] == [True, False, False]


def test_a_limit_may_be_reached_but_not_exceeded_on_any_level() -> None:
    queues = {"a": queue("a", held=2, limit=4, parent="top"), "top": queue("top", held=5, limit=7)}
    found = [find_exceeded_limit(queues, PodGroupInfo("j", queue="a"), quantities(gpu=gpus)) for gpus in (2, 3)]
    assert [over and over.queue for over in found] == [None, "a"]
    queues["top"].by_resource["GPU"].allocated = 6
    over = find_exceeded_limit(queues, PodGroupInfo("j", queue="a"), quantities(gpu=2))
    assert over is not None
    assert (over.queue, over.reason) == ("top", "OverLimit")


def test_what_cannot_be_taken_back_is_held_against_the_quota_alone() -> None:
    queues = {"a": queue("a", held=9, quota=2, kept=1)}
    build = PodGroupInfo("build", queue="a", preemptible=False)
    assert find_exceeded_quota(queues, build, quantities(gpu=1)) is None
    over = find_exceeded_quota(queues, build, quantities(gpu=2))
    assert over is not None
    assert over.message == (
        "Non-preemptible workload is over quota. Workload requested 2 GPUs, but a quota is 2 GPUs, while 1 GPUs are"
        " already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )
    assert find_exceeded_quota(queues, PodGroupInfo("train", queue="a"), quantities(gpu=9)) is None


ORDERS = {
    "within quota with its job": (queue("a", held=5, quota=6, fair=8), 1, queue("b", held=1, quota=1, fair=8), 1),
    "of higher priority": (queue("a", held=5, fair=8, priority=200), 1, queue("b", held=1, fair=8), 1),
    "holding the smaller part of its share with its job": (queue("a", held=2, fair=8), 1, queue("b", fair=8), 4),
    "holding the smaller part of its share without": (queue("a", held=1, fair=8), 3, queue("b", held=2, fair=8), 2),
    "having the smaller share": (queue("a", fair=4), 0, queue("b", fair=8), 0),
    "being the elder": (queue("a", fair=8, created=1), 0, queue("b", fair=8, created=2), 0),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_queue_that_comes_first_is_the_one(name: str) -> None:
    one, needs, other, other_needs = ORDERS[name]
    left, right = ComparedQueue(one, quantities(gpu=needs)), ComparedQueue(other, quantities(gpu=other_needs))
    total = quantities(64_000, 512e9, 16)
    assert (compare_queues(left, right, total), compare_queues(right, left, total)) == (-1, 1)


def test_a_queue_beyond_its_fair_share_in_everything_comes_last() -> None:
    over, under = queue("over", held=2, fair=1), queue("under", held=9, fair=10)
    for shares in over.by_resource.values():
        shares.allocated, shares.fair, shares.deserved = 2, 1, 0
    assert (
        compare_queues(ComparedQueue(over, quantities()), ComparedQueue(under, quantities()), quantities(1, 1, 1)) == 1
    )


def test_elastic_tasks_are_lost_one_by_one_and_a_gang_at_once() -> None:
    victim = job("theirs", 1, ["n1", "n1", "n1"], least=1)
    for task in victim.tasks():
        task.accepted_request = task.request
    tasks = list(victim.tasks())
    assert [loss.gpus for loss in victim_losses(VictimJob(victim, tasks), ignore_placed=False)] == [1, 1, 1]
    gang = PodGroupInfo("gang", root=single_pod_set_tree(3), tasks=tasks)
    assert [loss.gpus for loss in victim_losses(VictimJob(gang, tasks), ignore_placed=False)] == [3]


def test_what_found_another_place_is_not_lost() -> None:
    victim = job("theirs", 1, ["n1", "n1"], least=2)
    tasks = list(victim.tasks())
    for task in tasks:
        task.accepted_request = task.request
    victim.update_status(tasks[0], KaiPodStatus.RELEASING)
    victim.update_status(tasks[1], KaiPodStatus.PIPELINED)
    assert [loss.gpus for loss in victim_losses(VictimJob(victim, tasks), ignore_placed=True)] == [1]


def test_a_sub_group_with_more_than_its_minimum_gives_one_before_any_gang_goes() -> None:
    root = SubGroup()
    root.add(PodSetInfo("leader", 1))
    root.add(PodSetInfo("worker", 1))
    tasks = [*job("j", 1, ["n1"]).tasks(), *job("k", 1, ["n1", "n2"]).tasks()]
    for task, name in zip(tasks, ("leader", "worker", "worker"), strict=True):
        task.pod_set = name
    found = PodGroupInfo("job", root=root, tasks=tasks)
    orders = (lambda one, other: one.name > other.name, lambda one, other: one.uid < other.uid)
    assert [task.uid for task in tasks_to_evict(found, *orders)[0]] == ["j-0"]
    found.update_status(tasks[2], KaiPodStatus.SUCCEEDED)
    assert [task.uid for task in tasks_to_evict(found, *orders)[0]] == ["j-0", "k-0"]


def test_past_use_is_a_part_of_what_there_was_and_fades() -> None:
    book = UsageHistory(4 * HOUR, 0)
    book.record(0, {"a": {"GPU": 4}}, {"GPU": 8})
    book.record(HOUR, {"a": {"GPU": 0}}, {"GPU": 8})
    assert book.usage(2 * HOUR)["a"]["GPU"] == pytest.approx(0.25)
    assert book.usage(4 * HOUR + HOUR // 2)["a"]["GPU"] == pytest.approx(0.0625)
    fading = UsageHistory(4 * HOUR, HOUR)
    fading.record(0, {"a": {"GPU": 4}}, {"GPU": 8})
    fading.record(HOUR, {"a": {"GPU": 0}}, {"GPU": 8})
    # The hour of use lies an hour further back than the hour without: it counts half as much.
    assert fading.usage(2 * HOUR)["a"]["GPU"] == pytest.approx(0.5 * 0.5 / 1.5)
