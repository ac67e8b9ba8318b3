"""History events in blocks: up to 512 events of a session by columns, compressed; each needs about 15 bytes.

A row of the table `event_blocks` has up to three parts, each zlib(msgpack(…)), so that a question reads what it needs:

1. `BlockHead`: the times and kinds of the events, which are all that a time line needs.
2. Kind → column → values of the events of this kind, in order; 0 is the default of the field. The columns are the
   numbers of `Column`; one without other values than the default is left out.
3. The columns with long texts in the same form, if there are any.

Texts are numbers of the table `names`. A message is its template, in which numbers, UIDs and the names of the workload
and the preemptor are replaced by placeholders, and what replaces them.

Events that name the same workload (or lone pod) as subject or preemptor form a chain: each has the distance to the one
before, and `event_heads` has the last one. So all events of a workload are found without an index of all events.

Each write makes a block. Small blocks of a session are merged after 64 writes, in the same transaction as a write. How
often an event was repeated is in `event_repeats`, until the block is merged.
"""

import re
import sqlite3
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct

from gpuconsole.errors import DamagedHistoryError
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
from gpuconsole.store.rows import inflated_first

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
KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
LOST = 1 << 62
"""Bit of a block's kinds: it has an event with lost work."""
EVERY_KIND = (1 << 63) - 1
SESSION_BITS = 32
"""Bits of the event's number in the id of a block; the session is above them."""


class Column:
    """Numbers of the columns of a block; part of the file format. An enum's members would be slower to read."""

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


class BlockHead(Struct, frozen=True, array_like=True):
    """First part of a block: a value of each event."""

    times: list[int]
    """The first time, then differences, in µs."""
    whats: bytes
    """The kind of each event, by its number."""
    gaps: list[int] = []
    """Differences of the numbers, less 1; empty if all follow on each other."""
    known: list[int] = []
    """Places of the events that an earlier session of the recording has, as Kubernetes' Events are reported again."""


class EventRow(Struct):
    """An event as a block stores it."""

    n: int
    time: Time
    what: int
    """Number of its kind."""
    values: dict[int, Any] = {}
    """Column → value, without defaults."""
    is_known: bool = False
    """True if an earlier session of the recording has the event."""


TEXT_COLUMNS = {
    "queue": Column.QUEUE,
    "by_queue": Column.BY_QUEUE,
    "reason": Column.REASON,
    "node": Column.NODE,
    "flavor": Column.FLAVOR,
}
VALUE_COLUMNS = {
    "gpus": Column.GPUS,
    "borrowed": Column.BORROWED,
    "priority": Column.PRIORITY,
    "by_priority": Column.BY_PRIORITY,
    "lost_gpu_seconds": Column.LOST_GPU_SECONDS,
    "cost": Column.COST,
    "waited": Column.WAITED,
}
USUAL_UNIT = HistoryEvent(time=0, what=HistoryEventKind.PENDING).unit
PLACEHOLDER = re.compile("([\x01-\x04])")
NUMBER_HERE, UID_HERE, SUBJECT_HERE, BY_HERE = "\x01", "\x02", "\x03", "\x04"
LONG_COLUMNS = (Column.MESSAGE, Column.TOLD, Column.CHOICE)
"""Columns of the third part: large values, of which only those of the wanted events are decoded."""
_WHOLE_NUMBERS = msgspec.msgpack.Decoder(list[int])
_DECODERS: dict[int, msgspec.msgpack.Decoder[list[Any]]] = {
    Column.LOST_GPU_SECONDS: msgspec.msgpack.Decoder(list[int | float]),
    Column.COST: msgspec.msgpack.Decoder(list[int | float]),
    Column.POD: msgspec.msgpack.Decoder(list[int | str]),
    Column.UNIT: msgspec.msgpack.Decoder(list[int | str]),
    **dict.fromkeys(LONG_COLUMNS, msgspec.msgpack.Decoder(list[msgspec.Raw])),
}
"""Decoders of the columns that have other values than whole numbers."""
_HEAD = msgspec.msgpack.Decoder(BlockHead)
_PART = msgspec.msgpack.Decoder(dict[int, dict[int, msgspec.Raw]])


def bits(kinds: Collection[HistoryEventKind]) -> int:
    """Bits of kinds of events, as blocks have them."""
    return sum(1 << KIND_NUMBERS[kind] for kind in set(kinds))


HEAD = "select n from event_heads where session = ? and name = ?"


