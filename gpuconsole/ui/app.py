"""The app: modes, the way between them, and the newest Snapshot on its way to the screen in front."""

import logging
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.notifications import Notify
from textual.screen import Screen
from textual.theme import Theme
from textual.timer import Timer

from gpuconsole import assets
from gpuconsole.model.events import Happened, What
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.ui.brief import Brief
from gpuconsole.ui.keymap import single_keys
from gpuconsole.ui.messages import SnapshotReady
from gpuconsole.ui.paint import ROLE_CLASSES
from gpuconsole.ui.screens.asking import Severity
from gpuconsole.ui.screens.base import ConsoleScreen, Handler
from gpuconsole.ui.screens.contexts import Contexts, ask_context, go_to, lies_elsewhere
from gpuconsole.ui.screens.driving import driving_handlers, pause_or_resume, set_speed
from gpuconsole.ui.screens.forwards import ForwardsScreen
from gpuconsole.ui.screens.help import HelpScreen
from gpuconsole.ui.screens.lacking import RightsScreen
from gpuconsole.ui.screens.submitting import ask_file, submit_file
from gpuconsole.ui.screens.views import ANSWERS, VIEWS, answer_screen, load
from gpuconsole.ui.theme import load_themes
from gpuconsole.ui.travel import Travel
from gpuconsole.ui.warming import Warming
from gpuconsole.ui.widgets.command_line import CommandLineRead, namespaces
from gpuconsole.ui.widgets.confirm import Confirm, Field, Prompt, Question
from gpuconsole.ui.widgets.painter import RoleStyles
from gpuconsole.ui.widgets.palette import Palette

LOG = logging.getLogger(__name__)

REPAINT = 0.25
"""Seconds between two repaints for new data, at least."""
SELDOM = 4
"""So many times as long between two repaints, while a large cluster is read for the first time."""
FRAME = 0.001
TWICE = 2.0
"""Seconds within which a second ctrl+c quits."""


