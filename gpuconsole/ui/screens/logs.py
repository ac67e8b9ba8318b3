"""Log screen: follows the logs of one pod, or of all pods of a gang; only the newest lines are kept."""

from collections.abc import Sequence

from textual.app import ComposeResult

from gpuconsole.backends.object_access import Logs
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.screens.text import scrolling
from gpuconsole.ui.widgets.painter import StatusLine
from gpuconsole.ui.widgets.textpane import TextPane, text_line

LOGS_EVERY = 0.25
"""Seconds between two checks for new lines."""
SERIES = 8


class LogScreen(ConsoleScreen):
    """Follows the logs of pods until it is closed."""

    AUTO_FOCUS = "TextPane"

    def __init__(self, name: str, pods: Sequence[str], *, previous: bool = False) -> None:
        """`pods` are `ns/name`."""
        super().__init__()
        self._trail = name
        self._pods = tuple(pods)
        self._previous = previous
        self._follows = True
        self._logs: Logs | None = None
        self._seen = -1

    def body(self) -> ComposeResult:
        yield StatusLine(id="summary")
        yield TextPane(wrap=False)

    def crumb(self) -> str:
        return f"logs {self._trail}"

    def on_mount(self) -> None:
        super().on_mount()
        self._begin()
        self.set_interval(LOGS_EVERY, self._look)

    def on_unmount(self) -> None:
        self._end()

    def handlers(self) -> Handlers:
        pane = self.query_one(TextPane)
        moves = {name: self._moving(move) for name, move in scrolling(pane).items()}
        return {
            **super().handlers(),
            **moves,
            "table.bottom": lambda: self._set_follow(True),
            "logs.follow": lambda: self._set_follow(not self._follows),
            "logs.previous": self._turn,
        }

    def _moving(self, move: Handler) -> Handler:
        """Stop following, so that the pane stays at older lines."""

        def go() -> None:
            self._set_follow(False)
            move()

        return go

    def _begin(self) -> None:
        desk = self.console.object_access
        if desk is not None:
            pods, previous = self._pods, self._previous
            run_in_background(self, lambda: desk.logs(pods, previous=previous), self._began)

    def _began(self, logs: Logs) -> None:
        if self.stands:
            self._logs, self._seen = logs, -1
            self._look()
        else:
            logs.close()

    def _end(self) -> None:
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def _turn(self) -> None:
        self._end()
        self._previous = not self._previous
        self.query_one(TextPane).show(())
        self._begin()

    def _set_follow(self, follows: bool) -> None:
        self._follows = follows
        self._show_summary()
        if follows:
            self.query_one(TextPane).scroll_end(animate=False)

    def _look(self) -> None:
        logs = self._logs
        panes = self.query(TextPane)
        if logs is None or logs.count == self._seen or not panes:
            return
        self._seen = logs.count
        pane = panes.first()
        pane.show(self._painted(logs))
        self._show_summary()
        if self._follows:
            pane.scroll_end(animate=False)

    def _painted(self, logs: Logs) -> list[Painted]:
        """Log lines, with pod names in different colours if there are several pods."""
        several = len(self._pods) > 1
        roles = {pod: f"series-{number % SERIES + 1}" for number, pod in enumerate(self._pods)}
        painted = []
        for pod, text, ours in logs.lines:
            name = pod.partition("/")[2]
            front = ((f"{name} ", roles.get(pod.split(" ")[0], "dim")),) if several and name else ()
            painted.append(text_line(*front, (f"— {text}", "dim") if ours else text))
        return painted

    def _show_summary(self) -> None:
        logs, summary = self._logs, self.query_one("#summary", StatusLine)
        pods = f"{len(self._pods)} pods" if len(self._pods) > 1 else self._pods[0]
        what = "before the last restart" if self._previous else ("following" if self._follows else "paused")
        summary.left = ((f" {pods} ", "title"), (f" {what}", ""))
        gone = logs.count - len(logs.lines) if logs is not None else 0
        summary.right = f"{gone:,} older lines dropped " if gone > 0 else ""
