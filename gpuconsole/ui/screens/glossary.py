"""The glossary screen: the terms of all screens with their definitions, from docs/glossary.md."""

from collections.abc import Sequence

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.ui.actions import Action
from gpuconsole.ui.columns import Column
from gpuconsole.ui.glossary import Term, complete_term, find_term, find_term_in, load_terms
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.notice import PaneState
from gpuconsole.ui.widgets.paragraph import Paragraph
from gpuconsole.ui.widgets.textpane import text_line

GLOSSARY_COLUMNS: tuple[Column[Term], ...] = (
    Column("TERM", lambda term: ((term.name, "strong"),), id="name", width=20, sort=lambda term: term.name),
    Column("SHOWN AS", lambda term: ((", ".join(term.shown_as), "dim"),), width=16, flex=1, rank=1),
    Column("DEFINITION", lambda term: term.text, width=30, flex=4),
)


def definition(term: Term) -> tuple[Cell, ...]:
    """The whole definition of a term, with its links."""
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
        super().on_mount()
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
