"""Workloads screen (pending workloads with position and estimated start, running ones), and the screen of one workload.

The latter shows state, pending reason, simulated suggestions, forecast and cost.
"""

from collections.abc import Callable, Sequence

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.cost.rates import hourly
from gpuconsole.insight.cost.report import JobCost, job_cost, job_facts
from gpuconsole.insight.forecast.estimates import StartEstimates
from gpuconsole.insight.forecast.forecast import WorkloadOutlook
from gpuconsole.insight.health.telemetry import of_pods, use
from gpuconsole.insight.index.demand import ends_at
from gpuconsole.insight.index.device_layout import connection
from gpuconsole.insight.index.object_lists import user_of
from gpuconsole.insight.index.queues import position_text
from gpuconsole.insight.index.unqueued_work import unqueued_work
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.pending.unscheduled_pods import group_lines
from gpuconsole.insight.pending.why import Tried, waits_for_places
from gpuconsole.insight.timeline import timeline
from gpuconsole.insight.unblock.changes import change_commands, in_words
from gpuconsole.insight.unblock.search import Suggestion
from gpuconsole.model.clock import MINUTE, Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, Workload, WorkloadPhase
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.describe import linked
from gpuconsole.ui.names import called, named
from gpuconsole.ui.node_columns import trend_text, use_text
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.background import AnswerPoller, SnapshotWorker
from gpuconsole.ui.screens.base import ConsoleScreen, Subject, scrolling
from gpuconsole.ui.screens.objects import ObjectActions, link_handlers
from gpuconsole.ui.screens.views import object_screen
from gpuconsole.ui.screens.workload_actions import WorkloadActions
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.whatif_changes import try_out
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import PaneState, StatusLine, notice
from gpuconsole.ui.widgets.textpane import Panes, TextPane
from gpuconsole.ui.workload_table import Listing, WorkloadRow, WorkloadRows, columns, make_row
from gpuconsole.ui.workload_text import (
    WorkloadCost,
    WorkloadFacts,
    forecast_column,
    moments,
    pick_of,
    pod_lines,
    start_range,
    state,
    still_open,
    title,
    why_lines,
)

AHEAD_SHARE = 20.0
"""Pause after the simulations of the estimated start or risk, as a multiple of their duration."""
_NOT_TRIED = (
    *(
        PendingReason.NOT_WAITING,
        PendingReason.CHECKS,
        PendingReason.RESOURCE_QUOTA,
        PendingReason.GANG,
        PendingReason.NODES,
    ),
    *(PendingReason.IMAGE, PendingReason.POD_FAILURE),
)


