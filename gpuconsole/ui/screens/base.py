"""The base class of all screens: the common frame, the newest Snapshot, the table, its filter, and navigation.

A screen composes widgets and routes messages; it computes nothing, and never edits state: it sends Commands, and
receives Snapshots. It draws a Snapshot in `show()`: each new one while it is active, and the newest one when it becomes
active. A screen that fails to draw shows an error, and the rest of the console stays usable.

A screen lists its actions in `handlers()`; those that several screens offer for the objects under their cursors come
from its `ActionGroup`s. An unavailable action is refused with a reason; a dangerous one asks for confirmation: its
`ActionRunner` does both. Its `Dialogs` open dialogs and show toasts. `AppServices` is what screens use of the app.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast

from msgspec.structs import replace
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.reactive import reactive
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from gpuconsole.config import WEB_DRIVER, ColumnSettings
from gpuconsole.errors import ConsoleError
from gpuconsole.model.commands import Command
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.services.console import Console
from gpuconsole.ui.actions import BY_ID, Action, Handler, Handlers, Scope
from gpuconsole.ui.actions.keymap import Keymap
from gpuconsole.ui.actions.keys import continuations, find, spell
from gpuconsole.ui.field_filter import FilterError, is_expression
from gpuconsole.ui.key_idle_timer import KeyIdleTimer
from gpuconsole.ui.messages import CommandEntered, FilterChanged, FilterClosed, LoggedMessage, RowOpened, RowPicked
from gpuconsole.ui.object_columns import custom_column
from gpuconsole.ui.table_layouts import TableLayouts
from gpuconsole.ui.table_model import parse_filter
from gpuconsole.ui.textual_patches import TunedScreen
from gpuconsole.ui.widgets.command_line import (
    CommandError,
    CommandLine,
    CommandLineRead,
    FilterLine,
    names_in,
    parse_command,
)
from gpuconsole.ui.widgets.dialogs import Dialogs, PaletteEntry, Question, hints, menu
from gpuconsole.ui.widgets.grid import Grid, place, table_handlers
from gpuconsole.ui.widgets.header_footer import Crumbs, Footer, Header, MessageLine
from gpuconsole.ui.widgets.painter import PaneState
from gpuconsole.ui.widgets.time_line import TimeLine, TimeLineView

LOG = logging.getLogger(__name__)
ACTION_LOG = logging.getLogger("gpuconsole.ui.actions")

WIDE_SCOPES = (Scope.GLOBAL, Scope.VIEWS, Scope.LISTS, Scope.SIMULATION, Scope.TABLE, Scope.WINDOW, Scope.ANSWERS)
"""Scopes that are the same on every screen; they come last in the footer."""
EVERY_OBJECT = ("object.describe", "object.yaml", "object.menu")
"""Actions of all objects; in the footer they come after the actions of the selected object's kind."""


def _yields(action: Action) -> bool:
    """True for an action that is not offered where the screen uses one of its keys."""
    return action.scope is Scope.ANSWERS or action.id in ("app.last", "sim.pause", "time.open")


def _without_keys(actions: Iterable[Action], taken: Collection[str]) -> Iterator[Action]:
    """Yield actions with their other keys, as the open time line has `taken` these; none that has no other key."""
    for action in actions:
        left = tuple(key for key in action.keys if key not in taken)
        if action.scope is Scope.TIME or left == action.keys:
            yield action
        elif left:
            yield replace(action, keys=left)


Answer = TypeVar("Answer")


class Contexts(Protocol):
    """The kubeconfig contexts that the console can switch to. `names` and `open` may block and raise ConsoleError."""

    @property
    def namespaces(self) -> Collection[str]:
        """The namespaces that the current console reads; empty for all that RBAC allows."""

    def names(self) -> Sequence[str]:
        """The contexts of the kubeconfig."""

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        """Make a console for `context`, not started yet; it takes over the worker process of the console `leaving`."""


class TimeTravelling(Protocol):
    """The interface of `screens.time_travel` for screens."""

    @property
    def view(self) -> TimeLineView | None:
        """What the time line shows; None while it is closed."""

    def handlers(self) -> dict[str, Handler]:
        """Return the actions that are offered now."""

    def go_to(self, text: str) -> None:
        """Show the time that was typed."""


