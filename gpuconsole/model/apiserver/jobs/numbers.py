"""Integers and booleans in labels and annotations, parsed and reported as Go does."""

import re

from gpuconsole.model.jobs.topology import TRUE

_WHOLE = re.compile(r"[+-]?[0-9]+")
FALSE = ("0", "f", "F", "FALSE", "false", "False")


def whole(text: str, bits: int = 64) -> int | None:
    """Parse an integer of `bits` bits; None if invalid."""
    if len(text) > 40 or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def not_whole(text: str) -> str:
    """Go's error for an invalid integer."""
    problem = "value out of range" if _WHOLE.fullmatch(text[:100]) else "invalid syntax"
    return f'strconv.Atoi: parsing "{text}": {problem}'


def truth(text: str) -> bool | None:
    """Parse a boolean; None if invalid."""
    return True if text in TRUE else False if text in FALSE else None


def not_truth(text: str) -> str:
    """Go's error for an invalid boolean."""
    return f'strconv.ParseBool: parsing "{text}": invalid syntax'
