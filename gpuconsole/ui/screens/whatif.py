"""What-if screen: a list of changes, simulated in a fork of this cluster, and their outcome."""

import time
from collections.abc import Iterable

from textual import work
from textual.app import ComposeResult
from textual.timer import Timer
from textual.worker import Worker, get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.whatif.comparison import RUNS
from gpuconsole.insight.whatif.whatif import WhatIf, WhatIfProgress
from gpuconsole.model.clock import HOUR, Span, format_exactly, parse_span
from gpuconsole.model.commands import Command, Copy, Later, SetPriority, Submit
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.actions import Action
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.plan_and_risk import PlanScreen
from gpuconsole.ui.screens.text import scrolling
from gpuconsole.ui.screens.whatif_changes import ChangeScreen
from gpuconsole.ui.screens.whatif_file import free_file, is_there, write_changes
from gpuconsole.ui.whatif_changes import WhatIfChange
from gpuconsole.ui.whatif_text import ALONE, INTRODUCTION, KEPT_FOR_COMPARISON, result_lines
from gpuconsole.ui.widgets.confirm import PromptField
from gpuconsole.ui.widgets.painter import Lines
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, heading, text_line


class WhatIfScreen(ChangeScreen):
    """Holds the changes until they are undone; each run forks the current cluster."""

    view = "whatif"
    AUTO_FOCUS = "TextPane"

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[WhatIfChange] = []
        self.horizon: Span = HOUR
        self.against: list[WhatIfChange] | None = None
        """Changes saved as A for comparison; None compares with the baseline."""
        self.after: Span = 0
        """Time after the start of the fork at which the next changes apply."""
        self.result: WhatIf | None = None
        self._thread: Worker[None] | None = None
        self._began = 0.0
        self._reached: Span = 0
        self._other_runs: int | None = None
        """Number of started runs with other latencies; None before both simulations reach the horizon."""
        self._clock: Timer | None = None

    def body(self) -> ComposeResult:
        yield Lines(id="plan")
        yield TextPane(id="result")

    def on_mount(self) -> None:
        self._expect()

    @work(thread=True, exclusive=True, group="expect")
    def _expect(self) -> None:
        self.console.answers.expect()

    def show(self, snapshot: Snapshot) -> None:
        self._show_plan()
        if self.result is None and self._thread is None:
            begun = (BLANK, text_line("  ", ("⏎", "key"), " to run."))
            self._say(begun if self.changes else KEPT_FOR_COMPARISON if self.against else INTRODUCTION)

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            "whatif.add": self.ask_change,
            "whatif.undo": self.undo,
            "whatif.run": self.start,
            "whatif.horizon": self._ask_horizon,
            "whatif.later": self._ask_later,
            "whatif.compare": self.keep_for_comparison,
            "whatif.plan": self._ask_wait,
            "whatif.write": self._ask_file,
            **scrolling(self.query_one("#result", TextPane)),
        }

    def refusal(self, action: Action) -> str:
        if action.id in ("whatif.run", "whatif.undo", "whatif.write") and not self.changes:
            return "no changes yet; press a to add one"
        if action.id == "whatif.plan" and not any(map(_submits, _commands(self.changes))):
            return "no job among the changes; press a to add one"
        if action.id == "whatif.compare" and not self.changes and self.against is None:
            return "no changes yet; press a to add one"
        return super().refusal(action)

    # Changes

    def add(self, change: WhatIfChange) -> None:
        """Add a change, and discard the result of the earlier changes."""
        change = whatif_changes.later(change, self.after)
        self.changes.append(change)
        self._added(change)

    def precede(self, change: WhatIfChange) -> None:
        """Add a change before all others."""
        self.changes.insert(0, change)
        self._added(change)

    def _take(self, change: WhatIfChange) -> None:
        """Add an option of a plan as it was evaluated: before the jobs, except changes of their priorities."""
        if any(isinstance(command, SetPriority) for command in change.commands):
            self.add(change)
        else:
            self.precede(change)

    def _added(self, change: WhatIfChange) -> None:
        self._renew_plan()
        if self.is_mounted:
            self._expect()
        self.flash(f"Added: {change.words}")

    def keep_for_comparison(self) -> None:
        """Save the changes as A and start B; if A exists, swap them."""
        self.against, self.changes, self.after = (self.changes or None), self.against or [], 0
        self._renew_plan()
        if self.against is None:
            self.flash("Restored A; compared with the baseline")
        else:
            self.flash("Swapped A and B" if self.changes else "Saved as A; add the changes of B")

    def undo(self) -> None:
        """Remove the last change."""
        if self.changes:
            self.flash(f"Removed: {self.changes.pop().words}")
            self._renew_plan()

    def _renew_plan(self) -> None:
        self.cancel()
        self.result = None
        if self.is_mounted:
            self.show(self.snapshot)
            self.refresh_frame()

    def _show_plan(self) -> None:
        lines = [text_line((" A ", "dim"), change.words) for change in self.against or ()]
        lines += [
            text_line((f" {number} ", "key"), change.words) for number, change in enumerate(self.changes, start=1)
        ]
        taken = self.result.time if self.result is not None else self.snapshot.time
        head = text_line(
            (" WHAT-IF ", "chip"), f" from {fmt.clock(taken)}, ", (f"horizon {format_exactly(self.horizon)}", "strong")
        )
        self.query_one("#plan", Lines).lines = (head, *lines)

    # A run

    def start(self) -> None:
        """Start the simulation in a thread; the screen shows progress, Esc cancels it."""
        self.cancel()
        self.result = None
        self._reached, self._other_runs = 0, None
        self._began = time.monotonic()
        self._clock = self.set_interval(0.2, self._show_progress)
        self._thread = self._run()
        self._show_progress()

    def cancel(self) -> None:
        """Cancel the run; its remaining results are discarded."""
        if self._thread is not None:
            self._thread.cancel()
        self._ended()

    def escape(self) -> None:
        if self._thread is not None:
            self.cancel()
            if self.result is not None and self._other_runs is not None:
                self._say((BLANK, *result_lines(self.result, self._names)))
            else:
                self._say((BLANK, text_line("  Cancelled. ", ("⏎", "key"), " to run again.")))
        else:
            super().escape()

    @work(thread=True, exclusive=True, group="whatif")
    def _run(self) -> None:
        worker = get_current_worker()
        commands, against = _commands(self.changes), _commands(self.against or ())
        places = [change.words for change in self.changes for _ in change.commands]
        try:
            for look in self.console.answers.looks(commands, self.horizon, against, places):
                # Not requesting the next result cancels the rest.
                if worker.is_cancelled:
                    return
                self.app.call_from_thread(self._came, look)
        except ConsoleError as error:
            if not worker.is_cancelled:
                self.app.call_from_thread(self._failed, error)

    def _came(self, look: WhatIfProgress) -> None:
        if self._thread is None:
            return
        self._reached, self._other_runs = look.reached, look.other_runs
        if look.answer is None:
            return
        self.result = look.answer
        self._show_plan()
        if look.last:
            self._ended()
            self._say((BLANK, *result_lines(look.answer, self._names)))
        else:
            self._show_progress()

    def _failed(self, error: ConsoleError) -> None:
        self._ended()
        self._say((BLANK, text_line(("  ✖ Failed: ", "fault"), str(error))))

    @property
    def _names(self) -> tuple[str, str]:
        """Names of the two simulations."""
        return ALONE if self.against is None else ("A", "B")

    def _ended(self) -> None:
        self._thread = None
        if self._clock is not None:
            self._clock.stop()
            self._clock = None

    def _show_progress(self) -> None:
        took = time.monotonic() - self._began
        dots = "▁▂▃▄▅▆▇█"[int(took * 5) % 8]
        words = (
            f"  {dots} running two simulations to +{format_exactly(self.horizon)}, at +{format_exactly(self._reached)}"
        )
        if self._other_runs is not None:
            words = f"  {dots} additional runs for ranges: {self._other_runs} of {RUNS}"
        head = (BLANK, text_line((f"{words}, {took:.1f}s   ", "pending"), ("Esc", "key"), " cancels"))
        if self.result is None:
            self._say(head)
        elif self._other_runs is not None:
            self._say((*head, BLANK, *result_lines(self.result, self._names)))
        else:
            lines = result_lines(self.result, self._names, "in the next cycle")
            self._say((*head, BLANK, heading("Outcome of the next scheduling cycle"), *lines))

    def _say(self, lines: tuple[Painted, ...]) -> None:
        self.query_one("#result", TextPane).show(lines)

    # Asking for changes

    def _ask_horizon(self) -> None:
        wanted = PromptField("Horizon", format_exactly(self.horizon), ("For example 30m, 2h or 1d.",), wrong_span)
        self.prompt(wanted, self._set_horizon)

    def _ask_later(self) -> None:
        lines = ("After the start of the what-if, for example 10m; 0s = immediately.",)
        self.prompt(
            PromptField("Apply the next changes at", format_exactly(self.after), lines, _no_span), self._set_after
        )

    def _set_after(self, text: str) -> None:
        self.after = parse_span(text)
        self.flash(f"The next changes apply after {text}" if self.after else "The next changes apply immediately")

    def _ask_wait(self) -> None:
        wanted = PromptField("Target wait (p95)", "10m", ("For example 5m or 1h.",), wrong_span)
        commands = _commands(self.changes)
        self.prompt(wanted, lambda text: self.open(PlanScreen(commands, parse_span(text), self._take)))

    def _ask_file(self) -> None:
        self.prompt(PromptField("Write the changes to file", free_file("change"), check=is_there), self._write)

    def _write(self, path: str) -> None:
        wrong = write_changes(_commands(self.changes), self.horizon, path)
        if wrong:
            self.flash(wrong, "error")
        else:
            self.flash(f"Written; run gpuconsole whatif -f {path}")

    def _set_horizon(self, text: str) -> None:
        self.horizon = parse_span(text)
        self._renew_plan()


def wrong_span(text: str) -> str:
    """The error in a duration; empty if it is valid."""
    try:
        span = parse_span(text)
    except ValueError as error:
        return str(error)
    return "" if span > 0 else "must be greater than 0"


def _commands(changes: Iterable[WhatIfChange]) -> list[Command]:
    return [command for change in changes for command in change.commands]


def _submits(command: Command) -> bool:
    """True for commands that submit or copy a job, immediately or later."""
    return isinstance(command.command if isinstance(command, Later) else command, Submit | Copy)


def _no_span(text: str) -> str:
    return "" if text.strip() in ("0", "0s") else wrong_span(text)
