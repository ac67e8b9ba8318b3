"""A kind that may not be listed is unknown: what is not there of it may exist all the same."""

import msgspec
import pytest

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.redaction import redact
from gpuconsole.model.snapshot import EVERYTHING, Visibility, VisibilityGap, decode, encode, only_namespaces_text
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload

NODES = "cannot list nodes at the cluster scope"
TEAM = "only namespace team is read"
SEEN = Visibility(
    gaps=(
        VisibilityGap(table="nodes", resource="nodes", why=NODES),
        VisibilityGap(table="local_queues", resource="localqueues.kueue.x-k8s.io", why=TEAM, namespaces=("team",)),
        VisibilityGap(table="workloads", resource="workloads.kueue.x-k8s.io", why=TEAM, namespaces=("team",)),
        VisibilityGap(table="jobs", resource="jobs.batch", why=TEAM, namespaces=("team",)),
        VisibilityGap(table="recent", resource="events", why="cannot list events at the cluster scope"),
    ),
    assumed=("Kueue's Configuration is assumed to be the default: ConfigMap kueue-system/c may not be read",),
)


def test_of_a_kind_with_a_gap_not_everything_is_seen() -> None:
    assert SEEN.missing_reasons(ClusterQueue, Pod) == ()
    assert SEEN.missing_reasons(ClusterQueue, Node) == (NODES,)
    assert SEEN.missing_reasons(LocalQueue, Workload) == (TEAM,)
    assert SEEN.missing_reasons(HistoryEvent) == ("cannot list events at the cluster scope",)
    assert EVERYTHING.all_of(Workload, ClusterQueue, LocalQueue, Node, Pod, HistoryEvent)


def test_in_a_namespace_that_is_read_everything_is_seen() -> None:
    assert SEEN.all_of(LocalQueue, Workload, within="team")
    assert SEEN.missing_reasons(LocalQueue, within="other") == (TEAM,)
    assert SEEN.missing_reasons(Node, LocalQueue, within="team") == (NODES,)


def test_what_decisions_depend_on_is_remarked_with_what_was_assumed() -> None:
    assert SEEN.decisive_gaps == (NODES, TEAM)
    assert SEEN.warnings == (*SEEN.assumed, NODES, TEAM)


def test_that_some_namespaces_only_are_read_is_said_in_a_sentence() -> None:
    assert only_namespaces_text(("team",)) == TEAM
    assert only_namespaces_text(("a", "b")) == "only namespaces a, b are read"


def test_a_snapshot_says_it_and_so_does_its_file_and_what_becomes_of_both() -> None:
    state = ClusterState(1)
    state.seen = SEEN
    snapshot = state.freeze()
    again = ClusterState.from_file(decode(encode(snapshot)))
    states = (again, state.fork(), ClusterState.of(snapshot, ()))
    assert [one.freeze().seen for one in states] == [SEEN, SEEN, SEEN]


def test_a_file_that_does_not_say_it_holds_everything() -> None:
    assert ClusterState.from_file(decode(b'{"format": 1, "time": 1}')).freeze().seen == EVERYTHING


def test_a_file_of_another_format_is_not_read() -> None:
    with pytest.raises(msgspec.ValidationError, match="format 99 is not known; this version reads format 1"):
        decode(b'{"format": 99, "time": "of another kind"}')


def test_redacted_it_names_no_namespace() -> None:
    state = ClusterState(1)
    state.seen = Visibility(
        gaps=(
            VisibilityGap(
                table="pods", resource="pods", why=only_namespaces_text(("acme-team",)), namespaces=("acme-team",)
            ),
        ),
        assumed=("of acme-team",),
    )
    data = redact(encode(state.freeze()))
    assert b"acme" not in data
    assert decode(data).seen == Visibility(
        gaps=(
            VisibilityGap(
                table="pods", resource="pods", why=only_namespaces_text(("namespace-1",)), namespaces=("namespace-1",)
            ),
        ),
        assumed=("of namespace-1",),
    )
