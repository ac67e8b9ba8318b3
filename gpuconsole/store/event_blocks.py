"""History events in blocks: up to 512 events of a session by columns, compressed; each needs about 15 bytes.

A row of the table `event_blocks` has zlib(msgpack(column → values)): the numbers of `_Column`, and for each event the
value of the field, or 0 for its default. The columns with long texts follow in the same form, compressed by themselves,
because few questions need them. Texts are numbers of the table `names`. A message is its template, in which numbers,
UIDs and the names of the workload and the preemptor are replaced by placeholders, and what replaces them.

Events that name the same workload (or lone pod) as subject or preemptor form a chain: each has the distance to the one
before, and `event_heads` has the last one. So all events of a workload are found without an index of all events.

Each write makes a block. Small blocks of a session are merged after 64 writes, in the same transaction as a write. How
often an event was repeated is in `event_repeats`, until the block is merged.
"""

import re
import sqlite3
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any
from uuid import UUID

import msgspec

from gpuconsole.errors import HistoryError
from gpuconsole.insight.preemption.history import lost_by
from gpuconsole.model.clock import Time
from gpuconsole.model.events import (
    CandidateVerdict,
    ConsideredCandidate,
    HistoryEvent,
    HistoryEventKind,
    KueueEvent,
    PreemptionTrace,
)
from gpuconsole.model.text import clean
from gpuconsole.store.rows import Names, inflated, inflated_first, short

Lines = dict[int, HistoryEvent]
"""History events by their number in the session, in order."""
MOST = 512
"""Maximum events of a block."""
MERGED_AFTER = 64
"""Number of small blocks that are merged."""
MOST_SCANNED = 300
"""Maximum blocks in which events about some workloads are looked for one by one, instead of by their chains."""
KINDS: tuple[str, ...] = (
    "submitted",
    "pending",
    "reserved",
    "admitted",
    "preempted",
    "reconstructed",
    "evicted",
    "requeued",
    "places",
    "started",
    "finished",
    "failed",
    "deleted",
    "pod-bound",
    "pod-evicted",
    "pod-failed",
    "gang-waiting",
    "deadlock",
    "node-down",
    "node-up",
    "node-changed",
    "capacity",
    "queue-changed",
    "command-refused",
    "command-needless",
    "command-done",
)
"""Kinds of events by their number in the file: new ones are appended."""
_KINDS = tuple(map(HistoryEventKind, KINDS))
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
LOST = 1 << 62
"""Bit of a block's kinds: it has an event with lost work."""
EVERY_KIND = (1 << 63) - 1
_SESSION = 32
"""Bits of the event's number in the id of a block; the session is above them."""


class _Column:
    """Numbers of the columns of a block; part of the file format. An enum's members would be slower to read."""

    TIME = 0
    """The first time, then differences, in µs."""
    WHAT = 1
    WORKLOAD = 2
    POD = 3
    """Its name; the number of its name if there is no workload."""
    QUEUE = 4
    BY = 5
    BY_QUEUE = 6
    REASON = 7
    MESSAGE = 8
    NODE = 9
    FLAVOR = 10
    GPUS = 11
    BORROWED = 12
    PRIORITY = 13
    BY_PRIORITY = 14
    LOST_GPU_SECONDS = 15
    COST = 16
    LOST_UNKNOWN = 17
    UNIT = 18
    WAITED = 19
    TOLD = 20
    """[workload, reason, message, warning] of each Event; workload 0 is the subject, 1 the preemptor, else a text."""
    CHOICE = 21
    COUNT = 22
    """Number of repetitions."""
    LAST_TIME = 23
    """µs from the first to the last time."""
    PREVIOUS = 24
    """Distance to the previous event of the subject; 0 without one."""
    BY_PREVIOUS = 25
    """Distance to the previous event of the preemptor."""
    NUMBER = 26
    """Differences of the numbers, less 1; left out if all follow on each other."""