class WorkloadDetailScreen(ConsoleScreen):
    """All about one workload; on a narrow screen `tab` switches between the pages."""

    AUTO_FOCUS = "TextPane"

    def __init__(self, key: str) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), WorkloadActions(self))
        self._key = key
        self._background = SnapshotWorker(self, self._gather, self._tell, reads=True)
        self._trials: AnswerPoller[Tried] = AnswerPoller(self, lambda answers: answers.why(key), self._draw)
        self._ahead: AnswerPoller[WorkloadOutlook] = AnswerPoller(
            self, lambda answers: answers.ahead(key), self._draw, share=AHEAD_SHARE
        )
        self._facts: WorkloadFacts | None = None
        self._accrued: tuple[Time, JobCost | None] | None = None
        """The minute in which its recorded cost was read, and this cost."""
        self._offers = (False, False)
        """Whether the footer shows the keys for suggestions, and for its node."""

    def crumb(self) -> str:
        return called(self._key)

    def body(self) -> ComposeResult:
        yield StatusLine(id="summary")
        yield Panes(TextPane(id="why"), TextPane(id="pods"))

    def show(self, snapshot: Snapshot) -> None:
        self._background.ask(snapshot)

    def _gather(self, snapshot: Snapshot) -> WorkloadFacts | None:
        workload = snapshot.workloads.get(self._key) or unqueued_work(snapshot).get(self._key)
        if workload is None:
            return None
        pods = tuple(pod for pod in snapshot.pods.all() if self._key in (pod.workload, pod.job, pod.key))
        try:
            history = self.console.history(self._key)
        except ConsoleError:
            # The header shows why there is no history; the newest events are available nevertheless.
            history = tuple(row for row in snapshot.recent if self._key in (row.workload, row.by))
        life = timeline(snapshot, self._key, history)
        queued = self._key in snapshot.workloads
        groups = tuple(dict.fromkeys(words for pod in pods[:1] for words in group_lines(snapshot, pod)))
        joined = connection(snapshot, pods)
        used = use_text(use(snapshot, self._key))
        lately = trend_text(self.console.trends.of(of_pods(snapshot, pods), snapshot.time))
        words = " · ".join(text for text in ("" if joined is None else joined.text, used, lately) if text)
        found, forecast = explain(snapshot, self._key), self.console.forecast
        place, standing = found.position, ""
        if place is not None:
            standings = self.console.standings(place.cluster_queue, workload.local_queue)
            standing = position_text(standings, self._key, place, snapshot.time)
        details = (words, groups, queued, forecast, standing, snapshot, self._cost_of(snapshot, workload))
        return WorkloadFacts(
            workload, found, pods, history, life, snapshot.time, *details, agreement=self.console.agreement
        )

    def _cost_of(self, snapshot: Snapshot, workload: Workload) -> WorkloadCost:
        """Its cost; the recorded part is read at most once a minute of the cluster's time."""
        minute = snapshot.time // MINUTE
        if self._accrued is None or self._accrued[0] != minute:
            try:
                rows = self.console.cost_sums(workload.created, snapshot.time)
            except ConsoleError:
                # The header shows why there is no history.
                rows = []
            own = [row for row in rows if row.owner.workload == self._key]
            self._accrued = minute, job_cost(own, self._key, job_facts(snapshot)) if own else None
        runs = make_row(workload, "", snapshot).phase in PLACED
        rate = hourly(snapshot, workload, self.console.prices) if runs else 0.0
        return WorkloadCost(self._accrued[1], rate, ends_at(workload, snapshot.jobs.get(workload.owner), snapshot.time))

    def _waits(self, facts: WorkloadFacts) -> bool:
        """Whether the engine can evaluate why the workload is pending."""
        code = facts.explanation.code
        if facts.queued and not facts.workload.reserved:
            return code not in _NOT_TRIED
        return waits_for_places(code, queued=facts.queued)

    def _try_again(self) -> None:
        self._trials.ask(now=True)
        self._draw()

    def _tell(self, facts: WorkloadFacts | None) -> None:
        summary = self.query_one("#summary", StatusLine)
        if facts is None:
            summary.left = notice(PaneState.EMPTY, f"{self._key} no longer exists; last known state below.")
            summary.right = ""
            return
        summary.left, summary.right = title(facts), state(facts)
        self.query_one("#pods", TextPane).show(linked(facts.snapshot, pod_lines(facts), self._key))
        self._facts = facts
        if self._waits(facts):
            self._trials.ask()
        if facts.queued:
            self._ahead.ask()
        self._draw()

    def _draw(self) -> None:
        facts = self._facts
        if facts is None:
            return
        trials, waits = self._trials, self._waits(facts)
        progress = trials.progress if waits else None
        note = trials.problem or ("simulating changes …" if trials.busy and progress is None else "")
        coming = still_open(self._ahead.answer, make_row(facts.workload, "", facts.snapshot).phase)
        lines = why_lines(facts, progress, self.snapshot, note if waits else "", coming)
        if coming is not None and coming.eta is not None and coming.eta.start is not None:
            self.query_one("#summary", StatusLine).right = (
                *state(facts),
                (f"· starts {start_range(coming.eta.start, facts.now)} ", ""),
            )
        self.query_one("#why", TextPane).show(linked(facts.snapshot, lines, self._key))
        offers = bool(self._suggested), bool(self._way_to_node())
        if offers != self._offers:
            self._offers = offers
            self.refresh_frame()

    def subject(self) -> Subject | None:
        for table in ("workloads", "jobs", "pods"):
            if self._key in getattr(self.snapshot, table):
                return Subject(table, self._key)
        return None

    def handlers(self) -> Handlers:
        panes = self.query_one(Panes)
        return {
            **super().handlers(),
            "object.explain": self._try_again,
            **({"object.rehearse": self._rehearse} if self._suggested else {}),
            "app.next-pane": lambda: panes.step(1),
            "app.previous-pane": lambda: panes.step(-1),
            **scrolling(panes.current),
            **self._way_to_node(),
            **(link_handlers(self, panes.current) if isinstance(panes.current, TextPane) else {}),
        }

    def _way_to_node(self) -> Handlers:
        """The way to the node of its first placed pod, while the cursor is on no name."""
        pods = self._facts.pods if self._facts is not None else ()
        node = next((pod.node for pod in pods if pod.node in self.snapshot.nodes), "")
        return {"object.open": lambda: self.open(object_screen("nodes", node))} if node else {}

    def refusal(self, action: Action) -> str:
        if action.id == "object.rehearse" and self._suggestion is None:
            return "select a suggestion with j and k first"
        return super().refusal(action)

    @property
    def _suggested(self) -> Sequence[Suggestion]:
        """The suggestions found that would admit it."""
        answer = self._trials.answer
        return answer.suggestions.found if answer is not None and answer.suggestions is not None else ()

    @property
    def _suggestion(self) -> Suggestion | None:
        """The selected suggestion."""
        picked = self.query_one("#why", TextPane).picked
        return next((one for one in self._suggested if pick_of(one) == picked), None)

    def _rehearse(self) -> None:
        suggestion, answer = self._suggestion, self._trials.answer
        if suggestion is None or answer is None:
            return
        try:
            commands = change_commands(self.snapshot, self._key, suggestion.steps)
        except LookupError as error:
            self.flash(f"{error.args[0]} no longer exists; press x to search again", "warning")
            return
        words = f"{called(self._key)}: {in_words(suggestion.steps, self.snapshot, answer.why.short)}"
        try_out(self.console_app, whatif_changes.tried(named(words), commands))


