"""Lanes: whoever is first in each open one comes in order, as a look at everybody would find them."""

from random import Random

import pytest

from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from tests.support.kueue_cluster import workload


def request(number: int, draw: Random) -> WorkloadRequest:
    """Of one of six shapes."""
    made = workload(f"w{number}", "q", draw.randint(1, 3), priority=draw.randint(0, 1), created=draw.randint(0, 40))
    return WorkloadRequest(made, number, "q", KueueConfig())


def first_by_shape(queue: ClusterQueueHeap, there: dict[int, WorkloadRequest]) -> list[WorkloadRequest]:
    parked, closed, _ = queue.dump()
    first: dict[bytes, WorkloadRequest] = {}
    for one in sorted(there.values(), key=lambda one: one.order):
        if one.id not in parked and one.scheduling_hash not in dict(closed):
            first.setdefault(one.scheduling_hash, one)
    return sorted(first.values(), key=lambda one: one.order)


@pytest.mark.parametrize("seed", range(40))
def test_the_first_of_all_lanes_come_in_order(seed: int) -> None:
    draw = Random(seed)
    queue = ClusterQueueHeap(strict=False, hashing=True)
    there: dict[int, WorkloadRequest] = {}
    for number in range(120):
        act = draw.choice(("push", "push", "push", "remove", "close", "open", "park", "wake", "head", "copy"))
        one = draw.choice(list(there.values())) if there else None
        if act == "push":
            there[number] = request(number, draw)
            queue.push(there[number])
        elif act == "wake":
            queue.requeue_inadmissible(lambda _: True, None)
        elif act == "head":
            queue.head()
        elif act == "copy":
            queue = queue.copy()
        elif one is not None and act == "remove":
            queue.remove(there.pop(one.id).id)
        elif one is not None and act == "park":
            queue.mark_inadmissible(one)
        elif one is not None:
            some = draw.sample(list(there.values()), draw.randint(1, min(4, len(there))))
            queue.mark_classes_inadmissible(
                [(each, "WaitingForQuota") for each in some]
            ) if act == "close" else queue.mark_classes_admissible(some)
        wanted = first_by_shape(queue, there)
        assert list(queue.class_heads()) == wanted
        assert queue.head() is (wanted[0] if wanted else None)


def test_loading_a_state_ends_the_classes_of_their_own_that_workloads_had_before() -> None:
    queue, one = ClusterQueueHeap(strict=False, hashing=True), request(1, Random(0))
    queue.push(one)
    queue.mark_classes_inadmissible([(one, "")])
    saved = queue.dump()
    queue.push_from_local_queue(one)
    assert queue.head() is one
    queue.load(*saved)
    assert (queue.head(), queue.is_inadmissible(1)) == (None, True)
