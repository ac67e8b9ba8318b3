"""Kueue's own count of places beside ours, with source and age."""

import pytest

from gpuconsole.insight.index.queues import Position, QueuePosition, VisibilityPositions, position_text
from gpuconsole.model.clock import SECOND

SAID = VisibilityPositions(
    queue="cq", source="visibility API v1beta2", time=10 * SECOND, places={"a/w": QueuePosition(3, 1)}
)


def ours(cluster: int, local: int) -> Position:
    return Position("a/w", "cq", cluster, 9, local, 9, 0)


@pytest.mark.parametrize(
    ("standings", "position", "want"),
    [
        (SAID, ours(3, 1), "position by Kueue 3 (1 in its LocalQueue): visibility API v1beta2, 4s ago"),
        (
            SAID,
            ours(2, 1),
            "position by Kueue 3 (1 in its LocalQueue): visibility API v1beta2, 4s ago; ours 2 (1)",
        ),
        (
            VisibilityPositions(queue="cq", source="visibility API v1beta2", time=14 * SECOND),
            ours(2, 1),
            "not listed as pending by Kueue: visibility API v1beta2",
        ),
        (VisibilityPositions(queue="cq", trouble="forbidden"), ours(2, 1), "no position from Kueue: forbidden"),
        (VisibilityPositions(queue="cq"), ours(2, 1), ""),
    ],
    ids=["the same", "another", "not listed", "nobody told", "nobody asked"],
)
def test_what_is_said(standings: VisibilityPositions, position: Position, want: str) -> None:
    assert position_text(standings, "a/w", position, 14 * SECOND) == want
