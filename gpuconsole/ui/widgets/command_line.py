"""The input lines at the bottom of a screen: the `:` command line and the filter line.

`:wl research /rlhf` opens a screen with a namespace and a filter; aliases name actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from textual import on
from textual.containers import Horizontal
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from gpuconsole.ui.actions import ALIASES, Action, Scope
from gpuconsole.ui.messages import CommandEntered, FilterChanged, FilterClosed


class PromptLine(Horizontal):
    """Base of the input lines; its widgets are created when it is first opened, which most lines never are.

    An input and its prompt cost as much to mount as all the rest of a screen.
    """

    def fields(self) -> Sequence[Static | Input]:
        """Make the prompt, the input and other widgets of the line."""
        raise NotImplementedError

    @property
    def opened(self) -> bool:
        """Whether the line was opened before, so that its widgets exist."""
        return bool(self.children)

    @property
    def field(self) -> Input:
        """The line's input; creates the widgets if needed."""
        if not self.opened:
            self.mount_all(self.fields())
        return self.query_one(Input)

    def take_keyboard(self) -> None:
        """Show the line and focus its input."""
        self.display = True
        # At once, not when idle: a fast typist has typed the first letter by then.
        self.screen.set_focus(self.field)


class CommandError(ValueError):
    """The line is not a command; the message suggests a similar one."""


@dataclass(frozen=True)
class CommandLineRead:
    """A parsed command line: an action with its namespaces and filter, or with its argument."""

    action: Action
    alias: str
    namespaces: frozenset[str] | None = None
    """Namespaces to show in the opened screen; empty for all, None to change nothing."""
    filter: str = ""
    argument: str = ""
    """Text after the alias, for actions that open no view."""


def parse_command(text: str) -> CommandLineRead | None:
    """Parse `alias [ns,ns] [/filter]` or `alias argument`; None for an empty line. Raises CommandError."""
    words = text.strip().lstrip(":").split(maxsplit=1)
    if not words:
        return None
    alias, rest = words[0].lower(), words[1] if len(words) > 1 else ""
    action = ALIASES.get(alias)
    if action is None:
        raise CommandError(_unknown(alias))
    if action.scope not in (Scope.VIEWS, Scope.LISTS):
        if rest and not action.argument:
            raise CommandError(f":{alias} takes no argument")
        return CommandLineRead(action, alias, argument=rest.strip())
    names, slash, wanted = rest.partition("/") if rest.startswith("/") else _split_filter(rest)
    return CommandLineRead(action, alias, namespaces=namespaces(names), filter=wanted if slash else "")


def _split_filter(rest: str) -> tuple[str, str, str]:
    names, blank_slash, wanted = rest.partition(" /")
    return names, blank_slash, wanted


def namespaces(text: str) -> frozenset[str] | None:
    """Parse the names in `a,b` or `a b`; empty for `all` or `*`, None for an empty text."""
    names = frozenset(text.replace(",", " ").split())
    if names & {"all", "*"}:
        return frozenset()
    return names or None


def _unknown(alias: str) -> str:
    near = get_close_matches(alias, ALIASES, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(':' + name for name in near)}?" if near else "; ? lists all commands"
    return f"Unknown command :{alias}{hint}"


class CommandLine(PromptLine):
    """The `:` command line; hidden until it is opened."""

    def fields(self) -> tuple[Static | Input, ...]:
        suggester = SuggestFromList(sorted(ALIASES), case_sensitive=False)
        return Static(":", classes="prompt", markup=False), Input(compact=True, suggester=suggester)

    def open(self) -> None:
        """Show the empty line and focus it."""
        self.field.value = ""
        self.take_keyboard()

    def close(self) -> None:
        self.display = False

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(CommandEntered(event.value))


class FilterLine(PromptLine):
    """The filter line; it stays visible while a filter is set."""

    def fields(self) -> tuple[Static | Input, ...]:
        return (
            Static("/", classes="prompt", markup=False),
            Input(compact=True, placeholder="regex · !not · -l key=value · -f fuzzy · -w word"),
            Static("", classes="complaint", markup=False),
        )

    def open(self) -> None:
        """Show the line and focus it."""
        self.take_keyboard()

    def put(self, text: str) -> None:
        """Show the text of a filter that was set elsewhere, without moving the focus."""
        self.display = True
        self.field.value = text

    def close(self) -> None:
        """Clear the text and hide the line."""
        if self.opened:
            self.field.value = ""
            self.complain("")
        self.display = False

    def complain(self, text: str) -> None:
        """Show an error in the filter beside its text."""
        if self.opened:
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
