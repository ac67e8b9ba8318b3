"""When what waits should start, in the table of workloads."""

from msgspec.structs import replace

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.insight.forecast.estimates import Estimate, Interval, StartEstimates
from gpuconsole.model.clock import DAY, HOUR, MINUTE, Time
from gpuconsole.model.commands import Submit
from gpuconsole.services.console import Console
from gpuconsole.ui.screens.workloads import starts_column
from gpuconsole.ui.workload_table import make_row
from gpuconsole.workers.client import Worker
from tests.support.console_clusters import busy_org
from tests.support.console_stage import staged
from tests.support.contended_cluster import job, simulation
from tests.support.snapshots import START, running, waiting

FOUND = Estimate(
    workload="a/w",
    asked=START,
    horizon=START + DAY,
    past=7 * DAY,
    runs=9,
    never=0,
    median=START + 90 * MINUTE,
    raw=Interval(START + 75 * MINUTE, START + 100 * MINUTE),
    interval=Interval(START + 65 * MINUTE, START + 150 * MINUTE),
)
SOON = replace(FOUND, workload="a/soon", median=START + MINUTE)
OUTLOOK = StartEstimates(time=START, estimates={"a/w": FOUND, "a/soon": SOON})
WAITS, RUNS, UNKNOWN = waiting("w", "a/lq", 8), running("w", "a/lq", 8, "a"), waiting("unknown", "a/lq", 8)


def shown(workload: object, now: Time = START) -> object:
    column = starts_column(lambda: OUTLOOK, lambda: now)
    return column.cell(make_row(workload))  # type: ignore[arg-type]


def test_who_waits_has_a_range_that_says_that_it_is_an_estimate() -> None:
    assert [shown(one) for one in (WAITS, RUNS, UNKNOWN)] == ["~09:05–10:30", "", ""]


def test_a_range_that_is_over_is_shown_no_more() -> None:
    assert [shown(WAITS, START + after) for after in (2 * HOUR, 3 * HOUR)] == ["~10:00–10:30", ""]


def test_of_what_no_run_saw_start_only_how_far_these_looked() -> None:
    never = replace(FOUND, never=9)
    column = starts_column(lambda: replace(OUTLOOK, estimates={"a/w": never}), lambda: START)
    assert column.cell(make_row(WAITS)) == ">08:00 +1d"


def test_who_starts_first_stands_first_and_who_is_not_foretold_last() -> None:
    column = starts_column(lambda: OUTLOOK, lambda: START)
    assert column.sort is not None
    rows = [make_row(one) for one in (UNKNOWN, WAITS, waiting("soon", "a/lq", 8))]
    assert [row.workload.name for row in sorted(rows, key=column.sort)] == ["soon", "w", "unknown"]


async def test_the_table_has_it_from_the_worker_process() -> None:
    original = simulation()
    worker = Worker()
    worker.introduce(original.save())
    backend = SimulatedBackend(original, speed=1000, follower=worker, clock=lambda: 0.0)
    console = Console(backend, worker=worker)
    console.submit(Submit((job("much", 8, 30), job("more", 8, 30), job("never", 9, 30))))
    console.tick(0.7)  # By then work has ended.
    async with staged(console, size=(200, 40)) as stage:
        await stage.press("3")
        assert "EST. START" in stage.line("WORKLOAD")
        assert "~" in stage.line("more")
        # No node has nine GPUs: no run sees it start.
        assert ">08:11 +1d" in stage.line("never")


async def test_without_a_process_to_run_the_cluster_forward_there_is_no_such_column() -> None:
    async with staged(busy_org(), size=(160, 40)) as stage:
        await stage.press("3")
        assert "EST. START" not in stage.text
