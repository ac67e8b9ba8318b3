"""When all that waits starts: the same as each for itself, by the same runs."""

from gpuconsole.insight.forecast.estimates import Calibration, StartEstimates, calibrated, start_estimate_steps
from gpuconsole.insight.forecast.expected_start import expected_start
from gpuconsole.model.clock import DAY, HOUR
from gpuconsole.model.commands import Submit
from gpuconsole.model.cooperative import Progress, complete_answer
from tests.insight.test_eta import after, cluster, lasting


def test_everything_that_waits_is_foretold_by_the_same_runs() -> None:
    simulation = after(30, "1h")
    simulation.submit(Submit((lasting("later", "1h", created=simulation.now),)))
    *under_way, last = start_estimate_steps(simulation, runs=2, horizon=2 * HOUR)
    assert [(piece.last, piece.answer) for piece in under_way] == [(False, None)] * len(under_way)
    assert under_way
    assert last.answer == StartEstimates(
        time=simulation.now,
        estimates={
            key: found.start
            for key in ("a/next", "a/later")
            if (found := expected_start(simulation, key, runs=2, horizon=2 * HOUR)).start is not None
        },
    )
    assert sorted(last.answer.estimates) == ["a/later", "a/next"]


def test_where_nothing_waits_nothing_is_run() -> None:
    simulation = cluster()
    assert list(start_estimate_steps(simulation)) == [Progress(answer=StartEstimates(time=simulation.now), last=True)]


def test_as_long_as_no_work_has_ended_nothing_is_foretold() -> None:
    simulation = cluster()
    for name in ("runs", "waits"):
        simulation.submit(Submit((lasting(name, "1h", created=simulation.now),)))
    assert list(start_estimate_steps(simulation)) == [Progress(answer=StartEstimates(time=simulation.now), last=True)]


def test_all_estimates_are_stretched_alike() -> None:
    last = complete_answer(start_estimate_steps(after(30, "1h"), runs=2, horizon=DAY))
    wider = calibrated(last, Calibration(2.0, 10, 30)).estimates["a/next"]
    assert (wider.calibrated_by, wider.raw) == (30, last.estimates["a/next"].raw)
    assert wider.interval.first < wider.raw.first <= wider.raw.last < wider.interval.last