class ConsoleApp(App[None]):
    """Shows one Console. The loop runs elsewhere; this draws and sends Commands."""

    TITLE = "gpuconsole"
    CSS_PATH = sorted((Path(__file__).parent / "styles").glob("*.tcss"))
    ENABLE_COMMAND_PALETTE = False
    COMPONENT_CLASSES: ClassVar[set[str]] = ROLE_CLASSES
    DEFAULT_MODE = "dashboard"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = dict(VIEWS)
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"press_at_once({key!r})", show=False, priority=True) for key in single_keys()),
        *(Binding(key, f"press({key!r})", show=False) for key in single_keys()),
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
    ) -> None:
        """`repaint` = 0 draws every Snapshot, for tests that tick by hand; `contexts` are where `:ctx` leads.

        `warm` makes all screens while nothing else happens, so that the first opening is as fast as any.
        """
        self.themes: Sequence[Theme] = load_themes(themes or assets.folder("themes"))
        super().__init__()
        self.cluster = cluster
        self.contexts = contexts
        self.namespaces: frozenset[str] = frozenset()
        self._repaint = repaint
        self._painted = self._pressed = 0.0
        self._waiting: Timer | None = None
        self._travel = Travel(self.DEFAULT_MODE)
        self._warm = warm
        self._last_key = ""
        self._seen: Happened | None = None
        self._interrupted = -TWICE
        for theme in self.themes:
            self.register_theme(theme)
        self.theme = self.themes[0].name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The roles of the first theme, so that our stylesheet can be read under any theme."""
        return self.themes[0].variables

    # Data

    def on_mount(self) -> None:
        self._unsubscribe = self.cluster.subscribe(self._published)
        self.set_interval(1.0, self._show_age)
        if self._warm:
            self._warming = Warming(
                self,
                VIEWS,
                load=load,
                others=("answers",),
                shown=self._shows_data,
                ready=self._has_data,
                pressed=lambda: self._pressed,
            )
            self._warming.start()
        for notice in self.cluster.notices:
            self.flash(notice)

    def on_unmount(self) -> None:
        self._unsubscribe()
        # Threads that wait for an answer get an error now: the process ends no sooner than they do.
        self.cluster.stop()

    def _published(self, snapshot: Snapshot) -> None:
        """Runs in the loop's thread."""
        self.post_message(SnapshotReady(snapshot))

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        message.stop()
        if self._waiting is not None:
            return
        # Keys come first: new data wait a moment for them to end, but not for ever.
        repaint = self._repaint * (SELDOM if self._still_reads() else 1)
        quiet = min(self._pressed, self._painted + 4 * repaint) + repaint / 2
        wait = max(self._painted + repaint, quiet) - time.monotonic()
        if wait <= 0:
            self._paint(message.snapshot)
        else:
            self._waiting = self.set_timer(wait, self._paint_newest)

    def _paint_newest(self) -> None:
        self._waiting = None
        self._paint(self.cluster.snapshot)

    def _paint(self, snapshot: Snapshot) -> None:
        self._tell_refusals(snapshot.recent)
        screen = self.front
        if screen is not None:
            screen.snapshot = snapshot
        # After the drawing: a slow screen is drawn less often, and keys come in between.
        self._painted = time.monotonic()

    def _show_age(self) -> None:
        if self.front is not None:
            self.front.show_header()

    def _shows_data(self) -> bool:
        return self._painted > 0 and (len(self.cluster.snapshot.nodes) > 0 or not self.cluster.status.loading)

    def _still_reads(self) -> bool:
        """Whether there is something to see already, and much more to come: to draw it all the time takes from that."""
        return self._shows_data() and self.cluster.status.loading

    def _has_data(self) -> bool:
        return self._painted > 0 and not self.cluster.status.loading

    def _tell_refusals(self, lines: Sequence[Happened]) -> None:
        """Say what the cluster refused since the last time."""
        seen, self._seen = self._seen, lines[-1] if lines else None
        for line in takewhile(lambda line: line is not seen, reversed(lines)):
            if line.what is What.COMMAND_REFUSED:
                self.flash(f"Refused: {line.message or line.reason}", "warning")
            elif line.what is What.COMMAND_DONE:
                self.flash(f"Done: {line.message}")

    @property
    def front(self) -> ConsoleScreen | None:
        """The screen in front, under any dialog."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, ConsoleScreen)), None)

    @property
    def way(self) -> list[str]:
        """The way down, by name; a dialog's is that of its kind."""
        return [s.crumb() if isinstance(s, ConsoleScreen) else type(s).__name__ for s in self.screen_stack]

    # Keys

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            if self._exit:
                return
            # Typed ahead, it means what it means on the screen that the key before it opened, or went back to.
            await self._flush_next_callbacks()
            await self.screen._mounted_event.wait()
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
            and screen.means(str(parameters[0]), self._last_key)
        )

    def action_press_at_once(self, key: str) -> None:
        self.action_press(key)

    def action_press(self, key: str) -> None:
        before, self._last_key = self._last_key, key
        self._pressed = time.monotonic()
        if isinstance(self.screen, ConsoleScreen):
            self.screen.press(key, before)

    def action_interrupt(self) -> None:
        now = time.monotonic()
        if now - self._interrupted < TWICE:
            self.exit()
        self._interrupted = now
        self.flash("Press ctrl+c again to quit", "warning")

    def handlers(self) -> dict[str, Handler]:
        """What can be asked on every screen."""
        screen = self.front
        return {
            "app.palette": self._open_palette,
            "app.help": lambda: self.open(HelpScreen()),
            "app.back": self._back_or_quit,
            "app.quit": self.exit,
            "app.previous": lambda: self._step(-1),
            "app.next": lambda: self._step(1),
            "app.last": self._last_view,
            "app.theme": self._next_theme,
            "app.namespaces": self._ask_namespaces,
            "app.context": lambda: ask_context(self),
            "app.forwards": lambda: self.open(ForwardsScreen()),
            **{f"answer.{name}": self._answerer(name) for name in ANSWERS},
            "app.rights": lambda: self.open(RightsScreen()),
            "app.apply": lambda: ask_file(screen) if screen is not None else None,
            "app.all-namespaces": lambda: self.show_namespaces(frozenset()),
            "app.suspend": self.action_suspend_process,
            **{f"view.{name}": self._opener(name) for name in VIEWS},
            **(driving_handlers(screen) if screen is not None else {}),
        }

    def obey(self, line: CommandLineRead) -> None:
        """Do what a line at the `:` prompt asks for."""
        screen = self.front
        if screen is None:
            return
        match line.action.id:
            case "app.namespaces" if line.argument:
                self.show_namespaces(namespaces(line.argument) or frozenset())
            case "app.context" if line.argument:
                go_to(self, line.argument)
            case "app.apply" if line.argument:
                submit_file(screen, line.argument)
            case "answer.drills" if line.argument:
                load("drills").play_drill(screen, line.argument)
            case "app.theme" if line.argument:
                self._set_theme(line.argument)
            case "sim.speed" if line.argument:
                set_speed(screen, line.argument)
            case "sim.pause":
                pause_or_resume(screen, line.alias)
            case _:
                screen.run(line.action)
        if line.namespaces is not None:
            self.show_namespaces(line.namespaces)
        if line.filter:
            self.go(self.view, filtered=line.filter)

    # Views

    @property
    def view(self) -> str:
        """The view in front."""
        return self.current_mode

    def go(self, view: str, *, filtered: str = "", at: str = "") -> None:
        """Open a view, its table filtered, or with the cursor at an object; from deeper in the same view, go up."""
        if view == self.current_mode:
            while len(self.screen_stack) > 1:
                self.pop_screen()
        else:
            self._travel.go(view)
            self.switch_mode(view)
        if (filtered or at) and (front := self.front) is not None:
            front.arrive(filtered=filtered, at=at)

    def hold_painting(self) -> None:
        """Paint nothing until what was told to widgets by now is done."""
        self._begin_batch()
        self.call_later(self._paint_on)

    def _paint_on(self) -> None:
        self._end_batch()
        self.screen.refresh()

    def delay_update(self, delay: float = FRAME) -> None:
        """Textual draws nothing for 50 ms after a change of mode, lest a new screen flicker; ours hardly wait."""
        super().delay_update(min(delay, FRAME))

    def open(self, screen: ConsoleScreen) -> None:
        """Go deeper, and never round in circles: what is open already is gone back to.

        A screen that is there in passing is left behind, and an answer takes the place of another one.
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
        """Go back to where this screen was opened from; at the top there is nothing to go back to."""
        if len(self.screen_stack) > 1:
            self.pop_screen()

    def _opener(self, name: str) -> Handler:
        return lambda: self.go(name)

    def _answerer(self, name: str) -> Handler:
        return lambda: self._show_answer(name)

    def _show_answer(self, name: str) -> None:
        """Open an answer; the one in front is asked again."""
        wanted, front = answer_screen(name), self.front
        if front is not None and front.same(wanted):
            front.run_id("app.refresh")
        else:
            self.open(wanted)

    def _back_or_quit(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            live = self.cluster.status.sight is not None
            ends = "The cluster goes on without it" if live else "The simulation ends with it"
            question = Question("Quit gpuconsole?", (f"{ends}; its history is kept.",), yes="Quit")
            self.push_screen(Confirm(question), lambda yes: self.exit() if yes else None)

    def _step(self, views: int) -> None:
        view = self._travel.step(views)
        if view is None:
            self.flash("There is no earlier view" if views < 0 else "There is no later view")
        else:
            self.switch_mode(view)

    def _last_view(self) -> None:
        view = self._travel.last
        if view is None:
            self.flash("There is no other view yet")
        else:
            self.go(view)

    def _open_palette(self) -> None:
        screen = self.front
        if screen is not None:
            self.push_screen(Palette(screen.entries()), lambda id: screen.run_id(id) if id is not None else None)

    def rebind(self, cluster: Console) -> None:
        """Go over to another cluster: every screen begins anew, and the old console ends in the background."""
        leaving, self.cluster = self.cluster, cluster
        self._unsubscribe()
        self.namespaces = frozenset()
        self._seen = None
        self._begin_anew()
        self._unsubscribe = cluster.subscribe(self._published)
        for notice in cluster.notices:
            self.flash(notice)
        self.flash(f"Connected to {cluster.status.source}")
        cluster.start()
        self.run_worker(leaving.stop, thread=True, group="leaving")

    def _begin_anew(self) -> None:
        """Nothing of the old cluster stays on any screen."""
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

    # Settings

    def show_namespaces(self, names: frozenset[str]) -> None:
        """Show these namespaces only; none = all. What was not read from a live cluster is connected to anew."""
        if self.contexts is not None and lies_elsewhere(self.contexts, self.cluster.status, names):
            go_to(self, self.cluster.status.source, sorted(names))
            return
        self.namespaces = names
        if self.front is not None:
            self.front.redraw()

    def _ask_namespaces(self) -> None:
        known = ", ".join(self.cluster.snapshot.namespaces) or "none yet"
        wanted = Field("Namespaces to show", ", ".join(sorted(self.namespaces)), (f"Known: {known}", "Empty = all."))
        self.push_screen(Prompt(wanted), self._namespaces_given)

    def _namespaces_given(self, text: str | None) -> None:
        if text is not None:
            self.show_namespaces(namespaces(text) or frozenset())

    def _next_theme(self) -> None:
        names = [theme.name for theme in self.themes]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]

    def _set_theme(self, wanted: str) -> None:
        match = [theme.name for theme in self.themes if wanted in theme.name]
        if match:
            self.theme = match[0]
        else:
            self.flash(f"No theme {wanted}; there are {', '.join(theme.name for theme in self.themes)}", "error")

    # Words

    def flash(self, text: str, severity: Severity = "information") -> None:
        """Say something in passing, in a corner."""
        if self.front is not None:
            self.front.flash(text, severity)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Severity = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        lasts = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(Brief(message, title, severity, lasts, markup)))

    def clear_selection(self) -> None:
        # A field of a screen that is just made may be filled on the way out, when there is no screen any more.
        if self.screen_stack:
            super().clear_selection()

    def _handle_exception(self, error: Exception) -> None:
        # Textual shows it after leaving the screen; the log keeps it with its traceback.
        LOG.error("The console failed", exc_info=error)
        super()._handle_exception(error)
