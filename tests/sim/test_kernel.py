"""The kernel: time first, then what frees before what asks, then the order in which timers were set."""

from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.commands import Requeue
from gpuconsole.sim.kernel import (
    JobArrival,
    Kernel,
    Rank,
    RecreatePods,
    RequeueInadmissible,
    RunCommands,
    Timer,
    WorkEnds,
    rank,
)

TIMERS: list[Timer] = [
    RequeueInadmissible(),
    JobArrival(0, 1),
    RunCommands((Requeue("a"),)),
    WorkEnds("a", 1),
    RecreatePods("b"),
]


def emptied(kernel: Kernel, now: int = 10**9) -> list[Timer]:
    timers = []
    while (timer := kernel.pop_due(now)) is not None:
        timers.append(timer)
    return timers


def test_at_one_moment_what_frees_comes_first_and_wake_ups_last() -> None:
    kernel = Kernel()
    for timer in TIMERS:
        kernel.set_timer(5, timer)
    assert emptied(kernel) == [TIMERS[3], TIMERS[4], TIMERS[2], TIMERS[1], TIMERS[0]]


def test_nothing_is_due_before_its_time() -> None:
    kernel = Kernel()
    kernel.set_timer(5, RequeueInadmissible())
    assert (kernel.pop_due(4), kernel.next_time, kernel.is_due(5, Rank.WAKE)) == (None, 5, True)
    assert kernel.pop_due(5) == RequeueInadmissible()
    assert (kernel.next_time, len(kernel)) == (None, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(TIMERS)), max_size=30))
def test_the_order_is_by_time_rank_and_setting_and_survives_saving(settings: list[tuple[int, Timer]]) -> None:
    kernel = Kernel()
    for time, timer in settings:
        kernel.set_timer(time, timer)
    wanted = sorted(range(len(settings)), key=lambda n: (settings[n][0], rank(settings[n][1]), n))
    twin, loaded = kernel.fork(), Kernel.load(kernel.dump())
    assert emptied(kernel) == [settings[n][1] for n in wanted]
    assert emptied(twin) == emptied(loaded) == [settings[n][1] for n in wanted]
