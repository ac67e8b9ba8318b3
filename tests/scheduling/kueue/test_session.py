"""The session: forks, memory, and what happens to it from outside."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import Admit
from gpuconsole.model.queues import AdmissionCheck, CheckRule
from gpuconsole.model.workloads import CheckState
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue import scheduler as cycle
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.processing import in_processing_order
from gpuconsole.scheduling.kueue.session import SessionState
from tests.support.kueue_cluster import GPU, LOWER, World, admitted, cohort, pods, queue, refused, workload


def busy() -> World:
    """Two queues with running, parked and waiting workloads, and a preemption under way."""
    world = World(queue("a", 4, cohort="c", within=LOWER), queue("b", 4, cohort="c"))
    world.run(workload("a0", "a", 4), workload("b0", "b", 4), admitted=True)
    world.run(workload("b1", "b", 2))
    world.apply(workload("a1", "a", 4, priority=9), workload("a2", "a", 1, created=2))
    world.now += SECOND
    world.session.run_cycle(world.now)
    return world


def test_an_admission_is_assumed_until_it_is_applied() -> None:
    world = World(queue("q", 4))
    world.apply(workload("x", "q", 3), workload("y", "q", 3, created=1))
    decision = world.session.run_cycle(world.now)[0]
    assert isinstance(decision, Admit)
    assert world.session.available("q", "f", GPU) == 1
    assert list(refused(world.session.run_cycle(world.now + SECOND))) == ["y"]
    world.apply(conditions.reserve_quota(world.workloads["x"], decision.admission, world.now))
    world.apply(conditions.sync_admitted(world.workloads["x"], world.now))
    assert world.session.available("q", "f", GPU) == 1


def test_whoever_gets_quota_in_a_cycle_is_nobody_s_victim_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates of a cycle are those of its beginning (Kueue's snapshot); what was given since counts as used."""
    world = World(queue("a", 4, cohort="c"), queue("b", 4, cohort="c"))
    world.run(workload("old", "a", 1), admitted=True)
    world.apply(workload("x", "a", 1), workload("y", "b", 1))
    seen: list[list[str]] = []

    def watched(context: Context, entries: list[CycleEntry]) -> Iterator[CycleEntry]:
        for entry in in_processing_order(context, entries):
            yield entry
            seen.append([holding.key for name in ("a", "b") for holding in context.held_by(name)])

    monkeypatch.setattr(cycle, "in_processing_order", watched)
    assert admitted(world.cycle()) == ["x", "y"]
    assert seen == [["team/old"], ["team/old"]]


def test_an_admission_that_failed_is_tried_again() -> None:
    """The caller applies the workload as it was: the assumption is forgotten."""
    world = World(queue("q", 4))
    world.apply(workload("x", "q", 3))
    world.session.run_cycle(world.now)
    world.apply(world.workloads["x"])
    assert world.session.available("q", "f", GPU) == 4
    assert admitted(world.cycle()) == ["x"]


def test_reclaimable_pods_give_their_quota_back() -> None:
    world = World(queue("q", 4)).run(workload("x", "q", pod_sets=(pods(4),)), admitted=True)
    world.run(workload("y", "q", 2, created=1))
    world.apply(replace(world.workloads["x"], reclaimable={"main": 3}))
    assert world.session.has_requeue_due
    world.session.requeue_inadmissible(world.now)
    world.settle()
    assert world.running == {"x", "y"}
    assert world.session.available("q", "f", GPU) == 1


def test_workloads_that_hold_quota_from_before_count() -> None:
    source = World(queue("q", 4)).run(workload("x", "q", 3), admitted=True)
    world = World(queue("q", 4))
    world.apply(source.workloads["x"])
    assert world.session.available("q", "f", GPU) == 1


def test_quota_in_a_flavor_that_the_queue_gave_up_is_remembered() -> None:
    world = World(queue("q", {"f": 4}), flavors=("f", "g")).run(workload("x", "q", 3), admitted=True)
    world.apply(queue("q", {"g": 4}))
    world.run(workload("y", "q", 4))
    assert world.running == {"x", "y"}
    world.apply(queue("q", {"f": 4}))
    assert world.session.available("q", "f", GPU) == 1


def test_checks_leave_a_workload_reserved() -> None:
    checked = replace(queue("q", 4), checks=(CheckRule("prov"),))
    world = World(AdmissionCheck(name="prov"), checked)
    world.apply(replace(workload("x", "q", 3), checks=(CheckState(name="prov"),)))
    assert admitted(world.cycle()) == ["x"]
    assert (world.running, world.session.available("q", "f", GPU)) == (set(), 1)


def test_failed_checks_refuse_a_workload() -> None:
    world = World(queue("q", 4))
    world.apply(replace(workload("x", "q", 3), checks=(CheckState(name="prov", state="Retry"),)))
    assert refused(world.cycle()) == {"x": "The workload has failed admission checks"}


def test_kinds_that_do_not_matter_are_ignored() -> None:
    world = World(queue("q", 4))
    world.apply(Pod(name="p"))
    world.session.delete("pods", "team/p", world.now)
    assert not world.session.has_heads


def test_a_fork_goes_its_own_way() -> None:
    world = busy()
    before = [world.waiting("a"), world.waiting("b"), world.session.available("b", "f", GPU)]
    twin = world.session.fork()
    twin.apply(conditions.mark_finished(world.workloads["b0"], "Succeeded", "", world.now), world.now)
    twin.apply(queue("b", 9, cohort="c"), world.now)
    twin.apply(workload("new", "b", 1, priority=50), world.now)
    twin.requeue_inadmissible(world.now)
    twin.run_cycle(world.now + SECOND)
    assert [world.waiting("a"), world.waiting("b"), world.session.available("b", "f", GPU)] == before


def test_the_original_does_not_disturb_its_fork() -> None:
    world, other = busy(), busy()
    twin = world.session.fork()
    world.finish("b0")
    world.settle()
    assert twin.run_cycle(world.now) == other.session.run_cycle(world.now)


def test_a_session_recalled_from_its_memory_goes_on_alike() -> None:
    world = busy()
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(world.session.dump()), type=SessionState)
    copy = World(queue("a", 4, cohort="c", within=LOWER), queue("b", 4, cohort="c"))
    copy.now = world.now
    copy.apply(*world.workloads.values())
    copy.session.load(saved)
    assert copy.session.dump() == world.session.dump()
    assert [copy.waiting(q) for q in "ab"] == [world.waiting(q) for q in "ab"]
    for _ in range(3):
        assert copy.cycle() == world.cycle()


def test_progress_ends_when_nothing_changes_any_more() -> None:
    world = World(cohort("c"), queue("q", 4, cohort="c"))
    world.apply(workload("x", "q", 3), workload("y", "q", 3, created=1))
    seen = []
    for _ in range(4):
        world.cycle()
        seen.append(world.session.has_progressed)
    assert seen == [True, True, False, False]


def test_the_same_calls_give_the_same_decisions() -> None:
    first, second = busy().cycle(), busy().cycle()
    assert first == second
    assert refused(first)["a1"].endswith("Pending the preemption of 1 workload(s)")
