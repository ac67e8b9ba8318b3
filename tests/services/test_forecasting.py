"""A live cluster is looked at when something changed, and what differs from the forecast goes to the history."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.backends.base import Missing
from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifferences
from gpuconsole.insight.forecast.forecast import Forecast, ForecastAction
from gpuconsole.insight.preemption.history import rows
from gpuconsole.model.clock import SECOND
from gpuconsole.services.console import Console
from gpuconsole.services.forecasting import ForecastService
from gpuconsole.store import queries
from gpuconsole.store import recorder as history
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.schema import open_for_reading
from gpuconsole.workers.client import Worker
from tests.insight.test_forecast_check import WAITS, admitted, preempted
from tests.insight.test_preemption_replay import WANTS, WHOLE, preemption
from tests.support.contended_cluster import simulation
from tests.support.scripted_live_backend import Elsewhere
from tests.support.snapshots import ORG, ORG_QUEUES, START, cluster_queue

OBJECTS = (*ORG_QUEUES, WAITS)


class Looking:
    """A console on a live cluster, without a worker; time and looks come by hand."""

    def __init__(self, cluster: Elsewhere, path: Path | None = None, worker: Worker | None = None) -> None:
        self.cluster = cluster
        recorder = None
        if path is not None:
            recorder = Recorder(path, Opening(version="test"), wall=lambda: 0, interval=1e6)
        self.recorder = recorder
        self.console = Console(cluster, recorder=recorder, worker=worker)

    def look(self, seconds: int = 0) -> bool:
        self.cluster.wait(seconds)
        self.console.tick(0)
        assert self.console.forecaster is not None
        return self.console.forecaster.look()

    def recorded(self) -> ForecastDifferences:
        assert self.recorder is not None
        self.recorder.flush()
        with closing(open_for_reading(self.recorder.path)) as db:
            return queries.compared(db, 100)


@pytest.fixture
def looking(tmp_path: Path) -> Iterator[Looking]:
    made = Looking(Elsewhere(OBJECTS, START), tmp_path / "history.db")
    yield made
    made.console.stop()


def test_what_waits_is_foreseen(looking: Looking) -> None:
    assert looking.console.foresees
    assert looking.console.forecast == Forecast()
    assert looking.look()
    assert looking.console.forecast.prospects["prod/waits"].fate is ForecastAction.ADMITTED


def test_what_was_assumed_is_carried_along(looking: Looking) -> None:
    looking.cluster.assumed = ("Kueue's Configuration is assumed",)
    looking.cluster.missing = (Missing("list", "nodes"), Missing("list", "events", "team"))
    looking.look()
    assert looking.console.forecast.assumed == (
        "Kueue's Configuration is assumed",
        "cannot list nodes at the cluster scope",
    )


def test_nothing_is_computed_where_nothing_changed(looking: Looking) -> None:
    assert looking.look()
    assert not looking.look()
    looking.cluster.put(admitted(WAITS))
    assert looking.look(2)
    assert not looking.look(60), "nothing is expected any more, so nobody is waited for"


def test_while_something_is_expected_it_is_looked_for() -> None:
    now = [0.0]
    cluster = Elsewhere(OBJECTS, START)
    forecaster = ForecastService(cluster, clock=lambda: now[0])
    console = Console(cluster)
    console.tick(0)
    forecaster.changed(console.snapshot)
    assert forecaster.look()
    now[0] = 9.0
    assert not forecaster.look()
    now[0] = 10.0
    assert forecaster.look()


@pytest.mark.parametrize("trouble", ["lost", "loading", "forbidden", "no Kueue"])
def test_there_is_no_forecast_of_what_cannot_be_seen(trouble: str) -> None:
    cluster = Elsewhere(OBJECTS, START, kueue=trouble != "no Kueue")
    cluster.lost = "the server is away" if trouble == "lost" else ""
    cluster.loading = trouble == "loading"
    cluster.missing = (Missing("list", "workloads.kueue.x-k8s.io"),) if trouble == "forbidden" else ()
    looking = Looking(cluster)
    assert not looking.look()
    assert looking.console.forecaster is not None
    said = "no forecast: cannot list workloads.kueue.x-k8s.io at the cluster scope"
    assert looking.console.forecaster.problem == (said if trouble == "forbidden" else "")


def test_an_agreement_is_counted_and_a_difference_is_kept(looking: Looking) -> None:
    looking.look()
    looking.cluster.put(admitted(WAITS))
    looking.look(2)
    assert looking.console.compared == ForecastDifferences(decisions=1, agreed=1)
    other = replace(WAITS, name="other", uid="other")
    looking.cluster.put(other)
    looking.look(2)
    looking.cluster.put(admitted(other, flavor="h100", at=looking.cluster.now))
    looking.look(2)
    said = looking.console.compared
    assert (said.decisions, said.agreed, [one.cause for one in said.differences]) == (
        2,
        1,
        [DifferenceCause.DISAGREEMENT],
    )
    assert looking.recorded() == said
    looking.look(2)
    assert looking.recorded() == said, "nothing is written twice"


def test_queues_decide_too(looking: Looking) -> None:
    looking.look()
    looking.cluster.put(cluster_queue("cq-prod"))
    assert looking.look(2)
    assert looking.console.forecast.prospects["prod/waits"].fate is ForecastAction.WAITS


def test_the_worker_says_the_same() -> None:
    there, here = Looking(Elsewhere(OBJECTS, START), worker=Worker()), Looking(Elsewhere(OBJECTS, START))
    for looking in (there, here):
        looking.look()
        looking.cluster.put(admitted(WAITS, flavor="h100"))
        looking.look(2)
    assert there.console.forecast == here.console.forecast
    assert there.console.compared == here.console.compared
    assert there.console.compared.of(DifferenceCause.DISAGREEMENT) == 1
    assert there.console.status.worker == "on"
    there.console.stop()


def test_a_worker_that_serves_another_cluster_does_not_take_it_for_the_first() -> None:
    worker = Worker()
    first = Looking(Elsewhere(OBJECTS, START), worker=worker)
    first.look()
    second = Looking(Elsewhere((*ORG_QUEUES, admitted(WAITS, flavor="h100")), START + 2 * SECOND), worker=worker)
    second.look()
    assert second.console.compared == ForecastDifferences()
    second.console.stop()


def test_it_runs_beside_the_loop(looking: Looking) -> None:
    looking.console.start()
    patience = time.monotonic() + 20
    while not looking.console.forecast.prospects:
        assert time.monotonic() < patience
        time.sleep(0.05)


def test_a_console_on_the_simulator_foresees_nothing() -> None:
    console = Console(SimulatedBackend(simulation()))
    assert (console.foresees, console.forecast, console.forecaster) == (False, Forecast(), None)


def test_how_a_live_victim_was_chosen_goes_to_the_history(tmp_path: Path) -> None:
    """Kueue does not tell it, so the engine is asked on the cluster as it stood before."""
    looking = Looking(Elsewhere((*ORG, WANTS), START), tmp_path / "history.db")
    looking.look()
    victim = looking.console.snapshot.workloads["research/rlhf"]
    looking.cluster.put(preempted(victim, WANTS.uid))
    assert looking.recorder is not None
    looking.recorder.record([preemption()])
    looking.look(2)
    (row,) = rows(history.preemptions(looking.recorder, 10))
    assert row.choice == WHOLE
    looking.recorder.flush()
    assert rows(history.preemptions(looking.recorder, 10)) == [row]
    assert looking.console.compared.trace_lines == (), "it is kept once"
    looking.console.stop()
