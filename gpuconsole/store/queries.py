"""Questions to the history: one function each, plain SQL, structs as answers. They raise
HistoryError for a line that cannot be read, and sqlite3.Error for a file that cannot.

An answer's lines come with their number in the session, by which they can be merged with lines that are not stored yet.
"""

import sqlite3
from typing import Any

import msgspec

from gpuconsole.errors import HistoryError
from gpuconsole.model.events import Happened
from gpuconsole.model.text import clean

COLUMNS = Happened.__struct_fields__
_SELECT = f"select n, {', '.join(COLUMNS)} from events"

Lines = dict[int, Happened]
"""Number in the session → line, in order."""


def preemptions(db: sqlite3.Connection, session: int, limit: int) -> Lines:
    """The newest preemptions of a session."""
    rows = db.execute(f"{_SELECT} where session = ? and what = 'preempted' order by n desc limit ?", (session, limit))
    return dict(sorted(map(_line, rows)))


def of_workload(db: sqlite3.Connection, session: int, workload: str) -> Lines:
    """All that happened to a workload in a session, and what it did to others."""
    rows = db.execute(
        f"{_SELECT} where session = :session and workload = :workload and workload != ''"
        f" union {_SELECT} where session = :session and by = :workload and by != '' order by n",
        {"session": session, "workload": workload},
    )
    return dict(map(_line, rows))


def count(db: sqlite3.Connection, session: int) -> int:
    """How many lines a session has."""
    (number,) = db.execute("select count(*) from events where session = ?", (session,)).fetchone()
    return int(number)


def audit(db: sqlite3.Connection, session: int) -> list[tuple[str, str, str]]:
    """Every command of a session as (command, outcome, detail), in order."""
    rows = db.execute("select command, outcome, detail from audit where session = ? order by n", (session,))
    return [(clean(command), clean(outcome), clean(detail)) for command, outcome, detail in rows]


def _line(row: tuple[Any, ...]) -> tuple[int, Happened]:
    # The file may have been edited by others: its texts are from outside.
    values = [clean(value) if isinstance(value, str) else value for value in row[1:]]
    try:
        return row[0], msgspec.convert(dict(zip(COLUMNS, values, strict=True)), Happened)
    except msgspec.ValidationError as error:
        raise HistoryError(f"line {row[0]} of the history is damaged: {error}") from error
