"""Stored GPU utilization samples of live clusters; only the last hour is kept."""

import sqlite3
from collections.abc import Sequence

import msgspec

from gpuconsole.insight.health.trends import DevicePlace, UtilizationSample
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.text import clean

MOST = 200_000
"""Maximum stored samples of all clusters; 5,000 nodes have 120,000 in an hour."""
MOST_WAITING = 50_000
"""Maximum samples of a cluster that wait to be written; beyond it the oldest are dropped."""
_PLACES = msgspec.msgpack.Decoder(tuple[DevicePlace, ...])


def keep(db: sqlite3.Connection, source: str, samples: Sequence[UtilizationSample]) -> None:
    """Store samples of a cluster; delete those older than an hour, and the oldest beyond `MOST`."""
    rows = [(source, one.node, one.time, msgspec.msgpack.encode(one.places), one.percents) for one in samples]
    db.executemany("insert or replace into gpu_samples values (?, ?, ?, ?, ?)", rows)
    db.execute("delete from gpu_samples where time <= ?", (max(one.time for one in samples) - HOUR,))
    db.execute(
        "delete from gpu_samples where time <= (select time from gpu_samples order by time desc limit 1 offset ?)",
        (MOST,),
    )


def kept(db: sqlite3.Connection, source: str, nodes: Sequence[str], since: Time) -> list[UtilizationSample]:
    """The stored samples of nodes of a cluster, the oldest first; invalid ones are omitted."""
    rows = db.execute(
        "select node, time, places, percents from gpu_samples"
        " where source = ? and node in (select value from json_each(?)) and time > ? order by time",
        (source, msgspec.json.encode(nodes).decode(), since),
    ).fetchall()
    return [sample for row in rows if (sample := _sample(*row)) is not None]


def _sample(node: str, time: int, places: bytes, percents: bytes) -> UtilizationSample | None:
    try:
        return UtilizationSample(clean(str(node)), int(time), _PLACES.decode(places), bytes(percents))
    except (msgspec.DecodeError, TypeError, ValueError):
        return None
