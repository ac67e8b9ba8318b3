"""The command line: `:` opens it, aliases name screens and actions, `:wl research /rlhf` goes, scopes and filters."""

from dataclasses import dataclass
from difflib import get_close_matches

from textual import on
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from gpuconsole.ui.actions import ALIASES, Action, Scope
from gpuconsole.ui.messages import CommandEntered
from gpuconsole.ui.widgets.prompt_line import PromptLine


class CommandError(ValueError):
    """The line is no command; says what would be one."""


@dataclass(frozen=True)
class CommandLineRead:
    """What a line asks for."""

    action: Action
    alias: str
    namespaces: frozenset[str] | None = None
    """For a screen: show these only; None leaves what is shown."""
    filter: str = ""
    argument: str = ""
    """For the other actions: what stands after the alias."""


def parse_command(text: str) -> CommandLineRead | None:
    """Read `alias [ns,ns] [/filter]` or `alias argument`; None for an empty line. Raises CommandError."""
    words = text.strip().lstrip(":").split(maxsplit=1)
    if not words:
        return None
    alias, rest = words[0].lower(), words[1] if len(words) > 1 else ""
    action = ALIASES.get(alias)
    if action is None:
        raise CommandError(_unknown(alias))
    if action.scope is not Scope.VIEWS:
        if rest and not action.argument:
            raise CommandError(f":{alias} takes nothing after it")
        return CommandLineRead(action, alias, argument=rest.strip())
    names, slash, wanted = rest.partition("/") if rest.startswith("/") else _split_filter(rest)
    return CommandLineRead(action, alias, namespaces=namespaces(names), filter=wanted if slash else "")


def _split_filter(rest: str) -> tuple[str, str, str]:
    names, blank_slash, wanted = rest.partition(" /")
    return names, blank_slash, wanted


def namespaces(text: str) -> frozenset[str] | None:
    """The names in `a,b` or `a b`; `all` and `*` mean all; None where nothing is said."""
    names = frozenset(text.replace(",", " ").split())
    if names & {"all", "*"}:
        return frozenset()
    return names or None


def _unknown(alias: str) -> str:
    near = get_close_matches(alias, ALIASES, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(':' + name for name in near)}" if near else "; ? lists what there is"
    return f"There is no command :{alias}{hint}"


class CommandLine(PromptLine):
    """The line itself; hidden until it is asked for."""

    def fields(self) -> tuple[Static | Input, ...]:
        suggester = SuggestFromList(sorted(ALIASES), case_sensitive=False)
        return Static(":", classes="prompt", markup=False), Input(compact=True, suggester=suggester)

    def open(self) -> None:
        """Show the line, empty, and take the keyboard."""
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
