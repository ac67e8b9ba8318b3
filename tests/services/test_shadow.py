"""A live console passes the changes of its cluster to the worker, which checks each decision of Kueue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.errors import WorkerError
from gpuconsole.insight.forecast.agreement import NO_COMPARISON, AgreementCounts, DisagreementCause
from gpuconsole.insight.forecast.forecast import ForecastAction
from gpuconsole.model.clock import HOUR, MINUTE, Time
from gpuconsole.services.console import Console
from gpuconsole.services.shadow import ShadowService
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.ui.widgets.header_footer import left_parts
from gpuconsole.workers.client import Worker
from tests.insight.test_forecast_check import WAITS, admitted
from tests.support.contended_cluster import simulation
from tests.support.recorded_histories import NEVER
from tests.support.scripted_live_backend import Elsewhere
from tests.support.snapshots import ORG_QUEUES, START, waiting

NEXT = waiting("next", "prod/lq", 2, minutes_ago=1)


class Watched:
    """A console on a live cluster with a worker; time and requests come by hand."""

    def __init__(self, history: Path | None = None, start: Time = START) -> None:
        self.cluster = Elsewhere((*ORG_QUEUES, WAITS), start)
        self.worker = Worker()
        opening = Opening(version="1", mode="LIVE", source="prod")
        recorder = Recorder(history, opening, wall=lambda: self.cluster.now, interval=NEVER) if history else None
        self.console = Console(self.cluster, worker=self.worker, recorder=recorder)

    @property
    def shadow(self) -> ShadowService:
        assert self.console.shadow is not None
        return self.console.shadow

    def follow(self, seconds: int = 1) -> None:
        self.cluster.wait(seconds)
        self.console.tick(0)
        self.shadow.follow()

    @property
    def header(self) -> str:
        return " ".join(str(part) for _, part in left_parts(self.console.status, ()))


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.console.stop()


def test_a_decision_as_the_engine_makes_it_is_an_agreement_in_the_header(watched: Watched) -> None:
    watched.follow()
    assert (watched.console.status.agreement, "agreement" in watched.header) == (NO_COMPARISON, False)
    watched.cluster.put(admitted(WAITS))
    watched.follow()
    assert watched.shadow.report is not None
    assert watched.shadow.report.counts == AgreementCounts(decisions=1, agreed=1)
    assert watched.console.status.agreement == AgreementCounts(decisions=1, agreed=1)
    assert "('agreement with Kueue 100.0%', 'good')" in watched.header


def test_a_decision_that_the_engine_does_not_make_is_a_warning_in_the_header(watched: Watched) -> None:
    watched.follow()
    watched.cluster.put(admitted(WAITS, flavor="h100"))
    watched.follow()
    report = watched.shadow.report
    assert report is not None
    assert [found.workload for found in report.disagreements] == ["prod/waits"]
    assert report.causes == {DisagreementCause.OTHER_FLAVORS: 1}
    assert "('agreement with Kueue 0.0%', 'fault')" in watched.header


def test_after_a_lost_connection_it_begins_again_as_decisions_were_missed(watched: Watched) -> None:
    watched.follow()
    watched.cluster.lost = "connection refused"
    watched.follow()
    watched.cluster.put(admitted(WAITS, flavor="h100"))
    watched.follow()
    watched.cluster.lost = ""
    watched.follow()
    assert watched.shadow.report is not None
    assert watched.shadow.report.counts == NO_COMPARISON
    assert watched.shadow.report.since == START + 4_000_000
    watched.cluster.put(NEXT, admitted(NEXT))
    watched.follow()
    assert watched.shadow.report.counts.decisions == 1


def test_without_a_beginning_the_worker_says_so() -> None:
    worker = Worker()
    with pytest.raises(WorkerError, match="the shadow has not begun"):
        worker.follow([])
    worker.close()


def test_a_simulation_and_a_console_without_a_worker_have_no_shadow() -> None:
    assert Console(SimulatedBackend(simulation())).shadow is None
    assert Console(Elsewhere(ORG_QUEUES, START)).shadow is None


def test_after_a_restart_the_last_day_includes_the_time_before_and_an_earlier_time_shows_that_of_then(
    tmp_path: Path,
) -> None:
    first = Watched(tmp_path / "history.db")
    first.follow()
    first.cluster.put(admitted(WAITS, flavor="h100"))
    first.follow()
    assert first.console.agreement == (
        "The engine agreed with Kueue in 0 of 1 decisions of the last 24 h on this cluster."
    )
    first.console.stop()

    again = Watched(tmp_path / "history.db", START + 23 * HOUR)
    again.follow()
    assert again.console.status.agreement == AgreementCounts(decisions=1)
    again.cluster.put(NEXT, admitted(NEXT))
    again.follow()
    report = again.console.shadow_report
    assert report is not None
    assert (report.counts, report.last_day) == (AgreementCounts(1, 1), AgreementCounts(2, 1))
    assert [found.workload for found in report.disagreements] == ["prod/waits"]

    again.cluster.wait(2 * 3600)
    again.follow()
    again.cluster.put(admitted(WAITS))
    again.follow()
    assert again.console.status.agreement == AgreementCounts(2, 2), "the disagreement is older than a day"

    recorder, travel = again.console._recorder, again.console.time_travel
    assert recorder is not None
    assert travel is not None
    recorder.flush()
    again.console.travel_to(travel.cluster(START + 23 * HOUR + MINUTE // 30))
    past = again.console.shadow_report
    assert past is not None
    assert past.last_day == AgreementCounts(2, 1)
    assert past.causes == {DisagreementCause.OTHER_FLAVORS: 1}
    assert "('agreement with Kueue 50.0%', 'fault')" in again.header
    again.console.stop()


def test_a_shadow_that_begins_again_keeps_what_was_found_before(watched: Watched) -> None:
    watched.follow()
    watched.cluster.put(admitted(WAITS))
    watched.follow()
    watched.cluster.lost = "connection refused"
    watched.follow()
    watched.cluster.lost = ""
    watched.follow()
    watched.cluster.put(NEXT, admitted(NEXT))
    watched.follow()
    assert watched.console.status.agreement == AgreementCounts(2, 2)


def test_a_forecast_is_made_with_the_queues_that_the_shadow_knows(watched: Watched) -> None:
    forecaster = watched.console.forecaster
    assert forecaster is not None
    watched.follow()
    watched.cluster.wait(1)
    watched.cluster.put(NEXT)
    watched.console.tick(0)
    assert forecaster.look()
    report = watched.shadow.report
    assert report is not None
    assert report.until == forecaster.forecast.time, "the shadow has followed all changes before the forecast"
    assert {key: one.fate for key, one in forecaster.forecast.prospects.items()} == {
        "prod/next": ForecastAction.ADMITTED,
        "prod/waits": ForecastAction.ADMITTED,
    }
    question = watched.console.answers.looks((), MINUTE, (), ())
    assert [progress.answer for progress in question][-1] is not None, "what-ifs start from the same cluster"
    watched.cluster.lost = "connection refused"
    watched.cluster.wait(1)
    watched.console.tick(0)
    assert not watched.shadow.catch_up()
