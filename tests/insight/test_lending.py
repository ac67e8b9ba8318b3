"""Who lends what: numbers worked out by hand, and the laws that the attribution keeps."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.index.capacity import lent, split

SPLITS = {
    "everything is taken": (10, {1: 4, 2: 6}, {1: 4, 2: 6}),
    "in proportion to what each can spare": (5, {1: 4, 2: 6}, {1: 2, 2: 3}),
    "what does not divide goes to the largest remainder": (4, {1: 3, 2: 7}, {1: 1, 2: 3}),
    "a tie goes to the first": (1, {1: 2, 2: 2}, {1: 1, 2: 0}),
    "nobody lends what nobody wants": (0, {1: 3}, {1: 0}),
    "nobody lends more than there is": (9, {1: 3, 2: 1}, {1: 3, 2: 1}),
    "who can spare nothing lends nothing": (3, {1: 0, 2: 3}, {1: 0, 2: 3}),
    "an empty cohort": (3, {}, {}),
}


@pytest.mark.parametrize(("amount", "spare", "want"), SPLITS.values(), ids=SPLITS.keys())
def test_borrowing_is_split_among_lenders(amount: int, spare: dict[int, int], want: dict[int, int]) -> None:
    assert split(amount, spare) == want


@given(st.integers(0, 10**12), st.dictionaries(st.integers(0, 9), st.integers(0, 10**12), max_size=6))
def test_the_parts_sum_up_and_stay_within_what_is_spare(amount: int, spare: dict[int, int]) -> None:
    parts = split(amount, spare)

    assert sum(parts.values()) == min(amount, sum(spare.values()))
    assert all(0 <= parts[node] <= spare[node] for node in spare)


class Tree:
    """Cohorts are negative numbers, ClusterQueues positive ones."""

    def __init__(
        self, members: Mapping[int, Sequence[int]], net: Mapping[int, int], pool: Mapping[int, int] | None = None
    ) -> None:
        self.members, self.net, self.pool = members, net, pool or {}

    def lent(self) -> dict[int, int]:
        return lent(-1, self.members.get, self.net.__getitem__, lambda node: self.pool.get(node, 0))


TREES = {
    "org-cohort: research borrows 4 of prod's 8 free": (Tree({-1: [1, 2]}, {1: -4, 2: 8}), {-1: 0, 1: 0, 2: 4}),
    "two lenders share in proportion": (Tree({-1: [1, 2, 3]}, {1: -6, 2: 4, 3: 8}), {-1: 0, 1: 0, 2: 2, 3: 4}),
    "the cohort's own pool is used up first": (Tree({-1: [1, 2]}, {1: -6, 2: 8}, {-1: 4}), {-1: 4, 1: 0, 2: 2}),
    "a near lender comes before a far one": (
        Tree({-1: [-2, 3], -2: [1, 2]}, {1: -4, 2: 6, 3: 9, -2: 2}),
        {-1: 0, -2: 0, 1: 0, 2: 4, 3: 0},
    ),
    "what the near ones cannot lend is borrowed further up": (
        Tree({-1: [-2, 3], -2: [1, 2]}, {1: -9, 2: 6, 3: 9, -2: -3}),
        {-1: 0, -2: 0, 1: 0, 2: 6, 3: 3},
    ),
    "a child cohort lends on from its pool, then from its queues": (
        Tree({-1: [-2, 3], -2: [1, 2]}, {1: 4, 2: 2, 3: -6, -2: 8}, {-2: 2}),
        {-1: 0, -2: 2, 1: 3, 2: 1, 3: 0},
    ),
    "a cohort's lending limit bounds what goes outside": (
        Tree({-1: [-2, 3, 4], -2: [1]}, {1: 8, 3: -5, 4: 8, -2: 2}),
        {-1: 0, -2: 0, 1: 1, 3: 0, 4: 4},
    ),
    "over-admitted: nobody lends what nobody has": (Tree({-1: [1, 2]}, {1: -9, 2: 5}), {-1: 0, 1: 0, 2: 5}),
}


@pytest.mark.parametrize(("tree", "want"), TREES.values(), ids=TREES.keys())
def test_borrowing_is_met_as_near_as_possible(tree: Tree, want: dict[int, int]) -> None:
    assert tree.lent() == want
