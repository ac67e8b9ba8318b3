"""Feature gates that are off by default and change who gets in first."""

import pytest

from gpuconsole.model.queues import BorrowWithinCohort
from gpuconsole.scheduling.kueue import messages
from gpuconsole.scheduling.kueue.config import KueueConfig
from tests.support.kueue_cluster import ANY, LOWER, World, admitted, cohort, queue, refused, victims, workload

OVERLAP = "RecomputeAssignmentUponPreemptionTargetsOverlap"
PREEMPTORS = "PrioritizePreemptorWorkloads"


def contended(**gates: bool) -> World:
    """Queues a and b want their quota back from one workload that holds both."""
    lender = queue("rest", 0, cohort="c")
    owners = [queue(name, 2, cohort="c", reclaim=ANY) for name in ("a", "b")]
    world = World(lender, *owners, config=KueueConfig(gates=gates))
    world.run(workload("big", "rest", 4), admitted=True)
    world.apply(workload("first", "a", 2, created=1), workload("second", "b", 2, created=2))
    return world


def test_overlapping_victims_put_a_head_off() -> None:
    decisions = contended().cycle()
    assert victims(decisions) == {"big": "InCohortReclamation"}
    assert refused(decisions)["second"] == messages.OVERLAPPING_TARGETS


def test_behind_its_gate_a_head_waits_for_the_victims_of_others() -> None:
    world = contended(**{OVERLAP: True})
    decisions = world.cycle()
    assert victims(decisions) == {"big": "InCohortReclamation"}
    assert refused(decisions)["second"] == (
        "Workload has overlapping preemption targets with another workload, but will fit after these preemptions"
        " complete"
    )
    assert sorted(admitted(world.cycle())) == ["first", "second"]


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize(("gates", "winner"), [({}, "rival"), ({PREEMPTORS: True}, "preemptor")])
def test_who_preempted_goes_first_behind_its_gate(fair: bool, gates: dict[str, bool], winner: str) -> None:
    borrowing = BorrowWithinCohort(LOWER)
    queues = [queue("a", 0, cohort="c", within=LOWER, reclaim=LOWER, borrow=borrowing), queue("b", 0, cohort="c")]
    world = World(cohort("c", 2), *queues, config=KueueConfig(fair_sharing=fair, gates=gates))
    world.run(workload("victim", "a", 2), admitted=True)
    world.apply(workload("preemptor", "a", 2, priority=1, created=1))
    assert victims(world.cycle()) == {"victim": "InClusterQueue"}
    world.apply(workload("rival", "b", 2, priority=9, created=2))
    assert admitted(world.cycle()) == [winner]
