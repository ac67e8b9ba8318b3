"""Messages about data that a report lacks, such as objects whose reading is forbidden."""

from collections.abc import Iterable

NOTHING = "not enough data for an answer"


def no_data_lines(lacking: Iterable[str]) -> list[str]:
    """The whole report where required objects are not visible."""
    return [NOTHING, *missing_data_lines(lacking)]


def missing_data_lines(unknown: Iterable[str]) -> list[str]:
    """Lines below a report that name what is unknown."""
    return [f"unknown: {text}" for text in unknown]
