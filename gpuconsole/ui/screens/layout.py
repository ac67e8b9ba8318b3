"""Frame of all screens: header, crumbs, body, filter, command prompt, footer.

A screen draws a Snapshot in `show()`: each new one while it is active, and the newest one when it becomes active. A
screen that fails to draw shows an error, and the rest of the console stays usable.
"""

import logging
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container
from textual.reactive import reactive

from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.ui.actions import Action, Scope
from gpuconsole.ui.screens.actions_mixin import ActingScreen
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.screens.tables import place
from gpuconsole.ui.widgets.command_line import CommandLine
from gpuconsole.ui.widgets.crumbs import Crumbs
from gpuconsole.ui.widgets.filter import FilterLine
from gpuconsole.ui.widgets.footer import Footer
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.header import Header
from gpuconsole.ui.widgets.notice import PaneState

LOG = logging.getLogger(__name__)

WIDE_SCOPES = (Scope.GLOBAL, Scope.VIEWS, Scope.SIMULATION, Scope.TABLE, Scope.ANSWERS)
"""Scopes that are the same on every screen; they come last in the footer."""
EVERY_OBJECT = ("object.describe", "object.yaml", "object.menu")
"""Actions of all objects; in the footer they come after the actions of the selected object's kind."""


class FramedScreen(ActingScreen):
    """A screen that draws Snapshots inside the common frame."""

    ALLOW_IN_MAXIMIZED_VIEW = "Header, Crumbs, FilterLine, CommandLine, Footer"
    """Widgets that stay when a pane is maximized."""

    view: ClassVar[str] = ""
    """Id of its view (`view.NAME` in the registry), for screens opened by a key."""

    snapshot: reactive[Snapshot] = reactive(EMPTY, init=False)

    reads: ClassVar[frozenset[str]] = frozenset()
    """API resources that it shows; empty if there are many."""
    _failure: str = ""

    # Overridden by screens

    def body(self) -> ComposeResult:
        """Widgets between crumbs and footer."""
        yield from ()

    def show(self, snapshot: Snapshot) -> None:
        """Draw a Snapshot. Called for each new one while the screen is active, and when it becomes active."""

    def crumb(self) -> str:
        """Name of the screen in the crumbs."""
        return self.view

    def arrived(self) -> None:
        """Called after each drawing that filled the table."""

    # Used by screens

    @property
    def stands(self) -> bool:
        """Whether its widgets exist: it is mounted, and not closed. Check it before handling late results."""
        return self.is_mounted and self.is_attached and not self._pruning

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

    # The Snapshot

    def redraw(self) -> None:
        """Redraw the Snapshot and the frame."""
        if not self.stands:
            return
        if self.snapshot is not EMPTY:
            self.safely(self._show_newest)
            if self.grid is None or self.grid.state is not PaneState.LOADING:
                self.arrived()
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
        self.set_reactive(FramedScreen.snapshot, self.console.snapshot)
        if not self.is_current:
            # It is created before it is needed.
            self.call_after_refresh(self.redraw)
            return
        if not self._size:
            # Laid out first, then filled, then painted once.
            self.console_app.hold_painting()
            event.prevent_default()
            self._on_screen_resume(event)
        self.redraw()

    def _compositor_refresh(self) -> None:
        # Textual would draw everything and discard it.
        if not self.app._batch_count:
            super()._compositor_refresh()

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_frame)

    def refresh_frame(self) -> None:
        """Bring header, crumbs and footer up to date."""
        if not self.stands:
            return
        self.show_header()
        names = [screen.crumb() for screen in self.app.screen_stack if isinstance(screen, FramedScreen)]
        self.query_one(Crumbs).show(self.console_app.view, names)
        self.show_place()
        self.show_keys()

    def show_keys(self) -> None:
        """Show the available keys in the footer, those of the selected object first."""
        if not self.stands:
            return
        offered = [action for action in self.offered() if action.footer and action.keys]
        offered.sort(key=lambda action: (action.scope in WIDE_SCOPES, action.id in EVERY_OBJECT))
        self.query_one(Footer).show([(action, bool(self.refusal(action))) for action in offered])

    def show_place(self) -> None:
        """Show the position of the cursor."""
        grid = self.grid
        self.query_one(Crumbs).right = place(grid) if grid is not None else ""

    def acted(self, action: Action) -> None:
        if action.scope is Scope.TABLE:
            # With the row itself, not with the message about it, which comes a frame later.
            self.show_place()

    def show_header(self) -> None:
        """Update the header, which shows the age of the data."""
        if self.stands:
            self.query_one(Header).show(self.console.status, self.namespaces)
