"""Cohort trees whose refusals a cycle repeats without trying their heads: no decision changes, in any fork."""

from collections.abc import Iterator
from copy import copy
from random import Random
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import Admit, Preempt, Refuse
from gpuconsole.model.queues import BorrowWithinCohort, ClusterQueue, PreemptionPolicy, QueueingStrategy, Quota
from gpuconsole.scheduling.kueue import inadmissible_skip
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import ANY, LOWER, NEVER, World, cohort, queue, workload

STEPS = 30
SETTINGS = {
    "classical": KueueConfig(),
    "fair sharing": KueueConfig(fair_sharing=True),
    "overlaps are looked at again": KueueConfig(gates={"RecomputeAssignmentUponPreemptionTargetsOverlap": True}),
    "preemptors come first": KueueConfig(gates={"PrioritizePreemptorWorkloads": True}),
    "progress does not outlive a change": KueueConfig(gates={"FlavorFungibilityPreserveScanProgress": False}),
}
KINDS = ("submit", "submit", "submit", "submit", "finish", "release", "priority", "quota", "none", "none")


def queues_of(draw: Random) -> list[ClusterQueue]:
    """Three trees: two of them cohorts, one with a cohort in it, and a queue by itself."""
    return [
        queue(
            f"q{number}",
            {"f": Quota(draw.randint(0, 6), draw.choice((None, 2, 6)), draw.choice((None, 1, 6))), "g": 2}
            if where
            else {"f": 4},
            cohort=where,
            strategy=draw.choice(tuple(QueueingStrategy)),
            within=draw.choice((NEVER, LOWER, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)),
            reclaim=(reclaim := draw.choice((NEVER, LOWER, ANY))),
            borrow=BorrowWithinCohort(NEVER if reclaim == NEVER else draw.choice((NEVER, LOWER))),
        )
        for number, where in enumerate(("a", "a", "a", "b", "x", "x", ""))
    ]


def happen(world: World, queues: list[ClusterQueue], step: int, draw: Random) -> None:
    """Something happens to a workload or to a queue; all is drawn, whatever of it is needed."""
    kind, which, size, priority = draw.choice(KINDS), draw.randrange(30), draw.randint(1, 5), draw.randrange(3)
    target = queues[which % len(queues)]
    names = sorted(name for name, known in world.workloads.items() if not known.finished)
    match kind:
        case "submit":
            for number, door in enumerate((target, queues[size % len(queues)], target)):
                rank, age = (priority + number) % 3, step + draw.choice((-3, 0, 3))
                world.apply(workload(f"w{step}-{number}", door.name, size, priority=rank, created=age))
        case "finish" if names:
            world.finish(names[which % len(names)])
        case "priority" if names:
            name = names[which % len(names)]
            world.apply(replace(world.workloads[name], priority=priority))
        case "quota" if which % 5 == 0:
            flavors = queue(target.name, {"f": size, "g": priority}).resource_groups
            world.apply(replace(target, resource_groups=flavors))
            world.session.requeue_inadmissible(world.now)
        case "release":
            world.release()


def twin_of(world: World) -> World:
    twin = copy(world)
    twin.simulator = world.simulator.fork()
    return twin


def told(world: World, *, choices: bool) -> Iterator[object]:
    """What three cycles decide, and how the queues stand afterwards."""
    world.simulator.with_traces = choices
    for _ in range(3):
        yield world.cycle()
    for name in world.session.compiled_config.queues:
        yield [(waits.workload.key, waits.inadmissible) for waits in world.session.pending_workloads(name)]


def decided(config: KueueConfig, seed: int) -> list[object]:
    """Two futures of one world, one beside the other: a workload more or less, and from then on the same happens."""
    draw = Random(seed)
    queues = queues_of(draw)
    cohorts = cohort("a", 2), cohort("b"), cohort("x", parent="b")
    start = World(*cohorts, *queues, config=config, flavors="fg", victims_keep_quota=True)
    found: list[object] = []
    for step in range(STEPS // 2):
        happen(start, queues, step, draw)
        found += told(start, choices=False)
    futures = [twin_of(start), twin_of(start), start]
    futures[0].apply(workload("more", queues[seed % len(queues)].name, 2, priority=2))
    futures[1].now += SECOND * (seed % 2)
    for step in range(STEPS // 2, STEPS):
        drawn = draw.random()
        for number, future in enumerate(futures):
            happen(future, queues, step, Random(drawn))
            found += told(future, choices=number == 1)
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_an_unchanged_cohort_repeats_what_its_heads_would_be_told(name: str) -> None:
    for seed in range(25):
        with patch.object(inadmissible_skip, "unchanged_cohorts", lambda state: {}):
            anew = decided(SETTINGS[name], seed)
        assert decided(SETTINGS[name], seed) == anew, seed


def test_of_heads_alike_the_older_comes_first_in_every_fork() -> None:
    start = World(queue("a", 2, cohort="c"), queue("b", 2, cohort="c"), victims_keep_quota=True)
    futures = [twin_of(start), twin_of(start)]
    for future, ages in zip(futures, ((0, 1), (1, 0)), strict=True):
        future.apply(*(workload(f"w{age}", door, 4, created=age) for door, age in zip("ab", ages, strict=True)))
    admitted = [[d.workload for d in future.cycle() if isinstance(d, Admit)] for future in futures]
    assert admitted == [["team/w0"], ["team/w0"]]


def test_a_head_whose_preemptions_are_under_way_is_another_head_than_before() -> None:
    may_borrow = BorrowWithinCohort(LOWER)
    start = World(
        queue("a", 4, cohort="c", within=LOWER, reclaim=LOWER, borrow=may_borrow),
        queue("b", 2, cohort="c"),
        config=SETTINGS["preemptors come first"],
        victims_keep_quota=True,
    )
    start.run(workload("victim", "a", 2), admitted=True)
    large, small = workload("large", "a", 6, priority=1), workload("small", "b", 2)
    first, later = twin_of(start), twin_of(start)
    first.apply(large, small)
    later.apply(large)
    # What is decided is not applied: to the tree nothing happens.
    decided = [first.session.run_cycle(first.now), later.session.run_cycle(later.now)]
    later.apply(small)
    decided.append(later.session.run_cycle(later.now))
    kinds = [[(type(d), d.workload) for d in cycle] for cycle in decided]
    assert kinds == [
        [(Admit, "team/small"), (Refuse, "team/large")],
        [(Preempt, "team/victim"), (Refuse, "team/large")],
        [(Refuse, "team/large"), (Refuse, "team/small")],
    ]
