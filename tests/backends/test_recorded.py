"""A recording is told again at the times at which it happened."""

import pytest

from gpuconsole.errors import ReadOnlyError
from gpuconsole.model.clock import SECOND
from gpuconsole.model.commands import Cordon
from tests.support.recorded_backend import RecordedBackend
from tests.support.recorded_events import PAST, PREEMPTED, START


def test_events_come_when_their_time_has_come_and_once() -> None:
    backend = RecordedBackend(PAST, speed=10)
    backend.open()
    polls = [list(backend.poll(elapsed)) for elapsed in (0, 1, 0.1, 4.8, 0.1, 3, 60)]
    assert polls == [list(PAST[:2]), list(PAST[2:4]), [PAST[4]], [], [PREEMPTED], [PAST[6]], []]


def test_steps_go_from_event_to_event_although_paused() -> None:
    backend = RecordedBackend(PAST, paused=True)
    assert list(backend.poll(1000)) == list(PAST[:2])
    backend.step()
    backend.step()
    assert list(backend.poll(1000)) == list(PAST[2:5])
    assert backend.now == START + 11 * SECOND


def test_a_step_at_the_end_does_nothing() -> None:
    backend = RecordedBackend(PAST[:1], paused=True)
    backend.step()
    assert [list(backend.poll(1)), list(backend.poll(1))] == [[PAST[0]], []]


def test_a_recording_cannot_be_changed() -> None:
    with pytest.raises(ReadOnlyError, match="gpuconsole run --snapshot FILE"):
        RecordedBackend(PAST).submit(Cordon("node-1", True))
