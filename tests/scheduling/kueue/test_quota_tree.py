"""Quota arithmetic: what a tree adds up to, what is left of it, and that changes can be undone."""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.queues import ClusterQueue, Cohort, Quota
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import CycleSnapshot
from gpuconsole.scheduling.kueue.preemption.fair_sharing import share_of
from gpuconsole.scheduling.kueue.quota_tree import QuotaTree, UsageTree
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.topology.layout import TasUsage
from tests.support.kueue_cluster import GPU, cohort, queue, quota


def tree(*things: ClusterQueue | Cohort) -> UsageTree:
    queues = {thing.name: thing for thing in things if isinstance(thing, ClusterQueue)}
    cohorts = {thing.name: thing for thing in things if isinstance(thing, Cohort)}
    return UsageTree(QuotaTree(queues, cohorts))


def use(usage: UsageTree, **amounts: int) -> UsageTree:
    for name, amount in amounts.items():
        usage.add(usage.tree.queues[name], [(0, amount)])
    return usage


def node(usage: UsageTree, name: str) -> int:
    return usage.tree.queues[name] if name in usage.tree.queues else usage.tree.cohorts[name]


class Left(NamedTuple):
    available: int
    potential: int
    used: int


def left(usage: UsageTree, name: str) -> Left:
    number = node(usage, name)
    return Left(usage.available(number, 0), usage.tree.potential[number * usage.tree.width], usage.usage_of(number, 0))


CASES: dict[str, tuple[UsageTree, dict[str, Left]]] = {
    "two queues share what both have": (
        use(tree(queue("a", 10, cohort="c"), queue("b", 10, cohort="c")), b=15),
        {"a": Left(5, 20, 0), "b": Left(5, 20, 15), "c": Left(5, 20, 15)},
    ),
    "a queue without a cohort has its own quota only": (
        use(tree(queue("a", 10), queue("b", 10)), a=4),
        {"a": Left(6, 10, 4), "b": Left(10, 10, 0)},
    ),
    "what is not lent is left to its owner and seen by nobody else": (
        use(tree(queue("a", 10, cohort="c"), queue("b", quota(10, lend=4), cohort="c")), b=3),
        {"a": Left(14, 14, 0), "b": Left(17, 20, 3), "c": Left(14, 14, 0)},
    ),
    "usage beyond what is not lent counts in the cohort": (
        use(tree(queue("a", 10, cohort="c"), queue("b", quota(10, lend=4), cohort="c")), b=8),
        {"a": Left(12, 14, 0), "b": Left(12, 20, 8), "c": Left(12, 14, 2)},
    ),
    "a lending limit of nothing keeps everything": (
        use(tree(queue("a", 10, cohort="c"), queue("b", quota(10, lend=0), cohort="c"))),
        {"a": Left(10, 10, 0), "b": Left(20, 20, 0)},
    ),
    "borrowing stops at the limit": (
        use(tree(queue("a", quota(10, borrow=2), cohort="c"), queue("b", 10, cohort="c"))),
        {"a": Left(12, 12, 0), "b": Left(20, 20, 0)},
    ),
    "what was borrowed already counts against the limit": (
        use(tree(queue("a", quota(10, borrow=2), cohort="c"), queue("b", 10, cohort="c")), a=11),
        {"a": Left(1, 12, 11), "b": Left(9, 20, 0)},
    ),
    "a cohort's borrowing limit binds its queues": (
        use(
            tree(
                cohort("r", 5),
                cohort("x", quota(0, borrow=3), parent="r"),
                queue("a", 10, cohort="x"),
                queue("d", 10, cohort="r"),
            )
        ),
        {"a": Left(13, 13, 0), "d": Left(25, 25, 0), "x": Left(13, 13, 0), "r": Left(25, 25, 0)},
    ),
    "a cohort's own quota is a pool for its subtree": (
        use(tree(cohort("c", 6), queue("a", 0, cohort="c"), queue("b", 4, cohort="c")), a=7),
        {"a": Left(3, 10, 7), "b": Left(3, 10, 0)},
    ),
    "a quota that was cut leaves less than nothing": (
        use(tree(queue("a", 4, cohort="c"), queue("b", 2, cohort="c")), a=9),
        {"a": Left(-3, 6, 9), "b": Left(-3, 6, 0)},
    ),
    "a cohort that is only named is a root without quota": (
        tree(queue("a", 10, cohort="nobody")),
        {"a": Left(10, 10, 0), "nobody": Left(10, 10, 0)},
    ),
}


