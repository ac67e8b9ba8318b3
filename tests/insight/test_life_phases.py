"""The phases of a workload, from the steps of its timeline."""

from gpuconsole.insight.timeline import Moment, phases
from gpuconsole.model.clock import MINUTE
from gpuconsole.ui.paint import plain
from gpuconsole.ui.workload_text import BAR, phase_lines

STEPS = (
    (0, "submitted"),
    (1, "pending"),
    (4, "quota reserved"),
    (4, "admitted"),
    (5, "all pods run"),
    (15, "preempted"),
    (15, "evicted"),
    (16, "requeued"),
    (17, "preempts"),
    (20, "admitted"),
    (21, "all pods run"),
)


def life(*more: tuple[int, str]) -> list[Moment]:
    return [Moment(time=minute * MINUTE, title=title) for minute, title in (*STEPS, *more)]


def in_minutes(moments: list[Moment], now: int) -> list[tuple[str, int]]:
    return [(phase.value, span // MINUTE) for phase, span in phases(moments, now * MINUTE)]


def test_each_phase_lasts_until_the_next_one_begins_and_the_last_until_now() -> None:
    assert in_minutes(life(), 30) == [
        ("pending", 4),
        ("admitted", 1),
        ("running", 10),
        ("evicted", 1),
        ("pending", 4),
        ("admitted", 1),
        ("running", 9),
    ]


def test_a_finished_workload_is_in_no_phase_any_more() -> None:
    assert in_minutes(life((25, "finished")), 90)[-1] == ("running", 4)
    assert in_minutes([], 90) == []


def test_the_bar_has_each_phase_and_the_legend_its_total_time() -> None:
    bar, legend = map(plain, phase_lines(life(), 30 * MINUTE))
    assert bar.strip() == "░" * 8 + "▓" * 2 + "█" * 20 + "✖" * 2 + "░" * 8 + "▓" * 2 + "█" * 18
    assert len(bar.strip()) == BAR
    assert legend.split("  ") == [" ░ pending 8m00s", "▓ admitted 2m00s", "█ running 19m", "✖ evicted 1m00s"]
    assert phase_lines([], 0) == []
