"""Fair sharing: who comes first, and from whom may be taken."""

from typing import NamedTuple

import pytest

from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.queues import ClusterQueue, Cohort, ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig, PreemptionStrategy
from tests.support.kueue_cluster import ANY, LOWER, World, admitted, cohort, pods, queue, victims, workload

FAIR = "InCohortFairSharing"
BOTH = KueueConfig(fair_sharing=True)
FINAL = KueueConfig(fair_sharing=True, strategies=(PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,))
INITIAL = KueueConfig(fair_sharing=True, strategies=(PreemptionStrategy.LESS_THAN_INITIAL_SHARE,))


class Case(NamedTuple):
    things: tuple[ClusterQueue | Cohort, ...]
    running: tuple[Workload, ...]
    newcomer: Workload
    want: dict[str, str]
    config: KueueConfig = BOTH


def singles(where: str, count: int, priority: int = 0) -> tuple[Workload, ...]:
    return tuple(workload(f"{where}{n}", where, priority=priority, created=n) for n in range(count))


def pool(size: int, **weights: float) -> tuple[ClusterQueue | Cohort, ...]:
    """A cohort that owns all quota, and queues that own none and may take from each other."""
    queues = (queue(name, 0, cohort="c", within=LOWER, reclaim=ANY, weight=w) for name, w in weights.items())
    return cohort("c", size), *queues


TEN = singles("a", 10)

VICTIMS: dict[str, Case] = {
    "it takes while its share stays at most the other's": Case(
        pool(10, a=1, b=1),
        TEN,
        workload("new", "b", 4),
        {name: FAIR for name in ("a6", "a7", "a8", "a9")},
    ),
    "an equal split is fair": Case(
        pool(10, a=1, b=1), TEN, workload("new", "b", 5), {f"a{n}": FAIR for n in range(5, 10)}
    ),
    "more than the half is not": Case(pool(10, a=1, b=1), TEN, workload("new", "b", 6), {}),
    "a double weight may have double": Case(
        pool(10, a=1, b=2), TEN, workload("new", "b", 6), {f"a{n}": FAIR for n in range(4, 10)}
    ),
    "a weight of nothing may take from nobody": Case(pool(10, a=1, b=0), TEN, workload("new", "b", 1), {}),
    "from a weight of nothing everybody may take": Case(
        pool(10, a=0, b=1), TEN, workload("new", "b", 6), {f"a{n}": FAIR for n in range(4, 10)}
    ),
    "the second strategy takes one that the first spared": Case(
        pool(10, a=1, b=1), (workload("a0", "a", 10),), workload("new", "b", 4), {"a0": FAIR}
    ),
    "without it one too large is spared": Case(
        pool(10, a=1, b=1), (workload("a0", "a", 10),), workload("new", "b", 4), {}, FINAL
    ),
    "by the initial share alone it is taken at once": Case(
        pool(10, a=1, b=1), (workload("a0", "a", 10),), workload("new", "b", 4), {"a0": FAIR}, INITIAL
    ),
    "a queue within its nominal quota reclaims without asking for shares": Case(
        (queue("a", 4, cohort="c", reclaim=ANY), queue("b", 4, cohort="c")),
        (workload("b0", "b", 8),),
        workload("new", "a", 4),
        {"b0": "InCohortReclamation"},
    ),
    "the node with the highest share loses first": Case(
        pool(12, a=1, b=1, d=1),
        (*singles("a", 8), *singles("d", 4)),
        workload("new", "b", 2),
        {"a6": FAIR, "a7": FAIR},
    ),
    "its own workloads it takes by priority": Case(
        (cohort("c", 4), queue("a", 0, cohort="c", within=LOWER, reclaim=LOWER)),
        singles("a", 4, -5),
        workload("new", "a", 2),
        {"a2": "InClusterQueue", "a3": "InClusterQueue"},
    ),
    "reclaim LowerPriority spares equals": Case(
        (cohort("c", 4), queue("a", 0, cohort="c"), queue("b", 0, cohort="c", reclaim=LOWER)),
        singles("a", 4),
        workload("new", "b", 1),
        {},
    ),
    "shares are compared below the common cohort": Case(
        (
            cohort("root", 12),
            cohort("left", parent="root"),
            cohort("right", parent="root"),
            queue("a", 0, cohort="left"),
            queue("b", 0, cohort="left"),
            queue("d", 0, cohort="right", reclaim=ANY),
        ),
        (*singles("a", 6), *singles("b", 6)),
        workload("new", "d", 6),
        {f"{q}{n}": FAIR for q in "ab" for n in (3, 4, 5)},
    ),
    "a queue without a cohort knows only its own": Case(
        (queue("a", 2, within=LOWER), queue("b", 2)),
        (*singles("a", 2, -1), *singles("b", 2, -1)),
        workload("new", "a", 1),
        {"a1": "InClusterQueue"},
    ),
}