@pytest.mark.parametrize(("usage", "want"), CASES.values(), ids=CASES.keys())
def test_what_is_left(usage: UsageTree, want: dict[str, Left]) -> None:
    assert {name: left(usage, name) for name in want} == want


DEEP = (
    cohort("r", 5),
    cohort("x", quota(0, borrow=3), parent="r"),
    queue("a", 10, cohort="x"),
    queue("d", 10, cohort="r"),
)

HEIGHTS: dict[str, tuple[tuple[ClusterQueue | Cohort, ...], int, tuple[int, bool]]] = {
    "within its own quota nothing is borrowed, and there is somebody to reclaim from": (DEEP, 10, (0, True)),
    "beyond it the root has to help": (DEEP, 12, (2, False)),
    "nobody could: the height is the root's": (DEEP, 40, (2, False)),
    "a queue without a cohort borrows never": ((queue("a", 10),), 12, (0, False)),
    "in a flat cohort heights are 0 and 1": ((queue("a", 10, cohort="c"), queue("b", 5, cohort="c")), 12, (1, False)),
    "the nearest cohort with room counts": (
        (cohort("r"), cohort("x", 4, parent="r"), queue("a", 10, cohort="x"), queue("d", 10, cohort="r")),
        13,
        (1, True),
    ),
}


@pytest.mark.parametrize(("things", "amount", "want"), HEIGHTS.values(), ids=HEIGHTS.keys())
def test_borrowing_height(things: tuple[ClusterQueue | Cohort, ...], amount: int, want: tuple[int, bool]) -> None:
    usage = tree(*things)
    assert usage.borrowing_height(usage.tree.queues["a"], 0, amount) == want


SHARES: dict[str, tuple[float, int]] = {"weight 1": (1.0, 250), "weight 2": (2.0, 125), "weight 0": (0.0, 2**63 - 1)}


@pytest.mark.parametrize(("weight", "want"), SHARES.values(), ids=SHARES.keys())
def test_share_of_what_is_borrowed(weight: float, want: int) -> None:
    usage = use(tree(queue("a", 10, cohort="c"), queue("b", 10, cohort="c", weight=weight)), b=15)
    assert share_of(usage, usage.tree.queues["b"]).rounded == want
    assert share_of(usage, usage.tree.queues["a"]).rounded == 0


def test_cohorts_in_a_circle_are_named_and_left_out() -> None:
    usage = tree(cohort("x", parent="y"), cohort("y", parent="x"), queue("a", 1, cohort="x"), queue("b", 1))
    assert usage.tree.in_cycle == {"x", "y"}
    assert set(usage.tree.queues) == {"b"}


def test_a_cohort_is_there_as_long_as_anything_names_it() -> None:
    session = KueueSession(KueueConfig())
    seen = []

    def look() -> None:
        session.requeue_inadmissible(0)
        seen.append((sorted(session.usage_tree.tree.cohorts), sorted(session.usage_tree.tree.queues)))

    session.apply(queue("q", 1, cohort="only-named"), 0)
    look()
    session.apply(cohort("only-named", parent="above"), 0)
    look()
    session.delete("cohorts", "only-named", 0)
    look()
    session.apply(queue("q", 1, cohort="other"), 0)
    look()
    session.delete("cluster_queues", "q", 0)
    look()
    assert seen == [
        (["only-named"], ["q"]),
        (["above", "only-named"], ["q"]),
        (["only-named"], ["q"]),
        (["other"], ["q"]),
        ([], []),
    ]


