"""What changed between two Snapshots of one table: rows that are not the same object any more."""

from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")


def changes(old: Sequence[Row | None], new: Sequence[Row | None]) -> tuple[list[Row], list[Row]]:
    """Rows that are gone and rows that came; a changed row is in both, and so may be one that only moved.

    The rows of tables are shared between Snapshots, so comparing identities is enough, and quick.
    """
    shorter = min(len(old), len(new))
    differ = [at for at, (was, now) in enumerate(zip(old, new, strict=False)) if was is not now]
    gone = [row for row in (*(old[at] for at in differ), *old[shorter:]) if row is not None]
    come = [row for row in (*(new[at] for at in differ), *new[shorter:]) if row is not None]
    return gone, come
