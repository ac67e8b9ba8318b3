"""What an answer leaves open, in words, as it may not be read."""

from collections.abc import Iterable

NOTHING = "nothing can be said"


def nothing_said(lacking: Iterable[str]) -> list[str]:
    """The whole answer where it rests on what may not be read."""
    return [NOTHING, *left_open(lacking)]


def left_open(unknown: Iterable[str]) -> list[str]:
    """What stands below an answer."""
    return [f"not known: {text}" for text in unknown]