def test_a_circle_of_cohorts_opens_when_one_of_them_changes_or_goes() -> None:
    session = KueueSession(KueueConfig())
    for thing in (cohort("a", parent="b"), cohort("b", parent="a"), queue("q", 1, cohort="a"), queue("free", 1)):
        session.apply(thing, 0)
    assert (sorted(session.usage_tree.tree.in_cycle), sorted(session.usage_tree.tree.queues)) == (["a", "b"], ["free"])
    session.delete("cohorts", "b", 0)
    assert (sorted(session.usage_tree.tree.in_cycle), sorted(session.usage_tree.tree.queues)) == ([], ["free", "q"])
    session.apply(cohort("a", parent="a"), 0)
    assert (sorted(session.usage_tree.tree.in_cycle), sorted(session.usage_tree.tree.queues)) == (["a"], ["free"])
    session.apply(cohort("a"), 0)
    assert (sorted(session.usage_tree.tree.in_cycle), sorted(session.usage_tree.tree.queues)) == ([], ["free", "q"])


def test_columns_keep_their_numbers_when_flavors_are_added() -> None:
    before = QuotaTree({"a": queue("a", {"g": 1})}, {})
    after = QuotaTree({"a": queue("a", {"e": 1, "g": 1})}, {}, before.columns)
    assert after.numbers == {("g", GPU): 0, ("e", GPU): 1}


LIMITS = st.one_of(st.none(), st.integers(0, 12))
AMOUNTS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20)), max_size=12)


@st.composite
def trees(draw: st.DrawFn) -> UsageTree:
    """Four queues under a root and one cohort below it, with limits everywhere."""

    def drawn() -> Quota:
        return Quota(draw(st.integers(0, 12)), draw(LIMITS), draw(LIMITS))

    return tree(
        cohort("r", draw(st.integers(0, 8))),
        cohort("x", drawn(), parent="r"),
        *(queue(name, drawn(), cohort=draw(st.sampled_from("rx"))) for name in "abcd"),
    )


@given(trees(), AMOUNTS)
def test_a_trial_restores(usage: UsageTree, amounts: list[tuple[str, int]]) -> None:
    use(usage, a=3, c=7)
    before = usage.usage[:]
    with CycleSnapshot(usage, TasUsage({})).revertible():
        for name, amount in amounts:
            usage.add(usage.tree.queues[name], [(0, amount)])
    assert usage.usage == before


@given(trees(), AMOUNTS, st.randoms(use_true_random=False))
def test_usage_depends_on_who_uses_not_on_the_order(
    usage: UsageTree, amounts: list[tuple[str, int]], random: Random
) -> None:
    other = UsageTree(usage.tree)
    for name, amount in amounts:
        usage.add(usage.tree.queues[name], [(0, amount)])
    for name, amount in random.sample(amounts, len(amounts)):
        other.add(usage.tree.queues[name], [(0, amount)])
    assert usage.usage == other.usage


@given(trees(), AMOUNTS, st.randoms(use_true_random=False))
def test_removing_is_the_inverse_of_adding(usage: UsageTree, amounts: list[tuple[str, int]], random: Random) -> None:
    for name, amount in amounts:
        usage.add(usage.tree.queues[name], [(0, amount)])
    for name, amount in random.sample(amounts, len(amounts)):
        usage.remove(usage.tree.queues[name], [(0, amount)])
    assert not any(usage.usage)


@given(trees(), AMOUNTS)
def test_a_parent_uses_what_its_children_use_beyond_what_they_keep(
    usage: UsageTree, amounts: list[tuple[str, int]]
) -> None:
    for name, amount in amounts:
        usage.add(usage.tree.queues[name], [(0, amount)])
    for parent in usage.tree.cohorts.values():
        below = usage.tree.children[parent] + usage.tree.queue_children[parent]
        assert usage.usage_of(parent, 0) == sum(max(0, usage.usage_of(c, 0) - usage.tree.local[c]) for c in below)


@given(trees(), AMOUNTS)
def test_what_is_available_is_never_more_than_what_is_possible(
    usage: UsageTree, amounts: list[tuple[str, int]]
) -> None:
    for name, amount in amounts:
        usage.add(usage.tree.queues[name], [(0, amount)])
    for number in usage.tree.queues.values():
        assert usage.available(number, 0) <= usage.tree.potential[number]