class AppServices(Protocol):
    """The interface of the app for screens, which cannot import the app. `ConsoleApp` describes each method."""

    themes: Sequence[Theme]
    contexts: Contexts | None
    namespaces: frozenset[str]
    layout_file: Path | None
    cluster: Console
    pace: KeyIdleTimer
    tour_steps_made: set[str]

    @property
    def keymap(self) -> Keymap: ...

    @property
    def message_log(self) -> Sequence[LoggedMessage]: ...

    @property
    def tables(self) -> TableLayouts: ...

    @property
    def custom_columns(self) -> Mapping[str, Sequence[ColumnSettings]]: ...

    @property
    def time_travel(self) -> TimeTravelling: ...

    @property
    def front(self) -> "ConsoleScreen | None": ...

    @property
    def way(self) -> list[str]: ...

    @property
    def view(self) -> str: ...

    def handlers(self) -> dict[str, Handler]: ...

    def obey(self, line: CommandLineRead) -> None: ...

    def flash(self, text: str, severity: SeverityLevel = "information") -> None: ...

    def go(self, view: str, *, filtered: str = "", at: str = "") -> None: ...

    def step(self, views: int) -> None: ...

    def go_to_last_view(self) -> None: ...

    def open(self, screen: "ConsoleScreen") -> None: ...

    def up(self) -> None: ...

    def rebind(self, cluster: Console) -> None: ...

    def hold_painting(self) -> None: ...

    # Methods and attributes of Textual's App

    theme: str

    @property
    def screen_stack(self) -> list[Screen[Any]]: ...

    def push_screen(self, screen: Screen[Answer], callback: Callable[[Answer | None], None], /) -> object: ...

    def pop_screen(self) -> object: ...

    def post_message(self, message: Message) -> bool: ...

    def run_worker(self, work: Callable[[], None], *, thread: bool, group: str) -> object: ...

    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool: ...

    def set_timer(self, delay: float, callback: Callable[[], None]) -> Timer: ...

    def action_suspend_process(self) -> None: ...

    def exit(self) -> None: ...


class Subject(NamedTuple):
    """Names the object that an action is about: a table as in `objects.TABLES`, and a key in it."""

    table: str
    key: str


class ActionGroup:
    """Actions on the objects under a screen's cursor, which several screens offer, such as those on nodes."""

    def handlers(self) -> Handlers:
        """The actions that are offered now: action id → function that runs it."""
        return {}

    def refusal(self, action: Action) -> str:
        """Reason why the action is unavailable, shown to the user; empty if it is available."""
        return ""

    def questions(self) -> Mapping[str, Callable[[], Question | None]]:
        """Dangerous action id → function that makes its confirmation; None runs it without one."""
        return {}

    def previews(self) -> Mapping[str, Callable[[], Question | None]]:
        """Action id → function that asks before it where several objects are marked, with its effect on each."""
        return {}


LOCAL_ACTIONS = frozenset(
    (
        "alert.silence",
        "app.apply",
        "app.context",
        "app.export",
        "app.suspend",
        "drill.file",
        "object.edit",
        "object.forward",
        "object.shell",
        "queue.edit",
        "submit.file",
        "whatif.write",
    )
)
"""Actions that use files, programs or other clusters of the machine on which the console runs."""


def in_browser() -> bool:
    """Whether `gpuconsole web` shows this console to a browser, whose user has no other access to this machine."""
    return WEB_DRIVER in os.environ


