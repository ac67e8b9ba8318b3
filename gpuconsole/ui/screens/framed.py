"""The frame of every screen and the Snapshot in it: header, crumbs, body, filter and command line, footer.

A screen draws a Snapshot in `show()`, each new one while it is in front, and the newest when it comes to the front. One
that cannot be drawn says so, and leaves the rest of the console usable.
"""

import logging
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container
from textual.reactive import reactive

from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.ui.actions import Action, Scope
from gpuconsole.ui.screens.acting import ActingScreen
from gpuconsole.ui.screens.asking import Handler
from gpuconsole.ui.screens.tables import place
from gpuconsole.ui.widgets.command_line import CommandLine
from gpuconsole.ui.widgets.crumbs import Crumbs
from gpuconsole.ui.widgets.filter import FilterLine
from gpuconsole.ui.widgets.footer import Footer
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.header import Header
from gpuconsole.ui.widgets.notice import State

LOG = logging.getLogger(__name__)

WIDE_SCOPES = (Scope.GLOBAL, Scope.VIEWS, Scope.SIMULATION, Scope.TABLE, Scope.ANSWERS)
"""What is the same on every screen stands last in the footer."""
EVERY_OBJECT = ("object.describe", "object.yaml", "object.menu")
"""What can be done with any object stands in the footer after what can be done with this one only."""


class FramedScreen(ActingScreen):
    """A screen that draws Snapshots inside the frame that all screens share."""

    ALLOW_IN_MAXIMIZED_VIEW = "Header, Crumbs, FilterLine, CommandLine, Footer"
    """What stays when the pane in front takes the whole body."""

    view: ClassVar[str] = ""
    """The id of its view, for screens that a key opens; `view.NAME` in the registry."""

    snapshot: reactive[Snapshot] = reactive(EMPTY, init=False)

    reads: ClassVar[frozenset[str]] = frozenset()
    """Resources of the API whose objects it shows; empty for many of them."""
    _failure: str = ""

    # For screens to fill in

    def body(self) -> ComposeResult:
        """Its widgets between crumbs and footer."""
        yield from ()

    def show(self, snapshot: Snapshot) -> None:
        """Draw this. Called for each new Snapshot while the screen is in front, and when it comes to the front."""

    def crumb(self) -> str:
        """Its name in the trail."""
        return self.view

    def arrived(self) -> None:
        """Called with each drawing after which there is something to see."""

    # For screens to use

    @property
    def stands(self) -> bool:
        """Whether its widgets are there: it is made, and not left. To be asked where something comes on its own."""
        return self.is_mounted and self.is_attached and not self._pruning

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

    # The Snapshot

    def redraw(self) -> None:
        """Draw the Snapshot and the frame anew."""
        if not self.stands:
            return
        if self.snapshot is not EMPTY:
            self.safely(self._show_newest)
            if self.grid is None or self.grid.state is not State.LOADING:
                self.arrived()
        self.refresh_frame()

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
                self.flash(f"This screen failed, see the log: {error}", "error")

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
        """Show the keys that work here, now: those of the object under the cursor first."""
        if not self.stands:
            return
        offered = [action for action in self.offered() if action.footer and action.keys]
        offered.sort(key=lambda action: (action.scope in WIDE_SCOPES, action.id in EVERY_OBJECT))
        self.query_one(Footer).show([(action, bool(self.refusal(action))) for action in offered])

    def show_place(self) -> None:
        """Say where the cursor is."""
        grid = self.grid
        self.query_one(Crumbs).right = place(grid) if grid is not None else ""

    def acted(self, action: Action) -> None:
        if action.scope is Scope.TABLE:
            # With the row itself, not with the message about it, which comes a frame later.
            self.show_place()

    def show_header(self) -> None:
        """Bring the header up to date: what is shown grows older."""
        if self.stands:
            self.query_one(Header).show(self.console.status, self.namespaces)
