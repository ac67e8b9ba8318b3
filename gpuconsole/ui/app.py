"""The Textual app: view modes, navigation between them and its history, and Snapshots for the front screen."""

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from textual import events
from textual.binding import Binding, BindingType
from textual.notifications import Notification, Notify, SeverityLevel
from textual.screen import Screen
from textual.theme import Theme

from gpuconsole import assets
from gpuconsole.config import ColumnSettings
from gpuconsole.services.console import Console
from gpuconsole.ui.actions import Handler
from gpuconsole.ui.actions import keymap as keymaps
from gpuconsole.ui.key_idle_timer import KeyIdleTimer
from gpuconsole.ui.messages import AlertsChanged, LoggedMessage, SnapshotReady
from gpuconsole.ui.names import named
from gpuconsole.ui.paint import ROLE_CLASSES, AsciiGlyphs
from gpuconsole.ui.refresh import ScreenPreloader, SnapshotSubscriber
from gpuconsole.ui.screens.base import ConsoleScreen, Contexts
from gpuconsole.ui.screens.global_actions import handlers, run_command_line
from gpuconsole.ui.screens.time_travel import TimeTravelControl
from gpuconsole.ui.screens.views import VIEWS, load
from gpuconsole.ui.table_layouts import TableLayouts
from gpuconsole.ui.textual_patches import TunedApp
from gpuconsole.ui.theme import DEFAULT, UserThemes, in_order, load_themes
from gpuconsole.ui.widgets.command_line import CommandLineRead
from gpuconsole.ui.widgets.dialogs import SECONDS
from gpuconsole.ui.widgets.header_footer import MessageLine
from gpuconsole.ui.widgets.painter import RoleStyles

if TYPE_CHECKING:
    from gpuconsole.services.alerting import AlertNews


class ViewHistory:
    """The views that were open, in order, and the current one. Mutates."""

    def __init__(self, start: str) -> None:
        self._visited = [start]
        self._at = 0

    @property
    def here(self) -> str:
        return self._visited[self._at]

    def go(self, view: str) -> None:
        """Record that `view` was opened from the current one, and drop the forward history."""
        if view != self.here:
            self._visited[self._at + 1 :] = [view]
            self._at += 1

    def step(self, views: int) -> str | None:
        """Go back (negative) or forward by `views`; return the view there, or None if there is none."""
        if not 0 <= self._at + views < len(self._visited):
            return None
        self._at += views
        return self.here

    @property
    def last(self) -> str | None:
        """The previously open view."""
        before = (*self._visited[: self._at][::-1], *self._visited[self._at + 1 :])
        return next((view for view in before if view != self.here), None)


class Preferences(Struct, frozen=True, kw_only=True):
    """What the operator chose about the look of the console and its keys."""

    user_themes: Path | None = None
    """Folder of the user's themes; None for bundled themes only."""
    ascii: bool = False
    """Draw glyphs and borders with ASCII characters."""
    layout_file: Path | None = None
    """File that remembers the panels of the dashboard; None to forget them."""
    tables_file: Path | None = None
    """File that remembers columns and saved views; None to forget them."""
    columns: Mapping[str, tuple[ColumnSettings, ...]] = {}
    """Columns that tables show in addition."""
    reduced_motion: bool = False
    """Draw nothing that moves by itself: scrolling jumps, and nothing fades or spins."""
    keymap: keymaps.Keymap = keymaps.DEFAULT


REPAINT = 0.25
"""Minimum seconds between two repaints caused by new data."""
MOST_ALERTS = 3
"""Maximum toasts for alerts that begin to fire at once."""
LOGGED = 1_000
"""Messages that `:messages` lists."""
TWICE = 2.0
"""Seconds within which a second ctrl+c quits."""


def at_terminal() -> bool:
    """Return whether the program reads keys from a terminal that is still open."""
    return sys.__stdin__ is not None and sys.__stdin__.isatty()


