"""Placeholders for data that is loading, empty, forbidden or failed; each looks different."""

from enum import StrEnum

from gpuconsole.ui.paint import Painted


class State(StrEnum):
    """State of a pane's data."""

    LOADING = "loading"
    READY = "ready"
    EMPTY = "empty"
    FORBIDDEN = "forbidden"
    FAILED = "failed"


_LOOK = {
    State.LOADING: ("…", "dim", "Loading"),
    State.READY: ("", "", ""),
    State.EMPTY: ("○", "dim", "Empty"),
    State.FORBIDDEN: ("⊘", "held", "Forbidden"),
    State.FAILED: ("✖", "fault", "Failed"),
}


def notice(state: State, text: str = "") -> Painted:
    """The state's glyph and word, and a text with details."""
    glyph, role, word = _LOOK[state]
    if not text:
        return ((f"  {glyph} {word}", role),)
    if state is State.EMPTY:
        return ((f"  {glyph} ", role), (text, ""))
    return ((f"  {glyph} {word}: ", role), (text, ""))
