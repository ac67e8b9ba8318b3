"""When work ends that a cluster brings along."""

import pytest

from gpuconsole.model.clock import HOUR, MINUTE, Span
from gpuconsole.sim.controllers.work import Task, end_of


@pytest.mark.parametrize(
    ("task", "runs", "left"),
    [
        (Task(3 * HOUR), HOUR, 2 * HOUR),
        (Task(3 * HOUR), 4 * HOUR, 0),
        (Task(3 * HOUR, done=HOUR), HOUR, HOUR),
        (Task(HOUR, drawn=True), 20 * MINUTE, 40 * MINUTE),
        (Task(HOUR, drawn=True), HOUR, 0),
        (Task(HOUR, drawn=True), HOUR + MINUTE, 59 * MINUTE),
        (Task(HOUR, drawn=True), 5 * HOUR, 3 * HOUR),
        (Task(HOUR, drawn=True), 9 * HOUR, 7 * HOUR),
        (Task(HOUR, done=2 * HOUR, drawn=True), 2**12 * 1_000_000 - 1, 1),
    ],
    ids=[
        "known",
        "known and over",
        "some was done before",
        "drawn",
        "just over",
        "twice",
        "5 h",
        "9 h",
        "more was done",
    ],
)
def test_drawn_work_that_runs_for_longer_takes_twice_as_long_as_was_thought(task: Task, runs: Span, left: Span) -> None:
    now = 100 * HOUR
    assert end_of(task, now - runs, now) == now + left
