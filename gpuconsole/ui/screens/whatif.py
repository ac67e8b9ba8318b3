"""What-if screen: a list of changes, simulated in a fork of this cluster, and their outcome."""

import time
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import set_cell_size
from textual import work
from textual.app import ComposeResult
from textual.timer import Timer

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.tables import counted, seconds
from gpuconsole.insight.whatif.answer import EvictedWorkload, in_runs, in_some_runs, rests_on, verdict
from gpuconsole.insight.whatif.whatif import (
    FEASIBLE,
    OTHER_LATENCIES,
    QueueChange,
    StartShift,
    WhatIf,
    WhatIfOutcome,
)
from gpuconsole.model.clock import HOUR, Span, Time, format_exactly, format_seconds, format_tenths, parse_span
from gpuconsole.model.commands import Command, Copy, Later, SetPriority, Submit
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.devices import short_plural
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui import format as fmt
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import called, named
from gpuconsole.ui.paint import GLYPHS, Painted
from gpuconsole.ui.screens.answers import plan_screen
from gpuconsole.ui.screens.background import LongAnswer
from gpuconsole.ui.screens.base import ConsoleScreen, scrolling
from gpuconsole.ui.screens.change_screen import ChangeDialogs, free_file, is_there, write_changes
from gpuconsole.ui.whatif_changes import WhatIfChange
from gpuconsole.ui.widgets.dialogs import PromptField
from gpuconsole.ui.widgets.painter import Lines
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, heading, text_line

LABEL, CELL = 22, 13
ALONE = "baseline", "changed"
"""Names of the two forks if there is one list of changes, which is compared with the unchanged cluster."""
MOST = 12
"""Maximum number of victims and of shifted workloads that are listed."""
INTRODUCTION: tuple[Painted, ...] = (
    BLANK,
    text_line("  No changes yet. A what-if never touches the cluster."),
    BLANK,
    text_line(("  a  ", "key"), "add a change: manifest, stop, priority, quota, node failure"),
    text_line(("  8  ", "key"), "open the submit form; ", ("ctrl+o", "key"), " in it adds its job to the what-if"),
    text_line(("  i  ", "key"), "on any workload, node or queue adds a change for it"),
    text_line(("  ⏎  ", "key"), "simulate baseline and changes to the horizon, and compare"),
    text_line(("  t  ", "key"), "add a delay before the next changes"),
    text_line(("  b  ", "key"), "save as A, then build B to compare"),
    text_line(("  p  ", "key"), "find changes that let the submitted jobs run in time"),
    text_line(("  W  ", "key"), "write the changes to a file for ", ("gpuconsole whatif -f", "strong")),
)
"""Text shown while there is no change."""
KEPT_FOR_COMPARISON: tuple[Painted, ...] = (
    BLANK,
    text_line("  New changes form B, which is compared with A."),
    BLANK,
    text_line(("  a  ", "key"), "add a change to B"),
    text_line(("  b  ", "key"), "edit A again, or compare it with the baseline"),
)
"""Text shown while list A is kept for comparison and list B has no change."""


def result_lines(result: WhatIf, names: tuple[str, str] = ALONE, within: str = "before the horizon") -> list[Painted]:
    """Return the whole result as lines, verdict first.

    `names` are those of the two forks; `within` names their horizon in sentences.
    """
    lines = [text_line(("VERDICT  ", "dim"), (named(verdict(result, within)), "strong")), BLANK]
    lines += [text_line((f"{GLYPHS['fault']} refused: {text}", "fault")) for text in result.refused]
    lines += [text_line((f"no change: {named(text)}", "dim")) for text in result.so_already]
    lines += [
        text_line((f"{GLYPHS['fault']} {one.queue} admits no workloads: {one.why}", "fault"))
        for one in result.closed[:MOST]
    ]
    lines += _more(len(result.closed))
    for outcome in result.outcomes:
        lines += _outcome(outcome, result.time, within, rests_on(result))
    for outcome in result.against:
        lines += [text_line((f"{names[0]}:", "dim")), *_outcome(outcome, result.time, within)]
    only = "" if names == ALONE else f" (only in {names[0]})"
    lines += _evicted("Direct victims", result.victims, result.time, within)
    lines += _evicted("Evictions of submitted jobs", result.own_evictions, result.time, within)
    lines += _evicted("Knock-on evictions", result.knock_on, result.time, within)
    lines += _evicted(f"Avoided evictions{only}", result.spared, result.time, within, "good")
    lines += [BLANK, *_table(result, names)]
    if result.shifts:
        lines += [BLANK, heading(f"Admission shifted: {len(result.shifts)}")]
        lines += [_shift(shift, result.time, within) for shift in result.shifts[:MOST]]
        lines += _more(len(result.shifts))
    if result.latency:
        lines += [BLANK, text_line((f"assumed: {result.latency}", "dim"))]
    return lines


