"""Compact rows of the history: texts that are stored once, and packed blocks of time series.

A text is a row of the table `names`, found by its CRC-32, and is named by its number elsewhere; 0 is the empty text.

A block of time series has all samples of one queue (cohort, flavor, …) in an hour of minutes or a day of hours:
zlib(msgpack([layout, steps, places, columns])): the number of its fields in `_LAYOUTS`, or their names; the µs from
sample to sample (the first from the start of the block); their places among the queues of their time; and the values of
each field. Equal values compress to almost nothing.
Waits are rounded to a tenth of a second.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gpuconsole.insight.series import GpuSample, QueueSample, Samples, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND, Span, Time
from gpuconsole.model.text import clean

LIVE = "LIVE"
"""Mode of the sessions of a live cluster, as `ConsoleMode` names it; older versions wrote `live`."""
LARGEST = 64_000_000
"""Maximum bytes of an unpacked value."""
BLOCK = {MINUTE: HOUR, HOUR: DAY}
"""Span of samples → time that a block of them covers."""
_GPUS, _TOTAL = "gpus", "total"
"""In place of a series kind: all GPU types, and evictions and cost."""
_MOST_NAMES = 200_000
_T = TypeVar("_T", bound=Struct)
Block = dict[tuple[str, str], bytes]
"""(kind, name) → packed samples of a block of time."""


class Names:
    """Numbers of texts in one history. Mutates; used by the writer, within its transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[str, tuple[int, int, bool]] = {}
        """Text → its number, the day of its last use, and whether costs or series use it."""

    def number(self, text: str, today: int, *, kept: bool = False) -> int:
        """Number of a text, which is stored if it is new. `today` is the day since 1970, by the wall clock."""
        if not text:
            return 0
        known = self._known.get(text) or self._stored(text)
        if known is None:
            row = self._db.execute(
                "insert into names (hash, text, used, kept) values (?, ?, ?, ?)", (_hash(text), text, today, kept)
            )
            known = (int(row.lastrowid or 0), today, kept)
            self._remember(text, known)
        elif known[1] != today or kept > known[2]:
            known = (known[0], today, known[2] or kept)
            self._db.execute("update names set used = ?, kept = ? where id = ?", (today, known[2], known[0]))
            self._remember(text, known)
        return known[0]

    def forget(self) -> None:
        """Read all numbers anew, after a transaction was rolled back or texts were deleted."""
        self._known.clear()

    def _stored(self, text: str) -> tuple[int, int, bool] | None:
        rows = self._db.execute("select id, used, kept from names where hash = ? and text = ?", (_hash(text), text))
        row = rows.fetchone()
        if row is None:
            return None
        self._remember(text, (row[0], row[1], bool(row[2])))
        return self._known[text]

    def _remember(self, text: str, known: tuple[int, int, bool]) -> None:
        if len(self._known) >= _MOST_NAMES:
            self._known.clear()
        self._known[text] = known


def number_of(db: sqlite3.Connection, text: str) -> int | None:
    """Number of a text; None if it is not stored."""
    if not text:
        return 0
    row = db.execute("select id from names where hash = ? and text = ?", (_hash(text), text)).fetchone()
    return int(row[0]) if row is not None else None


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


OWNER = (
    "kind",
    "workload",
    "namespace",
    "team",
    "project",
    "user",
    "queue",
    "gpu_type",
    "capacity_type",
    "pool",
    "zone",
)
"""Columns of the owner of a cost; part of a migration, so never edited."""
AMOUNTS = (
    "gpu_seconds",
    "used_usd",
    "underutilized_usd",
    "lost_usd",
    "idle_usd",
    "system_usd",
    "saved_usd",
    "busy_gpu_seconds",
    "measured_gpu_seconds",
)
"""Columns of the costs of an owner in an hour; part of a migration, so never edited."""
MOST_OWNERS = 1 << 24
"""Maximum number of owners of a recording."""
MOST_BATCHES = 1 << 24
"""Maximum number of change batches of a checkpoint."""
HOURS = 1 << 20
"""The number of an hour since 1970 is less until 2089."""