@pytest.mark.parametrize("case", VICTIMS.values(), ids=VICTIMS.keys())
def test_victims(case: Case) -> None:
    world = World(*case.things, config=case.config).run(*case.running, admitted=True)
    world.apply(case.newcomer)
    assert victims(world.cycle()) == case.want


def test_the_smaller_share_comes_first_and_shares_change_with_every_admission() -> None:
    world = World(*pool(8, a=1, b=1, d=1), config=BOTH)
    world.run(*singles("a", 2), workload("b0", "b", 1), admitted=True)
    world.apply(workload("a9", "a", 1, priority=9), workload("b9", "b", 2), workload("d9", "d", 1))
    assert admitted(world.cycle()) == ["d9", "a9", "b9"]


def test_who_does_not_borrow_what_it_asks_for_comes_first() -> None:
    world = World(cohort("c", 2), queue("a", 4, cohort="c"), queue("b", 0, cohort="c"), config=BOTH)
    world.run(workload("b0", "b", 1), admitted=True)
    world.apply(workload("b9", "b", 1, priority=9), workload("a9", "a", 4))
    assert admitted(world.cycle()) == ["a9", "b9"]


def test_borrowing_other_flavors_does_not_count_against_it() -> None:
    flavors = (ResourceFlavor(name="f", node_labels={"kind": "f"}), ResourceFlavor(name="g", node_labels={"kind": "g"}))
    world = World(
        *flavors,
        queue("a", {"f": 2, "g": 0}, cohort="c"),
        queue("b", {"f": 0, "g": 0}, cohort="c"),
        queue("lender", {"f": 2, "g": 8}, cohort="c"),
        config=BOTH,
        flavors=(),
    )
    on_f, on_g = (PodTemplate(node_selector={"kind": kind}) for kind in "fg")
    world.run(workload("a0", "a", pod_sets=(pods(1, 6, template=on_g),)), admitted=True)
    world.apply(
        workload("a9", "a", pod_sets=(pods(1, 2, template=on_f),), created=5),
        workload("b9", "b", pod_sets=(pods(1, 1, template=on_f),), created=1),
    )
    assert admitted(world.cycle()) == ["a9", "b9"]


def test_an_admission_counts_for_the_whole_branch_at_once() -> None:
    world = World(
        cohort("root", 12),
        cohort("left", parent="root"),
        cohort("right", parent="root"),
        queue("a", 0, cohort="left"),
        queue("b", 0, cohort="left"),
        queue("d", 0, cohort="right"),
        config=BOTH,
    )
    world.apply(workload("a1", "a"), workload("b1", "b"), workload("d1", "d"))
    assert admitted(world.cycle()) == ["a1", "d1", "b1"]


def test_equal_shares_are_decided_by_priority_then_age() -> None:
    world = World(*pool(3, a=1, b=1, d=1), config=BOTH)
    world.apply(
        workload("a0", "a", created=2), workload("b0", "b", created=1), workload("d0", "d", created=3, priority=1)
    )
    assert admitted(world.cycle()) == ["d0", "b0", "a0"]


def test_trees_follow_one_another_by_name() -> None:
    world = World(queue("z", 1, cohort="y"), queue("b", 1), queue("a", 1, cohort="x"), config=BOTH)
    world.apply(workload("z0", "z"), workload("b0", "b"), workload("a0", "a"))
    assert admitted(world.cycle()) == ["a0", "b0", "z0"]