_TEXTS = {
    "queue": _Column.QUEUE,
    "by_queue": _Column.BY_QUEUE,
    "reason": _Column.REASON,
    "node": _Column.NODE,
    "flavor": _Column.FLAVOR,
}
_VALUES = {
    "gpus": _Column.GPUS,
    "borrowed": _Column.BORROWED,
    "priority": _Column.PRIORITY,
    "by_priority": _Column.BY_PRIORITY,
    "lost_gpu_seconds": _Column.LOST_GPU_SECONDS,
    "cost": _Column.COST,
    "waited": _Column.WAITED,
}
_UNIT = HistoryEvent(time=0, what=HistoryEventKind.PENDING).unit
_VARIABLE = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})|([0-9]{1,18})")
_PLACEHOLDER = re.compile("([\x01-\x04])")
_NUMBER_HERE, _UID_HERE, _SUBJECT_HERE, _BY_HERE = "\x01", "\x02", "\x03", "\x04"
_OUTCOME = (
    _Column.WHAT,
    _Column.WORKLOAD,
    _Column.POD,
    _Column.QUEUE,
    _Column.BY,
    _Column.REASON,
    _Column.GPUS,
    _Column.LOST_GPU_SECONDS,
    _Column.COST,
    _Column.LOST_UNKNOWN,
    _Column.WAITED,
)
"""Columns of an event that analyses of preemptions read."""
_HEADERS = (1, 3, 5)
"""Sizes of the header of a list in msgpack."""
_NESTED = (_Column.MESSAGE, _Column.TOLD, _Column.CHOICE)
"""Columns with large values, of which only those of the wanted events are decoded."""
Row = dict[int, Any]
"""Values of one event by column, without defaults; TIME and NUMBER are absolute."""


def bits(kinds: Collection[HistoryEventKind]) -> int:
    """Bits of kinds of events, as blocks have them."""
    return sum(1 << _NUMBER[kind] for kind in set(kinds))