class ActionRunner:
    """Finds the actions that a screen offers by their keys, and runs them."""

    def __init__(self, screen: "ConsoleScreen") -> None:
        self._screen = screen

    def offered(self) -> list[Action]:
        """All actions of this screen, in the order of the registry."""
        here = self._handlers()
        every = self._screen.console_app.keymap.actions
        found = [action for action in every if action.id in here and not self._has_nothing_to_say(action)]
        taken = {key for action in found if action.scope is Scope.TIME for key in action.keys if not _yields(action)}
        if taken:
            found = list(_without_keys(found, taken))
        # A report keeps its key unless the screen uses that key itself; `:` opens it everywhere.
        own = {key for action in found if not _yields(action) for key in action.keys}
        return [action for action in found if not _yields(action) or own.isdisjoint(action.keys)]

    def _has_nothing_to_say(self, action: Action) -> bool:
        """Whether `explain` has nothing to explain, so that it is not offered."""
        return action.id == "object.explain" and bool(self._screen.refusal(action))

    def _handlers(self) -> Handlers:
        return {**self._screen.console_app.handlers(), **self._screen.handlers()}

    def entries(self) -> list[PaletteEntry]:
        """Entries of the palette."""
        return [
            PaletteEntry(action, self._screen.refusal(action))
            for action in self.offered()
            if action.id != "app.palette"
        ]

    def means(self, key: str, before: str = "") -> bool:
        """Return whether `key` runs an action on this screen or starts a sequence; `before` is the preceding key."""
        offered = self.offered()
        return self._action(key, before, offered) is not None or bool(continuations(key, offered))

    def press(self, key: str, before: str = "") -> None:
        """Run the action of a key. `before` is the preceding key, for sequences such as `y y`."""
        offered = self.offered()
        action = self._action(key, before, offered)
        if action is not None:
            self.run(action)
        elif following := continuations(key, offered):
            self._hint(key, following)

    def _action(self, key: str, before: str, offered: list[Action]) -> Action | None:
        return find(f"{before} {key}", offered) or find(key, offered)

    def run(self, action: Action) -> None:
        """Run an action: refuse it with a reason, or ask for confirmation if it is dangerous."""
        ACTION_LOG.info("action %s in %s", action.id, " › ".join(self._screen.console_app.way))
        handler = self._handlers().get(action.id)
        if handler is None:
            self._screen.flash(f"{action.label}: not available on this screen", "warning")
        elif reason := self._screen.refusal(action):
            self._screen.flash(f"{action.label}: {reason}", "warning")
        elif (question := self._screen.confirmation(action)) is not None:
            self._screen.dialogs.ask(question, handler)
        else:
            handler()
            self._screen.acted(action)

    def run_id(self, id: str) -> None:
        """Run the action with this id, as `run` does."""
        self.run(BY_ID[id])

    def _hint(self, prefix: str, following: Mapping[str, Action]) -> None:
        self._screen.dialogs.choose(f"{spell(prefix)} …", hints(following, self._screen.refusal), self.run_id)

    def open_menu(self) -> None:
        """List the actions for the selected object; a second key picks one."""
        self._screen.dialogs.choose("Actions", menu(self.offered(), self._screen.refusal), self.run_id)


