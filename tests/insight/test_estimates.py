"""Estimates of starts: what the runs say, what earlier estimates make of it, and what is remembered of them."""

from msgspec.structs import replace

from gpuconsole.insight.calibration import Interval, Told
from gpuconsole.insight.estimates import KEPT, Estimate, Memory, corrected, estimate
from gpuconsole.insight.eta import Starts
from gpuconsole.model.clock import DAY, HOUR, MINUTE
from gpuconsole.model.events import Applied
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from tests.insight.world import START, running, waiting

NOW = 1000 * HOUR


def found(*hours: float | None) -> Starts:
    """Starts so many hours from now, looked for a day ahead."""
    times = tuple(NOW + round(after * HOUR) if after is not None else None for after in hours)
    return Starts(workload="a/w", asked=NOW, horizon=NOW + DAY, times=times)


def told(key: str, asked: int = NOW, started: int | None = None) -> Told:
    return Told(workload=key, queue="a", asked=asked, interval=Interval(asked, asked + HOUR), started=started)


def seen(*workloads: Workload) -> Snapshot:
    state = ClusterState(START)
    for workload in workloads:
        state.apply(Applied(START, workload))
    return state.freeze()


def ends(one: Estimate) -> tuple[float | None, ...]:
    """Early, median and late, in hours from now."""
    times = (one.early, one.median, one.late)
    return tuple(round((time - NOW) / HOUR, 2) if time is not None else None for time in times)


def test_nine_runs_are_enough_for_eight_of_ten_cases() -> None:
    one = estimate(found(1, 2, 3, 4, 5, 6, 7, 8, 9), "a")
    assert (ends(one), one.runs, one.never, one.moved_by) == ((1, 5, 9), 9, 0, 0)


def test_what_had_not_started_by_the_horizon_starts_later_than_that() -> None:
    one = estimate(found(1, 2, 3, 4, None, None, None, None, None), "a")
    assert (ends(one), one.never, one.raw.last) == ((1, None, None), 5, NOW + DAY)
    assert ends(estimate(found(None, None), "a")) == (None, None, None)


def test_earlier_estimates_move_the_ends_and_the_median_stays_between_them() -> None:
    # Work started after a quarter of an hour each time, where half an hour to an hour had been said.
    before = NOW - 5 * HOUR
    said = replace(told("a/w", before, before + 15 * MINUTE), interval=Interval(before + 30 * MINUTE, before + HOUR))
    earlier = [said] * 30
    one = corrected(estimate(found(1, 1, 3), "a"), earlier)
    assert (one.moved_by, one.raw) == (30, Interval(NOW + HOUR, NOW + 3 * HOUR))
    assert ends(one) == (0.51, 0.77, 0.77)


def test_few_earlier_estimates_leave_it_as_it_came() -> None:
    one = estimate(found(1, 2, 3), "a")
    assert corrected(one, [told("a/1", NOW - DAY, NOW - DAY)]) == one


def test_the_first_estimate_of_a_workload_is_remembered() -> None:
    memory = Memory([told("a/1")])
    later = told("a/1", NOW + HOUR)
    assert memory.note([later, told("a/2"), told("a/2", NOW + HOUR)]) == [told("a/2")]
    assert memory.earlier == (told("a/1"), told("a/2"))


def test_what_became_of_an_estimate_is_read_from_later_snapshots() -> None:
    memory = Memory()
    memory.note([told("a/one", START), told("a/two", START), told("a/gone", START)])
    came = [told("a/one", START, START + MINUTE)]
    snapshot = seen(running("one", "a/lq", 8, "a", minutes_ago=-1), waiting("two", "a/lq", 8))
    assert memory.see(snapshot) == came
    assert memory.earlier == (came[0], told("a/two", START))
    # It is known by now, and stays so, whatever comes after it.
    assert memory.see(seen()) == []
    assert list(memory.earlier) == came


def test_only_the_newest_are_remembered() -> None:
    memory = Memory()
    memory.note([told(f"a/{n}") for n in range(KEPT + 5)])
    assert (len(memory.earlier), memory.earlier[0].workload) == (KEPT, "a/5")