def _more(count: int) -> list[Painted]:
    return [text_line((f"  … and {count - MOST} more", "dim"))] if count > MOST else []


def _outcome(outcome: WhatIfOutcome, start: Time, within: str, runs: str = "") -> list[Painted]:
    """The outcome of one workload; `runs` says what its ranges are based on."""
    name = (called(outcome.workload), "strong")
    gpus = f", {counted(outcome.gpus, outcome.unit)}"
    if outcome.admitted is None:
        some = in_some_runs(outcome.admitted_range)
        first = text_line((f"{GLYPHS['pending']} ", "pending"), name, f"{gpus}: not admitted {within}{some}")
        own = [text_line(("  ", ""), (outcome.text, "dim"))] if outcome.text and outcome.text != outcome.why else []
        return [first, text_line(f"  {named(outcome.why)}"), *own]
    where = f" from {', '.join(outcome.flavors)}" if outcome.flavors else ""
    nodes = f" on {', '.join(outcome.nodes[:4])}{' …' if len(outcome.nodes) > 4 else ''}" if outcome.nodes else ""
    late = f"; {named(outcome.lacking)}" if outcome.lacking else ""
    ranged = in_runs(outcome.admitted_range, start)
    at = f"+{format_tenths(outcome.admitted - start)}" if ranged else _at(outcome.admitted, start)
    when = f"{gpus}: admitted at {at}{ranged}{where}{nodes}{_starts(outcome, start)}{late}"
    if outcome.admitted < start:
        when = f"{gpus}: already admitted, since {seconds(outcome.admitted)}{late}"
    return [text_line((f"{GLYPHS['good']} ", "good"), name, when), text_line((f"  {FEASIBLE}{runs}", "dim"))]


def _starts(outcome: WhatIfOutcome, start: Time) -> str:
    """The start, where it is a range."""
    runs = in_runs(outcome.started_range, start)
    return f", starts at {_at(outcome.started, start)}{runs}" if runs and outcome.started is not None else ""


def _evicted(
    title: str, workloads: Sequence[EvictedWorkload], start: Time, within: str, role: str = "victim"
) -> list[Painted]:
    """A title with the number of evictions, and a line per workload; none without evictions."""
    if not workloads:
        return []
    times = sum(one.evictions for one in workloads)
    of = f" of {counted(len(workloads), 'workload')}" if times > len(workloads) else ""
    rows = [_evicted_line(one, start, within, role) for one in workloads[:MOST]]
    return [BLANK, heading(f"{title}: {times}{of}"), *rows, *_more(len(workloads))]


def _evicted_line(one: EvictedWorkload, start: Time, within: str, role: str) -> Painted:
    times = (
        f", {one.evictions} times from {_at(one.first, start)}" if one.evictions > 1 else f" at {_at(one.first, start)}"
    )
    cost = f"{counted(one.gpus, one.unit)}{times}, {one.lost_gpu_hours:.1f} GPU-hours lost ({fmt.money(one.cost)})"
    more = f" and {len(one.by) - 1} more" if len(one.by) > 1 else ""
    by = f" by {called(one.by[0])}{more}" if one.by else ""
    back = f"restarts at {_at(one.returns, start)}" if one.returns is not None else f"does not restart {within}"
    why = f"{one.rules[0]}{by}; {_freed(one, start)}{back}"
    return text_line((f"{GLYPHS['victim']} ", role), (called(one.workload), "strong"), f"  {cost}, {why}")


def _freed(one: EvictedWorkload, start: Time) -> str:
    """When the first eviction frees quota and nodes, where known."""
    times = (("quota released", one.released), ("pods gone", one.pods_gone))
    moments = [f"{what} at +{format_tenths(time - start)}" for what, time in times if time is not None]
    return f"{', '.join(moments)}; " if moments else ""


def _shift(shift: StartShift, start: Time, within: str) -> Painted:
    before = _at(shift.without, start) if shift.without is not None else f"not {within}"
    after = _at(shift.changed, start) if shift.changed is not None else f"not {within}"
    return text_line(f"  {called(shift.workload)}, {counted(shift.gpus, shift.unit)}: {before} → {after}")


def _at(moment: Time, start: Time) -> str:
    return f"+{format_seconds(moment - start)}"