class EventBlock:
    """A block that was read: values by kind, column and rank, which is the place among the events of the kind."""

    def __init__(self, number: int, data: bytes) -> None:
        """Raises ValueError if the block is damaged."""
        head, self._rest = inflated_first(data)
        """The other parts, compressed, until they are needed."""
        found = _HEAD.decode(head)
        self.times: list[int] = list(accumulate(found.times))
        self.whats = found.whats
        """The kind of each event, by its number."""
        self.known = frozenset(found.known)
        """Places of the events that an earlier session of the recording has."""
        first = number & ((1 << SESSION_BITS) - 1)
        self.numbers: Sequence[int] = range(first, first + len(self.times))
        if found.gaps:
            self.numbers = list(accumulate([first, *(1 + gap for gap in found.gaps[1:])]))
        if not len(self.times) == len(self.whats) == len(self.numbers):
            raise ValueError("its columns differ in length")
        self._raw: list[dict[int, dict[int, msgspec.Raw]]] = []
        """The other parts that were read."""
        self._columns: dict[tuple[int, int], list[Any]] = {}
        self._short: dict[int, list[tuple[int, list[Any]]]] = {}
        """Kind → its columns of the second part."""
        self.repeats: dict[int, tuple[int, Time]] | None = None
        """Number of an event → how often it occurred and when it did last; None until it is read."""

    def _part(self, number: int) -> dict[int, dict[int, msgspec.Raw]]:
        """The second part (0) or the third (1); empty if the block does not have it."""
        while len(self._raw) <= number:
            part = b"\x80"
            if self._rest:
                part, self._rest = inflated_first(self._rest)
            self._raw.append(_PART.decode(part))
        return self._raw[number]

    def column(self, what: int, column: int) -> list[Any]:
        """Values of the events of a kind, 0 where one has the default. Raises ValueError if they are damaged."""
        known = self._columns.get((what, column))
        if known is None:
            raw = self._part(column in LONG_COLUMNS).get(what, {}).get(column)
            size = self.whats.count(what)
            known = [0] * size if raw is None else _DECODERS.get(column, _WHOLE_NUMBERS).decode(raw)
            if len(known) != size:
                raise ValueError("its columns differ in length")
            self._columns[what, column] = known
        return known

    def rank(self, place: int) -> int:
        """Number of events of the same kind before the one at `place`."""
        return self.whats.count(self.whats[place], 0, place)

    def row(self, place: int, *, has_texts: bool = True) -> dict[int, Any]:
        """Values of an event that differ from the defaults, by column; those of `LONG_COLUMNS` only if `has_texts`."""
        what, rank = self.whats[place], self.rank(place)
        if (columns := self._short.get(what)) is None:
            columns = [(column, self.column(what, column)) for column in self._part(0).get(what, ())]
            self._short[what] = columns
        found = {column: values[rank] for column, values in columns if values[rank] != 0}
        for column in self._part(1).get(what, ()) if has_texts else ():
            if (value := msgspec.msgpack.decode(self.column(what, column)[rank])) != 0:
                found[column] = value
        return found

    def value(self, column: int, place: int) -> Any:
        return self.column(self.whats[place], column)[self.rank(place)]

    def place_of(self, n: int) -> int | None:
        """Place of an event by its number; None if the block does not have it."""
        numbers = self.numbers
        if isinstance(numbers, range):
            return n - numbers.start if n in numbers else None
        place = bisect_right(numbers, n) - 1
        return place if place >= 0 and numbers[place] == n else None

    def kind(self, place: int) -> HistoryEventKind:
        return _KINDS[self.whats[place]]

    def places_with_loss(self) -> list[int]:
        """Places of the events with lost work, also if it is unknown how much."""
        found = []
        for what, columns in self._part(0).items():
            if Column.LOST_GPU_SECONDS in columns or Column.LOST_UNKNOWN in columns:
                lost, unknown = self.column(what, Column.LOST_GPU_SECONDS), self.column(what, Column.LOST_UNKNOWN)
                found += [place for place, *loss in zip(self.places(what), lost, unknown, strict=True) if any(loss)]
        return sorted(found)

    def loss(self, place: int) -> HistoryEvent:
        """What an event says about lost work, and nothing else of it."""
        return HistoryEvent(
            time=self.times[place],
            what=self.kind(place),
            lost_gpu_seconds=float(self.value(Column.LOST_GPU_SECONDS, place)),
            cost=float(self.value(Column.COST, place)),
            lost_unknown=bool(self.value(Column.LOST_UNKNOWN, place)),
        )

    def places(self, what: int) -> list[int]:
        """Places of the events of a kind, by its number."""
        found, at = [], self.whats.find(what)
        while at >= 0:
            found.append(at)
            at = self.whats.find(what, at + 1)
        return found

    def kinds(self) -> list[HistoryEventKind]:
        """Kind of each event."""
        return [_KINDS[number] for number in self.whats]

    def preemptor(self, place: int) -> int:
        """Number of the name of the preemptor; 0 without one."""
        return int(self.value(Column.BY, place))

    def subject(self, place: int) -> int:
        """Number of the name of the workload, or of the lone pod."""
        return int(self.value(Column.WORKLOAD, place) or self.value(Column.POD, place))

    def subjects(self, what: int) -> list[int]:
        """Number of the name of the workload, or of the lone pod, of each event of a kind."""
        workloads = self.column(what, Column.WORKLOAD)
        if 0 not in workloads:
            return workloads
        return [workload or pod for workload, pod in zip(workloads, self.column(what, Column.POD), strict=True)]


