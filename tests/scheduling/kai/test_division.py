"""How KAI divides GPUs over queues: quotas first, then the surplus by priority, weight and past use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from gpuconsole.scheduling.kai.fair_share.division import (
    GPU,
    QueueShares,
    ResourceShares,
    set_fair_share,
    set_fair_shares_of_tree,
)


def queue(
    name: str,
    asks: float,
    *,
    quota: float = 0,
    weight: float = 1,
    limit: float = -1,
    priority: int = 100,
    usage: float = 0,
    created: int = 0,
    parent: str = "",
    children: tuple[str, ...] = (),
) -> QueueShares:
    share = ResourceShares(deserved=quota, weight=weight, limit=limit, requested=asks, usage=usage)
    return QueueShares(name, priority=priority, created=created, parent=parent, children=children, gpu=share)


class Case(Struct, frozen=True):
    total: float
    queues: list[QueueShares]
    want: dict[str, float]
    rest: float = 0
    k: float = 0


CASES = {
    "a queue gets its quota even if others have more weight": Case(
        4, [queue("a", 4, quota=4, weight=0), queue("b", 4, weight=9)], {"a": 4, "b": 0}
    ),
    "what a queue does not ask for of its quota is surplus": Case(
        4, [queue("a", 1, quota=4), queue("b", 4)], {"a": 1, "b": 3}
    ),
    "the surplus is divided by weight in whole GPUs": Case(
        8, [queue("a", 8, weight=3), queue("b", 8, weight=1)], {"a": 6, "b": 2}
    ),
    "a GPU that rounding leaves goes to the largest fraction": Case(
        5, [queue("a", 9, weight=2), queue("b", 9, weight=1)], {"a": 3, "b": 2}
    ),
    "of equal fractions the elder queue's comes first": Case(
        3, [queue("a", 9, created=2), queue("b", 9, created=1)], {"a": 1, "b": 2}
    ),
    "a satisfied queue's part goes to the others in another round": Case(
        9, [queue("a", 1), queue("b", 9), queue("c", 9)], {"a": 1, "b": 4, "c": 4}
    ),
    "a queue of higher priority takes all of the surplus that it asks for": Case(
        6, [queue("a", 5, priority=200), queue("b", 5)], {"a": 5, "b": 1}
    ),
    "without weight there is no surplus": Case(6, [queue("a", 5, weight=0), queue("b", 2)], {"a": 0, "b": 2}, rest=4),
    "a limit caps both quota and surplus": Case(9, [queue("a", 9, limit=3), queue("b", 9)], {"a": 3, "b": 6}),
    "an unlimited quota is the whole": Case(4, [queue("a", 3, quota=-1), queue("b", 4)], {"a": 3, "b": 1}),
    "fractions that are asked for are given as such": Case(
        2, [queue("a", 0.5), queue("b", 0.5)], {"a": 0.5, "b": 0.5}, rest=1
    ),
    "past use lowers a queue's part": Case(
        8, [queue("a", 8, usage=0.5), queue("b", 8, usage=0.0)], {"a": 3, "b": 5}, k=1
    ),
    "with a large factor a queue that used much gets nothing of the surplus": Case(
        4, [queue("a", 4, usage=1.0), queue("b", 4)], {"a": 0, "b": 4}, k=2
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_division_over_siblings(name: str) -> None:
    case = CASES[name]
    queues = [found.copy() for found in case.queues]
    rest = set_fair_share(case.total, case.k, queues, GPU)
    assert ({found.uid: found.by_resource[GPU].fair for found in queues}, rest) == (case.want, case.rest)


def test_what_a_department_gets_is_divided_over_its_teams() -> None:
    tree = [
        queue("dep-1", 8, quota=4, children=("team-1", "team-2")),
        queue("dep-2", 8, quota=4, children=("team-3",)),
        queue("team-1", 4, quota=3, parent="dep-1"),
        queue("team-2", 4, quota=0, parent="dep-1"),
        queue("team-3", 8, quota=1, parent="dep-2"),
    ]
    set_fair_shares_of_tree({GPU: 8}, 0, {found.uid: found for found in tree})
    assert {found.uid: found.by_resource[GPU].fair for found in tree} == {
        "dep-1": 4,
        "dep-2": 4,
        "team-1": 4,
        "team-2": 0,
        "team-3": 4,
    }


QUEUES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 5), st.integers(0, 4), st.integers(-1, 8), st.integers(1, 3)),
    min_size=1,
    max_size=6,
)


@given(st.integers(0, 40), QUEUES)
def test_nothing_is_given_twice_and_nobody_gets_more_than_it_may(total: int, drawn: list[tuple[int, ...]]) -> None:
    queues = [
        queue(f"q{n}", asks, quota=quota, weight=weight, limit=limit, priority=priority)
        for n, (asks, quota, weight, limit, priority) in enumerate(drawn)
    ]
    quotas = sum(min(found.by_resource[GPU].deserved, found.by_resource[GPU].requestable) for found in queues)
    rest = set_fair_share(total, 0, queues, GPU)
    given_away = sum(found.by_resource[GPU].fair for found in queues)
    assert given_away + rest == pytest.approx(max(total, quotas))
    assert all(found.by_resource[GPU].fair <= found.by_resource[GPU].requestable + 1e-9 for found in queues)
