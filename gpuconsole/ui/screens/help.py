"""The help and glossary screens, and the search for the glossary term of a column head, a cell's word or a typed name.

Help lists the keys of the screen below it, from the action registry. The glossary is docs/glossary.md.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct
from textual.app import ComposeResult
from textual.widgets import Static

from gpuconsole.assets import glossary
from gpuconsole.errors import ConsoleError
from gpuconsole.ui.actions import Action, Handlers, Scope
from gpuconsole.ui.actions.keys import spell_all
from gpuconsole.ui.paint import Cell, plain
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.dialogs import PaletteEntry
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import PaneState
from gpuconsole.ui.widgets.textpane import Paragraph, text_line

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
    """Return the term with this name in any case, or the one that the screens show as this column head or word."""
    wanted = word.strip(f" {_SORTED}")
    return next((one for one in terms if wanted.casefold() == one.name.casefold() or wanted in one.shown_as), None)


def complete_term(terms: Iterable[Term], start: str) -> Term | None:
    """The first term whose name begins with a text."""
    wanted = start.strip().casefold()
    return next((one for one in terms if wanted and one.name.casefold().startswith(wanted)), None)


def find_term_in(terms: Sequence[Term], text: str) -> Term | None:
    """Return the term that a text names as whole words; of several, the one with the longest name."""
    words = f" {' '.join(re.findall(r'[a-z0-9-]+', text.casefold()))} "
    named = [one for one in terms if f" {one.name.casefold()} " in words or f" {one.name.casefold()}s " in words]
    return max(named, key=lambda one: len(one.name), default=None)


GLOSSARY_COLUMNS: tuple[Column[Term], ...] = (
    Column("TERM", lambda term: ((term.name, "strong"),), id="name", width=20, sort=lambda term: term.name),
    Column("SHOWN AS", lambda term: ((", ".join(term.shown_as), "dim"),), width=16, flex=1, rank=1),
    Column("DEFINITION", lambda term: term.text, width=30, flex=4),
)


def definition(term: Term) -> tuple[Cell, ...]:
    """Format the whole definition of a term, with its links."""
    links = [text_line((f" {title}: ", "dim"), address) for title, address in term.links]
    return (text_line((f" {term.name}  ", "title"), term.text), *links)


class GlossaryScreen(ConsoleScreen):
    """Lists all terms, with the cursor on one of them; `/` filters them."""

    passing = True

    def __init__(self, word: str = "", sentence: str = "", *, typed: bool = False) -> None:
        """The cursor starts at the term of a word, such as a column head, else at one that the sentence names.

        A typed word may be a prefix.
        """
        super().__init__()
        self._word = word
        self._sentence = sentence
        self._typed = typed

    def body(self) -> ComposeResult:
        yield Grid(GLOSSARY_COLUMNS, key=lambda term: term.name)
        yield Paragraph(id="definition")

    def on_mount(self) -> None:
        try:
            terms: Sequence[Term] = load_terms()
        except ConsoleError as error:
            self.query_one(Grid).say(PaneState.FAILED, str(error))
            return
        self.query_one(Grid).show(terms)
        term = self._find(terms)
        if term is not None:
            self.call_after_refresh(self.point_at, term.name)
        elif self._word:
            self.flash(f"No glossary entry for {self._word}", "warning")

    def _find(self, terms: Sequence[Term]) -> Term | None:
        completed = complete_term(terms, self._word) if self._typed else None
        return find_term(terms, self._word) or completed or find_term_in(terms, self._sentence)

    def picked(self, row: Term | None) -> None:
        self.query_one(Paragraph).lines = definition(row) if row is not None else ()

    def crumb(self) -> str:
        return "glossary"

    def handlers(self) -> Handlers:
        return {**super().handlers(), "app.glossary": self.console_app.up}

    def refusal(self, action: Action) -> str:
        return ""


def _keys(entry: PaletteEntry) -> Cell:
    action = entry.action
    return ((spell_all(action) or next((f":{alias}" for alias in action.aliases), "no key"), "key"),)


def _aliases(entry: PaletteEntry) -> Cell:
    names = " ".join(f":{alias}" for alias in entry.action.aliases[:3])
    return ((f"{names} {entry.action.argument}".strip(), "dim"),)


def _does(entry: PaletteEntry) -> Cell:
    text = entry.action.help + (" Asks for confirmation." if entry.action.dangerous else "")
    return ((text, ""), (f"  (unavailable: {entry.refused})", "held")) if entry.refused else text


COLUMNS: tuple[Column[PaletteEntry], ...] = (
    Column("KEYS", _keys, width=13),
    Column("ACTION", lambda entry: entry.action.label, id="name", width=15, sort=lambda entry: entry.action.label),
    Column("SCOPE", lambda entry: ((entry.action.scope, "dim"),), width=16, rank=2),
    Column("DESCRIPTION", _does, width=30, flex=1),
    Column("COMMAND", _aliases, width=20, rank=1),
)


def by_scope(entries: Iterable[PaletteEntry]) -> list[PaletteEntry]:
    """Sort entries by scope, those of the current screen first."""
    order = {scope: index for index, scope in enumerate((*list(Scope)[4:], *list(Scope)[:4]))}
    return sorted(entries, key=lambda entry: order[entry.action.scope])


class HelpScreen(ConsoleScreen):
    """Lists the actions of the screen below; Enter runs one there."""

    passing = True

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key=lambda entry: entry.action.id)
        yield Static("", id="told", markup=False)

    def on_mount(self) -> None:
        below = self._below()
        if below is not None and self.grid is not None:
            self.grid.show(by_scope(below.actions.entries()))

    def picked(self, row: object) -> None:
        # A narrow table cuts the sentence; this line shows all of it.
        entry = row if isinstance(row, PaletteEntry) else None
        self.query_one("#told", Static).update(plain(_does(entry)) if entry is not None else "")

    def crumb(self) -> str:
        return "help"

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            "object.open": self._do,
            "app.help": self.console_app.up,
            "app.glossary": self._define,
        }

    def refusal(self, action: Action) -> str:
        return ""

    def _below(self) -> ConsoleScreen | None:
        screens = [screen for screen in self.app.screen_stack if isinstance(screen, ConsoleScreen)]
        return screens[-2] if len(screens) > 1 else None

    def _define(self) -> None:
        """Open the glossary at the picked column head of the screen below, else at a term of the action in front."""
        below = self._below()
        entry = self.grid.current if self.grid is not None else None
        sentence = f"{entry.action.label}. {entry.action.help}" if isinstance(entry, PaletteEntry) else ""
        self.open(GlossaryScreen(below.picked_head if below is not None else "", sentence))

    def _do(self) -> None:
        below, entry = self._below(), self.grid.current if self.grid is not None else None
        if below is not None and isinstance(entry, PaletteEntry):
            self.console_app.up()
            below.call_after_refresh(_go_on, below, entry.action)


def _go_on(below: ConsoleScreen, action: Action) -> None:
    """Run the picked action, unless a key opened another screen in the meantime."""
    if not below.dialogs.left_for(action.label):
        below.actions.run(action)
