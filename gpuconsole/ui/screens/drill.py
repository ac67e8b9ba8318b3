"""Screen of one drill: predict the victims of each step, then see the actual ones and the reasons."""

from textual.app import ComposeResult
from textual.containers import Container

from gpuconsole.insight.drill import DrillSession, StepResult
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, WorkloadPhase
from gpuconsole.ui.actions import Action
from gpuconsole.ui.columns import Column
from gpuconsole.ui.drill_text import coming_lines, played_lines, score_lines
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.screens.text import scrolling
from gpuconsole.ui.widgets.confirm import PromptField
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import StatusLine
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, text_line
from gpuconsole.ui.workload_columns import columns
from gpuconsole.ui.workload_rows import Listing, WorkloadRow, WorkloadRows

WIDE = 130
"""Width in cells from which text and workloads are shown side by side."""
_SHOWN = ("status", "reason", "priority", "usage", "borrowed", "wait", "queue")
_HOLDS = (*PLACED, WorkloadPhase.QUOTA_RESERVED, WorkloadPhase.EVICTED)


class DrillScreen(ConsoleScreen):
    """The text of the step above, the workloads below; marked rows are the predicted victims."""

    def __init__(self, play: DrillSession) -> None:
        super().__init__()
        self._play = play
        self._rows = WorkloadRows()
        self._listing = Listing()
        self._step_result: StepResult | None = None
        """The last step, shown until the user continues with the next one."""
        self._busy = False

    def crumb(self) -> str:
        return self._play.scenario.name

    def same(self, other: ConsoleScreen) -> bool:
        # A file may have been edited since it was opened.
        return isinstance(other, DrillScreen) and self._play.scenario == other._play.scenario

    def body(self) -> ComposeResult:
        yield StatusLine(id="summary")
        with Container(id="drill"):
            yield TextPane(id="drill-story")
            yield Grid(
                self._columns(),
                key=lambda row: row.key,
                labels=lambda row: row.workload.labels,
                empty="No workloads yet.",
            )

    def _columns(self) -> tuple[Column[WorkloadRow], ...]:
        """The workload columns that matter for preemption, with the names used in the drill."""
        name = Column[WorkloadRow]("WORKLOAD", self._called, id="name", width=27, flex=3, sort=self._called)
        return name, *(one for one in columns(lambda: self._listing) if one.id in _SHOWN)

    def _called(self, row: WorkloadRow) -> str:
        return self._play.label(row.key)

    def on_mount(self) -> None:
        super().on_mount()
        self._draw()

    def on_resize(self) -> None:
        super().on_resize()
        self.query_one("#drill").set_class(self.size.width >= WIDE, "-wide")

    def show(self, snapshot: Snapshot) -> None:
        """Does nothing: a drill has its own cluster, and ignores the one of the console."""

    def handlers(self) -> Handlers:
        table, story = super().handlers(), self.query_one("#drill-story", TextPane)
        return {
            **table,
            **{name: self._saying(table[name]) for name in ("table.mark", "table.mark-range", "table.unmark")},
            **(scrolling(story) if story.has_focus else {}),
            "drill.go-on": self.go_on,
            "drill.name": self._ask_name,
            "drill.again": self._again,
        }

    def refusal(self, action: Action) -> str:
        if action.id == "drill.go-on" and self._play.coming is None:
            return "the drill is over; press R to restart"
        if action.id == "drill.name" and self._step_result is not None:
            return "press ⏎ for the next step first"
        return super().refusal(action)

    def go_on(self) -> None:
        """Run the step and show its outcome; then show the next step."""
        if self._busy:
            return
        if self._step_result is not None:
            self._step_result = None
            self._turn()
            return
        self._busy = True
        said = self._said()
        run_in_background(self, lambda: self._play.step(said), self._came)

    def _came(self, played: StepResult) -> None:
        self._busy, self._step_result = False, played
        self._turn()

    def _again(self) -> None:
        if not self._busy:
            self._busy = True
            scenario = self._play.scenario
            run_in_background(self, lambda: DrillSession(scenario), self._begun)

    def _begun(self, play: DrillSession) -> None:
        self._busy, self._step_result, self._play = False, None, play
        self._turn()

    def _turn(self) -> None:
        """Show the next page of text, if the screen still exists."""
        if self.stands:
            self._grid.unmark()
            self._draw()
            self.query_one("#drill-story", TextPane).scroll_home(animate=False)

    def _draw(self) -> None:
        self._listing = self._rows.update(self._play.snapshot)
        self._grid.show(self._listing.rows)
        self.query_one("#drill-story", TextPane).show(self._story())
        summary, score = self.query_one("#summary", StatusLine), self._play.score
        about = "" if self._begins else self._play.scenario.description
        summary.left = ((f" {self._play.scenario.name} ", "title"), (about, ""))
        summary.right = ((f" {score.right} of {score.steps} correct ", "strong"),) if score.steps else ""
        self.refresh_frame()

    @property
    def _begins(self) -> bool:
        """Whether no step has run: then the text starts with the full description, which the title may cut."""
        coming = self._play.coming
        return self._step_result is None and coming is not None and coming.number == 1

    def _story(self) -> list[Painted]:
        play, step_result = self._play, self._step_result
        if step_result is None:
            coming = play.coming
            if coming is None:
                return []
            about = [text_line(play.scenario.description), BLANK] if self._begins and play.scenario.description else []
            return [*about, *coming_lines(coming, play.snapshot, map(play.label, self._said()))]
        lines = played_lines(step_result, play.label)
        if play.coming is not None:
            return lines
        met = sum(result.ok for result in play.results)
        return [*score_lines(play.score, met, len(play.results)), BLANK, *lines]

    # Predictions

    @property
    def _grid(self) -> Grid[WorkloadRow]:
        return self.query_one(Grid)

    def _said(self) -> list[str]:
        return [row.key for row in self._grid.marked]

    def _saying(self, mark: Handler) -> Handler:
        """Redraw the text after a mark, because marks are predictions."""

        def said() -> None:
            mark()
            self._draw()

        return said

    def _ask_name(self) -> None:
        wanted = PromptField(
            "Pick a victim", lines=("Its name, or namespace/name if several have it.",), check=self._wrong
        )
        self.prompt(wanted, self._mark)

    def _wrong(self, name: str) -> str:
        return "" if self._find(name) else "no running workload has this name, or several have"

    def _find(self, name: str) -> str:
        """Key of the running workload with this name; empty if there is not exactly one."""
        rows = [row for row in self._grid.rows if row.phase in _HOLDS]
        exact = [row.key for row in rows if name in (row.key, self._called(row))]
        found = exact or [row.key for row in rows if name and name == self._called(row).rpartition("/")[2]]
        return found[0] if len(found) == 1 else ""

    def _mark(self, name: str) -> None:
        if self._grid.move_to_key(self._find(name)):
            self._grid.toggle_mark()
            self._draw()
