"""The change log gives back every state of a cluster, and notices what is damaged, missing or too large."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from zstandard import ZstdCompressor

from gpuconsole.model import change_log
from gpuconsole.model.change_log import (
    ChangeBatch,
    ChangeLogError,
    ChangeLogWriter,
    Checkpoint,
    rebuild,
    rebuild_cluster,
)
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.random_simulations import LIVES, Deed, cluster
from tests.support.snapshots import START, unseen

NAMES = st.sampled_from([f"w{i}" for i in range(6)])
CHANGES = st.one_of(
    st.builds(lambda name, priority: Workload(name=name, priority=priority), NAMES, st.integers(0, 9)),
    st.builds(lambda name: Node(name=name), NAMES),
    NAMES,
)
STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from([0, 1, SECOND, 40 * SECOND, 3 * MINUTE]), CHANGES), max_size=12), max_size=8
)
"""Batches of (span since the change before, object that is applied or name of a Workload that is deleted)."""


class Recorded:
    """A change log, and the events that it was written from."""

    def __init__(self, state: ClusterState, policy: bytes = b"") -> None:
        self.state = state
        self.writer = ChangeLogWriter(state, policy=policy)
        self.streams: list[tuple[Checkpoint, list[ChangeBatch]]] = []
        self.events: list[Event] = []

    def add(self, events: Sequence[Event]) -> None:
        self.events += events
        self.writer.add(events)

    def flush(self) -> ChangeBatch | None:
        checkpoint, batch = self.writer.flush()
        if checkpoint is not None:
            self.streams.append((checkpoint, []))
        if batch is not None:
            self.streams[-1][1].append(batch)
        return batch

    def at(self, time: Time) -> Snapshot:
        checkpoint, batches = next(one for one in reversed(self.streams) if one[0].time <= time)
        lines = [event for event in self.events if isinstance(event, HistoryEvent) and event.time <= time]
        return rebuild(checkpoint, batches, time, lines)

    def borders(self) -> dict[Time, tuple[object, ...]]:
        """What `at` gives back at the end of each checkpoint and batch."""
        ends = [*(checkpoint.time for checkpoint, _ in self.streams)]
        ends += [batch.until for _, batches in self.streams for batch in batches]
        return {time: contents(self.at(time)) for time in ends}

    def states(self, times: Iterable[Time]) -> dict[Time, tuple[object, ...]]:
        """The contents of the state after all events until each of these times."""
        found = {}
        for time in times:
            state = self.state.fork()
            for event in self.events:
                if event.time <= time:
                    state.apply(event)
            found[time] = contents(state.freeze())
        return found


def contents(snapshot: Snapshot) -> tuple[object, ...]:
    """All that a Snapshot has, with the order of its tables."""
    return snapshot.time, list(snapshot.objects()), snapshot.recent, snapshot.seen


def recorded(*steps: Sequence[Event], begun: bool = True) -> Recorded:
    """The change log of a cluster with these changes from flush to flush."""
    log = Recorded(ClusterState(START) if begun else ClusterState())
    log.flush()
    for events in steps:
        log.add(events)
        log.flush()
    return log


def node(name: str, after: int, **fields: object) -> Applied:
    return Applied(START + after, Node(name=name, **fields))  # type: ignore[arg-type]


def events_of(steps: Sequence[Sequence[tuple[int, Workload | Node | str]]]) -> list[list[Event]]:
    """The events of these steps, with a history event for each deletion."""
    now, found = START, []
    for step in steps:
        events: list[Event] = []
        for span, change in step:
            now += span
            if isinstance(change, str):
                key = f"default/{change}"
                events.append(Deleted(now, "workloads", key))
                events.append(HistoryEvent(time=now, what=HistoryEventKind.DELETED, workload=key))
            else:
                events.append(Applied(now, change))
        found.append(events)
    return found


@given(STEPS, st.integers(1, 2_000), st.booleans())
def test_each_state_at_the_end_of_a_batch_is_given_back(
    steps: list[list[tuple[int, Workload | Node | str]]], least: int, begun: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_log, "LEAST", least)
        log = recorded(*events_of(steps), begun=begun)
    borders = log.borders()
    assert borders == log.states(borders)


@settings(max_examples=25, deadline=None)
@given(LIVES)
def test_each_minute_of_a_simulation_is_given_back(life: list[tuple[Span, Deed]]) -> None:
    simulation = Simulation.from_objects(cluster(), policy=SimPolicy(), seed=7, start=START)
    log = Recorded(ClusterState(), b"{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_log, "LEAST", 20_000)
        for span, deed in life:
            simulation.advance(simulation.now + span)
            deed(simulation)
            simulation.advance(simulation.now + MINUTE)
            log.add(simulation.drain())
            log.flush()
    borders = log.borders()
    assert borders == log.states(borders)


def test_between_two_flushes_each_object_is_as_it_was_before_the_minute_or_after_its_last_change() -> None:
    log = recorded(
        [node("a", 0), node("b", 0)],
        [node("a", 10, ready=False), node("b", 20, ready=False), node("a", 30), node("c", 2 * MINUTE)],
    )
    assert [
        {one.name: one.ready for one in log.at(START + after).nodes.all()}
        for after in (0, 15, 20, 30, 2 * MINUTE - 1, 2 * MINUTE)
    ] == [
        {"a": True, "b": True},
        {"a": True, "b": True},
        {"a": True, "b": False},
        {"a": True, "b": False},
        {"a": True, "b": False},
        {"a": True, "b": False, "c": True},
    ]


def test_a_change_at_the_end_of_a_batch_is_shown_although_it_comes_in_the_next_one() -> None:
    log = recorded([node("a", 0)], [node("a", 0, unschedulable=True), node("a", 1, ready=False)])
    assert [(one.unschedulable, one.ready) for at in (START, START + 1) for one in log.at(at).nodes.all()] == [
        (True, True),
        (False, False),
    ]


def test_a_batch_has_the_last_version_of_an_object_in_each_minute() -> None:
    slow = recorded([node("a", 0)], [node("a", 1 + step * SECOND, unschedulable=step % 2 == 0) for step in range(60)])
    once = recorded([node("a", 0)], [node("a", 1 + 59 * SECOND, unschedulable=False)])
    assert slow.streams[-1][1][-1].data == once.streams[-1][1][-1].data


def test_an_object_that_is_deleted_and_comes_again_within_a_minute_is_the_last_of_its_table() -> None:
    log = recorded([node("a", 0), node("b", 0)], [Deleted(START + 1, "nodes", "a"), node("a", 2, ready=False)])
    assert [(one.name, one.ready) for one in log.at(START + 2).nodes.all()] == [("b", True), ("a", False)]


def test_the_time_of_a_rebuilt_snapshot_is_the_time_asked_for_as_far_as_it_is_recorded() -> None:
    log = recorded([node("a", 5)], [node("b", 65)])
    assert [log.at(START + after).time - START for after in (0, 3, 5, 40, 65, 500)] == [0, 3, 5, 40, 65, 65]


def test_without_changes_the_recorded_time_goes_on_once_a_minute() -> None:
    log = recorded([node("a", 0)])
    ends = []
    for after in range(0, 150, 10):
        log.writer.add([], time=START + after * SECOND)
        batch = log.flush()
        ends += [batch.until - START] if batch is not None else []
    assert ends == [60 * SECOND, 120 * SECOND]


def test_the_first_checkpoint_of_an_empty_state_waits_for_the_first_events() -> None:
    writer = ChangeLogWriter(ClusterState())
    assert writer.flush() == (None, None)
    writer.add([node("a", 0), node("b", 3)])
    checkpoint, batch = writer.flush()
    assert checkpoint is not None
    assert (checkpoint.time, batch) == (START + 3, None)
    assert list(rebuild(checkpoint, [], START + 3).nodes) == ["a", "b"]


def test_a_new_checkpoint_follows_when_the_batches_are_larger_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "LEAST", 2_000)
    log = recorded(*([node(f"node-{step}", step * SECOND)] for step in range(200)))
    sizes = [len(batches) for _, batches in log.streams]
    assert len(sizes) > 2
    assert sizes[0] < sizes[-2]
    assert sum(sizes) == 200
    assert [len(log.at(START + step * SECOND).nodes) for step in range(200)] == list(range(1, 201))


def test_a_new_checkpoint_follows_after_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "MANY", 7)
    log = recorded(*([node("node", step * SECOND)] for step in range(21)))
    assert [len(batches) for _, batches in log.streams] == [7, 7, 7]


def test_what_could_be_read_at_a_time_is_known() -> None:
    log = recorded([node("a", 0)])
    blind, seeing = unseen(Namespace), ClusterState().seen
    for after, seen in ((10, blind), (20, seeing)):
        log.writer.add([], time=START + after, seen=seen)
        log.flush()
    assert [log.at(START + after).seen for after in (0, 10, 15, 20)] == [seeing, blind, blind, seeing]


def test_the_settings_of_the_schedulers_are_known_at_each_time() -> None:
    log = recorded()
    for after, policy in ((10, b"{}"), (20, b'{"kueue":null}')):
        log.writer.policy = policy
        log.writer.add([], time=START + after)
        log.flush()
    checkpoint, batches = log.streams[-1]
    assert [rebuild_cluster(checkpoint, batches, START + after).policy for after in (0, 10, 15, 20)] == [
        b"",
        b"{}",
        b"{}",
        b'{"kueue":null}',
    ]


def test_a_new_checkpoint_has_the_settings_of_the_schedulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "LEAST", 1)
    log = Recorded(ClusterState(START), b"{}")
    for step in range(3):
        log.add([node(f"node-{step}", step)])
        log.flush()
    assert len(log.streams) > 1
    assert {rebuild_cluster(checkpoint, [], checkpoint.time).policy for checkpoint, _ in log.streams} == {b"{}"}


LOG = recorded([node("a", 0)], [node("b", 10)], [node("c", 20)])
FIRST, BATCHES = LOG.streams[-1]


def packed(content: bytes) -> Checkpoint:
    return Checkpoint(START, ZstdCompressor().compress(content))


@pytest.mark.parametrize(
    ("checkpoint", "batches", "problem"),
    [
        pytest.param(replace(FIRST, data=b""), (), "Unknown frame descriptor", id="empty"),
        pytest.param(replace(FIRST, data=b"not zstd at all"), (), "Unknown frame descriptor", id="another format"),
        pytest.param(replace(FIRST, data=FIRST.data[:-9]), (), "it ends too early", id="truncated"),
        pytest.param(packed(b"\0\0\0\1\0\0\0\0x"), (), "its checksum is wrong", id="a wrong checksum"),
        pytest.param(packed(b"\xff\xff\xff\xff\0\0\0\0"), (), "it has more than 1,000,000,000 bytes", id="too long"),
        pytest.param(FIRST, BATCHES[:1] + BATCHES[2:], "damaged|missing", id="a missing batch"),
        pytest.param(FIRST, [*BATCHES[:2], replace(BATCHES[2], until=START + 21)], "are missing", id="another batch"),
    ],
)
def test_what_is_damaged_is_refused(checkpoint: Checkpoint, batches: Sequence[ChangeBatch], problem: str) -> None:
    with pytest.raises(ChangeLogError, match=problem):
        rebuild(checkpoint, batches, START + MINUTE)


def test_a_time_before_the_checkpoint_is_refused() -> None:
    with pytest.raises(ChangeLogError, match="the change log begins at 2026-01-05T08:00:00Z"):
        rebuild(FIRST, BATCHES, START - 1)


@given(st.integers(0, len(BATCHES) - 1), st.data())
def test_no_damage_gives_another_error_than_that_the_change_log_is_damaged(number: int, data: st.DataObject) -> None:
    batch = BATCHES[number]
    at = data.draw(st.integers(0, len(batch.data) - 1))
    flipped = bytes([*batch.data[:at], batch.data[at] ^ data.draw(st.integers(1, 255)), *batch.data[at + 1 :]])
    batches = [*BATCHES[:number], replace(batch, data=flipped), *BATCHES[number + 1 :]]
    try:
        got = contents(rebuild(FIRST, batches, START + 20))
    except ChangeLogError:
        return
    assert got == contents(LOG.at(START + 20))