class EventBlockWriter:
    """Writes the events of one session. Mutates; used within the transactions of its caller."""

    def __init__(self, db: sqlite3.Connection, session: int, names: Names) -> None:
        self._db = db
        self._session = session
        self._names = names
        self._heads: dict[int, int] = {}
        """Number of a subject's name → its last event."""
        self._open: list[Row] = []
        """Events of the small blocks that will be merged."""
        self._open_blocks: list[int] = []

    def forget(self) -> None:
        """Forget what is known of the file, because a transaction was rolled back or another connection wrote."""
        self._heads.clear()
        self._open.clear()
        self._open_blocks.clear()

    def add(self, lines: Mapping[int, HistoryEvent], repeats: Mapping[int, tuple[int, Time]], today: int) -> None:
        """Write events by number, and how often earlier ones occurred: number → (count, last time)."""
        rows = [self._row(n, line, today) for n, line in lines.items()]
        self._add_repeats(repeats)
        self._add_totals(lines.values(), today)
        if not rows:
            return
        together = [*self._open, *rows]
        if len(together) >= MOST or len(self._open_blocks) >= MERGED_AFTER:
            self._rewrite(together)
        else:
            self._open_blocks.append(self._write(rows))
            self._open = together

    def merge(self) -> None:
        """Merge the small blocks of this session, as at its end."""
        if len(self._open_blocks) > 1:
            self._rewrite(self._open)

    def _rewrite(self, rows: Sequence[Row]) -> None:
        """Write these events, which include those of all small blocks, as large blocks."""
        self._db.executemany("delete from event_blocks where id = ?", [(block,) for block in self._open_blocks])
        for first in range(0, len(rows), MOST):
            self._write(rows[first : first + MOST])
        ids = [self._id(rows[place][_Column.NUMBER]) for place in (0, -1)]
        self._db.execute("delete from event_repeats where id between ? and ?", ids)
        self._open, self._open_blocks = [], []
        if len(self._heads) > _MOST_HEADS:
            self._heads.clear()

    def _id(self, n: int) -> int:
        return self._session << _SESSION | n

    def _write(self, rows: Sequence[Row]) -> int:
        times = [row[_Column.TIME] for row in rows]
        kinds = 0
        for row in rows:
            kinds |= 1 << row.get(_Column.WHAT, 0)
            if row.get(_Column.LOST_GPU_SECONDS) or row.get(_Column.LOST_UNKNOWN):
                kinds |= LOST
        number = self._id(rows[0][_Column.NUMBER])
        self._db.execute(
            "insert into event_blocks (id, session, first, last, kinds, data) values (?, ?, ?, ?, ?, ?)",
            (number, self._session, min(times), max(times), kinds, _packed(rows)),
        )
        return number

    def _add_repeats(self, repeats: Mapping[int, tuple[int, Time]]) -> None:
        if not repeats:
            return
        for row in self._open:
            if (known := repeats.get(row[_Column.NUMBER])) is not None:
                row[_Column.COUNT], row[_Column.LAST_TIME] = known[0] - 1, known[1] - row[_Column.TIME]
        self._db.executemany(
            "insert or replace into event_repeats values (?, ?, ?)",
            [(self._id(n), count, last) for n, (count, last) in repeats.items()],
        )

    def _add_totals(self, lines: Collection[HistoryEvent], today: int) -> None:
        counts: dict[int, int] = {}
        for line in lines:
            counts[_NUMBER[line.what]] = counts.get(_NUMBER[line.what], 0) + 1
        self._db.executemany(
            "insert into event_totals values (?, ?, ?) on conflict (session, what)"
            " do update set events = events + excluded.events",
            [(self._session, what, number) for what, number in counts.items()],
        )
        losses = [
            (
                self._session,
                self._names.number(queue, today, kept=True),
                self._names.number(owner, today, kept=True),
                lost.gpu_hours,
                lost.cost,
                lost.times,
                lost.unknown,
                lost.unpriced,
            )
            for (queue, owner), lost in lost_by(lines).items()
        ]
        self._db.executemany(_ADD_LOSS, losses)

    def _row(self, n: int, line: HistoryEvent, today: int) -> Row:
        names = self._names
        row: Row = {_Column.NUMBER: n, _Column.TIME: line.time, _Column.WHAT: _NUMBER[line.what]}
        for field, column in _TEXTS.items():
            if text := getattr(line, field):
                row[column] = names.number(text, today)
        for field, column in _VALUES.items():
            if value := getattr(line, field):
                row[column] = short(value)
        subject = names.number(line.workload or line.pod, today)
        by = names.number(line.by, today)
        if line.workload:
            row[_Column.WORKLOAD] = subject
        if line.pod:
            row[_Column.POD] = line.pod if line.workload else subject
        if by:
            row[_Column.BY] = by
        if line.unit != _UNIT:
            row[_Column.UNIT] = names.number(line.unit, today) or ""
        if line.lost_unknown:
            row[_Column.LOST_UNKNOWN] = 1
        if line.message:
            row[_Column.MESSAGE] = self._message(line.message, line, today)
        if line.told:
            row[_Column.TOLD] = [self._told(one, line, today) for one in line.told]
        if line.choice is not None:
            row[_Column.CHOICE] = self._choice(line.choice, today)
        if line.count > 1:
            row[_Column.COUNT], row[_Column.LAST_TIME] = line.count - 1, line.last_time - line.time
        for column, name in ((_Column.PREVIOUS, subject), (_Column.BY_PREVIOUS, by if by != subject else 0)):
            if name and (distance := self._follow(name, n)):
                row[column] = distance
        return row

    def _follow(self, name: int, n: int) -> int:
        """Append event `n` to the chain of a name; returns the distance to the event before, or 0."""
        last = self._heads.get(name)
        if last is None:
            found = self._db.execute(_HEAD, (self._session, name)).fetchone()
            last = int(found[0]) if found is not None else None
        self._heads[name] = n
        self._db.execute("insert or replace into event_heads values (?, ?, ?)", (self._session, name, n))
        return n - last if last is not None else 0

    def _message(self, text: str, line: HistoryEvent, today: int) -> Any:
        """The text as template and variables; as it is if it has characters that placeholders use."""
        if _PLACEHOLDER.search(text) or not text:
            return text
        variables: list[Any] = []

        def placeholder(found: re.Match[str]) -> str:
            uid, number = found.groups()
            if uid is not None:
                variables.append(UUID(uid).bytes)
                return _UID_HERE
            variables.append(number if number[0] == "0" and number != "0" else int(number))
            return _NUMBER_HERE

        for name, here in ((line.workload or line.pod, _SUBJECT_HERE), (line.by, _BY_HERE)):
            if name:
                text = text.replace(name, here)
        template = _VARIABLE.sub(placeholder, text)
        return [self._names.number(template, today), *variables]

    def _told(self, told: KueueEvent, line: HistoryEvent, today: int) -> list[Any]:
        who = 0 if told.workload == line.workload else 1 if told.workload == line.by else told.workload
        if line.message and told.message == line.message:
            message: Any = 0
        elif line.message and told.message.startswith(line.message):
            rest = self._message(told.message.removeprefix(line.message), line, today)
            message = [0, rest] if isinstance(rest, str) else [0, *rest]
        else:
            message = self._message(told.message, line, today)
        return [who, self._names.number(told.reason, today), message, int(told.warning)]

    def _choice(self, choice: PreemptionTrace, today: int) -> list[Any]:
        considered = choice.considered
        return [
            choice.share,
            choice.by_share,
            choice.left_out,
            choice.as_of,
            int(choice.differs),
            [self._names.number(one.workload, today) for one in considered],
            [self._names.number(one.queue, today) for one in considered],
            [self._names.number(one.verdict.value, today) for one in considered],
            [one.priority for one in considered],
        ]


