"""The change log: all states of a cluster over time, as checkpoints and the changes between them.

A `Checkpoint` has all objects of a cluster. Each `ChangeBatch` after it has the changes up to the next flush. A
checkpoint and its batches are one stream of zstd: a batch compresses against everything before it, to a quarter of what
it needs alone, and can be read only after everything before it. `ChangeLogWriter` writes them, `rebuild` returns the
Snapshot at a time.

Each batch keeps the time of each change, but of several changes of an object within a batch and a minute only the last.
A writer flushes once a second, so a rebuilt Snapshot is exact at the end of each batch; between two, it may show an
object as it was up to a second of wall-clock time, or a minute of the cluster's time, before.

History events are not in the change log, because the store has them already: `rebuild` is given the newest ones.

Piece of a stream, after decompression: frames of length, checksum and msgpack. The first is a `_Head`; each of its
`parts` is a frame with a list of objects (checkpoint) or of events (batch).
"""

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from gpuconsole.model.clock import MINUTE, Time, format_time
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent
from gpuconsole.model.objects import TABLES, Object, insane_values
from gpuconsole.model.snapshot import AT_ONCE, EVERYTHING, Snapshot, Visibility
from gpuconsole.model.state import ClusterState

if TYPE_CHECKING:
    from zstandard import ZstdCompressionObj, ZstdDecompressionReader

FORMAT = 1
"""Version number of the format; a new field with a default does not change it."""
WINDOW = 21
"""Log2 of the bytes to which a batch can refer back; bounds the memory of writer and reader."""
LEAST = 8_000_000
"""Bytes of batches, before compression, after which a new checkpoint may follow."""
MANY = 5_000
"""Number of batches after which a new checkpoint follows, however small they are, because each takes time to read."""
MOST = 1_000_000_000
"""Most bytes of a checkpoint and its batches after decompression."""
_FRAME = Layout(">II")
"""Header of a frame: its length in bytes and its CRC-32."""
_AT_LAST_END = -1
_LAST_BLOCK = b"\x01\x00\x00"
"""An empty block that ends a stream of zstd (RFC 8878, 3.1.1.2): without one, the reader keeps back the last bytes."""


class ChangeLogError(ValueError):
    """A checkpoint or batch that is damaged, missing, or of an unknown format."""


class Checkpoint(Struct, frozen=True):
    """All objects of a cluster at a time. `data` begins a stream of zstd."""

    time: Time
    data: bytes


class ChangeBatch(Struct, frozen=True):
    """The changes from `time` until `until`. `data` continues the stream of the checkpoint before it."""

    time: Time
    until: Time
    data: bytes


