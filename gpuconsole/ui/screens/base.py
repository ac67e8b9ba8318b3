"""The base of every screen: header, crumbs, body, filter and command line, footer; keys become actions here.

A screen names what it offers in `handlers()` and draws a Snapshot in `show()`. It composes and routes; it computes
nothing, and it never edits state: changes go out as Commands, and come back as Snapshots.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from gpuconsole.errors import ConsoleError
from gpuconsole.model.commands import Command
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.ui.actions import ACTIONS, BY_ID, Action, Scope
from gpuconsole.ui.filters import FilterError, parse_filter
from gpuconsole.ui.keymap import continuations, find, spell
from gpuconsole.ui.leaving import Leaving
from gpuconsole.ui.menus import hints, menu
from gpuconsole.ui.messages import CommandEntered, FilterChanged, FilterClosed, RowOpened, RowPicked
from gpuconsole.ui.screens.asking import AskingScreen
from gpuconsole.ui.screens.asking import Handler as Handler
from gpuconsole.ui.screens.tables import place, table_handlers
from gpuconsole.ui.widgets.command_line import CommandError, CommandLine, parse_command
from gpuconsole.ui.widgets.confirm import Question
from gpuconsole.ui.widgets.crumbs import Crumbs
from gpuconsole.ui.widgets.filter import FilterLine
from gpuconsole.ui.widgets.footer import Footer
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.header import Header
from gpuconsole.ui.widgets.notice import State
from gpuconsole.ui.widgets.palette import Entry

if TYPE_CHECKING:
    from gpuconsole.services.console import Console
    from gpuconsole.ui.app import ConsoleApp

LOG = logging.getLogger("gpuconsole.ui.actions")

Handlers = Mapping[str, Handler]

WIDE_SCOPES = (Scope.GLOBAL, Scope.VIEWS, Scope.SIMULATION, Scope.TABLE)
"""What is the same on every screen stands last in the footer."""


class ConsoleScreen(Leaving, AskingScreen, inherit_bindings=False):
    """A screen of the console."""

    BINDINGS: ClassVar[list[BindingType]] = []
    AUTO_FOCUS = "Grid"

    view: ClassVar[str] = ""
    """The id of its view, for screens that a key opens; `view.NAME` in the registry."""

    snapshot: reactive[Snapshot] = reactive(EMPTY, init=False)

    reads: ClassVar[frozenset[str]] = frozenset()
    """Resources of the API whose objects it shows; empty for many of them."""
    passing: ClassVar[bool] = False
    """Left behind when another screen is opened from it."""
    is_answer: bool = False
    """Opened by an action `answer.NAME`: another answer takes its place."""
    _arriving: tuple[str, str] = ("", "")
    _failure: str = ""

    # For screens to fill in

    def body(self) -> ComposeResult:
        """Its widgets between crumbs and footer."""
        yield from ()

    def show(self, snapshot: Snapshot) -> None:
        """Draw this. Called for each new Snapshot while the screen is in front, and when it comes to the front."""

    def handlers(self) -> Handlers:
        """Action id → what to do; extends what the base offers."""
        return self._table_handlers() | self._own_handlers()

    def crumb(self) -> str:
        """Its name in the trail."""
        return self.view

    def same(self, other: "ConsoleScreen") -> bool:
        """Whether the other one shows the same, so that one of them is enough."""
        return type(self) is type(other) and self.crumb() == other.crumb()

    def refusal(self, action: Action) -> str:
        """Why the action cannot be done now, for people; empty if it can."""
        if action.changes and self.console.status.read_only:
            return "this session is read-only"
        return ""

    def question(self, action: Action) -> Question | None:
        """What to ask before a dangerous action; None where there is nothing to lose this time."""
        return Question(f"{action.label.capitalize()}?", (action.help,), yes=action.label.capitalize())

    def point_at(self, key: str) -> None:
        """Put the cursor on the object with this key."""
        grid = self.grid
        if grid is not None and not grid.move_to_key(key):
            self.flash(f"{key} is not in this table", "warning")

    # For screens to use

    @property
    def stands(self) -> bool:
        """Whether its widgets are there: it is made, and not left. To be asked where something comes on its own."""
        return self.is_mounted and self.is_attached and not self._pruning

    @property
    def console(self) -> "Console":
        return self.console_app.cluster

    @property
    def console_app(self) -> "ConsoleApp":
        return cast("ConsoleApp", self.app)

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces to show; empty for all."""
        return self.console_app.namespaces

    @property
    def grid(self) -> Grid[Any] | None:
        """The table that table keys act on: the focused one, else the first that can be seen."""
        if isinstance(self.focused, Grid):
            return self.focused
        return next((grid for grid in self.query(Grid) if grid.display), None)

    def send(self, commands: Iterable[Command], said: str = "") -> None:
        """Ask the cluster for changes, and say so. What comes of them is seen in later Snapshots."""
        try:
            for command in commands:
                self.console.submit(command)
        except ConsoleError as error:
            self.flash(str(error), "error")
        else:
            if said:
                self.flash(said)

    def open(self, screen: "ConsoleScreen") -> None:
        """Go deeper."""
        if not self.left_for(screen.crumb()):
            self.console_app.open(screen)

    def arrive(self, *, filtered: str = "", at: str = "") -> None:
        """Filter the table, or put the cursor on an object, as soon as there is something to see."""
        self._arriving = (filtered, at)
        self.call_after_refresh(self.redraw)

    def redraw(self) -> None:
        """Draw the Snapshot and the frame anew."""
        if not self.stands:
            return
        if self.snapshot is not EMPTY:
            self.safely(self._show_newest)
            if self.grid is None or self.grid.state is not State.LOADING:
                self._arrived()
        self.refresh_frame()

    def _arrived(self) -> None:
        filtered, at = self._arriving
        self._arriving = ("", "")
        if filtered:
            self.set_filter(filtered)
        if at:
            self.point_at(at)

    def _show_newest(self) -> None:
        self.show(self.snapshot)
        self._say_why_empty()

    def safely(self, draw: Handler) -> None:
        """Draw something: a screen that cannot be drawn says so, and leaves the rest of the console usable."""
        try:
            draw()
        except Exception as error:
            LOG.exception("The screen %s failed", self.crumb())
            for grid in self.query(Grid):
                grid.say(State.FAILED, f"{type(error).__name__}: {error}")
            if str(error) != self._failure:
                self._failure = str(error)
                self.flash(f"This screen failed, the log says where: {error}", "error")

    def _say_why_empty(self) -> None:
        """An empty table that is not the whole truth says so: it is being read, or may not be read."""
        status = self.console.status
        if status.sight is None:
            return
        unseen = status.unseen(self.reads)
        for grid in self.query(Grid):
            if grid.bare and unseen:
                grid.say(State.FORBIDDEN, unseen)
            elif grid.bare and status.loading:
                grid.say(State.LOADING)

    # Frame

    def compose(self) -> ComposeResult:
        yield Header()
        yield Crumbs()
        with Container(id="body"):
            yield from self.body()
        yield FilterLine()
        yield CommandLine()
        yield Footer()

    def _post_register(self, app: App[object]) -> None:
        super()._post_register(app)
        # Its widgets are styled by the stylesheet as it is now. Textual counts a new screen as one that saw none, and
        # would parse all styles anew, twice, which took longer than making and drawing the screen.
        self._css_update_count = app._css_update_count

    def on_mount(self) -> None:
        """For screens that have something to set up."""

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        # Nothing that our styles depend on changes while a screen is away, except the theme, which Textual sees to
        # itself; to style all widgets again takes as long as to draw them.
        event.refresh_styles = False
        self.set_reactive(ConsoleScreen.snapshot, self.console.snapshot)
        if not self.is_current:
            # It is made before anybody asks for it.
            self.call_after_refresh(self.redraw)
            return
        if not self._size:
            # Laid out first, then filled, then painted: not bare at first, and then again piece by piece.
            self.console_app.hold_painting()
            event.prevent_default()
            self._on_screen_resume(event)
        self.redraw()

    def _compositor_refresh(self) -> None:
        # Textual would draw everything, and throw it away.
        if not self.app._batch_count:
            super()._compositor_refresh()

    def watch_snapshot(self) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_frame)

    def refresh_frame(self) -> None:
        """Bring header, crumbs and footer up to date."""
        if not self.stands:
            return
        self.show_header()
        names = [screen.crumb() for screen in self.app.screen_stack if isinstance(screen, ConsoleScreen)]
        self.query_one(Crumbs).show(self.console_app.view, names)
        self._show_place()
        offered = [action for action in self.offered() if action.footer and action.keys]
        offered.sort(key=lambda action: action.scope in WIDE_SCOPES)
        self.query_one(Footer).show([(action, bool(self.refusal(action))) for action in offered])

    def _show_place(self) -> None:
        grid = self.grid
        self.query_one(Crumbs).right = place(grid) if grid is not None else ""

    def show_header(self) -> None:
        """Bring the header up to date: what is shown grows older."""
        if self.stands:
            self.query_one(Header).show(self.console.status, self.namespaces)

    # From keys to actions

    def offered(self) -> list[Action]:
        """Everything that can be asked of this screen, in the registry's order."""
        here = {**self.console_app.handlers(), **self.handlers()}
        found = [action for action in ACTIONS if action.id in here]
        # The answers have keys wherever the screen does not need these itself; `:` opens them everywhere.
        own = {key for action in found if action.scope is not Scope.ANSWERS for key in action.keys}
        return [action for action in found if action.scope is not Scope.ANSWERS or own.isdisjoint(action.keys)]

    def entries(self) -> list[Entry]:
        """What the palette shows."""
        return [Entry(action, self.refusal(action)) for action in self.offered() if action.id != "app.palette"]

    def means(self, key: str, before: str = "") -> bool:
        """Does the key do anything here?"""
        offered = self.offered()
        return self._action(key, before, offered) is not None or bool(continuations(key, offered))

    def press(self, key: str, before: str = "") -> None:
        """Do what a key means here. `before` is the key pressed just before it, for sequences such as `y y`."""
        offered = self.offered()
        action = self._action(key, before, offered)
        if action is not None:
            self.run(action)
        elif following := continuations(key, offered):
            self._hint(key, following)

    def _action(self, key: str, before: str, offered: list[Action]) -> Action | None:
        return find(f"{before} {key}", offered) or find(key, offered)

    def run(self, action: Action) -> None:
        """Do an action: refuse it with a reason, or ask first if it is dangerous."""
        LOG.info("action %s in %s", action.id, " › ".join(self.console_app.way))
        handler = {**self.console_app.handlers(), **self.handlers()}.get(action.id)
        if handler is None:
            self.flash(f"{action.label}: not on this screen", "warning")
        elif reason := self.refusal(action):
            self.flash(f"{action.label}: {reason}", "warning")
        elif action.dangerous and (question := self.question(action)) is not None:
            self.ask(question, handler)
        else:
            handler()
            if action.scope is Scope.TABLE:
                # With the row itself, not with the message about it, which comes a frame later.
                self._show_place()

    def run_id(self, id: str) -> None:
        self.run(BY_ID[id])

    def _hint(self, prefix: str, following: Mapping[str, Action]) -> None:
        self.choose(f"{spell(prefix)} …", hints(following, self.refusal), self.run_id)

    def open_menu(self) -> None:
        """Everything that can be done with what is under the cursor; a second key picks."""
        self.choose("What to do with it", menu(self.offered(), self.refusal), self.run_id)

    # Handlers that every screen has

    def _own_handlers(self) -> dict[str, Handler]:
        return {
            "app.command": lambda: self.query_one(CommandLine).open(),
            **({"table.filter": self._open_filter} if self.grid is not None else {}),
            "app.escape": self.escape,
            "app.next-pane": self.focus_next,
            "app.previous-pane": self.focus_previous,
            "app.zoom": self._zoom,
            "app.refresh": self._renew,
            "app.header": self._toggle_header,
        }

    def _open_filter(self) -> None:
        self.query_one(FilterLine).open()
        if self.grid is not None:
            self.grid.expect_filter()

    def _table_handlers(self) -> dict[str, Handler]:
        grid = self.grid
        return table_handlers(grid) if grid is not None else {}

    def escape(self) -> None:
        """Leave the command line; else clear the filter; else leave the field that takes text; else go back."""
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
        """Give the keyboard back to the body."""
        grid = self.grid
        target: Widget | None = grid if grid is not None else next(iter(self.query("#body *").results(Widget)), None)
        self.set_focus(target if target is not None and target.focusable else None)

    def set_filter(self, text: str) -> None:
        """Filter the table by this text, and show that."""
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

    # What widgets tell

    @on(FilterChanged)
    def _filter_changed(self, message: FilterChanged) -> None:
        message.stop()
        line = self.query_one(FilterLine)
        try:
            wanted = parse_filter(message.text)
        except FilterError as error:
            line.complain(str(error))
            return
        line.complain("")
        if (grid := self.grid) is not None:
            grid.set_filter(wanted)

    @on(FilterClosed)
    def _filter_closed(self, message: FilterClosed) -> None:
        message.stop()
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
            self.run_id("object.open")

    @on(RowPicked)
    def _row_picked(self, message: RowPicked) -> None:
        message.stop()
        self._show_place()
        self.picked(message.row)

    def picked(self, row: Any) -> None:
        """The cursor of a table came to another row; screens with a side pane follow it."""
