"""The what-if: a list of changes, tried in a fork of this cluster, and what would come of them."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult
from textual.timer import Timer
from textual.worker import Worker, get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.whatif import WhatIf
from gpuconsole.model.clock import HOUR, Span, format_span, parse_span
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.plan import Change
from gpuconsole.ui.screens.base import Handlers
from gpuconsole.ui.screens.text import scrolling
from gpuconsole.ui.screens.whatif_changes import ChangeScreen
from gpuconsole.ui.whatif_text import result_lines
from gpuconsole.ui.widgets.confirm import Field
from gpuconsole.ui.widgets.painter import Lines
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, line

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp

INTRODUCTION: tuple[Painted, ...] = (
    BLANK,
    line("  Nothing to try yet. The cluster is never changed from here."),
    BLANK,
    line(("  a  ", "key"), "adds a change: a manifest, a stop, a priority, a quota, a node that is lost"),
    line(("  8  ", "key"), "opens the submit form; ", ("ctrl+o", "key"), " there brings the job here"),
    line(("  i  ", "key"), "on any workload, node or queue brings it here"),
    line(("  ⏎  ", "key"), "runs the fork and the original to the horizon, and compares them"),
)


class WhatIfScreen(ChangeScreen):
    """Keeps the changes until they are undone; each run forks the cluster as it is then."""

    view = "whatif"
    AUTO_FOCUS = "TextPane"

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Change] = []
        self.horizon: Span = HOUR
        self.result: WhatIf | None = None
        self._thread: Worker[None] | None = None
        self._began = 0.0
        self._clock: Timer | None = None

    def body(self) -> ComposeResult:
        yield Lines(id="plan")
        yield TextPane(id="result")

    def show(self, snapshot: Snapshot) -> None:
        self._show_plan()
        if self.result is None and self._thread is None:
            self._say(INTRODUCTION if not self.changes else (BLANK, line("  ", ("⏎", "key"), " runs it.")))

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            "whatif.add": self.ask_change,
            "whatif.undo": self.undo,
            "whatif.run": self.start,
            "whatif.horizon": self._ask_horizon,
            **scrolling(self.query_one("#result", TextPane)),
        }

    def refusal(self, action: Action) -> str:
        if action.id in ("whatif.run", "whatif.undo") and not self.changes:
            return "there is no change yet; a adds one"
        return super().refusal(action)

    # The plan

    def add(self, change: Change) -> None:
        """Try this too. The result is that of an earlier plan from now on, so it goes."""
        self.changes.append(change)
        self._renew_plan()
        self.flash(f"Added: {change.words}")

    def undo(self) -> None:
        """Take the last change back."""
        if self.changes:
            self.flash(f"Taken back: {self.changes.pop().words}")
            self._renew_plan()

    def _renew_plan(self) -> None:
        self.cancel()
        self.result = None
        if self.is_mounted:
            self.show(self.snapshot)
            self.refresh_frame()

    def _show_plan(self) -> None:
        lines = [line((f" {number} ", "key"), change.words) for number, change in enumerate(self.changes, start=1)]
        taken = self.result.time if self.result is not None else self.snapshot.time
        head = line((" FORK ", "chip"), f" of {fmt.clock(taken)}, ", (f"to +{format_span(self.horizon)}", "strong"))
        self.query_one("#plan", Lines).lines = (head, *lines)

    # A run

    def start(self) -> None:
        """Run it in a thread; the screen shows how long it takes, Esc gives it up."""
        self.cancel()
        self.result = None
        self._began = time.monotonic()
        self._clock = self.set_interval(0.2, self._show_progress)
        self._thread = self._run()
        self._show_progress()

    def cancel(self) -> None:
        """Give a run up: what it still computes is thrown away."""
        if self._thread is not None:
            self._thread.cancel()
        self._ended()

    def escape(self) -> None:
        if self._thread is not None:
            self.cancel()
            self._say((BLANK, line("  Given up. ", ("⏎", "key"), " runs it again.")))
        else:
            super().escape()

    @work(thread=True, exclusive=True, group="whatif")
    def _run(self) -> None:
        worker = get_current_worker()
        try:
            answer: WhatIf | ConsoleError = self.console.what_if(
                [command for change in self.changes for command in change.commands], self.horizon
            )
        except ConsoleError as error:
            answer = error
        if not worker.is_cancelled:
            self.app.call_from_thread(self._came, answer)

    def _came(self, answer: WhatIf | ConsoleError) -> None:
        self._ended()
        if isinstance(answer, ConsoleError):
            self._say((BLANK, line(("  ✖ Failed: ", "fault"), str(answer))))
            return
        self.result = answer
        self._show_plan()
        self._say((BLANK, *result_lines(answer)))

    def _ended(self) -> None:
        self._thread = None
        if self._clock is not None:
            self._clock.stop()
            self._clock = None

    def _show_progress(self) -> None:
        took = time.monotonic() - self._began
        dots = "▁▂▃▄▅▆▇█"[int(took * 5) % 8]
        words = f"  {dots} running two forks to +{format_span(self.horizon)}, {took:.1f} s   "
        self._say((BLANK, line((words, "pending"), ("Esc", "key"), " gives it up")))

    def _say(self, lines: tuple[Painted, ...]) -> None:
        self.query_one("#result", TextPane).show(lines)

    # Asking for changes

    def _ask_horizon(self) -> None:
        wanted = Field("How far to look ahead", format_span(self.horizon), ("As 30m, 2h or 1d.",), wrong_span)
        self.prompt(wanted, self._set_horizon)

    def _set_horizon(self, text: str) -> None:
        self.horizon = parse_span(text)
        self._renew_plan()


def wrong_span(text: str) -> str:
    """What is wrong with a duration, for a prompt."""
    try:
        span = parse_span(text)
    except ValueError as error:
        return str(error)
    return "" if span > 0 else "more than nothing"


def try_out(app: "ConsoleApp", change: Change) -> None:
    """Open the what-if with one more change, from wherever one is."""
    _open(app, lambda screen: screen.add(change))


def try_quota(app: "ConsoleApp", cluster_queue: str) -> None:
    """Open the what-if and ask there for another quota of a ClusterQueue."""
    _open(app, lambda screen: screen.call_after_refresh(screen.ask_quota, cluster_queue))


def _open(app: "ConsoleApp", then: Callable[["WhatIfScreen"], object]) -> None:
    app.go("whatif")
    screen = next((screen for screen in app.screen_stack if isinstance(screen, WhatIfScreen)), None)
    if screen is not None:
        then(screen)