_MOST_HEADS = 200_000
_HEAD = "select n from event_heads where session = ? and name = ?"
_ADD_LOSS = (
    "insert into losses values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (session, queue, owner) do update set"
    " gpu_hours = gpu_hours + excluded.gpu_hours, cost = cost + excluded.cost, times = times + excluded.times,"
    " unknown = unknown + excluded.unknown, unpriced = unpriced + excluded.unpriced"
)


def _packed(rows: Sequence[Row]) -> bytes:
    columns: dict[int, list[Any]] = {}
    for column in sorted({int(column) for row in rows for column in row}):
        columns[column] = [row.get(column, 0) for row in rows]
    for column, less in ((_Column.TIME, 0), (_Column.NUMBER, 1)):
        values = columns[column]
        columns[column] = [values[0], *(one - before - less for before, one in pairwise(values))]
    if not any(columns[_Column.NUMBER][1:]):
        # The first number is part of the block's id; the number of events is that of their times.
        del columns[_Column.NUMBER]
    texts = {column: columns.pop(column) for column in _NESTED if column in columns}
    data = zlib.compress(msgspec.msgpack.encode(columns), 9)
    return data + zlib.compress(msgspec.msgpack.encode(texts), 9) if texts else data


class EventBlock:
    """A block that was read: values by column and place."""

    def __init__(self, number: int, data: bytes) -> None:
        """Raises ValueError if the block is damaged."""
        columns, self._texts = inflated_first(data)
        """The compressed columns with texts, until they are needed."""
        self._raw = msgspec.msgpack.decode(columns, type=dict[int, msgspec.Raw])
        self._columns: dict[int, list[Any]] = {}
        self._flat: list[tuple[int, list[Any]]] = []
        self._outcomes: list[list[Any]] = []
        self._size = 0
        times = self._decoded(_Column.TIME)
        self._size = len(times)
        self.times: list[int] = list(accumulate(times))
        self._zeros = [0] * self._size
        first = number & ((1 << _SESSION) - 1)
        self.numbers: Sequence[int] = range(first, first + self._size)
        if _Column.NUMBER in self._raw:
            gaps = self.column(_Column.NUMBER)
            self.numbers = list(accumulate([first, *(1 + gap for gap in gaps[1:])]))
        self.repeats: dict[int, tuple[int, Time]] | None = None
        """Number of an event → how often it occurred and when it did last; None until it is read."""

    def column(self, column: int) -> list[Any]:
        """Values of a column, 0 where an event has the default. Raises ValueError if it is damaged."""
        known = self._columns.get(column)
        if known is None:
            if column in _NESTED:
                self._read_texts()
            known = self._decoded(column) if column in self._raw else self._zeros
            if len(known) != self._size:
                raise ValueError("its columns differ in length")
            self._columns[column] = known
        return known

    def _read_texts(self) -> None:
        if self._texts:
            self._raw |= msgspec.msgpack.decode(inflated(self._texts), type=dict[int, msgspec.Raw])
            self._texts = b""

    def _decoded(self, column: int) -> list[Any]:
        if column in _NESTED:
            return msgspec.msgpack.decode(self._raw[column], type=list[msgspec.Raw])
        return msgspec.msgpack.decode(self._raw[column], type=list[Any])

    def row(self, place: int) -> Row:
        """Values of an event that differ from the defaults, by column."""
        if not self._flat:
            self._flat = [
                (column, self.column(column)) for column in self._raw if column not in (*_NESTED, _Column.NUMBER)
            ]
        found = {column: values[place] for column, values in self._flat if values[place] != 0}
        self._read_texts()
        for column in _NESTED:
            if column in self._raw and (value := msgspec.msgpack.decode(self.column(column)[place])) != 0:
                found[column] = value
        return found

    def value(self, column: int, place: int) -> Any:
        known = self._columns.get(column)
        return known[place] if known is not None else self.column(column)[place]

    def place_of(self, n: int) -> int | None:
        """Place of an event by its number; None if the block does not have it."""
        numbers = self.numbers
        if isinstance(numbers, range):
            return n - numbers.start if n in numbers else None
        place = bisect_right(numbers, n) - 1
        return place if place >= 0 and numbers[place] == n else None

    def kind(self, place: int) -> HistoryEventKind:
        return _KINDS[int(self.value(_Column.WHAT, place))]

    def outcome(self, place: int) -> tuple[Any, ...]:
        """Values of the columns `_OUTCOME` of an event."""
        if not self._outcomes:
            self._outcomes = list(map(self.column, _OUTCOME))
        return tuple([values[place] for values in self._outcomes])

    def places_with_loss(self) -> list[int]:
        """Places of the events with lost work, also if it is unknown how much."""
        lost, unknown = self.column(_Column.LOST_GPU_SECONDS), self.column(_Column.LOST_UNKNOWN)
        return [place for place, pair in enumerate(zip(lost, unknown, strict=True)) if any(pair)]

    def loss(self, place: int) -> HistoryEvent:
        """What an event says about lost work, and nothing else of it."""
        return HistoryEvent(
            time=self.times[place],
            what=self.kind(place),
            lost_gpu_seconds=float(self.value(_Column.LOST_GPU_SECONDS, place)),
            cost=float(self.value(_Column.COST, place)),
            lost_unknown=bool(self.value(_Column.LOST_UNKNOWN, place)),
        )

    def places(self, kind: HistoryEventKind) -> list[int]:
        """Places of the events of a kind."""
        number = _NUMBER[kind]
        if _Column.WHAT not in self._raw:
            return list(range(self._size)) if number == 0 else []
        # In msgpack each of these numbers is a byte, after the header of the list.
        data = bytes(self._raw[_Column.WHAT])
        if len(data) - self._size not in _HEADERS:
            return [place for place, what in enumerate(self.column(_Column.WHAT)) if what == number]
        begin = len(data) - self._size
        found, at = [], data.find(number, begin)
        while at >= 0:
            found.append(at - begin)
            at = data.find(number, at + 1)
        return found

    def kinds(self) -> list[HistoryEventKind]:
        """Kind of each event."""
        return [_KINDS[number] for number in self.column(_Column.WHAT)]

    def has_loss(self, place: int) -> bool:
        """True if work was lost, even if it is unknown how much."""
        return bool(self.value(_Column.LOST_GPU_SECONDS, place) or self.value(_Column.LOST_UNKNOWN, place))

    def preemptor(self, place: int) -> int:
        """Number of the name of the preemptor; 0 without one."""
        return int(self.value(_Column.BY, place))

    def subject(self, place: int) -> int:
        """Number of the name of the workload, or of the lone pod."""
        return int(self.value(_Column.WORKLOAD, place) or self.value(_Column.POD, place))