def _table(result: WhatIf, names: tuple[str, str]) -> list[Painted]:
    at = _at(result.compared, result.time)
    rows = [
        _row("", "now", f"{names[0]}, {at}", f"{names[1]}, {at}", "difference", role="dim"),
        _row(
            f"{short_plural(result.unit)} in use",
            f"{result.gpus_now}/{result.gpus_total}",
            str(result.gpus_without),
            str(result.gpus),
            _signed(result.gpus - result.gpus_without),
        ),
    ]
    rows += [row for queue in result.queues for row in _queue(queue)]
    end = _at(result.horizon, result.time)
    rows += [
        BLANK,
        _row("", "", f"{names[0]}, {end}", f"{names[1]}, {end}", "difference", role="dim"),
        _row("wait p50", "", _span(result.median_wait_without), _span(result.median_wait), _longer(result)),
        _row("wait p95", "", _span(result.p95_wait_without), _span(result.p95_wait), ""),
        _still("pending on quota", result.waiting_without, result.waiting),
        *_besides("… on admission checks", result.checking_without, result.checking),
        *_besides("… on scheduling", result.placeless_without, result.placeless),
        _hours("GPU-hours allocated", result.gpu_hours_without, result.gpu_hours),
        _row("fairness index", "", _index(result.fairness_without), _index(result.fairness), ""),
        _money("node cost per hour", result.hourly_without, result.hourly),
        _hours("lost work", result.lost_gpu_hours_without, result.lost_gpu_hours, " GPU-h"),
        _money("cost of lost work", result.cost_without, result.cost),
    ]
    return rows


def _still(label: str, without: int, fork: int) -> Painted:
    """The number of workloads that are still pending."""
    return _row(label, "", str(without), str(fork), _signed(fork - without))


def _besides(label: str, without: int, fork: int) -> list[Painted]:
    """The number of workloads that have quota but do not run; none where both are 0."""
    return [_still(label, without, fork)] if without or fork else []


def _queue(queue: QueueChange) -> list[Painted]:
    used = _row(
        f"{queue.queue} {short_plural(queue.unit)}",
        f"{queue.used_now}/{queue.nominal_now}",
        str(queue.used_without),
        str(queue.used) if queue.nominal == queue.nominal_now else f"{queue.used}/{queue.nominal}",
        _signed(queue.used - queue.used_without),
    )
    if queue.borrowed_without == queue.borrowed == queue.borrowed_now:
        borrowed = []
    else:
        change = _signed(queue.borrowed - queue.borrowed_without)
        amounts = (str(queue.borrowed_now), str(queue.borrowed_without), str(queue.borrowed))
        borrowed = [_row(f"  {GLYPHS['borrowed']} borrowed", *amounts, change)]
    share = _row(
        "  % of max quota",
        f"{queue.share_now:.0f}%",
        f"{queue.share_without:.0f}%",
        f"{queue.share:.0f}%",
        _points(queue.share - queue.share_without),
    )
    return [used, *borrowed, share]


def _row(label: str, now: str, without: str, fork: str, difference: str, role: str = "") -> Painted:
    cells = "".join(set_cell_size(cell, CELL) + " " for cell in (now, without, fork))
    return text_line((set_cell_size(label, LABEL) + " ", "dim"), (cells, role), (difference, role or "strong"))


def _hours(label: str, without: float, fork: float, unit: str = "") -> Painted:
    return _row(label, "", f"{without:.1f}{unit}", f"{fork:.1f}{unit}", f"{fork - without:+.1f}{unit}")


def _money(label: str, without: float, fork: float) -> Painted:
    more = "+" if fork >= without else ""
    return _row(label, "", fmt.money(without), fmt.money(fork), f"{more}{fmt.money(fork - without)}")


def _signed(amount: int) -> str:
    return f"{amount:+d}" if amount else "same"


def _points(percent: float) -> str:
    """A difference of two percentages."""
    return f"{percent:+.0f} points" if round(percent) else "same"


def _span(span: Span | None) -> str:
    return f"~{fmt.age(span)}" if span is not None else fmt.NOTHING


def _index(fairness: float | None) -> str:
    return fmt.NOTHING if fairness is None else f"{fairness:.2f}"


def _longer(result: WhatIf) -> str:
    if result.median_wait is None or result.median_wait_without is None:
        return fmt.NOTHING
    change = result.median_wait - result.median_wait_without
    return f"{'+' if change >= 0 else '-'}{fmt.age(abs(change))}"