class ConsoleApp(TunedApp):
    """The Textual app of one cluster: draws the Snapshots of its Console, and sends Commands to it."""

    TITLE = "gpuconsole"
    CSS_PATH = sorted((Path(__file__).parent / "styles").glob("*.tcss"))
    ENABLE_COMMAND_PALETTE = False
    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES
    DEFAULT_MODE = "dashboard"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = dict(VIEWS)
    BINDINGS: ClassVar[list[BindingType]] = [
        # Terminals send ESC 0 for alt+0, and Textual reads that as the character that a Mac types with it.
        Binding("º", "press('alt+0')", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+q", "press('q')", show=False, priority=True),
    ]

    def __init__(
        self,
        cluster: Console,
        *,
        themes: Path | None = None,
        repaint: float = REPAINT,
        contexts: Contexts | None = None,
        warm: bool = False,
        preferences: Preferences | None = None,
    ) -> None:
        """`repaint` = 0 draws every Snapshot, for tests that tick by hand; `contexts` opens other contexts for `:ctx`.

        `warm` creates all screens while the console is idle, so that the first opening is as fast as any.
        """
        self.themes: Sequence[Theme] = load_themes(themes or assets.folder("themes"))
        super().__init__()
        self.cluster = cluster
        self.contexts = contexts
        self.namespaces: frozenset[str] = frozenset()
        self.tour_steps_made: set[str] = set()
        """Ids of the actions of the tour's steps that were made."""
        self.pace = KeyIdleTimer()
        self._following = SnapshotSubscriber(self, repaint)
        self.travel = ViewHistory(self.DEFAULT_MODE)
        self.time_travel = TimeTravelControl(self)
        self._warm = warm
        self._last_key = ""
        self._interrupted = -TWICE
        self.message_log: deque[LoggedMessage] = deque(maxlen=LOGGED)
        preferences = preferences or Preferences()
        self.layout_file = preferences.layout_file
        self.tables = TableLayouts(preferences.tables_file)
        self.custom_columns = preferences.columns
        for theme in self.themes:
            self.register_theme(theme)
        self._user_themes = UserThemes(preferences.user_themes) if preferences.user_themes is not None else None
        self.theme_problems = self._read_user_themes()
        """What is wrong with the user's themes; they are shown as messages once there is a screen."""
        self.theme = DEFAULT if DEFAULT in self.available_themes else self.themes[0].name
        self.keymap = preferences.keymap
        for key in self.keymap.single_keys:
            name = "comma" if key == "," else key
            self.bind_key(name, f"press_at_once({key!r})", priority=True)
            self.bind_key(name, f"press({key!r})")
        if preferences.ascii:
            self.filter_output(AsciiGlyphs())
        if preferences.reduced_motion:
            self.animation_level = "none"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the colours of the first theme, with which Textual can parse the stylesheet under any theme."""
        return self.themes[0].variables

    def _read_user_themes(self) -> list[str]:
        """Register the user's themes that are new or changed; return the errors in others, which stay as they were."""
        if self._user_themes is None:
            return []
        themes, problems = self._user_themes.read_changed()
        for theme in themes:
            self.register_theme(theme)
            self.themes = in_order([*(one for one in self.themes if one.name != theme.name), theme])
            if theme.name == self.theme:
                self.mutate_reactive(ConsoleApp.theme)
        return problems

    def _watch_user_themes(self) -> None:
        for problem in self._read_user_themes():
            self.flash(problem, "error")

    # Data

    def on_mount(self) -> None:
        self._follow(self.cluster)
        if self._user_themes is not None:
            self.set_interval(1.0, self._watch_user_themes)
            for problem in self.theme_problems:
                self.call_after_refresh(self.flash, problem, "error")
        self._at_terminal = not self.is_headless and at_terminal()
        if not self.is_headless and sys.platform != "win32":
            # Somebody ended the process, or closed its terminal: the same as a quit, with the terminal restored.
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self.set_interval(1.0, self._show_age)
        if self._warm:
            self._warming = ScreenPreloader(
                self,
                VIEWS,
                load=load,
                others=("answers",),
                shown=self._following.shows_data,
                ready=self._following.has_data,
                pace=self.pace,
            )
            self._warming.start()

    def _follow(self, cluster: Console) -> None:
        """Draw the Snapshots of a cluster, and tell of its alerts."""
        self._following.begin(cluster)
        if cluster.alerting is not None:
            cluster.alerting.listen(self._tell_alerts)

    def _tell_alerts(self, news: "AlertNews") -> None:
        """Pass on news from the thread that evaluates the rules."""
        self.post_message(AlertsChanged(news))

    def on_unmount(self) -> None:
        self._following.end()
        # Threads that wait for an answer get an error now: the process ends no sooner than they do.
        self.cluster.stop()

    def on_alerts_changed(self, message: AlertsChanged) -> None:
        """Say which alerts began to fire, and which were resolved."""
        message.stop()
        service = self.cluster.alerting
        for alert in message.news.fired[:MOST_ALERTS]:
            self.flash(f"⚠ {alert.name}: {named(alert.summary)}", "warning")
        if len(message.news.fired) > MOST_ALERTS:
            self.flash(f"{len(message.news.fired) - MOST_ALERTS} more alerts fire; :alerts lists them", "warning")
        if message.news.fired and service is not None and service.rings:
            self.bell()
        if message.news.resolved:
            known = [f"{alert.name}: {named(alert.summary)}" for alert in message.news.resolved[:MOST_ALERTS]]
            more = len(message.news.resolved) - len(known)
            self.flash("Resolved: " + "; ".join([*known, *([f"{more} more"] if more else [])]))

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        message.stop()
        self._following.on_snapshot(message.snapshot)

    def _show_age(self) -> None:
        if self._at_terminal and not at_terminal():
            # Whoever closed it may not have ended this process, which would read its end of file for ever.
            self.exit()
        elif self.front is not None:
            self.front.show_header()

    @property
    def front(self) -> ConsoleScreen | None:
        """The screen in front, under any dialog."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, ConsoleScreen)), None)

    @property
    def way(self) -> list[str]:
        """The navigation path: the name of each open screen, or the class name of a dialog."""
        return [s.crumb() if isinstance(s, ConsoleScreen) else type(s).__name__ for s in self.screen_stack]

    # Keys

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            self.pace.key()
            self.drop_read_errors(SECONDS)
        if isinstance(event, events.InputEvent):
            if self.is_exiting:
                return
            # Typed ahead, it means what it means on the screen that the key before it opened, or went back to.
            await self.wait_for_screen()
        await super().on_event(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "press_at_once":
            return super().check_action(action, parameters)
        # A key that bubbles up from the focused widget comes late: the next one, typed fast, overtakes it. Our own
        # widgets bind no keys, so the app may have theirs at once; fields that take text come first to theirs.
        screen, focused = self.screen, self.focused
        return (
            isinstance(screen, ConsoleScreen)
            and (focused is None or isinstance(focused, RoleStyles))
            and screen.actions.means(str(parameters[0]), self._last_key)
        )

    def action_press_at_once(self, key: str) -> None:
        self.action_press(key)

    def action_press(self, key: str) -> None:
        before, self._last_key = self._last_key, key
        if isinstance(self.screen, ConsoleScreen):
            self.screen.actions.press(key, before)
        if not isinstance(self.screen, ConsoleScreen):
            # The next key belongs to the dialog: neither it nor this one begins a later sequence.
            self._last_key = ""

    def action_interrupt(self) -> None:
        now = time.monotonic()
        if now - self._interrupted < TWICE:
            self.exit()
        self._interrupted = now
        self.flash("Press ctrl+c again to quit", "warning")

    def handlers(self) -> dict[str, Handler]:
        """Actions that every screen has."""
        return handlers(self)

    def obey(self, line: CommandLineRead) -> None:
        """Run a line of the `:` prompt."""
        run_command_line(self, line)

    # Views

    @property
    def view(self) -> str:
        """The view in front."""
        return self.current_mode

    def go(self, view: str, *, filtered: str = "", at: str = "") -> None:
        """Open a view, with the filter text `filtered` or the cursor on the object with the key `at`.

        If it is the current view, close the screens above its table. In another view, screens above the table stay
        open, unless `filtered` or `at` is given.
        """
        aimed, here = bool(filtered or at), view == self.current_mode
        if not here:
            self.travel.go(view)
            self.switch_mode(view)
        while (here or aimed) and len(self.screen_stack) > 1:
            self.pop_screen()
        if aimed and (front := self.front) is not None:
            front.arrive(filtered=filtered, at=at)

    def step(self, views: int) -> None:
        """Go back (negative) or forward in the views that were open; show a toast if there is none."""
        view = self.travel.step(views)
        if view is None:
            self.flash("No previous view" if views < 0 else "No next view")
        else:
            self.switch_mode(view)

    def go_to_last_view(self) -> None:
        """Go to the view that was open before this one, back or forward."""
        view = self.travel.last
        if view is None:
            self.flash("No other view visited yet")
        else:
            self.go(view)

    def open(self, screen: ConsoleScreen) -> None:
        """Open a screen above the front one; if it is open already, close the screens above it instead.

        A front screen with `passing` set is closed first, and a report replaces another report.
        """
        opened = [one for one in self.screen_stack if isinstance(one, ConsoleScreen)]
        if opened[-1].passing:
            self.pop_screen()
            opened.pop()
        for depth, one in enumerate(opened, start=1):
            if one.same(screen):
                while len(self.screen_stack) > depth:
                    self.pop_screen()
                return
        if screen.is_answer and opened[-1].is_answer:
            self.pop_screen()
        self.push_screen(screen)

    def up(self) -> None:
        """Go back to the screen from which this one was opened; does nothing on a top-level view."""
        if len(self.screen_stack) > 1:
            self.pop_screen()

    # Another cluster

    def rebind(self, cluster: Console) -> None:
        """Switch to another cluster: all screens restart, and the old console is closed in the background."""
        self.time_travel.close()
        leaving, self.cluster = self.cluster, cluster
        self._following.end()
        self.namespaces = frozenset()
        self._begin_anew()
        self._follow(cluster)
        self.flash(f"Connected to {cluster.status.source}")
        cluster.start()
        self.run_worker(leaving.stop, thread=True, group="leaving")

    def _begin_anew(self) -> None:
        """Remove the data of the old cluster from all screens."""
        here = self.current_mode
        while len(self.screen_stack) > 1:
            self.pop_screen()
        for name in VIEWS:
            if name != here:
                self._make_anew(name)
        self.switch_mode(next(name for name in VIEWS if name != here))
        self._make_anew(here)
        self.switch_mode(here)
        if self._warm:
            self._warming.start()

    def _make_anew(self, view: str) -> None:
        self.remove_mode(view)
        self.add_mode(view, VIEWS[view])

    # Words

    def flash(self, text: str, severity: SeverityLevel = "information") -> None:
        """Show a message in the line above the footer."""
        if self.front is not None:
            self.front.flash(text, severity)

    def on_notify(self, event: Notify) -> None:
        said = event.notification
        self.message_log.append(LoggedMessage(said.raised_at, said.severity, said.message))

    def show_notification(self, newest: Notification | None) -> None:
        for line in self.front.query(MessageLine) if self.front is not None else ():
            line.show(newest.message if newest is not None else "", newest.severity if newest is not None else "error")
