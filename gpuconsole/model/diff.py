"""Difference between two Snapshots: rows that are no longer the same object."""

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import TypeVar

from gpuconsole.model.events import Applied, Deleted
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import Snapshot

Row = TypeVar("Row")


def row_changes(old: Sequence[Row | None], new: Sequence[Row | None]) -> tuple[list[Row], list[Row]]:
    """Return removed rows and added rows; a changed row is in both, and a moved one may be.

    The rows of tables are shared between Snapshots, so comparing identities is sufficient and fast.
    """
    shorter = min(len(old), len(new))
    differ = different(old, new)
    gone = [row for row in (*(old[at] for at in differ), *old[shorter:]) if row is not None]
    come = [row for row in (*(new[at] for at in differ), *new[shorter:]) if row is not None]
    return gone, come


def different(old: Sequence[Row | None], new: Sequence[Row | None]) -> list[int]:
    """Return the positions in both lists whose rows differ."""
    return list(compress(range(min(len(old), len(new))), map(is_not, old, new)))


def change_events(before: Snapshot, after: Snapshot, *, without: str = "") -> list[Applied | Deleted]:
    """Return the events that turn one Snapshot's objects into another's; faster the more they share.

    The table `without` is left out.
    """
    events: list[Applied | Deleted] = []
    for name in TABLES.values():
        old, new = getattr(before, name), getattr(after, name)
        if old is new or name == without:
            continue
        gone, come = row_changes(old.rows, new.rows)
        known, there = {row.key: row for row in gone}, {row.key for row in come}
        events += [Deleted(after.time, name, key) for key in known if key not in there]
        events += [Applied(after.time, row) for row in come if known.get(row.key) is not row]
    return events
