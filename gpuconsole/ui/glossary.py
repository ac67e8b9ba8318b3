"""Reads the glossary (docs/glossary.md) and finds the term for a column head, a word of a table or a typed name."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from gpuconsole.assets import glossary

SHOWN_AS = "Shown as:"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_SORTED = "↑↓"
"""Arrows that a table adds to the head of the column that it is sorted by."""


class Term(Struct, frozen=True, kw_only=True):
    """An entry of the glossary."""

    name: str
    text: str
    """The definition, in one line, without links."""
    links: tuple[tuple[str, str], ...] = ()
    """(Title, address) of pages that say more."""
    shown_as: tuple[str, ...] = ()
    """Other names of the term on the screens, such as column heads."""


@lru_cache(maxsize=1)
def load_terms() -> tuple[Term, ...]:
    """The terms of the bundled glossary, in its order. Raises ConsoleError where the installation lacks it."""
    return parse_terms(glossary().read_text(encoding="utf-8"))


def parse_terms(text: str) -> tuple[Term, ...]:
    """Read the terms of a glossary: a `## term` heading each, then its definition."""
    _, *entries = re.split(r"^## ", text, flags=re.MULTILINE)
    return tuple(_term(*entry.split("\n", 1)) for entry in entries)


def _term(name: str, body: str = "") -> Term:
    definition, _, names = body.partition(SHOWN_AS)
    links = tuple((title, address) for title, address in _LINK.findall(definition))
    # A page of its own docs is named in the sentence; other links are listed after it.
    plain = _LINK.sub(lambda link: "" if link[2].startswith("http") else link[1], definition)
    return Term(
        name=name.strip(),
        text=" ".join(plain.replace("`", "").split()),
        links=links,
        shown_as=tuple(re.findall(r"`([^`]+)`", names)),
    )


def find_term(terms: Iterable[Term], word: str) -> Term | None:
    """The term with this name, in any case, or with this column head or word of a cell."""
    wanted = word.strip(f" {_SORTED}")
    return next((one for one in terms if wanted.casefold() == one.name.casefold() or wanted in one.shown_as), None)


def complete_term(terms: Iterable[Term], start: str) -> Term | None:
    """The first term whose name begins with a text."""
    wanted = start.strip().casefold()
    return next((one for one in terms if wanted and one.name.casefold().startswith(wanted)), None)


def find_term_in(terms: Sequence[Term], text: str) -> Term | None:
    """The term with the longest name among those that a text names as whole words."""
    words = f" {' '.join(re.findall(r'[a-z0-9-]+', text.casefold()))} "
    named = [one for one in terms if f" {one.name.casefold()} " in words or f" {one.name.casefold()}s " in words]
    return max(named, key=lambda one: len(one.name), default=None)