def owner_id(recording: int, number: int) -> int:
    """Id of an owner of costs in the file."""
    return recording * MOST_OWNERS + number


def cost_id(recording: int, hour: int, owner: int) -> int:
    """Id of the costs of an owner in an hour since 1970; those of a recording are in order of the hours."""
    return (recording * HOURS + min(max(hour, 0), HOURS - 1)) * MOST_OWNERS + owner


def packed_sample(sample: Samples) -> bytes:
    """Pack all samples of one time."""
    return zlib.compress(msgspec.msgpack.encode(sample), 6)


def unpacked_sample(data: bytes, kind: SeriesKind | None, name: str | None) -> Samples | None:
    """The samples of one time; with `kind` or `name` only these queues, None without any. Raises ValueError."""
    found = _cleaned(msgspec.msgpack.decode(inflated(data)), Samples)
    if kind is None and name is None:
        return found
    queues = tuple(one for one in found.queues if kind in (None, one.kind) and name in (None, one.name))
    return Samples(time=found.time, span=found.span, queues=queues) if queues else None


def packed_samples(samples: Sequence[Samples], start: Time) -> Block:
    """Pack the samples of one block of time, in order."""
    rows: dict[tuple[str, str], list[tuple[int, int, Struct | None, Samples]]] = {}
    for one in samples:
        offset = one.time - start
        for place, queue in enumerate(one.queues):
            rows.setdefault((queue.kind.value, queue.name), []).append((offset, place, queue, one))
        for place, gpu in enumerate(one.gpus):
            rows.setdefault((_GPUS, ""), []).append((offset, place, gpu, one))
        rows.setdefault((_TOTAL, ""), []).append((offset, 0, None, one))
    return {key: _packed(found) for key, found in rows.items()}


def _packed(rows: list[tuple[int, int, Struct | None, Samples]]) -> bytes:
    first = rows[0][2]
    fields = tuple(first.__struct_fields__) if first is not None else ("evictions", "cost_hourly")
    if isinstance(first, QueueSample):
        fields = tuple(field for field in fields if field not in _KEY)
    values = [row[2] if row[2] is not None else row[3] for row in rows]
    columns = [
        [_tenths(getattr(one, field)) if field in _WAITS else short(getattr(one, field)) for one in values]
        for field in fields
    ]
    offsets = [row[0] for row in rows]
    steps = [after - before for before, after in pairwise([0, *offsets])]
    # A layout of an earlier version, or of a later one that is not listed yet, is spelt out.
    layout = next((number for number, known in _LAYOUTS.items() if known == fields), fields)
    body = (layout, steps, [row[1] for row in rows], columns)
    return zlib.compress(msgspec.msgpack.encode(body), 9)


_KEY = ("kind", "name")
"""Fields of a queue's sample that the block's row has."""
_LAYOUTS: dict[int, tuple[str, ...]] = {
    1: (
        "flavor",
        "nominal",
        "used",
        "borrowed",
        "lent",
        "pending",
        "pending_gpus",
        "wait_p50",
        "wait_p95",
        "admitted",
        "preempted",
        "evicted",
    ),
    2: ("gpu_type", "total", "allocated", "idle", "unhealthy", "utilization"),
    3: ("evictions", "cost_hourly"),
}
"""Fields of blocks by number, which are part of the file format: new ones are added, none is changed."""
_WAITS = ("wait_p50", "wait_p95")
"""Fields that are packed in tenths of a second."""


def _tenths(wait: float | None) -> int | None:
    return round(10 * wait) if wait is not None else None


