"""Base class of all screens: navigation, table, filter and command prompt.

Toasts and dialogs are in `asking`, key dispatch in `acting`, header and footer in `framed`. A screen composes widgets
and routes messages; it computes nothing, and never edits state: it sends Commands, and receives Snapshots.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from textual import on
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input

from gpuconsole.errors import ConsoleError
from gpuconsole.model.commands import Command
from gpuconsole.ui.filters import FilterError, parse_filter
from gpuconsole.ui.messages import CommandEntered, FilterChanged, FilterClosed, RowOpened, RowPicked
from gpuconsole.ui.pruning_guard import IgnoreEventsWhilePruning
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.screens.layout import FramedScreen
from gpuconsole.ui.screens.tables import table_handlers
from gpuconsole.ui.widgets.command_line import CommandError, CommandLine, parse_command
from gpuconsole.ui.widgets.crumbs import Crumbs
from gpuconsole.ui.widgets.filter import FilterLine
from gpuconsole.ui.widgets.header import Header


class ConsoleScreen(IgnoreEventsWhilePruning, FramedScreen, inherit_bindings=False):
    """A screen of the console."""

    BINDINGS: ClassVar[list[BindingType]] = []
    AUTO_FOCUS = "Grid"

    passing: ClassVar[bool] = False
    """Whether it is closed when another screen is opened from it."""
    is_answer: bool = False
    """Whether an action `answer.NAME` opened it: another report replaces it."""
    _arriving: tuple[str, str] = ("", "")

    # Overridden by screens

    def handlers(self) -> Handlers:
        """Action id → handler; subclasses extend it."""
        return self._table_handlers() | self._own_handlers()

    def same(self, other: "ConsoleScreen") -> bool:
        """Whether the other screen shows the same content."""
        return type(self) is type(other) and self.crumb() == other.crumb()

    def point_at(self, key: str) -> None:
        """Put the cursor on the object with this key."""
        grid = self.grid
        if grid is not None and not grid.move_to_key(key):
            self.flash(f"{key} is not in this table", "warning")

    def picked(self, row: Any) -> None:
        """Called when another row is selected; screens with a side pane update it."""

    # Used by screens

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
        if not self.left_for(screen.crumb()):
            self.console_app.open(screen)

    def arrive(self, *, filtered: str = "", at: str = "") -> None:
        """Filter the table, or select an object, as soon as the table is filled."""
        self._arriving = (filtered, at)
        self.call_after_refresh(self.redraw)

    def arrived(self) -> None:
        filtered, at = self._arriving
        self._arriving = ("", "")
        if filtered:
            self.set_filter(filtered)
        if at:
            self.point_at(at)

    # Handlers of all screens

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
        """Focus the body."""
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
        self.show_place()
        self.picked(message.row)
        # After the row is drawn: the footer can wait.
        self.call_after_refresh(self.show_keys)
