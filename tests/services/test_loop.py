"""The loop takes events in, publishes Snapshots, and never dies silently."""

import threading
from collections.abc import Iterable, Sequence

import pytest

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import Event, HistoryEvent
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import LONGEST, Loop
from tests.support.recorded_backend import RecordedBackend
from tests.support.recorded_events import ADMITTED, NODE_1, NODE_2, PAST, PREEMPTED, RLHF, START, SUBMITTED


class Watched:
    """A loop, and what it published and recorded."""

    def __init__(self, backend: RecordedBackend) -> None:
        self.published: list[Snapshot] = []
        self.recorded: list[HistoryEvent] = []
        self.loop = Loop(backend, publish=self.published.append, record=self._record)

    def _record(self, lines: Sequence[HistoryEvent]) -> None:
        self.recorded.extend(lines)


def test_a_tick_turns_events_into_a_snapshot_and_lines_of_history() -> None:
    watched = Watched(RecordedBackend(PAST, speed=10))
    for _ in range(3):
        watched.loop.tick(1)
    assert [snapshot.time - START for snapshot in watched.published] == [10 * SECOND, 20 * SECOND, 30 * SECOND]
    newest = watched.published[-1]
    assert list(newest.nodes.all()) == [NODE_1, NODE_2]
    assert list(newest.workloads.all()) == [RLHF]
    assert watched.recorded == [SUBMITTED, ADMITTED]
    assert watched.loop.snapshot is newest


def test_what_did_not_change_is_not_published_again() -> None:
    watched = Watched(RecordedBackend(PAST, paused=True))
    for _ in range(3):
        watched.loop.tick(1)
    assert len(watched.published) == 1


def test_time_alone_is_worth_a_snapshot_and_shares_all_tables() -> None:
    watched = Watched(RecordedBackend(PAST, speed=1))
    watched.loop.tick(0)
    watched.loop.tick(1)
    first, second = watched.published
    assert (second.time - first.time, second.nodes is first.nodes) == (SECOND, True)


class Failing(RecordedBackend):
    """A recording whose polls fail while it is told to."""

    problem: Exception | None = None

    def poll(self, elapsed: float) -> Iterable[Event]:
        if self.problem is not None:
            raise self.problem
        return super().poll(elapsed)


def test_a_tick_that_fails_is_said_and_the_next_one_goes_on() -> None:
    backend = Failing(PAST, speed=10)
    watched = Watched(backend)
    backend.problem = RuntimeError("the cluster is on fire")
    watched.loop.tick(1)
    watched.loop.tick(1)
    assert (watched.loop.stalled, watched.published) == ("RuntimeError: the cluster is on fire", [])
    backend.problem = None
    watched.loop.tick(6)
    assert watched.loop.stalled == ""
    assert watched.recorded == [SUBMITTED, ADMITTED, PREEMPTED]


def test_the_timer_ticks_in_its_own_thread_until_it_is_stopped() -> None:
    arrived, names = threading.Event(), set[str]()

    def publish(snapshot: Snapshot) -> None:
        names.add(threading.current_thread().name)
        if not snapshot.nodes.get("node-2"):
            arrived.set()

    loop = Loop(RecordedBackend(PAST, speed=10_000), publish=publish, record=lambda lines: None)
    loop.tick(0)
    loop.start()
    assert arrived.wait(30), "a recording of 90 s at ×10,000"
    loop.stop()
    stopped = loop.snapshot
    assert names - {threading.current_thread().name}
    loop.stop()
    assert loop.snapshot is stopped


def test_a_machine_that_slept_does_not_jump_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuconsole.services.console.REST", 0)
    hours = iter([0.0, 0.1, 0.1, 3600.0, 3600.0])
    backend = RecordedBackend(PAST, speed=1)
    loop = Loop(backend, publish=lambda snapshot: None, record=lambda lines: None, clock=lambda: next(hours))
    loop._timed()
    loop._timed()
    assert backend.now - START == SECOND // 10 + round(LONGEST * SECOND)
