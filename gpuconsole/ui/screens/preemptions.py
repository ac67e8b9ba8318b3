"""Preemptions screen: victim, preemptor, rule, lost work, preemption loops."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.overview import LastHour
from gpuconsole.insight.preemption.history import (
    ACTIONS,
    RULES,
    WORDS,
    EvictionCycle,
    PreemptionCount,
    PreemptionRow,
    PreemptionStats,
    at_least,
    chain,
    preemption_stats,
    rows,
    shares,
    whose,
)
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import DAY, format_span
from gpuconsole.model.devices import short_amount
from gpuconsole.model.events import (
    CandidateVerdict,
    ConsideredCandidate,
    HistoryEvent,
    HistoryEventKind,
    PreemptionRule,
)
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted
from gpuconsole.ui.screens.background import SnapshotWorker, TrendReader
from gpuconsole.ui.screens.base import ConsoleScreen, Subject
from gpuconsole.ui.screens.objects import ObjectActions
from gpuconsole.ui.screens.workload_actions import WorkloadActions
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.table_model import Column, with_room_for_units
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines, PaneState
from gpuconsole.ui.widgets.textpane import BLANK, Panes, TextPane, heading, text_line
from gpuconsole.ui.widgets.trends import (
    LAST_DAY,
    WHOLE_CLUSTER,
    WINDOWS,
    Trend,
    TrendWindow,
    binned,
    curve,
    highest,
    window_title,
)

SHORT = {
    RULES[PreemptionRule.IN_CLUSTER_QUEUE]: "priority",
    RULES[PreemptionRule.IN_COHORT_RECLAMATION]: "reclaim",
    RULES[PreemptionRule.IN_COHORT_FAIR_SHARING]: "fair sharing",
    RULES[PreemptionRule.IN_COHORT_RECLAIM_WHILE_BORROWING]: "borrowing",
    ACTIONS["reclaim"]: "reclaim",
    ACTIONS["gangreclaim"]: "reclaim",
    ACTIONS["gangpreempt"]: "priority",
    ACTIONS["consolidation"]: "moved",
}
"""Preemption rule → its short name in the table."""


def key_of(row: PreemptionRow) -> str:
    """Return the key by which the table identifies a preemption."""
    return f"{row.time} {row.victim} {row.by}"


def _priorities(row: PreemptionRow) -> str:
    return f"{_short(row.priority)} ← {_short(row.by_priority)}"


def _short(priority: int | None) -> str:
    if priority is None:
        return fmt.NOTHING
    return f"{priority / 1000:g}k" if abs(priority) >= 10_000 and priority % 100 == 0 else str(priority)


def _took(row: PreemptionRow) -> str:
    if row.latency is None:
        return fmt.NOTHING if row.unseen else "…"
    return f"{'≤' if row.at_most else ''}{fmt.age(row.latency)}"


def _nth(row: PreemptionRow) -> Cell:
    return ((f"⟲{row.nth}", "fault" if row.thrash else "dim"),) if row.nth > 1 else ""


PREEMPTIONS: tuple[Column[PreemptionRow], ...] = (
    Column("WHEN", lambda row: fmt.clock(row.time), id="age", width=8, sort=lambda row: row.time, down=True),
    Column(
        "VICTIM",
        lambda row: ((f"{GLYPHS['victim']} ", "victim"), (called(row.victim), "")),
        id="name",
        width=18,
        flex=1,
        sort=lambda row: row.victim,
    ),
    Column(
        "GPUS",
        lambda row: fmt.NOTHING if row.gpus is None else short_amount(row.gpus, row.unit),
        id="usage",
        width=4,
        align="right",
        sort=lambda row: row.gpus or 0,
        down=True,
    ),
    Column("← BY", lambda row: f"← {called(row.by)}", id="by", width=18, flex=1, sort=lambda row: row.by),
    Column("RULE", lambda row: SHORT.get(row.rule, row.rule), id="status", width=12, sort=lambda row: row.rule),
    Column("PRIORITY", _priorities, id="priority", width=11, sort=lambda row: row.priority or 0, rank=1),
    Column(
        "LOST",
        lambda row: "–" if row.lost_gpu_hours is None else f"{row.lost_gpu_hours:.1f}h",
        id="lost",
        width=6,
        align="right",
        sort=lambda row: row.lost_gpu_hours or 0.0,
        down=True,
        number=lambda row: row.lost_gpu_hours,
        unit="gpu_hours",
    ),
    Column(
        "COST",
        lambda row: "–" if row.cost is None else fmt.money(row.cost),
        id="cost",
        width=9,
        align="right",
        sort=lambda row: row.cost or 0.0,
        down=True,
        rank=2,
        number=lambda row: row.cost,
        unit="usd",
    ),
    Column(
        "TERMINATION",
        _took,
        id="took",
        width=11,
        align="right",
        sort=lambda row: row.latency or 0,
        down=True,
        rank=2,
    ),
    Column(
        "", _nth, id="times", width=3, sort=lambda row: row.nth, down=True, name="times", number=lambda row: row.nth
    ),
)
"""Columns of the table. LOST is in GPU-hours; TERMINATION is the time from the preemption until the victim was gone."""


WHEN_BY_DATE: Column[PreemptionRow] = Column(
    "WHEN", lambda row: fmt.date_and_minute(row.time), id="age", width=12, sort=lambda row: row.time, down=True
)


def preemption_columns(rows: Sequence[PreemptionRow]) -> tuple[Column[PreemptionRow], ...]:
    """Return the columns for these rows: dates if they are of several days, more room if amounts are not GPUs."""
    is_one_day = len({row.time // DAY for row in rows}) <= 1
    columns = PREEMPTIONS if is_one_day else (WHEN_BY_DATE, *PREEMPTIONS[1:])
    return with_room_for_units(columns, (row.unit for row in rows))


MOST = 500
LISTED = 50
LOOPS, PAIRS = 10, 10
"""Number of listed preemption loops of queues and of workloads, and of pairs per loop."""
MOVING = (
    HistoryEventKind.PREEMPTED,
    HistoryEventKind.POD_EVICTED,
    HistoryEventKind.EVICTED,
    HistoryEventKind.ADMITTED,
    HistoryEventKind.STARTED,
    HistoryEventKind.POD_BOUND,
)
"""Kinds of events that can change the preemption history, so that the table is recomputed."""


class ShownPreemptions(NamedTuple):
    """What the preemptions screen shows, computed in the background."""

    rows: Sequence[PreemptionRow]
    who: PreemptionStats
    windows: Sequence[str]
    """Number of preemptions in each time window, as text."""
    window: TrendWindow | None = None
    """The window of the rows; None for all that are known, without a stored history."""


class PreemptionsScreen(ConsoleScreen):
    """All preemptions, newest first; `tab` focuses the counts."""

    view = "preemptions"
    reads = frozenset({"workloads", "events"})

    def __init__(self) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), WorkloadActions(self))
        self._background = SnapshotWorker(self, self._gather, self._tell, reads=True)
        self._trends = TrendReader(self, self._show_trend, window=WINDOWS.index(LAST_DAY))
        self._trend: Trend | None = None
        self._newest: HistoryEvent | None = None
        self._rows: Sequence[PreemptionRow] = ()
        self._window: TrendWindow | None = None
        """The window of the rows."""
        self._shown: ShownPreemptions | None = None

    def body(self) -> ComposeResult:
        yield Lines(id="window")
        yield Panes(
            Grid(
                PREEMPTIONS,
                key=key_of,
                fault=lambda row: row.thrash,
                empty="No preemptions.",
                absent="was neither victim nor preemptor",
            ),
            TextPane(id="counts"),
            wide=150,
        )
        yield TextPane(id="story")

    def show(self, snapshot: Snapshot) -> None:
        newest = next((row for row in reversed(snapshot.recent) if row.what in MOVING), None)
        if newest is None or newest is not self._newest or not self._rows or self._window is not self._trends.window:
            self._newest = newest
            self._background.ask(snapshot)
        self._trends.ask(snapshot, WHOLE_CLUSTER)

    def _gather(self, snapshot: Snapshot) -> ShownPreemptions | ConsoleError:
        try:
            found = rows(self.console.preemptions(MOST))
            window = self._trends.window if self.console.keeps_history else None
            if window is not None:
                found = [row for row in found if row.time > snapshot.time - window.span]
            windows = windows_of(self.console.last_hour(), self.console.preemption_count(), len(found))
        except ConsoleError as error:
            return error
        return ShownPreemptions(found, preemption_stats(found), windows, window)

    def _tell(self, past: ShownPreemptions | ConsoleError) -> None:
        if isinstance(past, ConsoleError):
            self.query_one(Grid).say(PaneState.FAILED, str(past))
            return
        self._rows, self._window, self._shown = past.rows, self._trends.window, past
        grid, columns = self.query_one(Grid), preemption_columns(past.rows)
        if columns != grid.columns:
            grid.columns = columns
        grid.show(self._visible())
        self._show_counts()
        self.picked(self.query_one(Grid).current)

    def _show_trend(self, trend: Trend | None) -> None:
        self._trend = trend
        self._show_counts()

    def _show_counts(self) -> None:
        shown, trend = self._shown, self._trend
        if shown is None:
            return
        fits = trend is not None and trend.window is shown.window
        listed, line = shown.who.preemptions, self.query_one("#window", Lines)
        line.lines = (window_line(shown.who, shown.window, trend if fits else None),) if shown.window else ()
        windows = [*recorded_text(trend, listed), *shown.windows] if trend is not None and fits else shown.windows
        name = shown.window.name if shown.window is not None else ""
        self.query_one("#counts", TextPane).show(count_lines(shown.who, windows, name))

    def _visible(self) -> Sequence[PreemptionRow]:
        names = self.namespaces
        if not names:
            return self._rows
        return [r for r in self._rows if names & {r.victim.partition("/")[0], r.by.partition("/")[0]}]

    def picked(self, row: PreemptionRow | None) -> None:
        self.query_one("#story", TextPane).show(about(row, self._rows) if row is not None else ())

    def subject(self) -> Subject | None:
        row: PreemptionRow | None = self.query_one(Grid).current
        return Subject("workloads", row.victim) if row is not None else None

    def handlers(self) -> Handlers:
        panes = self.query_one(Panes)
        row: PreemptionRow | None = self.query_one(Grid).current
        offered = {
            **super().handlers(),
            **self._trends.handlers(),
            "app.next-pane": lambda: panes.step(1),
            "app.previous-pane": lambda: panes.step(-1),
        }
        if row is not None:
            offered["object.open"] = lambda: self._open(row.victim)
            offered["object.who"] = lambda: self._open(row.by)
        return offered

    def _open(self, key: str) -> None:
        if key in self.snapshot.workloads:
            self.open(WorkloadDetailScreen(key))
        else:
            self.flash(f"{key} no longer exists; press E for its events", "warning")


COLUMNS = 40
"""Maximum width of the curve of preemptions."""


def window_line(found: PreemptionStats, window: TrendWindow, trend: Trend | None) -> Painted:
    """Return the line above the table: the window, the curve of recorded preemptions, and the listed totals.

    If more are recorded than are listed, the totals are those of the newest ones, and the line says so.
    """
    curve_of: Painted = ()
    if trend is not None and trend.samples:
        values = binned(trend, COLUMNS, lambda one: float(one.preempted), sum, absent=0.0)
        curve_of = ((curve(values, highest(values)), "victim"), ("  ", ""))
    lost = _lost(found, found.preemptions, " lost")
    totals = f"{counted(found.preemptions, 'preemption')}, {lost}"
    if trend is not None and found.preemptions >= MOST and trend.preempted > found.preemptions:
        totals = f"{counted(trend.preempted, 'preemption')}; newest {found.preemptions:,}: {lost}"
    return ((f" {window.name.capitalize()}  ", "title"), *curve_of, (totals, ""))


def recorded_text(trend: Trend, listed: int) -> list[str]:
    """Return a text with the number of recorded preemptions in the window of a trend; none if nothing is recorded."""
    if not trend.samples:
        return []
    # The newest minute is not sampled yet.
    return [f"{max(trend.preempted, listed):,} in the {window_title(trend)}"]


def windows_of(hour: LastHour, recorded: int | None, listed: int) -> list[str]:
    """Return texts with the number of preemptions in the last hour and in this session, and how many are `listed`.

    `recorded` is the number in this session; None if no history is kept.
    """
    when = "in the last hour" if hour.whole else f"since {fmt.clock(hour.since)}"
    said = [f"{hour.preempted:,} {when}"]
    if recorded is None:
        return [*said, "listed: preemptions in recent events"]
    more = f"; the newest {listed:,} are listed" if recorded > listed else ""
    return [*said, f"{recorded:,} in this session{more}"]


def count_lines(found: PreemptionStats, windows: Sequence[str] = (), window: str = "") -> list[Painted]:
    """Totals of the listed preemptions by rule, victim, preemptor and queue, preceded by the time windows.

    `window` names the time of the listed ones; empty for all that are known.
    """
    lines = [
        *((heading("PREEMPTIONS"), *(text_line(f"  {text}") for text in windows), BLANK) if windows else ()),
        heading(f"LISTED: {window.upper()}" if window else "LISTED"),
        text_line(f"  {found.preemptions} preemptions, {_lost(found, found.preemptions, ' lost')}"),
        text_line((f"  {found.unplaced} preemptors still unscheduled", "dim")),
    ]
    if found.in_vain:
        lines.append(text_line((f"  {found.in_vain} wasted: the preemptor ended before it was scheduled", "fault")))
    if found.cycles or found.queue_cycles:
        lines += [BLANK, heading("PREEMPTION LOOPS")]
        for what, cycles in (("queues", found.queue_cycles), ("workloads", found.cycles)):
            lines += [painted for cycle in cycles[:LOOPS] for painted in _loop(what, cycle)]
    lines += [BLANK, heading("BY RULE"), *(text_line(f"  {count.times:>4}  {count.name}") for count in found.rules)]
    lines += [BLANK, heading("VICTIMS"), *_counted(found.victims, victims=True)]
    lines += [BLANK, heading("PREEMPTORS"), *_counted(found.causers)]
    lines += [BLANK, heading("VICTIM QUEUES"), *_counted(found.victim_queues)]
    return [*lines, BLANK, heading("PREEMPTING QUEUES"), *_counted(found.causing_queues)]


def _lost(summed: PreemptionStats | PreemptionCount | EvictionCycle, times: int, lost: str = "") -> str:
    """Total lost work and cost, as far as known."""
    hours = at_least(f"{summed.lost_gpu_hours:.1f}", summed.unknown, times)
    cost = "cost unknown" if summed.unpriced == times > 0 else at_least(fmt.money(summed.cost), summed.unpriced, times)
    return f"{hours} GPU-h{lost}, {cost}"


def _loop(what: str, cycle: EvictionCycle) -> Iterator[Painted]:
    """A preemption loop: its totals, then the pairs of victim and preemptor, the most frequent first."""
    size = f"  {len(cycle.names)} {what}"
    yield text_line((size, "fault"), (f"  {counted(cycle.times, 'preemption')}, {_lost(cycle, cycle.times)}", "dim"))
    for pair in cycle.pairs[:PAIRS]:
        names = (called(pair.victim), "strong"), (" ← ", "victim"), (called(pair.by), "")
        yield text_line(f"  {pair.times:>3}×  ", *names)
    if (more := len(cycle.pairs) - PAIRS) > 0:
        yield text_line((f"        and {counted(more, 'more pair')}", "dim"))


def _counted(counts: Sequence[PreemptionCount], *, victims: bool = False) -> Iterable[Painted]:
    """Counts by name; only victims are marked as part of a preemption loop."""
    for count in counts[:LISTED]:
        cycles = (f" {GLYPHS['victim']} preemption loop", "fault") if victims and count.thrash else ""
        lost = f"  {_lost(count, count.times)}"
        yield text_line(f"  {count.times:>3}×  ", (called(count.name), "strong"), (lost, "dim"), cycles)


def about(row: PreemptionRow, rows: Sequence[PreemptionRow]) -> tuple[Painted, ...]:
    """Return lines with details of a preemption: cohort paths, chain (searched in `rows`), outcome, candidates."""
    links = [called(name) for name in chain(row, rows)]
    words: list[tuple[str, str]] = [("chain: ", "dim")]
    for number, name in enumerate(links):
        words += [(" ← ", "victim"), (name, "")] if number else [(name, "strong")]
    victim, by = row.path or row.victim_queue or "no queue", row.by_path or row.by_queue or "no queue"
    return (
        ((f"{victim} ← {by} · {_preemptor_status(row)}", "dim"),),
        *((tuple(words),) if len(links) > 2 else ()),
        ((row.message or row.rule, ""),),
        *_choice(row),
    )


def _preemptor_status(row: PreemptionRow) -> str:
    by = called(row.by)
    freed = "quota release time unknown" if row.unseen else "quota not released yet"
    if row.latency is not None:
        freed = f"quota released after {'at most ' if row.at_most else ''}{format_span(row.latency)}"
    if not row.by_known:
        return f"{freed} · outcome of the preemptor unknown"
    if row.admitted_at is not None:
        return f"{freed} · {by} was admitted at {fmt.clock(row.admitted_at)}"
    if row.in_vain:
        return f"{freed} · wasted: {by} ended before it was scheduled"
    return f"{freed} · {by} is still unscheduled"


def _choice(row: PreemptionRow) -> Iterable[Painted]:
    if row.choice is None:
        return
    said = whose(row.choice, fmt.clock(row.choice.as_of) if row.choice.as_of else "")
    if row.choice.differs:
        yield ((said, "dim"),)
        return
    about = " · ".join(filter(None, (shares(row.choice), said)))
    yield (("CANDIDATES, IN ORDER", "title"), (f"   {about}", "dim"))
    for one in row.choice.considered:
        yield _considered(one)
    if row.choice.left_out:
        yield ((f"  and {row.choice.left_out} more", "dim"),)


def _considered(one: ConsideredCandidate) -> Painted:
    chosen = one.verdict is CandidateVerdict.CHOSEN
    mark = (f"  {GLYPHS['victim']} ", "victim") if chosen else ("  · ", "dim")
    about = f"  {one.queue}, priority {one.priority}: "
    return (mark, (called(one.workload), "strong"), (about, "dim"), (WORDS[one.verdict], "victim" if chosen else ""))