_WAITING = (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED)


def starts_column(newest: Callable[[], StartEstimates], now: Callable[[], Time]) -> Column[WorkloadRow]:
    """Return the column of estimated starts (80% interval); it shows the `newest` estimates, and no expired ones."""

    def cell(row: WorkloadRow) -> Cell:
        found = newest().estimates.get(row.key)
        if found is None or row.phase not in _WAITING:
            return ""
        left = moments(found, now())
        return f"~{left}" if left and not found.beyond else left

    def order(row: WorkloadRow) -> tuple[bool, Time]:
        found = newest().estimates.get(row.key) if row.phase in _WAITING else None
        return (False, found.horizon if found.beyond else found.median) if found is not None else (True, 0)

    return Column("EST. START", cell, id="starts", width=12, flex=1, sort=order, rank=3)


NO_OUTLOOK = StartEstimates()


class WorkloadsScreen(ConsoleScreen):
    """All workloads in one table, pending ones first, by position."""

    view = "workloads"
    reads = frozenset({"workloads"})

    def __init__(self) -> None:
        super().__init__()
        self.groups = (ObjectActions(self), WorkloadActions(self))
        rows = WorkloadRows()
        self._listing = Listing()
        self._outlooks: AnswerPoller[StartEstimates] = AnswerPoller(
            self, AnalysisService.outlook, self._draw, share=AHEAD_SHARE
        )
        self._listings = SnapshotWorker(self, lambda snapshot: rows.update(snapshot, self.namespaces), self._list)

    def body(self) -> ComposeResult:
        yield Grid(
            (*columns(lambda: self._listing), self._user_column(), *self._start_columns(), *self._forecast_columns()),
            key=lambda row: row.key,
            labels=lambda row: row.workload.labels,
            object_of=lambda row: row.workload,
            fault=lambda row: row.phase in (WorkloadPhase.FAILED, WorkloadPhase.EVICTED) or row.workload.evictions > 0,
            empty="No workloads. Press n to submit a job, 0 for all namespaces.",
        )

    def _user_column(self) -> Column[WorkloadRow]:
        """The column of who submitted the workload, by which it can be filtered: `user=ada`."""
        label = self.console.cost_labels.user

        def user(row: WorkloadRow) -> str:
            return user_of(self.snapshot, row.workload, label)

        return Column("USER", user, id="user", width=10, sort=user, rank=8)

    def _start_columns(self) -> tuple[Column[WorkloadRow], ...]:
        """The column of estimated starts, if a worker process can run forecasts."""
        if not self.console.answers.foretells:
            return ()
        return (starts_column(lambda: self._outlooks.answer or NO_OUTLOOK, lambda: self._listing.time),)

    def _forecast_columns(self) -> tuple[Column[WorkloadRow], ...]:
        """The column of Kueue's next decision, for clusters that the simulator does not drive."""
        return (forecast_column(lambda: self.console.forecast),) if self.console.foresees else ()

    def show(self, snapshot: Snapshot) -> None:
        self._listings.ask(snapshot)
        if self.console.answers.foretells:
            self._outlooks.ask()

    def _list(self, listing: Listing) -> None:
        self._listing = listing
        self._draw()

    def _draw(self) -> None:
        self.query_one(Grid).show(self._listing.rows)

    def subject(self) -> Subject | None:
        row = self._row
        return subject_of(row) if row is not None else None

    def subjects(self) -> list[Subject]:
        grid = self.grid
        return [subject_of(row) for row in grid.targets] if grid is not None else []

    @property
    def _row(self) -> WorkloadRow | None:
        return self.grid.current if self.grid is not None else None

    def handlers(self) -> Handlers:
        row = self._row
        if row is None:
            return super().handlers()
        return {
            **super().handlers(),
            "object.open": lambda: self.open(WorkloadDetailScreen(row.key)),
            "object.explain": lambda: self.open(WorkloadDetailScreen(row.key)),
        }


def subject_of(row: WorkloadRow) -> Subject:
    """Return the object that a row shows: its Workload, or else the job or pod itself."""
    if not row.stands_in:
        return Subject("workloads", row.key)
    return Subject("jobs" if row.stands_in.count("/") > 1 else "pods", row.stands_in)
