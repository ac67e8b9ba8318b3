"""Sets of integers in Kubernetes' notation (`0-3,7`), such as the completed indexes of an Indexed Job."""

from collections.abc import Iterable, Iterator

Interval = tuple[int, int]
"""First and last number, both inclusive."""


def parse_intervals(text: str) -> list[Interval]:
    """Parse the intervals of a text; invalid or descending ones are left out."""
    return [found for part in text.split(",") if (found := _interval(part)) is not None]


def _interval(text: str) -> Interval | None:
    first, dash, last = text.partition("-")
    bounds = [first, last] if dash else [first, first]
    if not all(bound.isascii() and bound.isdigit() and len(bound) <= 10 for bound in bounds):
        return None
    low, high = map(int, bounds)
    return (low, high) if low <= high else None


def count_numbers(texts: Iterable[str], limit: int) -> int:
    """Count the numbers in 0 … `limit` - 1 that any of these texts contains."""
    found, last = 0, -1
    for low, high in sorted(pair for text in texts for pair in parse_intervals(text)):
        low, high = max(low, last + 1), min(high, limit - 1)
        if low <= high:
            found, last = found + high - low + 1, high
    return found


def lacking(texts: Iterable[str], limit: int) -> Iterator[int]:
    """Yield the numbers in 0 … `limit` - 1 that none of these texts contains, ascending."""
    first = 0
    for low, high in sorted(pair for text in texts for pair in parse_intervals(text)):
        yield from range(first, min(low, limit))
        first = max(first, high + 1)
    yield from range(first, limit)


def stands_in(number: int, texts: Iterable[str]) -> bool:
    """True if any of these texts contains the number."""
    return any(low <= number <= high for text in texts for low, high in parse_intervals(text))


def shared(one: str, other: str, limit: int) -> int:
    """Count the numbers in 0 … `limit` - 1 that both texts contain."""
    return count_numbers((one,), limit) + count_numbers((other,), limit) - count_numbers((one, other), limit)


def added(text: str, number: int) -> str:
    """Return the set with one more number."""
    merged: list[Interval] = []
    for low, high in sorted([*parse_intervals(text), (number, number)]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in merged)
