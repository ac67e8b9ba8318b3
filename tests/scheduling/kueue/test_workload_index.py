"""The roster: who holds quota in a queue stands in the order of eviction, and which queues somebody waits in."""

from random import Random

import pytest

from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.workload_index import WorkloadIndex
from tests.support.kueue_cluster import workload


def holding(number: int, draw: Random) -> Holding:
    """One of few priorities and moments, so that several are equal in all but their number."""
    priority, since, evicted = draw.randint(0, 2), draw.randint(0, 2), draw.random() < 0.2
    return Holding(
        workload=workload(f"w{number}", "q", 1),
        id=number,
        cluster_queue="q",
        priority=priority,
        timestamp=since,
        evicted=evicted,
        usage=(),
        columns=frozenset(),
        rank=(not evicted, priority, -since, draw.choice("abc")),
    )


@pytest.mark.parametrize("seed", range(40))
def test_whoever_comes_changes_or_leaves_the_others_keep_their_order_of_eviction(seed: int) -> None:
    draw, roster = Random(seed), WorkloadIndex()
    held: dict[int, Holding] = {}
    for number in range(60):
        assert roster.id_of(f"w{number}") == number
    for _ in range(120):
        number = draw.randrange(60)
        old = held.get(number)
        if old is not None and draw.random() < 0.4:
            roster.drop_holding(held.pop(number))
        else:
            new = holding(number, draw)
            if old is not None and draw.random() < 0.5:
                new = Holding(**{name: getattr(new, name) for name in ("workload", "id", "cluster_queue")} | _rest(old))
            held[number] = new
            roster.add_holding(new)
        if draw.random() < 0.1:
            roster = roster.fork()
        wanted = sorted(held.values(), key=lambda one: one.rank)
        assert [one.id for one in roster.holdings_in_preemption_order("q")] == [one.id for one in wanted]
        assert all(found is held[found.id] for found in roster.holdings_in_preemption_order("q"))


def _rest(old: Holding) -> dict[str, object]:
    """What decides about the order."""
    return {name: getattr(old, name) for name in Holding.__struct_fields__[3:]}


@pytest.mark.parametrize("seed", range(20))
def test_awake_are_the_queues_with_a_head_whatever_happened_since_it_was_asked(seed: int) -> None:
    draw, roster = Random(seed), WorkloadIndex()
    number = 0
    for name in "abcd":
        roster.add_queue(name, ClusterQueueHeap(strict=False, hashing=True))
    there: dict[str, list[WorkloadRequest]] = {name: [] for name in "abcd"}
    for _ in range(80):
        name = draw.choice("abcd")
        queue, act = roster.queue(name), draw.choice(("push", "remove", "close", "wake", "fork", "drop"))
        if act == "push":
            number += 1
            made = WorkloadRequest(workload(f"w{number}", name, draw.randint(1, 2)), number, name, KueueConfig())
            there[name].append(made)
            queue.push(made)
        elif act == "remove" and there[name]:
            queue.remove(there[name].pop().id)
        elif act == "close" and there[name]:
            queue.mark_classes_inadmissible([(there[name][0], "NoFit")])
        elif act == "wake":
            queue.requeue_inadmissible(lambda _: True, None)
        elif act == "drop":
            roster.drop_queue(name)
            there[name] = []
            roster.add_queue(name, ClusterQueueHeap(strict=False, hashing=True))
        elif act == "fork":
            roster = roster.fork()
        if draw.random() < 0.7:
            heads = {
                each for each in "abcd" if (seen := roster.read_queue(each)) is not None and seen.head() is not None
            }
            assert list(roster.active_queues()) == sorted(heads)
