"""The input lines at the bottom of a screen: the `:` command line and the filter line.

`:wl research /rlhf` opens a screen with a namespace and a filter; aliases name actions. While a line is typed, the line
below it shows what the text may be continued to, and Tab takes one after the other.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from rich.cells import cell_len
from textual import events, on
from textual.containers import Container
from textual.suggester import Suggester
from textual.widgets import Input, Static

from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.ui.actions import ALIASES, Action, Scope
from gpuconsole.ui.messages import CommandEntered, FilterChanged, FilterClosed
from gpuconsole.ui.names import called

Complete = Callable[[str], Sequence[str]]
"""Returns the whole texts to which a typed text may be continued."""


class _FirstCompletion(Suggester):
    """Shows the rest of the first completion behind the cursor."""

    def __init__(self, complete: Complete) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        return next(iter(self._complete(value)), None)


class CompletedInput(Input):
    """A text field in which Tab takes the first completion, and then the others in turn."""

    def __init__(self, placeholder: str = "") -> None:
        super().__init__(compact=True, placeholder=placeholder, suggester=_FirstCompletion(self._completions))
        self.complete: Complete = lambda text: ()
        self._offered: Sequence[str] = ()
        """The completions that Tab takes in turn."""

    def _completions(self, text: str) -> Sequence[str]:
        return self.complete(text) if text else ()

    async def on_key(self, event: events.Key) -> None:
        if event.key != "tab":
            return
        event.stop()
        event.prevent_default()
        offered = self._offered
        if self.value in offered:
            self.value = offered[(offered.index(self.value) + 1) % len(offered)]
        elif offered := self._completions(self.value):
            self._offered = offered
            self.value = offered[0]
        self.cursor_position = len(self.value)

    def shown_completions(self) -> Sequence[str]:
        """Return the last words of the completions, the one that Tab took first if it took one."""
        texts = self._offered if self.value in self._offered else self._completions(self.value)
        return [_last_word(text) for text in texts]


def _last_word(text: str) -> str:
    """What a completion adds, from the last blank or sign on: `research` of `gpus>=8 and queue=research`."""
    head = text.rstrip()
    return head[max(map(head.rfind, " (/@,=<>~")) + 1 :]


class PromptLine(Container):
    """Base of the input lines; its widgets are created when it is first opened, which most lines never are.

    An input and its prompt cost as much to mount as all the rest of a screen.
    """

    PROMPT = ""
    PLACEHOLDER = ""

    @property
    def opened(self) -> bool:
        """Whether the line was opened before, so that its widgets exist."""
        return bool(self.children)

    @property
    def field(self) -> CompletedInput:
        """The line's input; creates the widgets if needed."""
        if not self.opened:
            self.mount_all(
                (
                    Static(self.PROMPT, classes="prompt", markup=False),
                    CompletedInput(self.PLACEHOLDER),
                    Static("", classes="complaint", markup=False),
                )
            )
        return self.query_one(CompletedInput)

    def take_keyboard(self, complete: Complete) -> None:
        """Show the line and focus its input, which offers these completions."""
        self.display = True
        field = self.field
        field.complete = complete
        # At once, not when idle: a fast typist has typed the first letter by then.
        self.screen.set_focus(field)

    def say(self, text: str, *, wrong: bool = False) -> None:
        """Show a text below the input, or nothing: completions, or an error."""
        if self.opened:
            below = self.query_one(".complaint", Static)
            below.set_class(wrong, "-wrong")
            below.update(clean(text))
            self.set_class(bool(text), "-told")

    def rest(self) -> None:
        """Stop showing completions, as nothing is typed any more; an error stays."""
        if self.opened and not self.query_one(".complaint").has_class("-wrong"):
            self.say("")

    def offer(self) -> bool:
        """Show the completions of the text below it; return whether there are any."""
        found = self.field.shown_completions()
        self.say("  " + "  ".join(found) if found else "")
        return bool(found)


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
    context: str = ""
    """The context to connect to before."""


_CONTEXT = re.compile(r"(?:^|\s)@(\S+)\s*$")


