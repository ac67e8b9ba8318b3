"""Numbers and truths that stand as texts in labels and annotations, as Go reads them and complains."""

import re

from gpuconsole.model.jobs.topology import TRUE

_WHOLE = re.compile(r"[+-]?[0-9]+")
FALSE = ("0", "f", "F", "FALSE", "false", "False")


def whole(text: str, bits: int = 64) -> int | None:
    """A whole number of so many bits, or None."""
    if len(text) > 40 or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def not_whole(text: str) -> str:
    """What Go says of a text that is no number."""
    problem = "value out of range" if _WHOLE.fullmatch(text[:100]) else "invalid syntax"
    return f'strconv.Atoi: parsing "{text}": {problem}'


def truth(text: str) -> bool | None:
    """True, False, or None for a text that is neither."""
    return True if text in TRUE else False if text in FALSE else None


def not_truth(text: str) -> str:
    """What Go says of a text that is no truth value."""
    return f'strconv.ParseBool: parsing "{text}": invalid syntax'
