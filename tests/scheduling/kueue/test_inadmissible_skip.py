"""Heads that are passed over would have been refused, and would have heard what they know; nobody else notices."""

from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from gpuconsole.model.clock import Time
from gpuconsole.model.events import AdmissionDecision, Refuse
from gpuconsole.model.queues import FlavorQuotas, Quota, ResourceGroup
from gpuconsole.scheduling.kueue.conditions import reserve_quota, sync_admitted
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.messages import without_amounts
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from tests.scheduling.kueue.test_unchanged_cohorts import SETTINGS, happen, queues_of
from tests.support.kueue_cluster import ANY, GPU, LOWER, World, cohort, pods, queue, workload

STEPS, MOST = 32, 20
"""Steps of a story; after every fourth, as many cycles as change something."""


def story(
    config: KueueConfig, seed: int, told: ReportRefusals
) -> tuple[list[object], list[dict[str, str]], int, object]:
    """What is decided beside refusals and how the queues stand; what everybody was told; how many were told; and for
    what reasons shapes are refused in the end."""
    draw = Random(seed)
    queues = queues_of(draw)
    cohorts = cohort("a", 2), cohort("b"), cohort("x", parent="b")
    world = World(*cohorts, *queues, config=config, flavors="fg", victims_keep_quota=True)
    world.session = world.session.fork()
    decided: list[object] = []
    heard: list[dict[str, str]] = []
    reported: list[AdmissionDecision] = []
    run_cycle = world.session.run_cycle

    def recorded(now: Time, **options: Any) -> list[AdmissionDecision]:
        reported.extend(found := run_cycle(now, **options))
        return found

    world.simulator.report = told
    with patch.object(world.session, "run_cycle", recorded):
        for step in range(STEPS):
            happen(world, queues, step, draw)
            settles = step % 4 == 3
            for _ in range(MOST if settles else draw.randint(0, 3)):
                cycle = world.cycle() if world.session.has_heads else []
                decided.append([decision for decision in cycle if not isinstance(decision, Refuse)])
                if not world.session.has_progressed:
                    break
            if settles:
                queued = (world.session.pending_workloads(name) for name in world.session.compiled_config.queues)
                decided.append([[(waits.workload.key, waits.inadmissible) for waits in queue] for queue in queued])
                decided.append(world.session.has_progressed)
                heard.append({name: world.message(name) for name in sorted(world.workloads)})
    closed = [queue.inadmissible_classes for _, queue in sorted(world.session.dump().queues.items())]
    return decided, heard, sum(isinstance(decision, Refuse) for decision in reported), closed


@pytest.mark.parametrize("name", SETTINGS)
def test_whoever_is_told_the_same_is_decided_and_known(name: str) -> None:
    fewer, fewest = 0, 0
    for seed in range(25):
        decided, heard, refusals, closed = story(SETTINGS[name], seed, ReportRefusals.EVERY)
        news = story(SETTINGS[name], seed, ReportRefusals.CHANGED)
        assert (news[:2], news[3]) == ((decided, heard), closed), seed
        others = story(SETTINGS[name], seed, ReportRefusals.CHANGED_REASON)
        assert others[0] == decided, seed
        assert [_without_amounts(known) for known in others[1]] == [_without_amounts(known) for known in heard], seed
        fewer, fewest = fewer + refusals - news[2], fewest + refusals - others[2]
    match name:
        case "fair sharing":
            assert 0 < fewer == fewest, "only whole trees repeat their refusals"
        case "overlaps are looked at again":
            assert fewer == fewest == 0
        case _:
            assert 0 < fewer < fewest


def _without_amounts(heard: dict[str, str]) -> dict[str, str]:
    return {name: without_amounts(message) for name, message in heard.items()}


def test_who_begins_to_lack_something_else_is_told() -> None:
    both = ResourceGroup((GPU, "cpu"), (FlavorQuotas("f", {GPU: Quota(4), "cpu": Quota(8)}),))
    mates = (queue(name, cohort="c", groups=(both,), reclaim=ANY) for name in "ab")
    world = World(cohort("c"), *mates, config=KueueConfig())
    world.session = world.session.fork()
    world.run(workload("runs", "a", 4), workload("own", "b", 4), admitted=True)
    world.simulator.report = ReportRefusals.CHANGED_REASON
    world.run(workload("waits", "b", pod_sets=[pods(1, 1, cpu=6)]))
    first = world.message("waits")
    world.run(workload("less", "a", pod_sets=[pods(1, 0, cpu=2)]), admitted=True)
    second = world.message("waits")
    world.run(workload("more", "a", pod_sets=[pods(1, 0, cpu=12)]), admitted=True)
    world.finish("less")
    world.settle()
    third = world.message("waits")
    assert (first == second, "cpu" in second, "cpu" in third) == (True, False, True)


def crowded(*waiting: tuple[str, int, int]) -> World:
    """Queues `a` of 12 and `b` of 4 GPUs, full; in `b` these wait (name, GPUs, priority) and know why."""
    world = World(
        cohort("c"),
        queue("a", 12, cohort="c"),
        queue("b", 4, cohort="c", within=LOWER, reclaim=ANY),
        config=KueueConfig(),
    )
    world.session = world.session.fork()
    world.run(workload("runs", "a", 12), workload("strong", "b", 4, priority=5), admitted=True)
    for created, (name, gpus, priority) in enumerate(waiting):
        world.run(workload(name, "b", gpus, priority=priority, created=created))
    assert world.running == {"runs", "strong"}
    return world


def test_one_behind_a_larger_one_is_tried_when_there_is_room_for_it() -> None:
    world = crowded(("huge", 16, 2), ("small", 4, 0))
    world.simulator.report = ReportRefusals.CHANGED_REASON
    world.finish("strong")
    world.settle()
    assert world.running == {"runs", "small"}


def test_one_who_may_evict_more_than_those_behind_is_tried_when_that_helps() -> None:
    world = crowded(("huge", 16, 2), ("eager", 4, 2), ("meek", 4, 0))
    admission = world.workloads["strong"].admission
    assert admission is not None
    weak = reserve_quota(workload("weak", "b", 4, priority=1), admission, world.now)
    world.simulator.finish("team/strong")
    world.apply(sync_admitted(weak, world.now))
    world.session.requeue_inadmissible(world.now)
    world.simulator.report = ReportRefusals.CHANGED_REASON
    world.settle()
    assert world.running == {"runs", "eager"}


@pytest.mark.parametrize("quota", [None, 5], ids=["as it was", "another quota"])
def test_those_who_hear_nothing_new_are_passed_by_under_another_quota_too(quota: int | None) -> None:
    world = crowded(("first", 16, 0), ("second", 15, 0), ("third", 14, 0))
    world.simulator.report = ReportRefusals.CHANGED_REASON
    if quota is not None:
        world.apply(queue("b", quota, cohort="c", within=LOWER, reclaim=ANY))
        world.settle()
    world.run(workload("tiny", "a", 1))
    world.finish("tiny")
    assert world.cycle() == []
    assert world.session.skip_idle_cycles() == 2