Found = tuple[EventBlock, int]
"""A block and the place of an event in it."""


class _Texts(dict[int, str]):
    """Stored texts by number, cleaned; empty for one that was deleted. Reads those that it does not have."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__({0: ""})
        self._db = db

    def __missing__(self, number: int) -> str:
        row = self._db.execute("select text from names where id = ?", (number,)).fetchone()
        text = self[number] = clean(str(row[0])) if row is not None else ""
        return text


class EventBlockReader:
    """Reads the events of one session. Keeps blocks and texts that were read; used for one question."""

    def __init__(self, db: sqlite3.Connection, session: int) -> None:
        self._db = db
        self._session = session
        self._blocks: dict[int, EventBlock] = {}
        self._first: list[int] = []
        """Ids of the blocks that were read, in order."""
        self._last: EventBlock | None = None
        self._texts = _Texts(db)
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
            "after": (self._session << SESSION_BITS) + after,
            "end": (self._session + 1) << SESSION_BITS,
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
        wanted = self._session << SESSION_BITS | n
        place = bisect_right(self._first, wanted) - 1
        if place >= 0:
            known = self._blocks[self._first[place]]
            if (at := known.place_of(n)) is not None:
                self._last = known
                return known, at
        row = self._db.execute(
            "select id from event_blocks where id <= ? and id >= ? order by id desc limit 1",
            (wanted, self._session << SESSION_BITS),
        ).fetchone()
        block = self._block(row[0]) if row is not None else None
        at = block.place_of(n) if block is not None else None
        return (block, at) if block is not None and at is not None else None

    def chain(self, name: int, after: int = -1) -> Iterator[Found]:
        """Events with a name (its number) as subject or preemptor, newest first; those with numbers above `after`."""
        row = self._db.execute(HEAD, (self._session, name)).fetchone()
        n = int(row[0]) if row is not None else -1
        while n > after and (found := self.find(n)) is not None:
            yield found
            block, place = found
            column = Column.PREVIOUS if block.subject(place) == name else Column.BY_PREVIOUS
            distance = int(block.value(column, place))
            n = n - distance if distance > 0 else -1

    def about(
        self, names: Collection[int], kinds: Collection[HistoryEventKind], after: int
    ) -> list[tuple[EventBlock, int, int]]:
        """Events of these kinds about these names (numbers), as subjects, with event numbers above `after`, in order.

        Each is a block, the place of the event, and its name.
        """
        begin, end = self._session << SESSION_BITS | after, (self._session + 1) << SESSION_BITS
        query = "select count(*) from event_blocks where id > ? and id < ?"
        (later,) = self._db.execute(query, (begin, end)).fetchone()
        if later > MOST_SCANNED:
            chained = [
                (block.numbers[place], (block, place, name))
                for name in names
                for block, place in self.chain(name, after)
                if block.kind(place) in kinds and block.subject(place) == name
            ]
            return [one for _, one in sorted(chained, key=itemgetter(0))]
        found: list[tuple[EventBlock, int, int]] = []
        first = self.find(after)
        since = [first[0]] if first is not None else []
        for block in (*since, *self.blocks(kinds=bits(kinds), after=after)):
            of_block: list[tuple[int, int]] = []
            for what in {KIND_NUMBERS[kind] for kind in kinds} & set(block.whats):
                ranks = [(rank, name) for rank, name in enumerate(block.subjects(what)) if name in names]
                places = block.places(what) if ranks else []
                of_block += [(places[rank], name) for rank, name in ranks]
            of_block.sort()
            found += [(block, place, name) for place, name in of_block if block.numbers[place] > after]
        return found

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

    def event(self, block: EventBlock, place: int, *, has_texts: bool = True) -> HistoryEvent:
        """The event at a place, with message, Events and choice only if `has_texts`, as they take most of the time.

        Raises HistoryError if it is damaged.
        """
        try:
            return self._event(block, place, has_texts)
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise self._damaged(block.numbers[place], error) from error

    def _damaged(self, n: int, error: Exception) -> DamagedHistoryError:
        problem = clean(str(error))
        return DamagedHistoryError(f"event {n} of session {self._session} in the history is damaged: {problem}")

    def _block(self, number: int) -> EventBlock | None:
        known = self._blocks.get(number)
        if known is None:
            row = self._db.execute("select data from event_blocks where id = ?", (number,)).fetchone()
            if row is None:
                return None
            try:
                known = EventBlock(number, row[0])
            except (ValueError, LookupError, TypeError, OverflowError) as error:
                raise self._damaged(number & ((1 << SESSION_BITS) - 1), error) from error
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
                self._first.clear()
            self._blocks[number] = known
            self._first.insert(bisect_right(self._first, number), number)
        return known

    def _event(self, block: EventBlock, place: int, has_texts: bool) -> HistoryEvent:
        value = block.row(place, has_texts=has_texts)
        time, what = block.times[place], block.kind(place)
        fields: dict[str, Any] = {"time": time, "what": what}
        texts = self._texts
        for column, found in value.items():
            if (name := _TEXT_FIELDS.get(column)) is not None:
                fields[name] = texts[found]
            elif (name := _NUMBER_FIELDS.get(column)) is not None:
                fields[name] = float(found) if name in _FLOATS else found
        workload, by = fields.get("workload", ""), fields.get("by", "")
        if Column.POD in value:
            pod = value[Column.POD]
            fields["pod"] = clean(pod) if isinstance(pod, str) else self._texts[pod]
        subject = workload or fields.get("pod", "")
        if Column.MESSAGE in value:
            fields["message"] = self._message(value[Column.MESSAGE], subject, by)
        if Column.LOST_UNKNOWN in value:
            fields["lost_unknown"] = True
        if Column.UNIT in value:
            fields["unit"] = self._texts[value[Column.UNIT] or 0]
        if Column.TOLD in value:
            message = fields.get("message", "")
            fields["told"] = tuple(self._told(one, workload, by, subject, message) for one in value[Column.TOLD])
        if Column.CHOICE in value:
            fields["choice"] = self._choice(value[Column.CHOICE])
        if what is HistoryEventKind.PENDING:
            fields |= self._repeats(block, block.numbers[place], time, value)
        return HistoryEvent(**fields)

    def _repeats(self, block: EventBlock, n: int, time: Time, value: dict[int, Any]) -> dict[str, int]:
        if block.repeats is None:
            ids = [self._session << SESSION_BITS | block.numbers[end] for end in (0, -1)]
            rows = self._db.execute("select id, count, last from event_repeats where id between ? and ?", ids)
            block.repeats = {
                number & ((1 << SESSION_BITS) - 1): (int(count), int(last)) for number, count, last in rows
            }
        if (repeated := block.repeats.get(n)) is not None:
            return {"count": repeated[0], "last_time": repeated[1]}
        if Column.COUNT in value:
            return {"count": 1 + value[Column.COUNT], "last_time": time + value.get(Column.LAST_TIME, 0)}
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
                    uid = variables.pop().hex()
                    pieces.append(f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}")
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
            pieces = PLACEHOLDER.split(str(row[0])) if row is not None else [""]
            known = [piece if PLACEHOLDER.fullmatch(piece) else clean(piece) for piece in pieces]
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
        return KueueEvent(name, self._texts[reason], text, bool(warning))

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
                    self._texts[workload],
                    self._texts[queue],
                    CandidateVerdict(self._texts[verdict]),
                    int(_number(priority)),
                )
                for workload, queue, verdict, priority in zip(*considered, strict=True)
            ),
        )


_TEXT_FIELDS: dict[int, str] = {
    Column.WORKLOAD: "workload",
    Column.BY: "by",
    **{column: field for field, column in TEXT_COLUMNS.items()},
}
_NUMBER_FIELDS: dict[int, str] = {column: field for field, column in VALUE_COLUMNS.items()}
_FLOATS = ("lost_gpu_seconds", "cost")


def _number(value: Any) -> float:
    """The value if it is a number. Raises TypeError."""
    if type(value) not in (int, float):
        raise TypeError(f"{type(value).__name__} instead of a number")
    return value  # type: ignore[no-any-return]


_MOST_BLOCKS = 2_000
