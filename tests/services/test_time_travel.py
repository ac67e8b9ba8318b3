"""A console shows an earlier time: all that it says is of that time, nothing is changed, and the present goes on."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.errors import HistoryError, ReadOnlyError
from gpuconsole.insight.overview import last_hour
from gpuconsole.insight.preemption.history import lost_by
from gpuconsole.model.clock import HOUR, MINUTE, Time, format_time
from gpuconsole.model.commands import Cordon
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.analysis import AnalysisService, EstimateService
from gpuconsole.services.console import Console
from gpuconsole.services.time_travel import TRAVELLING, PastBackend, TimeTravel
from gpuconsole.store.recorder import newest_preemptions
from gpuconsole.workers.client import Worker
from tests.support.recorded_histories import RecordedConsole


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[RecordedConsole]:
    found = RecordedConsole(tmp_path / "history.db")
    yield found
    found.console.stop()


def objects(snapshot: Snapshot) -> tuple[Time, list[object]]:
    """All but telemetry, of which the change log has less."""
    return snapshot.time, [obj for obj in snapshot.objects() if type(obj).__name__ != "NodeTelemetry"]


def travel(console: Console) -> TimeTravel:
    assert console.time_travel is not None
    return console.time_travel


def test_each_recorded_snapshot_is_rebuilt(recorded: RecordedConsole) -> None:
    for snapshot in recorded.snapshots[::7]:
        rebuilt = recorded.at(snapshot)
        assert objects(rebuilt.snapshot) == objects(snapshot)
        assert rebuilt.snapshot.recent == snapshot.recent


def test_all_that_the_console_says_is_of_the_shown_time(recorded: RecordedConsole) -> None:
    console, then = recorded.console, recorded.snapshots[30]
    past = recorded.at(then)
    console.travel_to(past)
    lines = tuple(line for line in recorded.history if line.time <= then.time)
    assert console.is_travelling
    assert console.snapshot is past.snapshot
    assert console.status.time == then.time
    assert console.status.behind == console.newest.time - then.time
    assert console.preemptions() == newest_preemptions(lines, 500)
    assert console.last_hour() == last_hour(lines, then.time)
    assert console.losses() == lost_by(lines)
    assert console.preemption_count() is None
    for workload in then.workloads:
        assert console.history(workload) == tuple(line for line in lines if workload in (line.workload, line.by))


def test_analyses_start_from_the_shown_time(recorded: RecordedConsole) -> None:
    console, then = recorded.console, recorded.snapshots[10]
    present = console.answers
    console.travel_to(recorded.at(then))
    standing = console.answers.standing()
    assert standing.snapshot is console.snapshot
    *_, outcome = console.answers.looks((), 30 * MINUTE)
    assert outcome is not None
    console.travel_to(None)
    assert console.answers is present
    assert console.answers.standing().snapshot.time == console.newest.time


def pending(snapshot: Snapshot) -> str:
    return next(one.key for one in snapshot.workloads.all() if not one.reserved and not one.finished)


def test_the_worker_process_answers_about_the_shown_time_and_then_about_the_present(tmp_path: Path) -> None:
    recorded = RecordedConsole(tmp_path / "history.db", "default", minutes=40, worker=Worker())
    console = recorded.console
    try:
        waits = pending(console.snapshot)
        present, pasts = [*console.answers.why(waits)][-1], []
        for then in (recorded.snapshots[30], recorded.snapshots[20]):
            past = recorded.at(then)
            console.travel_to(past)
            assert console.answers.foretells
            backend, key = PastBackend(past), pending(then)
            alone = AnalysisService(backend, backend.snapshot, None, EstimateService())
            pasts.append(([*console.answers.why(key)][-1], [*alone.why(key)][-1]))
        console.travel_to(None)
        again = [*console.answers.why(waits)][-1]
    finally:
        console.stop()
    assert console.status.worker != "off"
    for by_worker, without in pasts:
        assert by_worker == without
    assert again == present


def test_nothing_is_changed_while_an_earlier_time_is_shown(recorded: RecordedConsole) -> None:
    console = recorded.console
    node = next(iter(console.snapshot.nodes))
    console.travel_to(recorded.at(recorded.snapshots[10]))
    assert (console.status.read_only, console.status.refusal) == (True, TRAVELLING)
    with pytest.raises(ReadOnlyError, match="An earlier time is shown; press Esc to return to the present"):
        console.submit(Cordon(node, True))
    with pytest.raises(ReadOnlyError):
        console.permit("a shell")
    console.travel_to(None)
    assert (console.status.read_only, console.status.refusal) == (False, "")
    console.submit(Cordon(node, True))
    console.tick(1.0)
    assert console.snapshot.nodes[node].unschedulable


def test_the_present_goes_on_and_is_recorded_but_not_shown(recorded: RecordedConsole) -> None:
    console, shown = recorded.console, list[Snapshot]()
    past = recorded.at(recorded.snapshots[10])
    console.subscribe(shown.append)
    console.travel_to(past)
    before = console.newest.time
    console.tick(1.0)
    assert console.newest.time > before
    assert shown == [past.snapshot]
    console.travel_to(None)
    assert shown == [past.snapshot, console.newest]
    console.tick(1.0)
    assert shown[-1] is console.newest


def test_the_times_of_events_are_found_in_both_directions(recorded: RecordedConsole) -> None:
    journey, kinds = travel(recorded.console), {HistoryEventKind.ADMITTED}
    recording = journey.recording()
    times = sorted({line.time for line in recorded.history if line.what in kinds and line.time >= recording.first})
    assert len(times) > 1
    assert {time for time, _ in journey.marks(kinds, recording.first, recording.last + 1)} == set(times)
    forward, at = [], recording.first - 1
    while (found := journey.next_mark(kinds, at, forward=True)) is not None:
        forward.append(found)
        at = found
    backward, at = [], recording.last
    while (found := journey.next_mark(kinds, at, forward=False)) is not None:
        backward.append(found)
        at = found
    assert (forward, backward[::-1]) == (times, times)
    assert journey.next_mark({HistoryEventKind.DEADLOCK}, recording.first, forward=True) is None
    # The present of a fast simulation is later than what is recorded of it.
    assert journey.next_mark(kinds, recording.last + 3 * HOUR, forward=False) == times[-1]


def test_where_nothing_is_recorded_there_is_a_clear_error(recorded: RecordedConsole) -> None:
    journey = travel(recorded.console)
    recording = journey.recording()
    ranges = f"{format_time(recording.first)} to {format_time(recording.last)}"
    for time in (recording.first - 1, recording.last + 10 * MINUTE):
        with pytest.raises(HistoryError, match="nothing is recorded at") as error:
            journey.cluster(time)
        assert str(error.value).endswith(f"choose a time in {ranges}")


def test_a_damaged_change_log_is_a_clear_error(recorded: RecordedConsole) -> None:
    journey, then = travel(recorded.console), recorded.snapshots[30]
    console = recorded.console
    assert console.history_path is not None
    with sqlite3.connect(console.history_path) as db:
        db.execute("update change_batches set data = zeroblob(10) where id = (select max(id) - 40 from change_batches)")
    with pytest.raises(HistoryError, match=r"the change log is damaged at .*; choose an earlier time"):
        journey.cluster(then.time)
    assert objects(journey.cluster(recorded.snapshots[0].time).snapshot) == objects(recorded.snapshots[0])


def test_without_a_history_there_is_no_time_travel() -> None:
    console = Console(SimulatedBackend(open_simulation(OpenRequest(files=("org-cohort",))).simulation))
    assert console.time_travel is None
    console.stop()
