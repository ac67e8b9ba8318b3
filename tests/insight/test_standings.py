"""Kueue's own count of places beside ours, with source and age."""

import pytest

from gpuconsole.insight.positions import Position
from gpuconsole.insight.standings import Place, Standings, told
from gpuconsole.model.clock import SECOND

SAID = Standings(queue="cq", source="visibility API v1beta2", time=10 * SECOND, places={"a/w": Place(3, 1)})


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
            Standings(queue="cq", source="visibility API v1beta2", time=14 * SECOND),
            ours(2, 1),
            "not listed as pending by Kueue: visibility API v1beta2",
        ),
        (Standings(queue="cq", trouble="forbidden"), ours(2, 1), "no position from Kueue: forbidden"),
        (Standings(queue="cq"), ours(2, 1), ""),
    ],
    ids=["the same", "another", "not listed", "nobody told", "nobody asked"],
)
def test_what_is_said(standings: Standings, position: Position, want: str) -> None:
    assert told(standings, "a/w", position, 14 * SECOND) == want