class _Head(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Begins each piece of a stream."""

    format: int = FORMAT
    number: int = 0
    """0 for a checkpoint, then 1, 2, …: a missing batch is noticed."""
    time: Time
    parts: int
    seen: Visibility | None = None
    """Which kinds come as events; None if that did not change."""
    policy: bytes = b""
    """Settings of the schedulers; empty if they did not change."""


class _Changes:
    """Changes of one minute: the last version of each object. Mutates."""

    def __init__(self) -> None:
        self._events: list[Applied | Deleted | None] = []
        self._last: dict[tuple[str, str], int] = {}

    def add(self, event: Applied | Deleted) -> None:
        subject = (event.table, event.key)
        at = self._last.get(subject)
        if at is not None and isinstance(self._events[at], Applied):
            if isinstance(event, Applied):
                # The object keeps its place in the order of its table.
                self._events[at] = event
                return
            self._events[at] = None
        self._last[subject] = len(self._events)
        self._events.append(event)

    def all(self) -> Iterator[Applied | Deleted]:
        return (event for event in self._events if event is not None)


class ChangeLogWriter:
    """Writes the change log of one cluster. Mutates; used by one thread.

    A checkpoint is of the state before the batch that is returned together with it. The first one is that of the given
    state; if that is empty, as before a cluster is loaded, it is the state at the first flush with events.
    """

    def __init__(self, state: ClusterState, *, policy: bytes = b"") -> None:
        """`policy` are the settings of the schedulers (JSON of a `sim.policy.SimPolicy`), which may change later."""
        self.policy = policy
        self._policy = policy
        self._state = state.fork()
        self._base: Snapshot | None = self._state.freeze() if state.time else None
        """State of the next checkpoint, if one is due."""
        self._began = state.time > 0
        self._stream: ZstdCompressionObj | None = None
        self._number = 0
        self._until: Time = state.time
        self._seen = state.seen
        self._minutes: dict[int, _Changes] = {}
        self._size = 0
        self._limit = LEAST

    def add(self, events: Sequence[Event], *, time: Time = 0, seen: Visibility | None = None) -> None:
        """Take the next events, in their order.

        `time` is the cluster's time up to which they are complete, if later than the last event; `seen` tells which
        kinds come as events, if that has changed.
        """
        for event in events:
            if isinstance(event, HistoryEvent):
                self._state.time = max(self._state.time, event.time)
                continue
            self._state.apply(event)
            # Changes at the end of the last batch are kept apart from later ones, so that its state is exact.
            minute = self._state.time // MINUTE if self._state.time > self._until else _AT_LAST_END
            changes = self._minutes.get(minute)
            if changes is None:
                changes = self._minutes[minute] = _Changes()
            changes.add(event)
        self._state.time = max(self._state.time, time)
        if seen is not None:
            self._state.seen = seen

    def flush(self) -> tuple[Checkpoint | None, ChangeBatch | None]:
        """Return the next checkpoint, if one is due, and then the changes since the last flush, if there are any.

        Without changes there is a batch once a minute of the cluster's time, so that the recorded time goes on.
        """
        if not self._began:
            if not self._minutes:
                return None, None
            self._began, self._base = True, self._state.freeze()
            self._minutes, self._until, self._seen = {}, self._state.time, self._state.seen
        checkpoint = None
        if self._base is not None:
            checkpoint, self._base = self._checkpoint(self._base), None
        batch = None
        settings = self.policy != self._policy or self._state.seen != self._seen
        if self._minutes or settings or self._state.time - self._until >= MINUTE:
            batch = self._batch()
            if self._size > self._limit or self._number >= MANY:
                self._base = self._state.freeze()
        return checkpoint, batch

    def _checkpoint(self, snapshot: Snapshot) -> Checkpoint:
        self._stream, self._number, self._size = _compressor(), 0, 0
        head = _Head(
            time=snapshot.time,
            parts=-(-sum(len(getattr(snapshot, table)) for table in TABLES.values()) // AT_ONCE),
            seen=snapshot.seen,
            policy=self.policy,
        )
        self._policy = self.policy
        size, data = self._written(head, list(snapshot.objects()))
        self._limit = max(LEAST, size)
        return Checkpoint(snapshot.time, data)

    def _batch(self) -> ChangeBatch:
        events = [event for changes in self._minutes.values() for event in changes.all()]
        seen = self._state.seen if self._state.seen != self._seen else None
        since, until = self._until, self._state.time
        self._number += 1
        policy = self.policy if self.policy != self._policy else b""
        self._policy = self.policy
        head = _Head(number=self._number, time=until, parts=-(-len(events) // AT_ONCE), seen=seen, policy=policy)
        size, data = self._written(head, events)
        self._size += size
        self._minutes, self._until, self._seen = {}, until, self._state.seen
        return ChangeBatch(since, until, data)

    def _written(self, head: _Head, values: list[Any]) -> tuple[int, bytes]:
        """Size and compressed bytes of a piece. In parts, because no other thread runs while msgspec encodes."""
        from zstandard import COMPRESSOBJ_FLUSH_BLOCK

        stream = self._stream
        assert stream is not None
        size, pieces = 0, []
        for value in (head, *(values[first : first + AT_ONCE] for first in range(0, len(values), AT_ONCE))):
            data = msgspec.msgpack.encode(value)
            size += len(data)
            pieces += [stream.compress(_FRAME.pack(len(data), crc32(data))), stream.compress(data)]
        pieces.append(stream.flush(COMPRESSOBJ_FLUSH_BLOCK))
        return size, b"".join(pieces)


class RebuiltCluster(NamedTuple):
    """A cluster at a time, and the settings of its schedulers, as the writer got them; empty if it got none."""

    snapshot: Snapshot
    policy: bytes


def rebuild(
    checkpoint: Checkpoint, batches: Iterable[ChangeBatch], at: Time, recent: Sequence[HistoryEvent] = ()
) -> Snapshot:
    """Return the cluster at a time, from a checkpoint and all batches after it, in order, as far as they are needed.

    `recent` are the newest history events until then, oldest first. The Snapshot's time is `at`, but not after the last
    batch. Raises ChangeLogError, also for a time before the checkpoint.
    """
    return rebuild_cluster(checkpoint, batches, at, recent).snapshot


def rebuild_cluster(
    checkpoint: Checkpoint, batches: Iterable[ChangeBatch], at: Time, recent: Sequence[HistoryEvent] = ()
) -> RebuiltCluster:
    """Return what `rebuild` returns, and the settings of the schedulers at that time. Raises ChangeLogError."""
    if at < checkpoint.time:
        raise ChangeLogError(
            f"the change log begins at {format_time(checkpoint.time)}; {format_time(at)} is before that"
        )
    needed = [batch for batch in batches if batch.time <= at]
    reader = _Reader([checkpoint.data, *(batch.data for batch in needed)])
    head, parts = reader.piece(0, checkpoint.time, list[Object])
    objects = [obj for part in parts for obj in part]
    wrong = next(insane_values(objects), None)
    if wrong is not None:
        raise ChangeLogError(f"checkpoint of {format_time(checkpoint.time)}: {wrong}")
    state = ClusterState(checkpoint.time)
    seen, policy = head.seen or EVERYTHING, head.policy
    for obj in objects:
        state.apply(Applied(checkpoint.time, obj))
    for number, batch in enumerate(needed, start=1):
        head, changes = reader.piece(number, batch.until, list[Applied | Deleted])
        for event in (event for part in changes for event in part):
            if event.time > at:
                continue
            if isinstance(event, Deleted) and event.table not in _NAMES:
                raise ChangeLogError(f"changes until {format_time(batch.until)}: no table is named {event.table!r}")
            state.apply(event)
        if batch.until <= at:
            seen, policy = head.seen or seen, head.policy or policy
        state.time = max(state.time, min(batch.until, at))
    state.seen = seen
    state.recall(recent)
    return RebuiltCluster(state.freeze(), policy)


_NAMES = frozenset(TABLES.values())
_T = TypeVar("_T")


class _Reader:
    """Reads the pieces of a stream one after the other, and never more than `MOST` bytes. Mutates."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        from zstandard import ZstdDecompressor

        decompressor = ZstdDecompressor(max_window_size=1 << WINDOW)
        self._stream: ZstdDecompressionReader = decompressor.stream_reader(BytesIO(b"".join((*pieces, _LAST_BLOCK))))
        self._left = MOST

    def piece(self, number: int, time: Time, kind: type[_T]) -> tuple[_Head, list[_T]]:
        """Return the head and the parts of the next piece, which has this number and ends at this time."""
        head = self.head(number, time)
        return head, [self._decoded(kind, time) for _ in range(head.parts)]

    def head(self, number: int, time: Time) -> _Head:
        """Return the head of the next piece."""
        head = self._decoded(_Head, time)
        if head.format != FORMAT:
            raise ChangeLogError(f"the change log has format {head.format}; this version reads format {FORMAT}")
        if (head.number, head.time) != (number, time):
            raise ChangeLogError(f"changes are missing before {format_time(time)}; choose an earlier time")
        return head

    def _decoded(self, kind: type[_T], time: Time) -> _T:
        try:
            length, checksum = _FRAME.unpack(self._bytes(_FRAME.size))
            data = self._bytes(length)
            if crc32(data) == checksum:
                return msgspec.msgpack.decode(data, type=kind)
            problem = "its checksum is wrong"
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = str(error) or type(error).__name__
        raise ChangeLogError(f"the change log is damaged at {format_time(time)}: {problem}; choose an earlier time")

    def _bytes(self, length: int) -> bytes:
        from zstandard import ZstdError

        self._left -= length
        if self._left < 0:
            raise msgspec.DecodeError(f"it has more than {MOST:,} bytes")
        try:
            data: bytes = self._stream.read(length)
        except (ZstdError, MemoryError) as error:
            raise msgspec.DecodeError(str(error)) from error
        if len(data) < length:
            raise msgspec.DecodeError("it ends too early")
        return data


def _compressor() -> "ZstdCompressionObj":
    from zstandard import STRATEGY_BTLAZY2, ZstdCompressionParameters, ZstdCompressor

    # 6 MB of memory. On a cluster of 5,000 nodes an optimal search (btopt) takes ten times the CPU time for 20% less;
    # tables of 13 MB take twice the time for nothing.
    parameters = ZstdCompressionParameters(
        strategy=STRATEGY_BTLAZY2, window_log=WINDOW, hash_log=18, chain_log=20, search_log=6, min_match=4
    )
    return ZstdCompressor(compression_params=parameters).compressobj()
