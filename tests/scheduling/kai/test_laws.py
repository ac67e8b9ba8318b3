"""Laws that hold whatever the jobs, queues and nodes are: after a session, and after many of the engine's passes."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.cluster import PodPhase
from gpuconsole.model.events import Bind, EvictPod, PlacementDecision
from gpuconsole.model.objects import Object
from gpuconsole.scheduling.kai.actions import ACTIONS
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import ALLOCATED, KaiPodStatus
from gpuconsole.scheduling.kai.engine import KaiPlacement
from gpuconsole.scheduling.kai.fair_share.division import (
    GPU,
    QueueShares,
    ResourceShares,
    set_fair_share,
    set_fair_shares_of_tree,
)
from gpuconsole.scheduling.kai.session import KaiSession
from tests.scheduling.kai.test_engine import engine, node, pod, queue
from tests.support.kai_clusters import after, job, session
from tests.support.kai_clusters import node as session_node
from tests.support.kai_clusters import queue as session_queue

NODES = ("n1", "n2", "n3")
ALL = tuple(ACTIONS)
HOLDING = ALLOCATED | {KaiPodStatus.RELEASING}
"""What is on a node now; what is pipelined waits for the latter."""
JOBS = st.lists(
    st.tuples(
        st.sampled_from([0, 0.25, 0.5, 1, 2]),
        st.lists(st.sampled_from(["", *NODES]), min_size=1, max_size=4),
        st.sampled_from(["a", "b"]),
        st.integers(1, 4),
        st.sampled_from([50, 75, 100]),
    ),
    max_size=7,
)
Drawn = Sequence[tuple[float, list[str], str, int, int]]


def world(drawn: Drawn) -> KaiSession:
    """A cluster in which what runs already fits, and every gang that runs is whole."""
    free = dict.fromkeys(NODES, 4.0)
    jobs: list[PodGroupInfo] = []
    for number, (gpus, seats, name, least, priority) in enumerate(drawn):
        taken: list[str] = []
        for seat in seats:
            # A part of a GPU that runs here has it to itself.
            needs = max(gpus, 1) if gpus else 0
            fits = bool(seat) and free[seat] >= needs
            if fits:
                free[seat] -= needs
            taken.append(seat if fits else "")
        least = min(least, len(seats))
        if sum(map(bool, taken)) < least:
            for seat in filter(None, taken):
                free[seat] += max(gpus, 1) if gpus else 0
            taken = [""] * len(seats)
        groups = [f"{number}-{n}" for n in range(len(seats))] if 0 < gpus < 1 else []
        uid = f"j{number}"
        jobs.append(job(uid, gpus, taken, queue=name, least=least, priority=priority, groups=groups, age=number))
    return session([session_node(name, 4) for name in NODES], [session_queue("a", 4), session_queue("b", 2)], jobs)


@given(JOBS)
def test_nothing_is_allocated_twice(drawn: Drawn) -> None:
    made = world(drawn)
    after(made, *ALL)
    for name, found in made.nodes.items():
        here = [task for j in made.jobs.values() for task in j.tasks() if task.node == name and task.status in HOLDING]
        parts: dict[str, float] = {}
        for task in here:
            for group in task.groups:
                parts[group] = parts.get(group, 0) + task.request.portion
        assert all(held <= 1 for held in parts.values())
        assert len(parts) + sum(task.request.gpus for task in here if not task.groups) <= found.allocatable.gpus
        assert sum(task.request.cpu for task in here) <= found.allocatable.cpu
        assert sum(task.request.memory for task in here) <= found.allocatable.memory


@given(JOBS)
def test_a_gang_runs_whole_or_not_at_all_those_counted_that_move(drawn: Drawn) -> None:
    made = world(drawn)
    after(made, *ALL)
    for found in made.jobs.values():
        for pod_set in found.pod_sets.values():
            running = sum(task.status in ALLOCATED for task in pod_set.tasks.values())
            assert running == 0 or pod_set.active_allocated_tasks >= pod_set.minimum


@given(JOBS)
def test_nobody_is_evicted_who_cannot_be_preempted_and_nobody_for_nothing(drawn: Drawn) -> None:
    made = world(drawn)
    told = after(made, *ALL)
    owner = {task.uid: found for found in made.jobs.values() for task in found.tasks()}
    evicted = [uid for what, uid, _ in told if what == "evict"]
    assert all(owner[uid].preemptible for uid in evicted)
    assert not evicted or any(what == "wait" for what, _, _ in told)


@given(JOBS)
def test_the_same_session_decides_the_same(drawn: Drawn) -> None:
    assert after(world(drawn), *ALL) == after(world(drawn), *ALL)


# Division

QUEUES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 12), st.sampled_from([-1, 3, 8])),
    min_size=1,
    max_size=5,
)


def shares(drawn: Sequence[tuple[int, int, int, int]], parent: str = "") -> dict[str, QueueShares]:
    return {
        f"{parent}q{number}": QueueShares(
            f"{parent}q{number}",
            parent=parent,
            created=number,
            gpu=ResourceShares(deserved=quota, weight=weight, requested=asked, limit=limit),
        )
        for number, (quota, weight, asked, limit) in enumerate(drawn)
    }


@given(st.integers(0, 30), QUEUES, st.integers(0, 4), st.integers(1, 5))
def test_more_weight_never_means_less_but_for_a_unit_that_rounding_moves(
    total: int, drawn: list[tuple[int, int, int, int]], which: int, more: int
) -> None:
    name = f"q{which % len(drawn)}"
    before, after_it = shares(drawn), shares(drawn)
    after_it[name].by_resource[GPU].weight += more
    for queues in (before, after_it):
        set_fair_share(total, 0, list(queues.values()), GPU)
    assert after_it[name].by_resource[GPU].fair >= before[name].by_resource[GPU].fair - 1


@given(st.integers(0, 30), QUEUES, QUEUES)
def test_children_get_no_more_than_their_parent_beyond_their_quotas(
    total: int, top: list[tuple[int, int, int, int]], below: list[tuple[int, int, int, int]]
) -> None:
    queues = shares(top)
    parent = queues["q0"]
    children = shares(below, "q0")
    parent.children = tuple(children)
    queues.update(children)
    set_fair_shares_of_tree({GPU: total}, 0, queues)
    roots = [found for found in queues.values() if not found.parent]
    for level, amount in ((roots, total), (list(children.values()), parent.by_resource[GPU].fair)):
        promised = sum(min(q.by_resource[GPU].deserved, q.by_resource[GPU].requestable) for q in level)
        assert sum(q.by_resource[GPU].fair for q in level) <= max(amount, promised) + 1e-9
        assert all(q.by_resource[GPU].fair <= q.by_resource[GPU].requestable for q in level)


# The engine, pass after pass

PODS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0, 1, 2]), st.sampled_from(["", "0.5", "0.3"])), max_size=8
)


def things(drawn: Sequence[tuple[str, int, str]]) -> list[Object]:
    pods = [
        pod(f"p{n}", 0, queue=name, created=n, gpu_fraction=part) if part else pod(f"p{n}", gpus, queue=name, created=n)
        for n, (name, gpus, part) in enumerate(drawn)
    ]
    return [node("n1", 2), node("n2", 2), queue("a", 2), queue("b", 1), *pods]


def live(made: KaiPlacement, passes: int) -> list[list[PlacementDecision]]:
    """Pass after pass, victims going at once and coming back as new pods."""
    told = []
    for number in range(1, passes + 1):
        said = made.schedule(number)
        told.append(said)
        for decision in said:
            if isinstance(decision, Bind):
                known = made._store.pods[decision.pod]
                made.apply(replace(known, node=decision.node, phase=PodPhase.RUNNING, gpus=decision.gpus), number)
            elif isinstance(decision, EvictPod):
                known = made._store.pods[decision.pod]
                made.delete("pods", decision.pod, number)
                fresh = replace(known, node="", gpus=(), deleted=0, phase=PodPhase.PENDING, created=number, bound=0)
                made.apply(fresh, number)
        made.request_pass()
    return told


@settings(max_examples=60)
@given(PODS)
def test_no_gpu_is_promised_beyond_the_whole(drawn: list[tuple[str, int, str]]) -> None:
    made = engine(things(drawn))
    live(made, 3)
    parts: dict[tuple[str, int], float] = {}
    for n, (_, gpus, part) in enumerate(drawn):
        where = made._store.gpu_owners.node_of(f"default/p{n}")
        for gpu in made.gpus_of(f"default/p{n}"):
            parts[(where, gpu)] = parts.get((where, gpu), 0) + (float(part) if part else min(gpus, 1))
    assert all(held <= 1 + 1e-9 for held in parts.values())


@settings(max_examples=40)
@given(PODS)
def test_a_fork_and_an_engine_that_recalls_go_on_as_the_original(drawn: list[tuple[str, int, str]]) -> None:
    made = engine(things(drawn))
    live(made, 1)
    twin, again = made.fork(), KaiPlacement(made.policy)
    for thing in [*things(drawn)[:4], *made._store.pods.values()]:
        again.apply(thing, 1)
    again.load(made.dump())
    expected = live(made, 2)
    assert live(twin, 2) == expected
    assert live(again, 2) == expected
