"""History events in blocks: up to 512 events of a session by columns, compressed; each needs about 15 bytes.

A row of the table `event_blocks` has zlib(msgpack(column → values)): the numbers of `Column`, and for each event the
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
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any
from uuid import UUID

import msgspec

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
from gpuconsole.store.rows import inflated, inflated_first

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
_OUTCOME = (
    Column.WHAT,
    Column.WORKLOAD,
    Column.POD,
    Column.QUEUE,
    Column.BY,
    Column.REASON,
    Column.GPUS,
    Column.LOST_GPU_SECONDS,
    Column.COST,
    Column.LOST_UNKNOWN,
    Column.WAITED,
)
"""Columns of an event that analyses of preemptions read."""
_HEADERS = (1, 3, 5)
"""Sizes of the header of a list in msgpack."""
LONG_COLUMNS = (Column.MESSAGE, Column.TOLD, Column.CHOICE)
"""Columns with large values, of which only those of the wanted events are decoded."""
Row = dict[int, Any]
"""Values of one event by column, without defaults; TIME and NUMBER are absolute."""


def bits(kinds: Collection[HistoryEventKind]) -> int:
    """Bits of kinds of events, as blocks have them."""
    return sum(1 << KIND_NUMBERS[kind] for kind in set(kinds))


HEAD = "select n from event_heads where session = ? and name = ?"


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
        times = self._decoded(Column.TIME)
        self._size = len(times)
        self.times: list[int] = list(accumulate(times))
        self._zeros = [0] * self._size
        first = number & ((1 << SESSION_BITS) - 1)
        self.numbers: Sequence[int] = range(first, first + self._size)
        if Column.NUMBER in self._raw:
            gaps = self.column(Column.NUMBER)
            self.numbers = list(accumulate([first, *(1 + gap for gap in gaps[1:])]))
        self.repeats: dict[int, tuple[int, Time]] | None = None
        """Number of an event → how often it occurred and when it did last; None until it is read."""

    def column(self, column: int) -> list[Any]:
        """Values of a column, 0 where an event has the default. Raises ValueError if it is damaged."""
        known = self._columns.get(column)
        if known is None:
            if column in LONG_COLUMNS:
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
        if column in LONG_COLUMNS:
            return msgspec.msgpack.decode(self._raw[column], type=list[msgspec.Raw])
        return msgspec.msgpack.decode(self._raw[column], type=list[Any])

    def row(self, place: int) -> Row:
        """Values of an event that differ from the defaults, by column."""
        if not self._flat:
            self._flat = [
                (column, self.column(column)) for column in self._raw if column not in (*LONG_COLUMNS, Column.NUMBER)
            ]
        found = {column: values[place] for column, values in self._flat if values[place] != 0}
        self._read_texts()
        for column in LONG_COLUMNS:
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
        return _KINDS[int(self.value(Column.WHAT, place))]

    def outcome(self, place: int) -> tuple[Any, ...]:
        """Values of the columns `_OUTCOME` of an event."""
        if not self._outcomes:
            self._outcomes = list(map(self.column, _OUTCOME))
        return tuple([values[place] for values in self._outcomes])

    def places_with_loss(self) -> list[int]:
        """Places of the events with lost work, also if it is unknown how much."""
        lost, unknown = self.column(Column.LOST_GPU_SECONDS), self.column(Column.LOST_UNKNOWN)
        return [place for place, pair in enumerate(zip(lost, unknown, strict=True)) if any(pair)]

    def loss(self, place: int) -> HistoryEvent:
        """What an event says about lost work, and nothing else of it."""
        return HistoryEvent(
            time=self.times[place],
            what=self.kind(place),
            lost_gpu_seconds=float(self.value(Column.LOST_GPU_SECONDS, place)),
            cost=float(self.value(Column.COST, place)),
            lost_unknown=bool(self.value(Column.LOST_UNKNOWN, place)),
        )

    def places(self, kind: HistoryEventKind) -> list[int]:
        """Places of the events of a kind."""
        number = KIND_NUMBERS[kind]
        if Column.WHAT not in self._raw:
            return list(range(self._size)) if number == 0 else []
        # In msgpack each of these numbers is a byte, after the header of the list.
        data = bytes(self._raw[Column.WHAT])
        if len(data) - self._size not in _HEADERS:
            return [place for place, what in enumerate(self.column(Column.WHAT)) if what == number]
        begin = len(data) - self._size
        found, at = [], data.find(number, begin)
        while at >= 0:
            found.append(at - begin)
            at = data.find(number, at + 1)
        return found

    def kinds(self) -> list[HistoryEventKind]:
        """Kind of each event."""
        return [_KINDS[number] for number in self.column(Column.WHAT)]

    def has_loss(self, place: int) -> bool:
        """True if work was lost, even if it is unknown how much."""
        return bool(self.value(Column.LOST_GPU_SECONDS, place) or self.value(Column.LOST_UNKNOWN, place))

    def preemptor(self, place: int) -> int:
        """Number of the name of the preemptor; 0 without one."""
        return int(self.value(Column.BY, place))

    def subject(self, place: int) -> int:
        """Number of the name of the workload, or of the lone pod."""
        return int(self.value(Column.WORKLOAD, place) or self.value(Column.POD, place))


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

    def about(self, names: Collection[int], kinds: Collection[HistoryEventKind], after: int) -> Iterator[Found]:
        """Events of these kinds about these names (numbers), as subjects, with event numbers above `after`."""
        begin, end = self._session << SESSION_BITS | after, (self._session + 1) << SESSION_BITS
        query = "select count(*) from event_blocks where id > ? and id < ?"
        (later,) = self._db.execute(query, (begin, end)).fetchone()
        if later > MOST_SCANNED:
            for name in names:
                for block, place in self.chain(name, after):
                    if block.kind(place) in kinds and block.subject(place) == name:
                        yield block, place
            return
        wanted = {KIND_NUMBERS[kind] for kind in kinds}
        first = self.find(after)
        since = [first[0]] if first is not None else []
        for block in (*since, *self.blocks(kinds=bits(kinds), after=after)):
            whats, numbers = block.column(Column.WHAT), block.numbers
            subjects = zip(block.column(Column.WORKLOAD), block.column(Column.POD), strict=True)
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
        if Column.POD in value:
            pod = value[Column.POD]
            fields["pod"] = clean(pod) if isinstance(pod, str) else self.text(pod)
        subject = workload or fields.get("pod", "")
        if Column.MESSAGE in value:
            fields["message"] = self._message(value[Column.MESSAGE], subject, by)
        if Column.LOST_UNKNOWN in value:
            fields["lost_unknown"] = True
        if Column.UNIT in value:
            fields["unit"] = self.text(value[Column.UNIT] or 0)
        if Column.TOLD in value:
            message = fields.get("message", "")
            fields["told"] = tuple(self._told(one, workload, by, subject, message) for one in value[Column.TOLD])
        if Column.CHOICE in value:
            fields["choice"] = self._choice(value[Column.CHOICE])
        if what is HistoryEventKind.PENDING:
            fields |= self._repeats(block, block.numbers[place], time, value)
        return HistoryEvent(**fields)

    def _repeats(self, block: EventBlock, n: int, time: Time, value: Row) -> dict[str, int]:
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
    Column.WORKLOAD: "workload",
    Column.BY: "by",
    **{column: field for field, column in TEXT_COLUMNS.items()},
}
_FLOATS = ("lost_gpu_seconds", "cost")
_NUMBER_FIELDS: dict[int, tuple[str, type[int | float]]] = {
    column: (field, float if field in _FLOATS else int) for field, column in VALUE_COLUMNS.items()
}


def _number(value: Any) -> float:
    """The value if it is a number. Raises TypeError."""
    if type(value) not in (int, float):
        raise TypeError(f"{type(value).__name__} instead of a number")
    return value  # type: ignore[no-any-return]


_MOST_BLOCKS = 2_000
