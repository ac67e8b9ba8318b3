"""The quota bar, the same on all screens.

A queue's bar `████░░▼▼│▓▓··` is as long as its potential capacity. Before the tick is its nominal quota: used █, idle
░, lent to others ▼; after it borrowed ▓ and still borrowable ·. A cohort's bar `████▓▓░░` is its members' usage, within
nominal quota and borrowed, and idle quota.
"""

from gpuconsole.insight.index.quota_tree import QuotaUse
from gpuconsole.ui.paint import Painted, Piece

USED, IDLE, LENT, TICK, BORROWED, BORROWABLE = "█", "░", "▼", "│", "▓", "·"


def bar(use: QuotaUse, width: int) -> Painted:
    """Draw a queue's quota in `width` cells; amounts above zero take at least one cell if there is room."""
    own = max(0, use.used - use.borrowed)
    lent = min(use.lent, max(0, use.nominal - own))
    idle = max(0, use.nominal - own - lent)
    beyond = max(0, use.potential - own - idle - lent - use.borrowed)
    if width <= 1 or not own + idle + lent + use.borrowed + beyond:
        return _nothing(width)
    cells = share(width - 1, (own, idle, lent, use.borrowed, beyond))
    return _drawn(
        (USED * cells[0], "own"),
        (IDLE * cells[1], "idle"),
        (LENT * cells[2], "lent"),
        (TICK, "strong"),
        (BORROWED * cells[3], "borrowed"),
        (BORROWABLE * cells[4], "dim"),
    )


def pool(use: QuotaUse, width: int) -> Painted:
    """Draw a cohort's quota in `width` cells."""
    own = max(0, use.used - use.borrowed)
    idle = max(0, max(use.potential, use.nominal) - use.used)
    if not own + use.borrowed + idle:
        return _nothing(width)
    cells = share(width, (own, use.borrowed, idle))
    return _drawn((USED * cells[0], "own"), (BORROWED * cells[1], "borrowed"), (IDLE * cells[2], "idle"))


def _nothing(width: int) -> Painted:
    return ((BORROWABLE * max(0, width), "dim"),)


def _drawn(*pieces: Piece) -> Painted:
    return tuple(piece for piece in pieces if piece[0])


def gauge(used: int, whole: int, width: int, role: str = "own") -> Painted:
    """A fraction of a whole, `████████░░░░`."""
    cells = share(width, (min(used, whole), max(0, whole - used))) if whole > 0 else (0, width)
    return _drawn((USED * cells[0], role), (IDLE * cells[1], "idle"))


def share(cells: int, amounts: tuple[int, ...]) -> tuple[int, ...]:
    """Divide cells among amounts in proportion, by largest remainder, with at least one for amounts above zero.

    The sum is exactly `cells`. With fewer cells than amounts above zero, the first ones get one.
    """
    whole = sum(amounts)
    if whole <= 0 or cells <= 0:
        return (0,) * (len(amounts) - 1) + (max(0, cells),) if amounts else ()
    exact = [amount * cells / whole for amount in amounts]
    given = [max(int(part), 1 if amount else 0) for part, amount in zip(exact, amounts, strict=True)]
    order = sorted(range(len(amounts)), key=lambda index: exact[index] - given[index], reverse=True)
    while sum(given) < cells:
        for index in order[: cells - sum(given)]:
            given[index] += 1
    while sum(given) > cells:
        largest = max(range(len(given)), key=lambda index: (given[index], index))
        given[largest] -= 1
    return tuple(given)


def spark(values: tuple[int, ...] | list[int]) -> str:
    """A sparkline, `▁▂▂▅▇`; the highest value is a full column."""
    top = max(values, default=0)
    return "".join("▁▂▃▄▅▆▇█"[min(7, value * 8 // (top + 1))] if top else "▁" for value in values)
