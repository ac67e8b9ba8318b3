"""A dead Kueue is told of: in the console's status, its header, and what needs attention."""

import pytest

from gpuconsole.backends.base import Missing
from gpuconsole.insight.health.engines import KueueProblem
from gpuconsole.model.job import Job
from gpuconsole.services.console import Console
from gpuconsole.services.forecasting import ForecastService
from gpuconsole.ui.queue_table import kueue_alerts
from gpuconsole.ui.widgets.header_footer import left_parts
from tests.insight.test_forecast_check import WAITS, admitted
from tests.support.console_stage import staged
from tests.support.scripted_live_backend import Elsewhere
from tests.support.snapshots import ORG_QUEUES, START

STUCK = KueueProblem(
    "Kueue: no admissions for 40s",
    "1 admissible workload pending for 40s, and no Workload status changed: check that Kueue's controller is running.",
)


class Watched:
    """A console on a live cluster whose forecaster has a clock of its own."""

    def __init__(self, cluster: Elsewhere) -> None:
        self.cluster, self.now = cluster, 0.0
        self.console = Console(cluster)
        self.console.forecaster = ForecastService(cluster, clock=lambda: self.now)

    def look(self, seconds: float = 0.0) -> tuple[KueueProblem, ...]:
        self.now += seconds
        self.console.tick(0)
        assert self.console.forecaster is not None
        self.console.forecaster.changed(self.console.snapshot)
        self.console.forecaster.look()
        return self.console.status.kueue


def test_a_workload_that_kueue_should_admit_and_does_not_is_told_after_half_a_minute() -> None:
    watched = Watched(Elsewhere((*ORG_QUEUES, WAITS), START))
    assert watched.look() == ()
    assert watched.look(20) == ()
    assert watched.look(20) == (STUCK,)
    watched.cluster.put(admitted(WAITS))
    assert watched.look(2) == (), "it lives again"


def test_new_jobs_without_workloads_are_told_though_nothing_is_pending() -> None:
    job = Job(namespace="prod", name="new", uid="new", queue="lq", suspended=True)
    watched = Watched(Elsewhere((*ORG_QUEUES, job), START))
    assert [watched.look(seconds) for seconds in (0, 20)] == [(), ()]
    assert [problem.text for problem in watched.look(20)] == [
        "1 job without a Workload for 40s: check that Kueue's controller is running."
    ]
    watched.cluster.lost = "the server is away"
    assert watched.look(1) == ()
    watched.cluster.lost = ""
    assert [watched.look(seconds) for seconds in (1, 20)] == [(), ()], "counting begins anew"


@pytest.mark.parametrize("trouble", ["lost", "loading", "forbidden", "no Kueue", "nothing admissible"])
def test_no_alarm(trouble: str) -> None:
    things = ORG_QUEUES if trouble == "nothing admissible" else (*ORG_QUEUES, WAITS)
    cluster = Elsewhere(things, START, kueue=trouble != "no Kueue")
    cluster.lost = "the server is away" if trouble == "lost" else ""
    cluster.loading = trouble == "loading"
    cluster.missing = (Missing("list", "workloads.kueue.x-k8s.io"),) if trouble == "forbidden" else ()
    watched = Watched(cluster)
    assert [watched.look(seconds) for seconds in (0, 40, 40)] == [(), (), ()]


def test_what_cannot_be_seen_any_more_is_no_alarm_either() -> None:
    watched = Watched(Elsewhere((*ORG_QUEUES, WAITS), START))
    watched.look()
    assert watched.look(40) == (STUCK,)
    watched.cluster.lost = "the server is away"
    assert watched.console.status.kueue == (), "at once"
    assert watched.look(40) == ()


def test_the_header_and_the_list_of_troubles_say_it() -> None:
    watched = Watched(Elsewhere((*ORG_QUEUES, WAITS), START))
    watched.look()
    watched.look(40)
    status = watched.console.status
    assert (0, ((f"⚠ {STUCK.mark}", "fault"),)) in left_parts(status, ())
    assert [(one.trouble.value, one.text) for one in kueue_alerts(status)] == [("kueue", STUCK.text)]


@pytest.mark.parametrize("size", [(160, 50), (80, 24)])
async def test_the_screen_shows_it(size: tuple[int, int]) -> None:
    watched = Watched(Elsewhere((*ORG_QUEUES, WAITS), START))
    watched.look()
    watched.look(40)
    async with staged(watched.console, size) as stage:
        await stage.tick()
        assert "⚠ Kueue: no admissions for 40s" in stage.text
        assert "1 admissible workload" in stage.text
