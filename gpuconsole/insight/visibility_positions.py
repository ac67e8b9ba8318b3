"""Queue positions from Kueue's visibility API, compared with our own."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.positions import Position
from gpuconsole.model.clock import Span, Time, format_span


class QueuePosition(Struct, frozen=True):
    """Positions of one workload in its ClusterQueue and LocalQueue, from 1."""

    in_cluster_queue: int
    in_local_queue: int


class VisibilityPositions(Struct, frozen=True, kw_only=True):
    """Positions of all pending workloads of one queue, from one source."""

    queue: str
    """ClusterQueue, or the `namespace/name` of a LocalQueue if only its pending workloads may be read."""
    source: str = ""
    time: Time = 0
    places: Mapping[str, QueuePosition] = {}
    trouble: str = ""
    """Reason why no positions are available."""


def position_text(standings: VisibilityPositions, workload: str, ours: Position | None, now: Time) -> str:
    """Describe Kueue's position of a workload, with source and age, or why it is missing; empty if it was not read."""
    place = standings.places.get(workload)
    if not standings.source:
        return f"no position from Kueue: {standings.trouble}" if standings.trouble else ""
    age: Span = max(0, now - standings.time)
    where = f"{standings.source}, {format_span(age)} ago" if age else standings.source
    if place is None:
        return f"not listed as pending by Kueue: {where}"
    same = ours is not None and (ours.in_cluster_queue, ours.in_local_queue) == (
        place.in_cluster_queue,
        place.in_local_queue,
    )
    words = f"position by Kueue {place.in_cluster_queue} ({place.in_local_queue} in its LocalQueue): {where}"
    return words if same or ours is None else f"{words}; ours {ours.in_cluster_queue} ({ours.in_local_queue})"
