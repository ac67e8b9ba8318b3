"""Screens of drills: the list of drills, and one drill, whose victims the operator predicts step by step."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import Container

from gpuconsole.insight.drill import DrillEviction, DrillSession, PredictionScore, StepResult, UpcomingStep
from gpuconsole.insight.index.demand import wanted_units
from gpuconsole.insight.preemption.history import WORDS
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import format_span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command, Submit
from gpuconsole.model.devices import described
from gpuconsole.model.events import CandidateVerdict
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, Workload, WorkloadPhase
from gpuconsole.scheduling.kueue.messages import paths_in
from gpuconsole.services.drills import DrillFile, library, open_drill
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.actions import Action, Handler, Handlers
from gpuconsole.ui.paint import GLYPHS, Painted
from gpuconsole.ui.screens.background import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen, scrolling
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.dialogs import PromptField
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import StatusLine
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, heading, text_line
from gpuconsole.ui.workload_table import Listing, WorkloadRow, WorkloadRows, columns

MOST = 12
"""Maximum number of objects of a kind that the lines of a step list."""
MOST_CONSIDERED = 8


def coming_lines(coming: UpcomingStep, snapshot: Snapshot, said: Iterable[str]) -> list[Painted]:
    """Return lines with the actions of the next step, and the victims that the operator predicts (`said`)."""
    lines = [_step(coming, "next step")]
    orders = [text for command in coming.commands for text in _order(command, snapshot)]
    lines += [text_line("  + ", text) for text in orders[:MOST] or ["no action: time passes"]]
    lines += [text_line((f"  … and {len(orders) - MOST} more", "dim"))] if len(orders) > MOST else []
    names = ", ".join(said) or "none"
    return [
        *lines,
        BLANK,
        text_line("Which workloads will be evicted? ", ("Space", "key"), " marks one. Predicted: ", (names, "strong")),
    ]


def played_lines(played: StepResult, label: Callable[[str], str]) -> list[Painted]:
    """Return lines with a step's victims and rules, the workloads that stayed and why, and the drill's expectations.

    `label` returns the short name of a workload's key.
    """
    verdict = ("✓ correct", "good") if played.right else ("✗ incorrect", "fault")
    lines = [(*_step(played.coming, "outcome"), (f"   {verdict[0]}", verdict[1]))]
    if not played.gone:
        lines.append(text_line("  No workload was evicted."))
    for one in played.gone:
        lines += _gone(one, played.named)
    lines += [_stayed(key, played.gone, label) for key in played.spared]
    lines += _choice(played.gone, label)
    if played.placed:
        lines.append(text_line(("  placed  ", "dim"), _several(played.placed)))
    if played.waiting:
        lines.append(text_line(("  pending ", "dim"), _several(_reasons(played.waiting))))
    if played.expected:
        lines += [BLANK, heading("EXPECTATIONS")]
        lines += [text_line("  ", ("✓ ", "good") if one.ok else ("✗ ", "fault"), one.text) for one in played.expected]
    return lines


def score_lines(score: PredictionScore, met: int, expected: int) -> list[Painted]:
    """Return lines with the score of the predictions, and how many of the `expected` expectations were `met`."""
    went = score.named + score.missed
    lines = [
        heading("SCORE"),
        text_line("  ", (f"{score.right} of {counted(score.steps, 'step')}", "strong"), " predicted correctly"),
        text_line(f"  {score.named} of {counted(went, 'victim')} predicted" if went else "  no evictions"),
    ]
    if score.spared:
        lines.append(text_line(f"  {counted(score.spared, 'false positive')}"))
    return [*lines, text_line((f"  {met} of {counted(expected, 'expectation')} of the drill met", "dim"))]


def _step(coming: UpcomingStep, what: str) -> Painted:
    at = f"after {format_span(coming.at)}" if coming.at else "at the start"
    return text_line((f"STEP {coming.number} OF {coming.of}", "title"), (f"  {at}: {what}", "dim"))


def _order(command: Command, snapshot: Snapshot) -> Iterator[str]:
    """A command in words; submitted objects with what decides their preemptions: size, queue, priority."""
    if not isinstance(command, Submit):
        yield whatif_changes.command_change(command).words
        return
    for obj in command.objects:
        yield _submitted(obj, snapshot)


def _submitted(obj: Object, snapshot: Snapshot) -> str:
    match obj:
        case Job(workload_priority_class=name, queue=queue):
            known = snapshot.workload_priority_classes.get(name) if name else None
            if known is not None:
                return _asks(snapshot, obj.key, obj.namespace, obj.pod_sets, queue, f"{name}, priority {known.value}")
            template = obj.pod_sets[0].template if obj.pod_sets else None
            of_pods = template.priority_class if template is not None else ""
            return _asks(snapshot, obj.key, obj.namespace, obj.pod_sets, queue, _class(of_pods, snapshot))
        case Workload():
            return _asks(snapshot, obj.key, obj.namespace, obj.pod_sets, obj.queue, f"priority {obj.priority}")
        case Pod(template=template):
            return _asks(
                snapshot,
                f"Pod/{obj.key}",
                obj.namespace,
                (PodSet(template=template),),
                "",
                _class(template.priority_class, snapshot),
            )
        case _:
            return f"{type(obj).__name__} {obj.key}"


def _class(name: str, snapshot: Snapshot) -> str:
    known = snapshot.priority_classes.get(name) if name else None
    return f"{name}, priority {known.value}" if known is not None else name


def _asks(snapshot: Snapshot, key: str, namespace: str, pod_sets: Sequence[PodSet], queue: str, priority: str) -> str:
    units = wanted_units(snapshot, Workload(namespace=namespace, name="", pod_sets=tuple(pod_sets)))
    pods = sum(pod_set.count for pod_set in pod_sets)
    size = f"{described(units)} in {counted(pods, 'pod')}"
    return " · ".join(text for text in (key, size, f"queue {queue}" if queue else "", priority) if text)


def _gone(one: DrillEviction, named: Sequence[str]) -> list[Painted]:
    mark = ("✓ ", "good") if one.key in named else ("✗ ", "fault")
    about = f"{counted(one.gpus, one.unit)}, priority {one.priority}"
    by = f" {GLYPHS['victim']} by {one.by}, priority {one.by_priority}" if one.by else ""
    said = "" if one.key in named else "   not predicted"
    first = text_line("  ", mark, (one.name, "strong"), f"  {about}", (by, "victim"), (said, "dim"))
    return [first, text_line((f"      after {format_span(one.at)}, {_why(one)}", "dim"))]


def _why(one: DrillEviction) -> str:
    """The rule and both paths of a preemption; the message of any other eviction."""
    by_path, path = paths_in(one.message)
    if path:
        return f"{one.reason}: {path} {GLYPHS['victim']} by {by_path}"
    return f"{one.reason}: {one.message}" if one.message and one.message != one.reason else one.reason


def _stayed(key: str, gone: Sequence[DrillEviction], label: Callable[[str], str]) -> Painted:
    """Why a workload that was predicted was not evicted."""
    considered = (one for each in gone if each.choice is not None for one in each.choice.considered)
    why = next((WORDS[one.verdict] for one in considered if one.workload == key), "not a candidate")
    return text_line("  ", ("✗ ", "fault"), (label(key), "strong"), "  not evicted", (f"   {why}", "dim"))


def _choice(gone: Sequence[DrillEviction], label: Callable[[str], str]) -> Iterator[Painted]:
    """The other candidates, once for each preemptor."""
    detail: set[str] = set()
    for one in gone:
        if one.choice is None or one.by in detail:
            continue
        detail.add(one.by)
        others = [other for other in one.choice.considered if other.verdict is not CandidateVerdict.CHOSEN]
        if others:
            yield text_line((f"  candidates for {one.by} that stayed:", "dim"))
        for other in others[:MOST_CONSIDERED]:
            yield text_line(f"    {label(other.workload)}, priority {other.priority}: ", (WORDS[other.verdict], "dim"))
        more = len(others) - MOST_CONSIDERED + one.choice.left_out
        if more > 0:
            yield text_line((f"    and {more} more", "dim"))


def _reasons(waiting: Mapping[str, str]) -> Iterator[str]:
    return (f"{name} ({code})" for name, code in waiting.items())


def _several(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - MOST} more" if len(every) > MOST else ""
    return ", ".join(every[:MOST]) + more


WIDE = 130
"""Width in cells from which text and workloads are shown side by side."""
_SHOWN = ("status", "reason", "priority", "usage", "borrowed", "wait", "queue")
_HOLDS = (*PLACED, WorkloadPhase.QUOTA_RESERVED, WorkloadPhase.EVICTED)


class DrillScreen(ConsoleScreen):
    """Runs one drill step by step: the user predicts the victims of a step, then sees the actual ones and why.

    The text of the step is above or left of the workloads; marked rows are the predicted victims.
    """

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
        self._draw()

    def on_resize(self) -> None:
        super().on_resize()
        self.query_one("#drill").set_class(self.size.width >= WIDE, "-wide")

    def show(self, snapshot: Snapshot) -> None:
        """Does nothing: a drill has its own cluster, so Snapshots of the console's cluster do not matter."""

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
        """Run the next step and show its outcome; if an outcome is shown, show the step after it."""
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
        self.dialogs.prompt(wanted, self._mark)

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
        self.dialogs.prompt(PromptField("Open drill", lines=lines), self._play)

    def _play(self, named: str) -> None:
        play_drill(self, named)


def play_drill(screen: ConsoleScreen, named: str) -> None:
    """Open the drill `named`: the path of a file, or the name of a bundled one."""
    run_in_background(screen, lambda: DrillSession(open_drill(named)), lambda play: screen.open(DrillScreen(play)))
