"""The filter syntax: `regex`, `!regex`, `-l key=value,!key`, `-f fuzzy`, `-w word`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Labels = Mapping[str, str]
Test = Callable[[str, Labels], bool]


class FilterError(ValueError):
    """The text is not a valid filter; the message says why."""


@dataclass(frozen=True)
class Filter:
    """A parsed filter: tells whether a row with a text and labels passes."""

    text: str
    passes: Test
    by_labels: bool = False
    """Tests only the labels; other filters test only the text."""
    word: str = ""
    """The whole word that it looks for, if any: most often a name."""


def parse_filter(text: str) -> Filter | None:
    """Read `regex`, `!regex`, `-l key=value,key!=value,key,!key`, `-f fuzzy` or `-w word`; None for nothing.

    Raises FilterError.
    """
    stripped = text.strip()
    if not stripped or stripped in ("!", "-l", "-f", "-w"):
        return None
    if stripped.startswith("-l "):
        return Filter(stripped, _labels(stripped[3:]), by_labels=True)
    if stripped.startswith("-f "):
        return Filter(stripped, _fuzzy(stripped[3:]))
    if stripped.startswith("-w "):
        word = stripped[3:].strip()
        return Filter(stripped, _regex(rf"(?<!\S){re.escape(word)}(?!\S)"), word=word)
    if stripped.startswith("!"):
        inner = _regex(stripped[1:])
        return Filter(stripped, lambda row, labels: not inner(row, labels))
    return Filter(stripped, _regex(stripped))


def _regex(text: str) -> Test:
    try:
        search = re.compile(text, re.IGNORECASE).search
    except re.error as error:
        place = f" at column {error.pos + 1}" if error.pos is not None else ""
        raise FilterError(f"invalid regular expression: {error.msg}{place}") from error
    return lambda row, labels: search(row) is not None


def _fuzzy(text: str) -> Test:
    """The letters in order, with anything between them."""
    search = re.compile(".*?".join(map(re.escape, text.replace(" ", ""))), re.IGNORECASE).search
    return lambda row, labels: search(row) is not None


def _labels(text: str) -> Test:
    """A Kubernetes label selector (equality and existence); all terms must match."""
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
