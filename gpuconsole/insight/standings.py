"""Where workloads stand by Kueue's own word, beside where we think that they stand."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.insight.positions import Position
from gpuconsole.model.clock import Span, Time, format_span


class Place(Struct, frozen=True):
    """Places of a workload, counted from 1."""

    in_cluster_queue: int
    in_local_queue: int


class Standings(Struct, frozen=True, kw_only=True):
    """All that wait for one queue, as somebody told."""

    queue: str
    """ClusterQueue, or the `namespace/name` of a LocalQueue where only that may be asked for."""
    source: str = ""
    time: Time = 0
    places: Mapping[str, Place] = {}
    trouble: str = ""
    """Why nobody told."""


def told(standings: Standings, workload: str, ours: Position | None, now: Time) -> str:
    """What Kueue says of a workload's place, with source and age, or why it says nothing; empty where nobody asked."""
    place = standings.places.get(workload)
    if not standings.source:
        return f"Kueue names no place: {standings.trouble}" if standings.trouble else ""
    age: Span = max(0, now - standings.time)
    where = f"{standings.source}, {format_span(age)} ago" if age else standings.source
    if place is None:
        return f"Kueue does not list it as waiting: {where}"
    same = ours is not None and (ours.in_cluster_queue, ours.in_local_queue) == (
        place.in_cluster_queue,
        place.in_local_queue,
    )
    words = f"by Kueue place {place.in_cluster_queue} ({place.in_local_queue} of its LocalQueue): {where}"
    return words if same or ours is None else f"{words}; by us {ours.in_cluster_queue} ({ours.in_local_queue})"
