"""Sanitizes text from outside before anything else uses it."""

MAX_NAME = 253
MAX_MESSAGE = 4096
REPLACEMENT = "\ufffd"


def clean(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return one line of printable text of at most `limit` characters.

    Control characters (C0, C1, escape sequences), bidirectional overrides and zero-width characters become U+FFFD, so
    that no name in a cluster can drive the operator's terminal. A longer text is cut and ends in an ellipsis.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else REPLACEMENT for c in text)
