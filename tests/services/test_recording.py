"""What the recorder keeps besides history events: costs, time series, and the change log for time travel."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.insight.cost.rates import nodes_hourly
from gpuconsole.insight.series import SeriesKind
from gpuconsole.model.change_log import rebuild, rebuild_cluster
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.services.console import Console
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.store import queries
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.schema import open_for_reading
from tests.support.recorded_histories import event_count

SPEED = 600.0
"""Ten simulated minutes per tick of a second."""


class Recorded:
    """A console on the default fixture with a history that is written when a test says so."""

    def __init__(self, path: Path) -> None:
        self.simulation = open_simulation(OpenRequest()).simulation
        self.start = self.simulation.now
        self.recorder = Recorder(path, Opening(version="test", mode="SIM"), wall=lambda: 0, interval=1e6)
        self.console = Console(
            SimulatedBackend(self.simulation, speed=SPEED),
            recorder=self.recorder,
            prices=self.simulation.policy.prices,
        )

    def run(self, ticks: int) -> Snapshot:
        """Run, and write the history after each tick."""
        for _ in range(ticks):
            before = self.console.snapshot.time or self.start
            # A tick ends early when its computing time is used up.
            while self.console.snapshot.time < before + 10 * MINUTE:
                self.console.tick(1)
            self.recorder.flush()
        assert self.recorder.failed == ""
        assert self.console.status.history == ""
        return self.console.snapshot


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    found = Recorded(tmp_path / "history.db")
    yield found
    found.console.stop()


def objects_of(snapshot: Snapshot) -> dict[str, object]:
    kept = (obj for obj in snapshot.objects() if not isinstance(obj, NodeTelemetry))
    return {f"{type(obj).__name__} {obj.key}": obj for obj in kept}


def test_the_recorded_costs_are_the_prices_of_all_nodes_for_the_time_that_passed(recorded: Recorded) -> None:
    end = recorded.run(3)
    rows = recorded.console.cost_hours(recorded.start, end.time)
    hours = (end.time - recorded.start) / HOUR
    expected = nodes_hourly(end, recorded.simulation.policy.prices) * hours
    assert sum(row.cost_usd for row in rows) == pytest.approx(expected, abs=0.005)
    assert {row.owner.kind.value for row in rows} >= {"workload", "idle"}


def test_each_minute_or_in_a_fast_simulation_every_few_minutes_is_sampled(recorded: Recorded) -> None:
    end = recorded.run(3)
    found = recorded.console.samples(recorded.start, end.time + MINUTE, MINUTE)
    times = [sample.time for sample in found]
    assert times == sorted(set(times))
    assert max(after - before for before, after in pairwise(times)) <= 4 * MINUTE
    assert all(time % MINUTE == 0 for time in times)
    queues = {row.name for row in found[-1].queues if row.kind is SeriesKind.QUEUE}
    assert queues == set(end.cluster_queues)
    one = recorded.console.samples(
        recorded.start, end.time + MINUTE, MINUTE, kind=SeriesKind.QUEUE, name=next(iter(queues))
    )
    assert {row.name for sample in one for row in sample.queues} == {next(iter(queues))}


def test_the_last_sample_has_the_counts_of_the_minute_in_which_the_session_ends(recorded: Recorded) -> None:
    recorded.run(1)
    recorded.console.set_speed(1)
    kinds = HistoryEventKind.ADMITTED, HistoryEventKind.PREEMPTED, HistoryEventKind.EVICTED
    late = False
    while not late:
        recorded.console.tick(1)
        newest = recorded.console.newest
        minute = newest.time // MINUTE * MINUTE
        late = any(line.time > minute and line.what in kinds for line in newest.recent)
    recorded.console.stop()
    with open_for_reading(recorded.recorder.path) as db:
        number, until = recorded.recorder.recording, newest.time + 1
        found = queries.samples(db, number, recorded.start, until, span=MINUTE)
        lines = list(queries.events(db, number, recorded.start, until, kinds))
    assert found[-1].time == minute
    assert [sum(getattr(one.queues[0], kind.value) for one in found) for kind in kinds] == [
        sum(line.what is kind for line in lines) for kind in kinds
    ]


def test_the_cluster_is_rebuilt_as_it_was_at_each_time_that_was_written(recorded: Recorded) -> None:
    shown = [recorded.run(1) for _ in range(3)]
    with open_for_reading(recorded.recorder.path) as db:
        for snapshot in shown:
            checkpoint, batches = queries.rebuild_at(db, recorded.recorder.recording, snapshot.time)
            rebuilt = rebuild(checkpoint, batches, snapshot.time)
            assert rebuilt.time == snapshot.time
            assert objects_of(rebuilt) == objects_of(snapshot)


def test_the_start_of_a_fast_simulation_can_be_shown(recorded: Recorded) -> None:
    start = open_simulation(OpenRequest()).simulation
    recorded.run(1)
    assert recorded.console.time_travel is not None
    assert recorded.console.time_travel.recording().first == recorded.start
    first = recorded.console.time_travel.cluster(recorded.start).snapshot
    assert first.time == recorded.start
    assert {node.name for node in first.nodes.all()} == {node.name for node in start.snapshot().nodes.all()}


def test_the_settings_of_the_schedulers_are_recorded_so_that_analyses_of_the_past_use_them(recorded: Recorded) -> None:
    end = recorded.run(1)
    with open_for_reading(recorded.recorder.path) as db:
        checkpoint, batches = queries.rebuild_at(db, recorded.recorder.recording, end.time)
    assert (
        msgspec.json.decode(rebuild_cluster(checkpoint, batches, end.time).policy, type=SimPolicy)
        == recorded.simulation.policy
    )


def test_what_cannot_be_evaluated_is_said_in_the_header_and_history_events_are_still_written(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.run(1)

    def fails(*_: object) -> None:
        raise RuntimeError("no such rule")

    monkeypatch.setattr("gpuconsole.insight.cost.allocation.CostAllocator.note", fails)
    recorded.console.tick(1)
    recorded.recorder.flush()
    assert recorded.console.status.history == "costs and time travel: RuntimeError: no such rule"
    assert recorded.recorder.failed == ""
    with open_for_reading(recorded.recorder.path) as db:
        assert event_count(db, recorded.recorder.session) > 0


def test_recording_changes_nothing_in_the_simulation(recorded: Recorded) -> None:
    end = recorded.run(2)
    alone = open_simulation(OpenRequest()).simulation
    alone.advance(end.time)
    assert objects_of(alone.snapshot()) == objects_of(end)


def test_where_many_costs_are_booked_they_are_written_once_a_minute_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuconsole.services.recording.MANY_ROWS", 0)
    recorded = Recorded(tmp_path / "history.db")
    recorded.run(1)

    def booked() -> float:
        return sum(row.cost_usd for row in recorded.console.cost_hours(recorded.start, recorded.start + 9 * HOUR))

    before = booked()
    recorded.console.set_speed(1)
    recorded.console.tick(1)
    recorded.recorder.flush()
    assert booked() == before, "a second later nothing more is written"
    end = recorded.console.snapshot
    recorded.console.stop()
    hours = (end.time - recorded.start) / HOUR
    expected = nodes_hourly(end, recorded.simulation.policy.prices) * hours
    with open_for_reading(recorded.recorder.path) as db:
        rows = queries.cost_hours(db, recorded.recorder.recording, recorded.start, end.time)
    assert sum(row.cost_usd for row in rows) == pytest.approx(expected, abs=0.005)