Found = tuple[EventBlock, int]
"""A block and the place of an event in it."""


class EventBlockReader:
    """Reads the events of one session. Keeps blocks and texts that were read; used for one question."""

    def __init__(self, db: sqlite3.Connection, session: int) -> None:
        self._db = db
        self._session = session
        self._blocks: dict[int, EventBlock] = {}
        self._first: list[int] = []
        """Ids of the blocks that were read, in order."""
        self._last: EventBlock | None = None
        self._texts: dict[int, str] = {0: ""}
        self._templates: dict[int, list[str]] = {}

    def blocks(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        kinds: int = EVERY_KIND,
        after: int = -1,
        newest_first: bool = False,
    ) -> Iterator[EventBlock]:
        """Blocks that may have events in [since, until) of some kinds (bits), and begin after an event, in order."""
        # The indexes have all of these columns, so that blocks that are not needed are not read.
        order = "order by id desc" if newest_first else "order by id"
        if since is None and until is None:
            query = (
                "select id from event_blocks indexed by event_blocks_kinds where id > :after and id < :end"
                f" and kinds & :kinds != 0 {order}"
            )
        else:
            query = (
                "select id from event_blocks indexed by event_blocks_times where session = :session and last >= :since"
                f" and first < :until and kinds & :kinds != 0 and id > :after {order}"
            )
        wanted = {
            "session": self._session,
            "since": -(2**63) if since is None else since,
            "until": 2**63 - 1 if until is None else until,
            "kinds": kinds,
            "after": (self._session << _SESSION) + after,
            "end": (self._session + 1) << _SESSION,
        }
        for (number,) in self._db.execute(query, wanted):
            block = self._block(number)
            if block is not None:
                yield block

    def find(self, n: int) -> Found | None:
        """The event with a number."""
        last = self._last
        if last is not None and (at := last.place_of(n)) is not None:
            return last, at
        wanted = self._session << _SESSION | n
        place = bisect_right(self._first, wanted) - 1
        if place >= 0:
            known = self._blocks[self._first[place]]
            if (at := known.place_of(n)) is not None:
                self._last = known
                return known, at
        row = self._db.execute(
            "select id from event_blocks where id <= ? and id >= ? order by id desc limit 1",
            (wanted, self._session << _SESSION),
        ).fetchone()
        block = self._block(row[0]) if row is not None else None
        at = block.place_of(n) if block is not None else None
        return (block, at) if block is not None and at is not None else None

    def chain(self, name: int, after: int = -1) -> Iterator[Found]:
        """Events with a name (its number) as subject or preemptor, newest first; those with numbers above `after`."""
        row = self._db.execute(_HEAD, (self._session, name)).fetchone()
        n = int(row[0]) if row is not None else -1
        while n > after and (found := self.find(n)) is not None:
            yield found
            block, place = found
            column = _Column.PREVIOUS if block.subject(place) == name else _Column.BY_PREVIOUS
            distance = int(block.value(column, place))
            n = n - distance if distance > 0 else -1

    def about(self, names: Collection[int], kinds: Collection[HistoryEventKind], after: int) -> Iterator[Found]:
        """Events of these kinds about these names (numbers), as subjects, with event numbers above `after`."""
        begin, end = self._session << _SESSION | after, (self._session + 1) << _SESSION
        query = "select count(*) from event_blocks where id > ? and id < ?"
        (later,) = self._db.execute(query, (begin, end)).fetchone()
        if later > MOST_SCANNED:
            for name in names:
                for block, place in self.chain(name, after):
                    if block.kind(place) in kinds and block.subject(place) == name:
                        yield block, place
            return
        wanted = {_NUMBER[kind] for kind in kinds}
        first = self.find(after)
        since = [first[0]] if first is not None else []
        for block in (*since, *self.blocks(kinds=bits(kinds), after=after)):
            whats, numbers = block.column(_Column.WHAT), block.numbers
            subjects = zip(block.column(_Column.WORKLOAD), block.column(_Column.POD), strict=True)
            for place in [place for place, (workload, pod) in enumerate(subjects) if (workload or pod) in names]:
                if whats[place] in wanted and numbers[place] > after:
                    yield block, place

    def read_texts(self, numbers: Iterable[int]) -> None:
        """Read stored texts together, which is faster than one by one."""
        wanted = [number for number in set(numbers) if number not in self._texts]
        rows = self._db.execute(
            "select id, text from names where id in (select value from json_each(?))",
            (msgspec.json.encode(wanted).decode(),),
        )
        self._texts |= {number: clean(str(text)) for number, text in rows}

    def events(self, found: Iterable[Found]) -> Lines:
        """The events at these places, by number. Raises HistoryError for a damaged one."""
        return dict(sorted((block.numbers[place], self.event(block, place)) for block, place in found))

    def event(self, block: EventBlock, place: int) -> HistoryEvent:
        """The event at a place. Raises HistoryError if it is damaged."""
        try:
            return self._event(block, place)
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise self._damaged(block.numbers[place], error) from error

    def text(self, number: int) -> str:
        """A stored text, cleaned; empty for one that was deleted."""
        known = self._texts.get(number)
        if known is None:
            row = self._db.execute("select text from names where id = ?", (number,)).fetchone()
            known = self._texts[number] = clean(str(row[0])) if row is not None else ""
        return known

    def _damaged(self, n: int, error: Exception) -> HistoryError:
        return HistoryError(f"event {n} of session {self._session} in the history is damaged: {clean(str(error))}")

    def _block(self, number: int) -> EventBlock | None:
        known = self._blocks.get(number)
        if known is None:
            row = self._db.execute("select data from event_blocks where id = ?", (number,)).fetchone()
            if row is None:
                return None
            try:
                known = EventBlock(number, row[0])
            except (ValueError, LookupError, TypeError, OverflowError) as error:
                raise self._damaged(number & ((1 << _SESSION) - 1), error) from error
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
                self._first.clear()
            self._blocks[number] = known
            self._first.insert(bisect_right(self._first, number), number)
        return known

    def outcome(self, block: EventBlock, place: int) -> HistoryEvent:
        """The event at a place, without message, Events, choice, node, flavor and priorities, which is faster.

        Raises HistoryError if it is damaged.
        """
        try:
            what, workload, pod, queue, by, reason, gpus, lost, cost, unknown, waited = block.outcome(place)
            text = self.text
            return HistoryEvent(
                time=block.times[place],
                what=_KINDS[what],
                workload=text(workload),
                pod=clean(pod) if isinstance(pod, str) else text(pod),
                queue=text(queue),
                by=text(by),
                reason=text(reason),
                gpus=gpus if type(gpus) is int else int(_number(gpus)),
                lost_gpu_seconds=float(_number(lost)) if lost else 0.0,
                cost=float(_number(cost)) if cost else 0.0,
                lost_unknown=bool(unknown),
                waited=waited if type(waited) is int else int(_number(waited)),
            )
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise self._damaged(block.numbers[place], error) from error

    def _event(self, block: EventBlock, place: int) -> HistoryEvent:
        value = block.row(place)
        time, what = block.times[place], block.kind(place)
        fields: dict[str, Any] = {"time": time, "what": what}
        texts = self._texts
        for column, found in value.items():
            if (name := _TEXT_FIELDS.get(column)) is not None:
                fields[name] = texts[found] if found in texts else self.text(found)
            elif (number := _NUMBER_FIELDS.get(column)) is not None:
                name, kind = number
                fields[name] = found if type(found) is kind else kind(_number(found))
        workload, by = fields.get("workload", ""), fields.get("by", "")
        if _Column.POD in value:
            pod = value[_Column.POD]
            fields["pod"] = clean(pod) if isinstance(pod, str) else self.text(pod)
        subject = workload or fields.get("pod", "")
        if _Column.MESSAGE in value:
            fields["message"] = self._message(value[_Column.MESSAGE], subject, by)
        if _Column.LOST_UNKNOWN in value:
            fields["lost_unknown"] = True
        if _Column.UNIT in value:
            fields["unit"] = self.text(value[_Column.UNIT] or 0)
        if _Column.TOLD in value:
            message = fields.get("message", "")
            fields["told"] = tuple(self._told(one, workload, by, subject, message) for one in value[_Column.TOLD])
        if _Column.CHOICE in value:
            fields["choice"] = self._choice(value[_Column.CHOICE])
        if what is HistoryEventKind.PENDING:
            fields |= self._repeats(block, block.numbers[place], time, value)
        return HistoryEvent(**fields)

    def _repeats(self, block: EventBlock, n: int, time: Time, value: Row) -> dict[str, int]:
        if block.repeats is None:
            ids = [self._session << _SESSION | block.numbers[end] for end in (0, -1)]
            rows = self._db.execute("select id, count, last from event_repeats where id between ? and ?", ids)
            block.repeats = {number & ((1 << _SESSION) - 1): (int(count), int(last)) for number, count, last in rows}
        if (repeated := block.repeats.get(n)) is not None:
            return {"count": repeated[0], "last_time": repeated[1]}
        if _Column.COUNT in value:
            return {"count": 1 + value[_Column.COUNT], "last_time": time + value.get(_Column.LAST_TIME, 0)}
        return {}

    def _message(self, message: Any, subject: str, by: str) -> str:
        if isinstance(message, str):
            return clean(message)
        template, variables = self._template(message[0]), message[:0:-1]
        if len(template) == 1:
            return template[0]
        pieces = []
        for piece in template:
            match piece:
                case "\x01":
                    pieces.append(str(variables.pop()))
                case "\x02":
                    pieces.append(str(UUID(bytes=variables.pop())))
                case "\x03":
                    pieces.append(subject)
                case "\x04":
                    pieces.append(by)
                case _:
                    pieces.append(piece)
        return clean("".join(pieces))

    def _template(self, number: int) -> list[str]:
        """Pieces of a stored template: texts, which are cleaned, and placeholders."""
        known = self._templates.get(number)
        if known is None:
            row = self._db.execute("select text from names where id = ?", (number,)).fetchone()
            pieces = _PLACEHOLDER.split(str(row[0])) if row is not None else [""]
            known = [piece if _PLACEHOLDER.fullmatch(piece) else clean(piece) for piece in pieces]
            self._templates[number] = known
        return known

    def _told(self, told: Any, workload: str, by: str, subject: str, message: str) -> KueueEvent:
        who, reason, text, warning = told
        if text == 0:
            text = message
        elif isinstance(text, list) and text[0] == 0:
            rest = text[1] if isinstance(text[1], str) else text[1:]
            text = message + self._message(rest, subject, by)
        else:
            text = self._message(text, subject, by)
        name = workload if who == 0 else by if who == 1 else clean(who)
        return KueueEvent(name, self.text(reason), text, bool(warning))

    def _choice(self, choice: Any) -> PreemptionTrace:
        share, by_share, left_out, as_of, differs, *considered = choice
        return PreemptionTrace(
            share=clean(share),
            by_share=clean(by_share),
            left_out=int(_number(left_out)),
            as_of=int(_number(as_of)),
            differs=bool(differs),
            considered=tuple(
                ConsideredCandidate(
                    self.text(workload), self.text(queue), CandidateVerdict(self.text(verdict)), int(_number(priority))
                )
                for workload, queue, verdict, priority in zip(*considered, strict=True)
            ),
        )


_TEXT_FIELDS: dict[int, str] = {
    _Column.WORKLOAD: "workload",
    _Column.BY: "by",
    **{column: field for field, column in _TEXTS.items()},
}
_FLOATS = ("lost_gpu_seconds", "cost")
_NUMBER_FIELDS: dict[int, tuple[str, type[int | float]]] = {
    column: (field, float if field in _FLOATS else int) for field, column in _VALUES.items()
}


def _number(value: Any) -> float:
    """The value if it is a number. Raises TypeError."""
    if type(value) not in (int, float):
        raise TypeError(f"{type(value).__name__} instead of a number")
    return value  # type: ignore[no-any-return]


_MOST_BLOCKS = 2_000
