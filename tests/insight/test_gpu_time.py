"""GPU-hours: by what pods hold, and a GPU that several pods share is one GPU."""

from gpuconsole.insight.index.gpu_time import GpuTime
from gpuconsole.model.clock import HOUR
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.objects import Object
from tests.support.snapshots import START, node, pod, world


def hours(*events: Event) -> tuple[float, float]:
    """Of four hours, on two GPUs that are there from the start, one of them shared by two pods."""
    time = GpuTime(world([node("n", 2), pod("half", "n", (0,)), pod("other-half", "n", (0,))]), START)
    for event in events:
        time.note(event)
    time.count(START + 4 * HOUR)
    return time.used_hours, time.total_hours


def test_pods_that_share_a_gpu_hold_one() -> None:
    assert hours() == (4.0, 8.0)


def test_a_shared_gpu_is_free_when_the_last_of_them_is_gone() -> None:
    one, two = (Deleted(START + after * HOUR, "pods", key) for after, key in ((1, "team/half"), (3, "team/other-half")))
    assert hours(one, two) == (3.0, 8.0)


def test_what_comes_counts_from_then_on_and_a_pod_that_changes_otherwise_counts_once() -> None:
    come: tuple[Object, ...] = (pod("whole", "n", (1,)), pod("whole", "n", (1,), message="ready"), node("m", 8))
    assert hours(*(Applied(START + (2 + nth) * HOUR, thing) for nth, thing in enumerate(come))) == (6.0, 8.0)
    assert hours(Applied(START + 3 * HOUR, node("m", 8)), Applied(START + 3 * HOUR, node("n", 2, ready=False))) == (
        4.0,
        14.0,
    )
