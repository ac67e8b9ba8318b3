"""Actions on the pods of an object (logs, shell, port-forward), which need a live cluster, and their screens.

The log screen follows one pod, or all pods of a gang, and keeps only the newest lines. The list of port-forwards shows
local address, pod, port and state.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Sequence

from textual.app import ComposeResult

from gpuconsole.backends.base import Logs
from gpuconsole.errors import ConsoleError
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.forwards import Forward
from gpuconsole.ui.actions import Action, Handler, Handlers
from gpuconsole.ui.paint import Cell, Painted
from gpuconsole.ui.screens.background import outside, run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen, scrolling
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.dialogs import ChoiceOption, PromptField
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import StatusLine
from gpuconsole.ui.widgets.textpane import TextPane, text_line

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


PODDED = ("workloads", "jobs", "pods")
"""Tables on whose objects the pod actions work: workloads, jobs, pods."""
SHELL = "if command -v bash >/dev/null; then exec bash; else exec sh; fi"
NO_KUBECTL = "kubectl is not in the PATH"
HIGHEST = 65_535
_PORTS = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})")


def pods_of(snapshot: Snapshot, subjects: Iterable[tuple[str, str]]) -> list[Pod]:
    """The pods of workloads and jobs, and pods themselves, sorted by pod set and index."""
    wanted = list(subjects)
    workloads = {key for table, key in wanted if table == "workloads"}
    jobs = {key for table, key in wanted if table == "jobs"}
    alone = {key for table, key in wanted if table == "pods"}
    found = [pod for pod in snapshot.pods.all() if pod.workload in workloads or pod.job in jobs or pod.key in alone]
    return sorted(found, key=lambda pod: (pod.namespace, pod.pod_set, pod.index, pod.name))


def show_logs(screen: ConsoleScreen, name: str, pods: list[Pod], *, previous: bool = False) -> None:
    """Open the logs of these pods, or with `previous` of their previous containers; `name` is the screen's title."""
    begun = [pod.key for pod in pods if pod.node]
    if begun:
        screen.open(LogScreen(name, begun, previous=previous))
    else:
        screen.flash("No pod is scheduled yet" if pods else "No pods", "warning")


def open_shell(screen: ConsoleScreen, pods: list[Pod]) -> None:
    """Open a shell in one of the running pods."""
    _choose(screen, "Open a shell in", pods, lambda pod: _shell(screen, pod))


def _shell(screen: ConsoleScreen, pod: Pod) -> None:
    words, console = f"shell in {pod.key}", screen.console
    desk = console.object_access
    if desk is None or not _kubectl(screen, words):
        return
    command = desk.kubectl("exec", "-it", "-n", pod.namespace, pod.name, "--", "sh", "-c", SHELL)
    code = outside(screen, command)
    if code is not None:
        console.note(words, f"exited with {code}", failed=code != 0)
        screen.flash(f"The {words} exited with {code}", "warning" if code else "information")


def ask_port(screen: ConsoleScreen, pods: list[Pod]) -> None:
    """Forward a port of one of the running pods."""
    _choose(screen, "Forward a port of", pods, lambda pod: _ask_port(screen, pod))


def _ask_port(screen: ConsoleScreen, pod: Pod) -> None:
    lines = ("PORT, or LOCAL:REMOTE for a different local port.", "Listens on 127.0.0.1 only.")
    screen.dialogs.prompt(
        PromptField(f"Port of {pod.key}", "", lines, wrong_ports), lambda text: _forward(screen, pod, text)
    )


def wrong_ports(text: str) -> str:
    """Return the error in a text `PORT` or `LOCAL:REMOTE`; empty if it is valid."""
    found = _PORTS.fullmatch(text.strip())
    if found is None:
        return "enter PORT or LOCAL:REMOTE"
    numbers = [int(number) for number in found.groups() if number is not None]
    return "" if int(found[2]) and max(numbers) <= HIGHEST else f"ports are 1 to {HIGHEST:,}"


def _forward(screen: ConsoleScreen, pod: Pod, text: str) -> None:
    found = _PORTS.fullmatch(text.strip())
    words, console = f"port-forward {pod.key} {text}", screen.console
    desk = console.object_access
    if found is None or desk is None or not _kubectl(screen, words):
        return
    local, remote = int(found[1] or 0), int(found[2])
    arguments = ("port-forward", "--address", "127.0.0.1", "-n", pod.namespace, f"pod/{pod.name}")
    # Without a number before the colon kubectl chooses a free port.
    command = desk.kubectl(*arguments, f"{local or ''}:{remote}")
    try:
        console.forwards.start(pod.key, local, remote, command)
    except OSError as error:
        console.note(words, str(error), failed=True)
        screen.flash(f"Cannot run kubectl: {error.strerror or error}", "error")
        return
    console.note(words, "started")
    screen.open(ForwardsScreen())


def _kubectl(screen: ConsoleScreen, words: str) -> bool:
    """Whether kubectl exists and the session permits the action; records the action."""
    if shutil.which("kubectl") is None:
        screen.flash(NO_KUBECTL, "error")
        return False
    try:
        screen.console.permit(words)
    except ConsoleError as error:
        screen.flash(str(error), "warning")
        return False
    return True


def _choose(screen: ConsoleScreen, title: str, pods: list[Pod], then: Callable[[Pod], object]) -> None:
    running = {pod.key: pod for pod in pods if pod.phase is PodPhase.RUNNING}
    if not running:
        screen.flash("No running pods", "warning")
    elif len(running) == 1:
        then(next(iter(running.values())))
    else:
        options = [ChoiceOption(key, pod.name, detail=((pod.node, "dim"),)) for key, pod in running.items()]
        screen.dialogs.choose(title, options, lambda key: then(running[key]))