class ConsoleScreen(TunedScreen, inherit_bindings=False):
    """Base of all screens: draws Snapshots in the common frame, with table keys, filter and navigation."""

    BINDINGS: ClassVar[list[BindingType]] = []
    AUTO_FOCUS = "Grid"
    ALLOW_IN_MAXIMIZED_VIEW = "Header, Crumbs, TimeLine, FilterLine, CommandLine, MessageLine, Footer"
    """Widgets that stay when a pane is maximized."""

    view: ClassVar[str] = ""
    """Name of its view (`view.NAME` in the action registry); empty for screens that are opened from others."""

    snapshot: reactive[Snapshot] = reactive(EMPTY, init=False)

    reads: frozenset[str] = frozenset()
    """API resources (plurals) of its tables: an empty table names those that are forbidden; none stand for all."""
    groups: Sequence[ActionGroup] = ()
    """Actions that it shares with other screens; a later group's handlers and confirmations replace an earlier's."""

    passing: ClassVar[bool] = False
    """Whether this screen is closed when another screen is opened from it."""
    is_answer: bool = False
    """Whether this is a report, opened by an action `answer.NAME`: another report replaces it."""

    def __init__(self) -> None:
        super().__init__()
        self.dialogs = Dialogs(self)
        self.actions = ActionRunner(self)
        self._failure = ""
        """The last error in drawing, which a toast has shown."""
        self._context_names: list[str] = []
        """The contexts of the kubeconfig, once they are read."""
        self._arriving = ("", "")
        """The filter and the key of the object to select once the table is filled."""

    # Overridden by screens

    def body(self) -> ComposeResult:
        """Make the widgets between the navigation path and the footer."""
        yield from ()

    def show(self, snapshot: Snapshot) -> None:
        """Draw a Snapshot. Called for each new one while the screen is active, and when it becomes active."""

    def crumb(self) -> str:
        """Return the screen's name in the navigation path."""
        return self.view

    def handlers(self) -> Handlers:
        """Action id → handler; subclasses extend it."""
        offered = {**self._table_handlers(), **self._own_handlers()}
        for group in self.groups:
            offered |= group.handlers()
        return offered

    def refusal(self, action: Action) -> str:
        """Reason why the action is unavailable, shown to the user; empty if it is available."""
        return self._read_only(action) or next(filter(None, (group.refusal(action) for group in self.groups)), "")

    def question(self, action: Action) -> Question | None:
        """Return the confirmation before a dangerous action; None runs it without one, as nothing would be lost."""
        for group in reversed(self.groups):
            if (make := group.questions().get(action.id)) is not None:
                return make()
        return Question(f"{action.label.capitalize()}?", (action.help,), yes=action.label.capitalize())

    def confirmation(self, action: Action) -> Question | None:
        """Return what to ask before an action: with a preview if several objects are marked; None asks nothing."""
        if action.changes and len(self.subjects()) > 1:
            for group in reversed(self.groups):
                if (make := group.previews().get(action.id)) is not None:
                    return make()
        return self.question(action) if action.dangerous else None

    def subject(self) -> Subject | None:
        """Return the object under the cursor; None if there is none."""
        return None

    def subjects(self) -> list[Subject]:
        """Targets of an action: all marked objects, else the selected one."""
        subject = self.subject()
        return [subject] if subject is not None else []

    def same(self, other: "ConsoleScreen") -> bool:
        """Return whether `other` shows the same content, so that it need not be opened a second time."""
        return type(self) is type(other) and self.crumb() == other.crumb()

    def point_at(self, key: str) -> None:
        """Put the cursor on the object with this key."""
        grid = self.grid
        if grid is not None and not grid.move_to_key(key):
            self.flash(f"{key} is not in this table", "warning")

    def picked(self, row: Any) -> None:
        """Called when another row is selected; screens with a side pane update it."""

    # Used by screens

    @property
    def console(self) -> Console:
        return self.console_app.cluster

    @property
    def console_app(self) -> AppServices:
        return cast("AppServices", self.app)

    def flash(self, text: str, severity: SeverityLevel = "information") -> None:
        """Show a toast."""
        self.dialogs.flash(text, severity)

    @property
    def stands(self) -> bool:
        """Whether the screen can be drawn: it is mounted and not closed. Check it before showing late results."""
        return self.is_mounted and self.is_attached and not self.is_pruning

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces to show; empty for all."""
        return self.console_app.namespaces

    @property
    def grid(self) -> Grid[Any] | None:
        """The table that table keys act on: the focused one, else the first visible one."""
        if isinstance(self.focused, Grid):
            return self.focused
        return next((grid for grid in self.query(Grid) if grid.display), None)

    @property
    def picked_head(self) -> str:
        """The head of the column that is picked in the table; empty if there is none."""
        return self.grid.picked_head if self.grid is not None else ""

    def send(self, commands: Iterable[Command], said: str = "") -> None:
        """Send Commands to the cluster, and show the toast `said`. Later Snapshots show the outcome."""
        try:
            for command in commands:
                self.console.submit(command)
        except ConsoleError as error:
            self.flash(str(error), "error")
        else:
            if said:
                self.flash(said)

    def open(self, screen: "ConsoleScreen") -> None:
        """Open a screen above this one."""
        if not self.dialogs.left_for(screen.crumb()):
            self.console_app.open(screen)

    def arrive(self, *, filtered: str = "", at: str = "") -> None:
        """Once the table is filled, set its filter to `filtered`, or put the cursor on the object with the key `at`."""
        self._arriving = (filtered, at)
        self.call_after_refresh(self.redraw)

    def _arrived(self) -> None:
        filtered, at = self._arriving
        self._arriving = ("", "")
        if filtered:
            self.set_filter(filtered)
        if at:
            self.point_at(at)

    def table_name(self, grid: Grid[Any]) -> str:
        """Return the name under which the layout of a table is remembered: `workloads`, `nodes.list`."""
        name = self.view or type(self).__name__.removesuffix("Screen").lower()
        return f"{name}.{grid.id}" if grid.id not in (None, name) else name

    def on_mount(self) -> None:
        for grid in self.query(Grid):
            name = self.table_name(grid)
            if grid.object_of is not None and (own := self.console_app.custom_columns.get(name.partition(".")[0])):
                grid.add_columns([custom_column(one, grid.object_of) for one in own])
            if choices := self.console_app.tables.table(name).columns:
                grid.choose_columns(choices)

    # The Snapshot

    def redraw(self) -> None:
        """Redraw the Snapshot and the frame."""
        if not self.stands:
            return
        if self.snapshot is not EMPTY:
            self.safely(self._show_newest)
            if self.grid is None or self.grid.state is not PaneState.LOADING:
                self._arrived()
        self.refresh_frame()

    def _show_newest(self) -> None:
        self.show(self.snapshot)
        self._say_why_empty()

    def safely(self, draw: Handler) -> None:
        """Call `draw`; if it fails, show the error, so that the rest of the console stays usable."""
        try:
            draw()
        except Exception as error:
            LOG.exception("The screen %s failed", self.crumb())
            for grid in self.query(Grid):
                grid.say(PaneState.FAILED, f"{type(error).__name__}: {error}")
            if str(error) != self._failure:
                self._failure = str(error)
                self.flash(f"This screen failed, see the log: {error}", "error")

    def _say_why_empty(self) -> None:
        """Mark an empty table as loading, or as forbidden (RBAC)."""
        status = self.console.status
        if status.sight is None:
            return
        unseen = status.unseen(self.reads)
        for grid in self.query(Grid):
            if grid.bare and unseen:
                grid.say(PaneState.FORBIDDEN, unseen)
            elif grid.bare and status.loading:
                grid.say(PaneState.LOADING)

    def watch_snapshot(self) -> None:
        self.redraw()

    # Frame

    def compose(self) -> ComposeResult:
        yield Header()
        yield Crumbs()
        with Container(id="body"):
            yield from self.body()
        yield TimeLine()
        yield FilterLine()
        yield CommandLine()
        yield MessageLine()
        yield Footer()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Nothing that our styles depend on changes while a screen is away, except the theme, which Textual sees to
        # itself; to style all widgets again takes as long as to draw them.
        event.refresh_styles = False
        self.set_reactive(ConsoleScreen.snapshot, self.console.snapshot)
        if not self.is_current:
            # It is created before it is needed.
            self.call_after_refresh(self.redraw)
            return
        if not self.has_layout:
            # Laid out first, then filled, then painted once.
            self.console_app.hold_painting()
            self.lay_out(event)
        self.redraw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_frame)

    def refresh_frame(self) -> None:
        """Update the header, the navigation path and the footer."""
        if not self.stands:
            return
        self.show_header()
        names = [screen.crumb() for screen in self.app.screen_stack if isinstance(screen, ConsoleScreen)]
        self.query_one(Crumbs).show(self.console_app.view, names, self.console_app.keymap.actions)
        self.query_one(TimeLine).view = self.console_app.time_travel.view
        self.show_place()
        self.show_keys()

    def show_keys(self) -> None:
        """Show the available keys in the footer, those of the selected object first."""
        if not self.stands:
            return
        offered = [action for action in self.actions.offered() if action.footer and action.keys]
        offered.sort(key=lambda action: (action.scope in WIDE_SCOPES, action.id in EVERY_OBJECT))
        self.query_one(Footer).show([(action, bool(self.refusal(action))) for action in offered])

    def show_place(self) -> None:
        """Show the position of the cursor."""
        grid = self.grid
        self.query_one(Crumbs).right = place(grid) if grid is not None else ""

    def acted(self, action: Action) -> None:
        """Update what an action changed that needed no confirmation."""
        if action.scope is Scope.TABLE:
            # With the row itself, not with the message about it, which comes a frame later.
            self.show_place()

    def show_header(self) -> None:
        """Update the header, which shows the age of the data."""
        if self.stands:
            self.query_one(Header).show(self.console.status, self.namespaces)

    # Actions of all screens

    def _read_only(self, action: Action) -> str:
        """Why an action that changes the cluster, or that leaves it, cannot be run now; empty if it can."""
        if action.id in LOCAL_ACTIONS and in_browser():
            return "not in a browser: it would use files, programs or contexts of the server"
        if not action.changes:
            return ""
        status = self.console.status
        if not status.read_only:
            return ""
        if status.behind is not None:
            return "an earlier time is shown; Esc returns to the present"
        return status.refusal if status.history else "this session is read-only"

    def _own_handlers(self) -> dict[str, Handler]:
        return {
            "app.command": self._open_command,
            **({"table.filter": self._open_filter} if self.grid is not None else {}),
            "app.escape": self.escape,
            "app.next-pane": self.focus_next,
            "app.previous-pane": self.focus_previous,
            "app.zoom": self._zoom,
            "app.refresh": self._renew,
            "app.header": self._toggle_header,
        }

    def _open_command(self) -> None:
        self.query_one(CommandLine).open(self._words)
        contexts = self.console_app.contexts
        if contexts is not None and not self._context_names:
            # Reading the kubeconfig may take a while.
            self.run_worker(lambda: self._context_names.extend(contexts.names()), thread=True, exit_on_error=False)

    def _words(self, what: str) -> Iterable[str]:
        """Names that a command line completes."""
        match what:
            case "contexts" | "app.context":
                return self._context_names
            case "app.theme":
                return [theme.name for theme in self.console_app.themes]
            case "app.view":
                return [*sorted(self.console_app.tables.views), "save ", "delete "]
            case _:
                return names_in(self.console.snapshot, what)

    def _open_filter(self) -> None:
        if (grid := self.grid) is not None:
            self.query_one(FilterLine).open(grid.complete_filter)
            grid.expect_filter()

    def _table_handlers(self) -> dict[str, Handler]:
        grid = self.grid
        return table_handlers(grid) if grid is not None else {}

    @property
    def takes_escape(self) -> bool:
        """True while a prompt, the filter or a text field is open, which escape closes first."""
        # A screen may be asked before its lines are mounted.
        opened = any(line.display for line in (*self.query(CommandLine), *self.query(FilterLine)))
        return opened or isinstance(self.focused, Input)

    def escape(self) -> None:
        """Close the command prompt; else clear the filter; else leave the text field; else go back."""
        command, line = self.query_one(CommandLine), self.query_one(FilterLine)
        if command.display:
            command.close()
            self.focus_body()
        elif line.display:
            line.close()
            self.focus_body()
        elif isinstance(self.focused, Input):
            self.set_focus(None)
        else:
            self.console_app.up()

    def focus_body(self) -> None:
        """Focus the main widget of the screen."""
        grid = self.grid
        target: Widget | None = grid if grid is not None else next(iter(self.query("#body *").results(Widget)), None)
        self.set_focus(target if target is not None and target.focusable else None)

    def set_filter(self, text: str) -> None:
        """Filter the table by this text, and show the filter."""
        line = self.query_one(FilterLine)
        if text:
            line.put(text)
        else:
            line.close()

    def _zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused)

    def _renew(self) -> None:
        self.set_reactive(ConsoleScreen.snapshot, self.console.snapshot)
        self.redraw()

    def _toggle_header(self) -> None:
        for frame in (self.query_one(Header), self.query_one(Crumbs)):
            frame.display = not frame.display

    # Messages of widgets

    @on(FilterChanged)
    def _filter_changed(self, message: FilterChanged) -> None:
        message.stop()
        line, grid = self.query_one(FilterLine), self.grid
        if grid is None:
            return
        try:
            wanted = parse_filter(message.text, grid.columns)
        except FilterError as error:
            # A word that is being typed is not wrong yet where it is known how it may go on.
            typed = error.at is not None and re.fullmatch(r"[\w./-]*\s*", message.text[error.at :])
            if not typed or not line.offer():
                line.complain(str(error), error.at)
            if is_expression(message.text) and grid.filter is not None and grid.filter.expression is None:
                # While `gpus` was typed, it was a regular expression, which few rows match.
                grid.set_filter(None)
            return
        line.offer()
        grid.set_filter(wanted)

    @on(FilterClosed)
    def _filter_closed(self, message: FilterClosed) -> None:
        message.stop()
        self.query_one(FilterLine).rest()
        self.focus_body()

    @on(CommandEntered)
    def _command_entered(self, message: CommandEntered) -> None:
        message.stop()
        self.query_one(CommandLine).close()
        self.focus_body()
        try:
            line = parse_command(message.text)
        except CommandError as error:
            self.flash(str(error), "error")
            return
        if line is not None:
            self.console_app.obey(line)

    @on(RowOpened)
    def _row_opened(self, message: RowOpened) -> None:
        message.stop()
        if "object.open" in self.handlers():
            self.actions.run_id("object.open")

    @on(RowPicked)
    def _row_picked(self, message: RowPicked) -> None:
        message.stop()
        self.show_place()
        self.picked(message.row)
        # After the row is drawn: the footer can wait.
        self.call_after_refresh(self.show_keys)


def scrolling(pane: Widget) -> dict[str, Handler]:
    """Return handlers that scroll a pane without a cursor by the keys that move the cursor of a table."""
    return {
        "table.down": pane.scroll_down,
        "table.up": pane.scroll_up,
        "table.top": pane.scroll_home,
        "table.bottom": pane.scroll_end,
        "table.page-down": pane.scroll_page_down,
        "table.page-up": pane.scroll_page_up,
    }
