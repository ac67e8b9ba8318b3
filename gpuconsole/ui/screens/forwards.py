"""List of the port-forwards of this console: local address, pod, port, state."""

from textual.app import ComposeResult

from gpuconsole.services.forwards import Forward
from gpuconsole.ui.actions import Action
from gpuconsole.ui.columns import Column
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.grid import Grid

FORWARDS_EVERY = 0.5


def _state(forward: Forward) -> Cell:
    return (("● ", "running") if forward.open else ("✖ ", "fault"), (forward.state, ""))


COLUMNS: tuple[Column[Forward], ...] = (
    Column("LOCAL ADDRESS", lambda one: f"127.0.0.1:{one.local}" if one.local else "127.0.0.1:…", width=16),
    Column("POD PORT", lambda one: str(one.remote), width=8),
    Column("POD", lambda one: one.pod, width=24, flex=1),
    Column("STATE", _state, width=30, flex=1),
)


class ForwardsScreen(ConsoleScreen):
    """Table of port-forwards; they stop when the console exits."""

    def body(self) -> ComposeResult:
        yield Grid(
            COLUMNS, key=lambda one: str(one.id), empty="No port-forwards. Press m f on a workload to start one."
        )

    def crumb(self) -> str:
        return "port-forwards"

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(FORWARDS_EVERY, self._renew_rows)
        self._renew_rows()

    def _renew_rows(self) -> None:
        self._forwards.show(self.console.forwards.all())

    @property
    def _forwards(self) -> Grid[Forward]:
        return self.query_one(Grid)

    def handlers(self) -> Handlers:
        return {**super().handlers(), "forward.stop": self._stop}

    def refusal(self, action: Action) -> str:
        if action.id == "forward.stop" and self._forwards.current is None:
            return "no port-forward is selected"
        return super().refusal(action)

    def _stop(self) -> None:
        forward, console = self._forwards.current, self.console
        if forward is None:
            return

        def stop() -> None:
            console.forwards.stop(forward.id)
            console.note(f"port-forward {forward.pod} {forward.remote}", "stopped")

        run_in_background(self, stop, lambda _: self._renew_rows())
