"""When work ends that a cluster brings along."""

import pytest

from gpuconsole.model.clock import HOUR, MINUTE, Span
from gpuconsole.sim.controllers.work import WorkTask, work_end


@pytest.mark.parametrize(
    ("task", "runs", "left"),
    [
        (WorkTask(3 * HOUR), HOUR, 2 * HOUR),
        (WorkTask(3 * HOUR), 4 * HOUR, 0),
        (WorkTask(3 * HOUR, done=HOUR), HOUR, HOUR),
        (WorkTask(HOUR, is_drawn=True), 20 * MINUTE, 40 * MINUTE),
        (WorkTask(HOUR, is_drawn=True), HOUR, 0),
        (WorkTask(HOUR, is_drawn=True), HOUR + MINUTE, 59 * MINUTE),
        (WorkTask(HOUR, is_drawn=True), 5 * HOUR, 3 * HOUR),
        (WorkTask(HOUR, is_drawn=True), 9 * HOUR, 7 * HOUR),
        (WorkTask(HOUR, done=2 * HOUR, is_drawn=True), 2**12 * 1_000_000 - 1, 1),
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
def test_drawn_work_that_runs_for_longer_takes_twice_as_long_as_was_thought(
    task: WorkTask, runs: Span, left: Span
) -> None:
    now = 100 * HOUR
    assert work_end(task, now - runs, now) == now + left
