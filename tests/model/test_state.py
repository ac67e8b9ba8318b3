"""Events go in, Snapshots come out; no later event ever reaches an earlier Snapshot."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model import snapshot as snapshots
from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState, ObjectTable
from gpuconsole.model.workloads import Workload

names = st.sampled_from([f"w{i}" for i in range(8)])
events = st.lists(
    st.one_of(
        st.builds(lambda n, p: Applied(1, Workload(name=n, priority=p)), names, st.integers(0, 9)),
        st.builds(lambda n: Deleted(2, "workloads", f"default/{n}"), names),
        st.builds(lambda n: Applied(3, Node(name=n)), names),
        st.builds(lambda n: HistoryEvent(time=4, what=HistoryEventKind.SUBMITTED, workload=f"default/{n}"), names),
    ),
    max_size=40,
)


def contents(snapshot: Snapshot) -> tuple[object, ...]:
    return snapshot.time, {thing.key: thing for thing in snapshot.objects()}, snapshot.recent


def fed(state: ClusterState, stream: list[Event]) -> ClusterState:
    for event in stream:
        state.apply(event)
    return state


@given(events, events)
def test_an_old_snapshot_never_changes(before: list[Event], after: list[Event]) -> None:
    state = fed(ClusterState(), before)
    old = state.freeze()
    seen = contents(old)
    fed(state, after).freeze()
    assert contents(old) == seen


def begun(state: ClusterState) -> ClusterState:
    """A state that begins with the Snapshot of another one."""
    snapshot = state.freeze()
    return ClusterState.of(snapshot, snapshot.recent)


@pytest.mark.parametrize("twin_of", [ClusterState.fork, begun], ids=["a fork", "one that begins with its Snapshot"])
@given(before=events, left=events, right=events)
def test_a_twin_and_its_origin_never_touch_each_other(
    twin_of: Callable[[ClusterState], ClusterState], before: list[Event], left: list[Event], right: list[Event]
) -> None:
    state = fed(ClusterState(), before)
    twin = twin_of(state)
    fed(state, left)
    fed(twin, right)
    assert contents(state.freeze()) == contents(fed(ClusterState(), before + left).freeze())
    assert contents(twin.freeze()) == contents(fed(ClusterState(), before + right).freeze())


@given(events)
def test_a_state_rebuilt_from_its_file_is_the_same_state(stream: list[Event]) -> None:
    snapshot = fed(ClusterState(), stream).freeze()
    rebuilt = ClusterState.from_file(snapshots.decode(snapshots.encode(snapshot))).freeze()
    assert contents(rebuilt) == contents(snapshot)


@given(events)
def test_a_view_agrees_with_a_plain_dict(stream: list[Event]) -> None:
    want: dict[str, Workload] = {}
    for event in stream:
        if isinstance(event, Applied) and isinstance(event.object, Workload):
            want[event.object.key] = event.object
        elif isinstance(event, Deleted):
            want.pop(event.key, None)
    view = fed(ClusterState(), stream).freeze().workloads
    assert dict(view) == want
    assert len(view) == len(want)
    assert [key in view for key in ("default/w0", "absent")] == ["default/w0" in want, False]


def test_an_untouched_table_is_shared_between_snapshots() -> None:
    state = fed(ClusterState(), [Applied(1, Node(name="n")), Applied(1, Workload(name="w"))])
    first = state.freeze()
    state.apply(Applied(2, Workload(name="w", priority=5)))
    second = state.freeze()
    assert second.nodes is first.nodes
    assert second.workloads is not first.workloads
    assert (first.serial, second.serial) == (1, 2)


def test_an_empty_table_is_shared_between_snapshots_too() -> None:
    state = fed(ClusterState(), [Applied(1, Node(name="a"))])
    first = state.freeze()
    second = fed(state, [Applied(2, Node(name="b"))]).freeze()
    assert second.workloads is first.workloads


def test_a_table_that_shrinks_gives_its_gaps_back() -> None:
    table = ObjectTable()
    for i in range(1000):
        table.put(f"w{i}", Node(name=f"w{i}"))
    old = table.freeze()
    for i in range(990):
        table.drop(f"w{i}")
    assert len(table.freeze().rows) < 100
    assert [node.name for node in table.freeze().all()] == [f"w{i}" for i in range(990, 1000)]
    assert len(list(old.all())) == 1000


def test_time_only_moves_forward() -> None:
    state = fed(ClusterState(), [Applied(9, Node(name="a")), Applied(3, Node(name="b"))])
    assert state.freeze().time == 9


def test_an_object_that_comes_back_is_the_newest_and_earlier_snapshots_keep_their_place() -> None:
    state = ClusterState()
    for name in ("a", "b"):
        state.apply(Applied(0, Namespace(name=name)))
    before = state.freeze()
    state.apply(Deleted(1, "namespaces", "a"))
    between = state.freeze()
    state.apply(Applied(2, Namespace(name="a")))
    assert list(state.freeze().namespaces) == ["b", "a"]
    assert (list(before.namespaces), before.namespaces["a"].name) == (["a", "b"], "a")
    assert (list(between.namespaces), "a" in between.namespaces) == (["b"], False)