class WhatIfScreen(ConsoleScreen):
    """Simulates a list of changes in a fork of the current cluster, and compares the outcome with the baseline.

    The changes stay until they are undone; each run starts from a new fork.
    """

    view = "whatif"
    AUTO_FOCUS = "TextPane"

    def __init__(self) -> None:
        super().__init__()
        self._asks = ChangeDialogs(self, self.add)
        self.changes: list[WhatIfChange] = []
        self.horizon: Span = HOUR
        self.against: list[WhatIfChange] | None = None
        """Changes saved as A for comparison; None compares with the baseline."""
        self.after: Span = 0
        """Time after the start of the fork at which the next changes apply."""
        self.result: WhatIf | None = None
        self._run = LongAnswer(self, self._steps, self._came, self._failed)
        self._began = 0.0
        self._progress = Progress[WhatIf]()
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
        if self._run.is_outdated:
            self.start()
        self._show_plan()
        if self.result is None and not self._run.is_running:
            begun = (BLANK, text_line("  ", ("⏎", "key"), " to run."))
            self._say(begun if self.changes else KEPT_FOR_COMPARISON if self.against else INTRODUCTION)

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            "whatif.add": self._asks.ask_change,
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

    def ask_quota(self, name: str) -> None:
        """Ask for a new nominal quota of the ClusterQueue `name`, and add the change."""
        self._asks.ask_quota(name)

    def precede(self, change: WhatIfChange) -> None:
        """Add a change that is applied before all others."""
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
        self._progress = Progress()
        self._began = time.monotonic()
        self._clock = self.set_interval(0.2, self._show_progress)
        self._run.start()
        self._show_progress()

    def cancel(self) -> None:
        """Cancel the run; its remaining results are discarded."""
        self._run.cancel()
        self._stop_clock()

    def escape(self) -> None:
        if self._run.is_running:
            self.cancel()
            if self.result is not None and self._progress.doing == OTHER_LATENCIES:
                self._say((BLANK, *result_lines(self.result, self._names)))
            else:
                self._say((BLANK, text_line("  Cancelled. ", ("⏎", "key"), " to run again.")))
        else:
            super().escape()

    def _steps(self, answers: AnalysisService) -> Iterator[Progress[WhatIf]]:
        changes = self.changes
        places = [change.words for change in changes for _ in change.commands]
        return answers.looks(_commands(changes), self.horizon, _commands(self.against or ()), places)

    def _came(self, look: Progress[WhatIf]) -> None:
        self._progress = look
        if look.answer is None:
            return
        self.result = look.answer
        self._show_plan()
        if look.last:
            self._stop_clock()
            self._say((BLANK, *result_lines(look.answer, self._names)))
        else:
            self._show_progress()

    def _failed(self, error: ConsoleError) -> None:
        self._stop_clock()
        self._say((BLANK, text_line(("  ✖ Failed: ", "fault"), str(error))))

    @property
    def _names(self) -> tuple[str, str]:
        """Names of the two simulations."""
        return ALONE if self.against is None else ("A", "B")

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.stop()
            self._clock = None

    def _show_progress(self) -> None:
        took = time.monotonic() - self._began
        dots = "▁▂▃▄▅▆▇█"[int(took * 5) % 8]
        progress = self._progress
        if progress.doing == OTHER_LATENCIES:
            words = f"  {dots} {progress.doing}: {progress.done} of {progress.total}"
        else:
            times = f"to +{format_exactly(self.horizon)}, at +{format_exactly(progress.done)}"
            words = f"  {dots} running two simulations {times}"
        head = (BLANK, text_line((f"{words}, {took:.1f}s   ", "pending"), ("Esc", "key"), " cancels"))
        if self.result is None:
            self._say(head)
        elif progress.doing == OTHER_LATENCIES:
            self._say((*head, BLANK, *result_lines(self.result, self._names)))
        else:
            lines = result_lines(self.result, self._names, "in the next cycle")
            self._say((*head, BLANK, heading("Outcome of the next scheduling cycle"), *lines))

    def _say(self, lines: tuple[Painted, ...]) -> None:
        agreement = self.console.agreement if self.result is not None else ""
        trust = (BLANK, text_line((agreement, "dim"))) if agreement else ()
        self.query_one("#result", TextPane).show((*lines, *trust))

    # Asking for changes

    def _ask_horizon(self) -> None:
        wanted = PromptField("Horizon", format_exactly(self.horizon), ("For example 30m, 2h or 1d.",), wrong_span)
        self.dialogs.prompt(wanted, self._set_horizon)

    def _ask_later(self) -> None:
        lines = ("After the start of the what-if, for example 10m; 0s = immediately.",)
        self.dialogs.prompt(
            PromptField("Apply the next changes at", format_exactly(self.after), lines, _no_span), self._set_after
        )

    def _set_after(self, text: str) -> None:
        self.after = parse_span(text)
        self.flash(f"The next changes apply after {text}" if self.after else "The next changes apply immediately")

    def _ask_wait(self) -> None:
        wanted = PromptField("Target wait (p95)", "10m", ("For example 5m or 1h.",), wrong_span)
        commands = _commands(self.changes)
        self.dialogs.prompt(wanted, lambda text: self.open(plan_screen(commands, parse_span(text), self._take)))

    def _ask_file(self) -> None:
        self.dialogs.prompt(PromptField("Write the changes to file", free_file("change"), check=is_there), self._write)

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
    """Return the error in a typed duration; empty if it is valid."""
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
