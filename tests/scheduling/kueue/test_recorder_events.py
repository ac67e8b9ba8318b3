"""What Kueue's event recorder says of decisions, and which flavors it says were considered."""

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import Admit, KueueEvent
from gpuconsole.model.queues import FlavorFungibility, Fungibility
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.assignment import (
    FlavorAssignmentMode,
    FlavorResult,
    FlavorSearch,
    attempts_text,
    combine_attempts,
)
from gpuconsole.scheduling.kueue.config import DEFAULT
from tests.support.decision_events import events_for
from tests.support.kueue_cluster import LOWER, World, queue, workload

NEXT = FlavorFungibility(Fungibility.TRY_NEXT_FLAVOR, Fungibility.TRY_NEXT_FLAVOR)


def told(world: World) -> list[KueueEvent]:
    """The events of the next cycle."""
    before = {w.key: w for w in world.workloads.values()}
    events: list[KueueEvent] = []
    for decision in world.cycle():
        old = before[decision.workload]
        new = old
        if isinstance(decision, Admit):
            new = conditions.sync_admitted(conditions.reserve_quota(old, decision.admission, world.now), world.now)
        events += events_for(decision, old, new, before, DEFAULT, world.now)
    return events


def test_an_admission_says_how_long_the_workload_waited() -> None:
    world = World(queue("q", 2))
    world.apply(workload("w", "q", created=world.now // SECOND - 89))
    assert told(world) == [
        KueueEvent("team/w", "QuotaReserved", "Quota reserved in ClusterQueue q, wait time since queued was 90s"),
        KueueEvent("team/w", "Admitted", "Admitted by ClusterQueue q, wait time since reservation was 0s"),
    ]


def test_an_admission_names_the_flavors_that_were_passed_over() -> None:
    world = World(queue("q", {"f": 1, "g": 2}, fungibility=NEXT), flavors=("f", "g"))
    world.apply(workload("w", "q", 2, created=world.now // SECOND))
    assert told(world)[0].message == (
        "Quota reserved in ClusterQueue q, wait time since queued was 1s; Flavors considered: main: f(NoFit;"
        "insufficient quota for nvidia.com/gpu in flavor f, previously considered podsets requests (0) + current podset"
        " request (2) > maximum capacity (1))"
    )


def test_a_preemption_is_told_to_the_victim_and_to_the_preemptor() -> None:
    world = World(queue("q", 1, within=LOWER)).run(workload("low", "q"), admitted=True)
    world.apply(workload("high", "q", priority=5, created=1))
    why = (
        "Preempted to accommodate a workload (UID: uid-high, JobUID: UNKNOWN) due to prioritization in the"
        " ClusterQueue; preemptor path: /q; preemptee path: /q"
    )
    priorities = (
        "preemptor effective priority: 5 (base: 5, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)"
    )
    assert told(world) == [
        KueueEvent("team/low", "EvictedDueToPreempted", why),
        KueueEvent("team/low", "Preempted", f"{why}; {priorities}"),
        KueueEvent(
            "team/high",
            "PreemptedWorkload",
            f"Preempted workload team/low (UID: uid-low) in ClusterQueue q; {priorities}",
        ),
        KueueEvent(
            "team/high",
            "Pending",
            "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor f,"
            " 1 more needed. Pending the preemption of 1 workload(s)",
            warning=True,
        ),
    ]


def test_searches_for_several_resources_are_put_together_by_flavor() -> None:
    gpus = FlavorSearch(
        "gpu",
        ("a", "b"),
        (
            FlavorResult("a", FlavorAssignmentMode.PREEMPT, 1, ("few gpus",)),
            FlavorResult("b", FlavorAssignmentMode.FIT),
        ),
    )
    memory = FlavorSearch(
        "memory", ("a", "b"), (FlavorResult("a", FlavorAssignmentMode.NO_CANDIDATES, 2, ("little memory",)),)
    )
    assert attempts_text(
        [
            ("main", [gpus, memory]),
            ("other", [FlavorSearch("gpu", ("b",), (FlavorResult("b", FlavorAssignmentMode.FIT),))]),
        ]
    ) == (
        "main: a(preemptionMode=NoCandidates;borrow=2;few gpus;little memory),"
        " b(NoFit;flavor b does not provide resource memory)"
    )
    assert [attempt.mode for attempt in combine_attempts([gpus])] == [
        FlavorAssignmentMode.PREEMPT,
        FlavorAssignmentMode.FIT,
    ]
