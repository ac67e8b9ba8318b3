"""The history of preemptions: who had to go for whom, by which rule, what it lost, and whether it goes in circles."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.preemptions import PreemptionRow, VictimCount, by_victim, rows
from gpuconsole.model.events import Happened, What
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Painted
from gpuconsole.ui.preemption_columns import PREEMPTIONS, chain, key_of
from gpuconsole.ui.screens.background import Background
from gpuconsole.ui.screens.base import Handlers
from gpuconsole.ui.screens.objects import Subject
from gpuconsole.ui.screens.workload_actions import WorkloadScreen
from gpuconsole.ui.screens.workload_detail import WorkloadDetailScreen
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.notice import State
from gpuconsole.ui.widgets.panes import Panes
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, heading, line

MOST = 500
MOVING = (What.PREEMPTED, What.POD_EVICTED, What.EVICTED, What.ADMITTED, What.STARTED, What.POD_BOUND)
"""Only after one of these the history of preemptions can look different."""


class Past(NamedTuple):
    """What the screen shows."""

    rows: Sequence[PreemptionRow]
    counts: Sequence[VictimCount]


class PreemptionsScreen(WorkloadScreen):
    """Every preemption, the newest first; `tab` goes to the counts."""

    view = "preemptions"
    reads = frozenset({"workloads", "events"})

    def __init__(self) -> None:
        super().__init__()
        self._background = Background(self, self._gather, self._tell, reads=True)
        self._newest: Happened | None = None
        self._rows: Sequence[PreemptionRow] = ()

    def body(self) -> ComposeResult:
        yield Panes(
            Grid(PREEMPTIONS, key=key_of, fault=lambda row: row.thrash, empty="Nobody was preempted."),
            TextPane(id="counts"),
            wide=150,
        )
        yield TextPane(id="story")

    def show(self, snapshot: Snapshot) -> None:
        newest = next((row for row in reversed(snapshot.recent) if row.what in MOVING), None)
        if newest is None or newest is not self._newest or not self._rows:
            self._newest = newest
            self._background.ask(snapshot)

    def _gather(self, snapshot: Snapshot) -> Past | ConsoleError:
        try:
            found = rows(self.console.preemptions(MOST))
        except ConsoleError as error:
            return error
        return Past(found, by_victim(found))

    def _tell(self, past: Past | ConsoleError) -> None:
        if isinstance(past, ConsoleError):
            self.query_one(Grid).say(State.FAILED, str(past))
            return
        self._rows = past.rows
        self.query_one(Grid).show(self._visible())
        self.query_one("#counts", TextPane).show(count_lines(past))
        self.picked(self.query_one(Grid).current)

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
            "app.next-pane": lambda: panes.step(1),
            "app.previous-pane": lambda: panes.step(-1),
        }
        if row is not None:
            offered["object.open"] = lambda: self._open(row.victim)
            offered["object.who"] = lambda: self._open(row.by)
        return offered

    def _open(self, key: str) -> None:
        if key in self.snapshot.workloads:
            self.app.push_screen(WorkloadDetailScreen(key))
        else:
            self.flash(f"{key} is gone by now; E shows what is remembered of it", "warning")


def count_lines(past: Past) -> list[Painted]:
    """Sums, and the victims that were hit most often."""
    hours = sum(row.lost_gpu_hours for row in past.rows)
    cost = sum(row.cost for row in past.rows)
    vain = sum(1 for row in past.rows if row.admitted_at is None)
    lines = [
        heading("IN ALL"),
        line(f"  {len(past.rows)} preemptions, {hours:.1f} GPU-h lost, {fmt.money(cost)}"),
        line((f"  {vain} whose preemptor has no place yet", "dim")),
        BLANK,
        heading("BY RULE"),
    ]
    rules = Counter(row.rule for row in past.rows)
    lines += [line(f"  {times:>4}  {rule}") for rule, times in rules.most_common()]
    lines += [BLANK, heading("MOST OFTEN EVICTED")]
    for count in past.counts[:50]:
        circles = (f" {GLYPHS['victim']} in circles", "fault") if count.thrash else ""
        lost = f"  {count.lost_gpu_hours:.1f} GPU-h, {fmt.money(count.cost)}"
        lines.append(line(f"  {count.times:>3}×  ", (called(count.workload), "strong"), (lost, "dim"), circles))
    return lines


def about(row: PreemptionRow, rows: Sequence[PreemptionRow]) -> tuple[Painted, ...]:
    """What the columns have no room for."""
    by = called(row.by)
    placed = f"{by} was admitted at {fmt.clock(row.admitted_at)}" if row.admitted_at else f"{by} has no place yet"
    links = chain(row, rows)
    words: list[tuple[str, str]] = [("chain: ", "dim")]
    for number, name in enumerate(links):
        words += [(" ← ", "victim"), (name, "")] if number else [(name, "strong")]
    return (
        ((f"{row.victim_queue or 'no queue'} ← {row.by_queue or 'no queue'} · {placed}", "dim"),),
        *((tuple(words),) if len(links) > 2 else ()),
        ((row.message or row.rule, ""),),
    )
