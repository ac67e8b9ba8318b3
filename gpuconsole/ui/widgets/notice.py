"""Placeholders for data that is loading, empty, forbidden or failed; each looks different."""

from enum import StrEnum

from gpuconsole.ui.paint import Painted


class PaneState(StrEnum):
    """State of a pane's data."""

    LOADING = "loading"
    READY = "ready"
    EMPTY = "empty"
    FORBIDDEN = "forbidden"
    FAILED = "failed"


_LOOK = {
    PaneState.LOADING: ("…", "dim", "Loading"),
    PaneState.READY: ("", "", ""),
    PaneState.EMPTY: ("○", "dim", "Empty"),
    PaneState.FORBIDDEN: ("⊘", "held", "Forbidden"),
    PaneState.FAILED: ("✖", "fault", "Failed"),
}


def notice(state: PaneState, text: str = "") -> Painted:
    """The state's glyph and word, and a text with details."""
    glyph, role, word = _LOOK[state]
    if not text:
        return ((f"  {glyph} {word}", role),)
    if state is PaneState.EMPTY:
        return ((f"  {glyph} ", role), (text, ""))
    return ((f"  {glyph} {word}: ", role), (text, ""))
