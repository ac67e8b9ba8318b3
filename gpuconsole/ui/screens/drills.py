"""List of drills: the bundled ones, or a file."""

from collections.abc import Sequence

from textual.app import ComposeResult

from gpuconsole.insight.drill import DrillSession
from gpuconsole.services.drills import DrillFile, library, open_drill
from gpuconsole.ui.columns import Column
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.drill import DrillScreen
from gpuconsole.ui.widgets.confirm import PromptField
from gpuconsole.ui.widgets.grid import Grid

COLUMNS: tuple[Column[DrillFile], ...] = (
    Column("DRILL", lambda one: one.name, id="name", width=26, sort=lambda one: one.name),
    Column("STEPS", lambda one: str(one.steps), width=5, align="right", sort=lambda one: one.steps),
    Column("DESCRIPTION", lambda one: ((one.description, "dim"),), width=30, flex=1),
)


class DrillsScreen(ConsoleScreen):
    """A list of drills; each runs on its own simulated cluster, never on the cluster of this console."""

    def crumb(self) -> str:
        return "drills"

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key=lambda one: one.path, empty="No bundled drills. Press o to open a file.")

    def on_mount(self) -> None:
        super().on_mount()
        run_in_background(self, library, self._list)

    def handlers(self) -> Handlers:
        return {**super().handlers(), "drill.file": self._ask_file, "object.open": self._open}

    def _list(self, found: Sequence[DrillFile]) -> None:
        if self.stands:
            self.query_one(Grid).show(found)
            self.refresh_frame()

    def _open(self) -> None:
        chosen: DrillFile | None = self.query_one(Grid).current
        if chosen is not None:
            play_drill(self, chosen.path)

    def _ask_file(self) -> None:
        lines = ("A scenario file with steps, or the name of a bundled drill.",)
        self.prompt(PromptField("Open drill", lines=lines), self._play)

    def _play(self, named: str) -> None:
        play_drill(self, named)


def play_drill(screen: ConsoleScreen, named: str) -> None:
    """Open a drill: a file, or the name of a bundled one."""
    run_in_background(screen, lambda: DrillSession(open_drill(named)), lambda play: screen.open(DrillScreen(play)))