def short(value: Any) -> Any:
    """The value, in fewer bytes: msgpack has small integers, but no small floats."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def unpacked_samples(blocks: Iterable[tuple[Time, str, str, bytes]], span: Span) -> list[Samples]:
    """Samples of blocks (start, kind, name, data), oldest first; with queues only as far as the blocks have them.

    Raises ValueError for a damaged block.
    """
    queues: dict[Time, list[tuple[int, QueueSample]]] = {}
    gpus: dict[Time, list[GpuSample]] = {}
    totals: dict[Time, tuple[dict[str, int], float]] = {}
    for start, kind, name, data in blocks:
        layout, steps, places, columns = msgspec.msgpack.decode(inflated(data), type=_BLOCK)
        fields = layout if isinstance(layout, tuple) else _LAYOUTS[layout]
        offsets = list(accumulate(steps))
        if any(len(column) != len(offsets) for column in (places, *columns)) or len(columns) != len(fields):
            raise ValueError(f"a block of the series {clean(kind)} {clean(name)} has columns of unequal length")
        columns = [_cleaned_column(field, column) for field, column in zip(fields, columns, strict=True)]
        key = {} if kind in (_GPUS, _TOTAL) else {"kind": kind, "name": clean(name)}
        rows = [key | dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]
        times = [start + offset for offset in offsets]
        if kind == _TOTAL:
            for time, row in zip(times, rows, strict=True):
                evictions = msgspec.convert(row.get("evictions", {}), dict[str, int])
                totals[time] = ({clean(why): number for why, number in evictions.items()}, float(row["cost_hourly"]))
        elif kind == _GPUS:
            for time, gpu in zip(times, msgspec.convert(rows, list[GpuSample]), strict=True):
                gpus.setdefault(time, []).append(gpu)
        else:
            for time, place, queue in zip(times, places, msgspec.convert(rows, list[QueueSample]), strict=True):
                queues.setdefault(time, []).append((place, queue))
    found = []
    for time in sorted(queues.keys() | gpus.keys() | totals.keys()):
        evictions, cost = totals.get(time, ({}, 0.0))
        placed = sorted(queues.get(time, ()), key=lambda one: one[0])
        found.append(
            Samples(
                time=time,
                span=span,
                queues=tuple(queue for _, queue in placed),
                gpus=tuple(gpus.get(time, ())),
                evictions=evictions,
                cost_hourly=cost,
            )
        )
    return found


_BLOCK = tuple[int | tuple[str, ...], list[int], list[int], list[list[Any]]]


def _cleaned_column(field: str, column: list[Any]) -> list[Any]:
    if field in _WAITS:
        return [wait / 10 if wait is not None else None for wait in column]
    texts = {one: clean(one) for one in set(column) if isinstance(one, str)} if _is_text(column) else {}
    return [texts[one] for one in column] if texts else column


def _is_text(column: list[Any]) -> bool:
    return bool(column) and isinstance(column[0], str)


def _cleaned(row: Any, kind: type[_T]) -> _T:
    return msgspec.convert(_clean(row), kind)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean(name): _clean(one) for name, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, list) else value


def kinds_of(kind: SeriesKind | None) -> tuple[str, ...]:
    """Kinds of blocks to read for samples of `kind`, or for all samples."""
    return (kind.value,) if kind is not None else (*(one.value for one in SeriesKind), _GPUS, _TOTAL)


def block_start(time: Time, span: Span) -> Time:
    """Start of the block that has the samples of a time."""
    return time // BLOCK[span] * BLOCK[span]


def seconds(span: Span) -> int:
    """A span of samples as it is stored."""
    return span // SECOND


def inflated(data: bytes) -> bytes:
    """Decompress a value. Raises ValueError if it is damaged or too large."""
    return inflated_first(data)[0]


def inflated_first(data: bytes) -> tuple[bytes, bytes]:
    """Decompress the first value; returns it, and what follows it. Raises ValueError if it is damaged or too large."""
    try:
        reader = zlib.decompressobj()
        found = reader.decompress(data, LARGEST)
    except zlib.error as error:
        raise ValueError(f"a compressed value is damaged: {error}") from error
    if not reader.eof:
        raise ValueError("a compressed value is incomplete or too large")
    return found, reader.unused_data
