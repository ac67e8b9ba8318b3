"""What a what-if comes to that is computed look by look."""

from collections.abc import Iterable

from gpuconsole.insight.whatif import Look, WhatIf


def whole(looks: Iterable[Look]) -> WhatIf:
    """The answer of the last look."""
    *_, last = looks
    assert last.answer is not None
    assert last.last
    return last.answer