def parse_command(text: str) -> CommandLineRead | None:
    """Parse `alias [ns,ns] [/filter] [@context]` or `alias argument`; None for an empty line. Raises CommandError."""
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
    context = _CONTEXT.search(rest)
    if context is not None:
        rest = rest[: context.start()]
    names, slash, wanted = rest.partition("/") if rest.startswith("/") else _split_filter(rest)
    return CommandLineRead(
        action,
        alias,
        namespaces=namespaces(names),
        filter=wanted if slash else "",
        context=context[1] if context is not None else "",
    )


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

    PROMPT = ":"

    def open(self, words: "WordsOf") -> None:
        """Show the empty line and focus it; `words` are the names that it completes."""
        self.field.value = ""
        self.take_keyboard(lambda text: complete_command(text, words))

    def close(self) -> None:
        self.say("")
        self.display = False

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.offer()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(CommandEntered(event.value))


WordsOf = Callable[[str], Iterable[str]]
"""Returns names by what they name: `namespaces`, `contexts`, the id of a view (its objects) or of an action."""
OFFERED = 12
"""Maximum number of completions."""


def complete_command(text: str, words: WordsOf) -> list[str]:
    """Return what a command line may be continued to: aliases, then namespaces, `/filter` and `@context`, or names."""
    alias, blank, rest = text.partition(" ")
    if not blank:
        return [one for one in sorted(ALIASES) if one.startswith(alias.lower())]
    action = ALIASES.get(alias.lower())
    if action is None:
        return []
    last = rest[rest.rfind(" ") + 1 :]
    if action.scope is not Scope.VIEWS:
        what, typed = action.id, rest
    elif last.startswith("@"):
        what, typed = "contexts", last[1:]
    elif rest.startswith("/") or " /" in rest:
        what, typed = action.id, rest[rest.rfind("/" if rest.startswith("/") else " /") :].lstrip(" /")
    else:
        what, typed = "namespaces", last
    typed = typed[typed.rfind(",") + 1 :]
    kept = text[: len(text) - len(typed)]
    found = (clean(one) for one in words(what) if one.lower().startswith(typed.lower()))
    return [f"{kept}{one}" for one in islice(found, OFFERED)]


def names_in(snapshot: Snapshot, what: str) -> Iterable[str]:
    """Return the names of objects of the cluster, as `WordsOf` does."""
    match what:
        case "namespaces" | "app.namespaces":
            return sorted(snapshot.namespaces)
        case "view.queues":
            return sorted((*snapshot.cohorts, *snapshot.cluster_queues, *snapshot.local_queues))
        case "view.nodes":
            return sorted(snapshot.nodes)
        case "view.workloads":
            return map(called, snapshot.workloads)
        case _:
            return ()


class FilterLine(PromptLine):
    """The filter line; it stays visible while a filter is set."""

    PROMPT = "/"
    PLACEHOLDER = "regex · !not · -l key=value · -f fuzzy · -w word · gpus>=8 and queue=research"

    def open(self, complete: Complete) -> None:
        """Show the line and focus it; `complete` continues its text."""
        self.take_keyboard(complete)

    def put(self, text: str) -> None:
        """Show the text of a filter that was set elsewhere, without moving the focus."""
        self.display = True
        self.field.value = text

    def close(self) -> None:
        """Clear the text and hide the line."""
        if self.opened:
            self.field.value = ""
            self.say("")
        self.display = False

    def complain(self, problem: str, at: int | None) -> None:
        """Show an error below the text, with a caret at the index `at` of the text."""
        width = self.size.width
        place = cell_len(self.PROMPT) + 1 + (cell_len(self.field.value[:at]) if at is not None else 0)
        if at is None or place >= width:
            text = f"  {problem}"
        elif place + 2 + cell_len(problem) <= width or place < cell_len(problem) + 3:
            text = f"{' ' * place}^ {problem}"
        else:
            text = f"{problem.rjust(place - 1)} ^"
        self.say(text, wrong=True)

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
