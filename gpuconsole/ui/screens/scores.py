"""Node scores screen: scheduler filter and score results of each node for a pod, computed in a fork."""

from collections.abc import Sequence
from typing import NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.placement import NodeRow, ScoreTable
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import GLYPHS
from gpuconsole.ui.score_columns import about, best_first, score_columns, summary
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.node_actions import NodeScreen
from gpuconsole.ui.screens.objects import Subject
from gpuconsole.ui.widgets.confirm import ChoiceOption
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.notice import PaneState, notice
from gpuconsole.ui.widgets.painter import Lines, StatusLine

UNKNOWN = ScoreTable(pod="", scheduler="", filters=(), plugins=(), rows=())


class ScoresAnswer(NamedTuple):
    """One computed score table."""

    pod: Pod
    time: Time
    answer: ScoreTable | ConsoleError | None


def candidates(snapshot: Snapshot, workload: Workload) -> list[Pod]:
    """The pods of a workload, unscheduled ones first; without pods, one template pod of each pod set."""
    pods = [pod for pod in snapshot.pods.all() if pod.workload == workload.key and not pod.done]
    if pods:
        return sorted(pods, key=lambda pod: (bool(pod.node), pod.pod_set, pod.index, pod.name))
    return [
        Pod(
            namespace=workload.namespace,
            name=f"{workload.name}-{pod_set.name}",
            template=pod_set.template,
            labels=pod_set.template.labels,
            priority=workload.priority,
        )
        for pod_set in workload.pod_sets
    ]


class ScoresScreen(NodeScreen):
    """Score table of one pod of a workload; ctrl+r recomputes it, f selects another pod."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        super().__init__()
        self._pods = pods
        self._pod = pods[0]
        self._table = UNKNOWN

    def crumb(self) -> str:
        return "node scores"

    def body(self) -> ComposeResult:
        yield StatusLine(id="summary")
        yield Grid(
            score_columns(UNKNOWN),
            key=lambda row: row.node,
            fault=lambda row: not row.fits,
            empty="No nodes.",
            id="scores",
        )
        yield Lines(id="about")

    def on_mount(self) -> None:
        super().on_mount()
        self._ask(self._pod)

    @property
    def _grid(self) -> Grid[NodeRow]:
        return self.query_one("#scores", Grid)

    def subject(self) -> Subject | None:
        row = self._grid.current
        return Subject("nodes", row.node) if row is not None and row.node in self.snapshot.nodes else None

    def handlers(self) -> Handlers:
        return {**super().handlers(), "app.refresh": lambda: self._ask(self._pod), "workload.scores": self._choose}

    def picked(self, row: object) -> None:
        self._show_about()
        self.refresh_frame()

    def _choose(self) -> None:
        options = [
            ChoiceOption(pod.key, pod.name, detail=((pod.node or "not scheduled", "dim"),)) for pod in self._pods
        ]
        self.choose("Node scores of pod", options, self._take, chosen=self._pod.key)

    def _take(self, key: str) -> None:
        self._pod = next(pod for pod in self._pods if pod.key == key)
        self._ask(self._pod)

    @work(thread=True, exclusive=True, group="scores")
    def _ask(self, pod: Pod) -> None:
        worker = get_current_worker()
        newest = self.console.snapshot
        pod = newest.pods.get(pod.key) or pod
        answer: ScoreTable | ConsoleError | None
        try:
            answer = self.console.answers.scores(pod)
        except ConsoleError as error:
            answer = error
        if not worker.is_cancelled:
            self.app.call_from_thread(self._came, ScoresAnswer(pod, newest.time, answer))

    def _came(self, asked: ScoresAnswer) -> None:
        if not self.stands:
            return
        status = self.query_one("#summary", StatusLine)
        status.right = ((f"as of {fmt.clock(asked.time)} ", "dim"),)
        if not isinstance(asked.answer, ScoreTable):
            words = str(asked.answer) if asked.answer is not None else "this scheduler does not score nodes"
            status.left = notice(PaneState.FAILED if asked.answer is not None else PaneState.EMPTY, words)
            self._grid.say(PaneState.EMPTY, words)
            return
        self._table = asked.answer
        status.left = summary(self._table)
        self._grid.columns = score_columns(self._table)
        self._grid.show(best_first(self._table.rows))
        self._show_about()
        self.refresh_frame()

    def _show_about(self) -> None:
        row = self._grid.current
        lines = about(self._table, row) if row is not None else ()
        message = self._table.message
        event_line = tuple(
            ((f" {GLYPHS['fault']} FailedScheduling  ", "fault"), (text, "")) for text in [message] if text
        )
        self.query_one("#about", Lines).lines = (*event_line, *lines)
