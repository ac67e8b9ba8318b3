"""The filter: its little language, and the line in which it is typed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from gpuconsole.ui.messages import FilterChanged, FilterClosed

Labels = Mapping[str, str]
Test = Callable[[str, Labels], bool]


class FilterError(ValueError):
    """The text is no filter; says why in words for the person who typed it."""


@dataclass(frozen=True)
class Filter:
    """A filter that was read: does a row with this text and these labels pass?"""

    text: str
    passes: Test


def parse_filter(text: str) -> Filter | None:
    """Read `regex`, `!regex`, `-l key=value,key!=value,key,!key` or `-f fuzzy`; None for nothing.

    Raises FilterError.
    """
    stripped = text.strip()
    if not stripped or stripped in ("!", "-l", "-f"):
        return None
    if stripped.startswith("-l "):
        return Filter(stripped, _labels(stripped[3:]))
    if stripped.startswith("-f "):
        return Filter(stripped, _fuzzy(stripped[3:]))
    if stripped.startswith("!"):
        inner = _regex(stripped[1:])
        return Filter(stripped, lambda row, labels: not inner(row, labels))
    return Filter(stripped, _regex(stripped))


def _regex(text: str) -> Test:
    try:
        search = re.compile(text, re.IGNORECASE).search
    except re.error as error:
        place = f" at column {error.pos + 1}" if error.pos is not None else ""
        raise FilterError(f"no regular expression: {error.msg}{place}") from error
    return lambda row, labels: search(row) is not None


def _fuzzy(text: str) -> Test:
    """The letters in their order, with anything between them."""
    search = re.compile(".*?".join(map(re.escape, text.replace(" ", ""))), re.IGNORECASE).search
    return lambda row, labels: search(row) is not None


def _labels(text: str) -> Test:
    """A Kubernetes selector of equalities and existence; all its terms must hold."""
    terms = [_label(term.strip()) for term in text.split(",") if term.strip()]
    return lambda row, labels: all(term(row, labels) for term in terms)


def _label(term: str) -> Test:
    if "!=" in term:
        key, _, value = (part.strip() for part in term.partition("!="))
        return lambda row, labels: labels.get(key) != value
    if "=" in term:
        key, _, value = (part.strip() for part in term.replace("==", "=").partition("="))
        return lambda row, labels: labels.get(key) == value
    if term.startswith("!"):
        return lambda row, labels: term[1:].strip() not in labels
    return lambda row, labels: term in labels


class FilterLine(Horizontal):
    """The line at the foot of a screen in which a filter is typed; it stays while a filter is set."""

    def compose(self) -> ComposeResult:
        yield Static("/", classes="prompt", markup=False)
        yield Input(compact=True, placeholder="regex · !not · -l key=value · -f fuzzy")
        yield Static("", classes="complaint", markup=False)

    @property
    def text(self) -> str:
        return self.query_one(Input).value

    def open(self) -> None:
        """Show the line and take the keyboard."""
        self.display = True
        # At once, not with the next idle moment: fast fingers have typed the first letter by then.
        self.screen.set_focus(self.query_one(Input))

    def put(self, text: str) -> None:
        """Show a filter that came from elsewhere; the keyboard stays where it is."""
        self.display = True
        self.query_one(Input).value = text

    def close(self) -> None:
        """Forget the text and go out of sight."""
        self.query_one(Input).value = ""
        self.complain("")
        self.display = False

    def complain(self, text: str) -> None:
        """Say beside the text what is wrong with it."""
        self.query_one(".complaint", Static).update(text)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(FilterChanged(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not event.value.strip():
            self.display = False
        self.post_message(FilterClosed())
