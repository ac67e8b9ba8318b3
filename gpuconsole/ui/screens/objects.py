"""Actions on the selected object that every screen offers: describe, YAML, edit, copy, events, delete, menu.

Also the screens that they open. A manifest is edited in $EDITOR, and its diff shown before anything is applied. The
description of a ClusterQueue on a live cluster with Prometheus compares Kueue's metrics with the console's counts.
"""

import difflib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml
from textual.app import ComposeResult

from gpuconsole.backends.base import KubeEvent, Manifest, PodAccess, PodOperation
from gpuconsole.insight.index.queues import MetricComparison, QueueMetrics, counted
from gpuconsole.model.clock import HOUR, SECOND, Time, format_span
from gpuconsole.model.commands import (
    AnswerCheck,
    Command,
    Cordon,
    Delete,
    Drain,
    Edit,
    FailNode,
    MoveToQueue,
    Requeue,
    RestoreNode,
    SetActive,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
)
from gpuconsole.model.documents.yaml_json import FormError, read_yaml
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.services.console import Console
from gpuconsole.ui.actions import Action, Handler, Handlers
from gpuconsole.ui.describe import about, describe, events, linked
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.background import SnapshotWorker, outside, run_in_background
from gpuconsole.ui.screens.base import ActionGroup, ConsoleScreen, Subject, scrolling
from gpuconsole.ui.screens.pods import PODDED, ask_port, open_shell, pods_of, show_logs
from gpuconsole.ui.screens.views import object_screen, ownership_screen
from gpuconsole.ui.widgets.dialogs import Question
from gpuconsole.ui.widgets.painter import PaneState, notice
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, field, heading, text_line, yaml_lines
from gpuconsole.ui.yaml_view import as_yaml

EDITORS = ("KUBE_EDITOR", "VISUAL", "EDITOR")
USUAL = "vi"
CONTEXT = 3
FIXED = ("apiVersion", "kind")
LOOKS = {"+": "good", "-": "fault", "@": "title"}


class NotYaml(ValueError):
    """The edited text is not a valid manifest."""


def edit(screen: ConsoleScreen, table: str, key: str) -> None:
    """Fetch the manifest of the object with `key` in `table`, and open it in the editor."""
    desk = screen.console.object_access
    if desk is not None:
        run_in_background(screen, lambda: desk.manifest(table, key), lambda found: _open(screen, table, key, found))


def _open(screen: ConsoleScreen, table: str, key: str, manifest: Manifest, text: str = "") -> None:
    """Open the editor until the text is valid; then show the diff."""
    if screen.dialogs.left_for(f"edit {called(key)}"):
        return
    written = in_editor(screen, text or as_text(manifest.document))
    if written is None:
        return
    try:
        after = read(written, manifest.document)
    except NotYaml as error:
        question = Question("Edit again?", (clean(str(error)), "Nothing was applied."), yes="Edit again")
        screen.dialogs.ask(question, lambda: _open(screen, table, key, manifest, written))
        return
    if not difference(manifest.document, after):
        screen.flash("No changes")
        return
    screen.open(DiffScreen(table, key, manifest, written, after))


def in_editor(screen: ConsoleScreen, text: str) -> str | None:
    """Open a text in $EDITOR, in a private temporary file, and return the edited text; None if the editor failed."""
    editor = next(filter(None, map(os.environ.get, EDITORS)), USUAL)
    with tempfile.TemporaryDirectory(prefix="gpuconsole-") as folder:
        file = Path(folder) / "manifest.yaml"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        try:
            command = shlex.split(editor)
        except ValueError as error:
            screen.flash(f"Cannot run the editor {editor}: {error}", "error")
            return None
        code = outside(screen, [*command, str(file)])
        if code is None:
            return None
        if code != 0:
            screen.flash(f"The editor exited with {code}; nothing was applied", "warning")
            return None
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            screen.flash(f"Cannot read the edited file: {error}", "error")
            return None


def as_text(document: dict[str, Any]) -> str:
    """A manifest as YAML, its fields in the server's order."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def read(text: str, before: dict[str, Any]) -> dict[str, Any]:
    """Parse the edited text as a manifest. Raises NotYaml if it is invalid.

    Also raises it if apiVersion, kind, name or namespace differ from `before`, the manifest before the edit.
    """
    try:
        read_yaml(text)  # Depth and aliases are bounded.
        # Written by PyYAML, so read by it: it takes more texts for texts than Kubernetes does, such as 1e3.
        after = msgspec.json.decode(msgspec.json.encode(yaml.safe_load(text)))
    except FormError as error:
        raise NotYaml(f"Invalid YAML, line {error.problem.line}: {error.problem.problem}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise NotYaml(f"Invalid YAML: {' '.join(str(error).split())}") from error
    except (AttributeError, LookupError) as error:
        # PyYAML's constructors, of `!!timestamp x`, `!!bool x`, `!!int ''`.
        raise NotYaml("Invalid YAML: a value does not fit its tag; remove the tag (!!…)") from error
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        raise NotYaml("Not a manifest: apiVersion, kind and metadata are required")
    for name in FIXED:
        if after.get(name) != before.get(name):
            raise NotYaml(f"{name} cannot be changed")
    for name in ("name", "namespace"):
        if after["metadata"].get(name) != before["metadata"].get(name):
            raise NotYaml(f"metadata.{name} cannot be changed")
    return after


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7386) from `before` to `after`; a changed list is replaced as a whole."""
    change: dict[str, Any] = {name: None for name in before if after.get(name) is None and before[name] is not None}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := difference(old, value):
                change[name] = inner
        elif value != old and value is not None:
            change[name] = value
    return change


def diff_lines(before: str, after: str) -> Iterator[Painted]:
    """The unified diff, with `CONTEXT` lines of context."""
    rows = difflib.unified_diff(before.splitlines(), after.splitlines(), n=CONTEXT, lineterm="")
    for number, row in enumerate(rows):
        if number > 1:
            yield text_line((clean(row, 500), LOOKS.get(row[:1], "")))


class DiffScreen(ConsoleScreen):
    """Diff of an edit. Leaving the screen applies nothing."""

    AUTO_FOCUS = "TextPane"

    def __init__(self, table: str, key: str, manifest: Manifest, text: str, after: dict[str, Any]) -> None:
        """`text` is the edited text, and `after` its parsed document."""
        super().__init__()
        self._table = table
        self._key = key
        self._manifest = manifest
        self._text = text
        self._after = after

    def body(self) -> ComposeResult:
        yield TextPane(wrap=False)

    def on_mount(self) -> None:
        self.query_one(TextPane).show(diff_lines(as_text(self._manifest.document), as_text(self._after)))

    def crumb(self) -> str:
        return f"edit {called(self._key)}"

    def handlers(self) -> Handlers:
        return {
            **super().handlers(),
            **scrolling(self.query_one(TextPane)),
            "edit.apply": self._ask,
            "edit.again": self._again,
        }

    def _ask(self) -> None:
        lines = ("Server-side dry run first; rejected if the object changed meanwhile.",)
        self.dialogs.ask(Question(f"Apply this to {called(self._key)}?", lines, yes="Apply"), self._apply)

    def _apply(self) -> None:
        change = msgspec.json.encode(difference(self._manifest.document, self._after)).decode()
        app = self.console_app
        app.pop_screen()
        if (front := app.front) is not None:
            front.send([Edit(self._table, self._key, self._manifest.version, change)], f"Editing {called(self._key)}")

    def _again(self) -> None:
        app = self.console_app
        app.pop_screen()
        if (front := app.front) is not None:
            _open(front, self._table, self._key, self._manifest, self._text)


REACHES: Mapping[str, PodOperation] = {
    "object.logs": PodOperation.LOGS,
    "object.previous": PodOperation.LOGS,
    "object.shell": PodOperation.SHELL,
    "object.forward": PodOperation.FORWARD,
}
SIMULATED: Mapping[str, str] = {
    "object.logs": "simulated pods have no logs",
    "object.previous": "simulated pods have no logs",
    "object.shell": "simulated pods have no shell",
    "object.forward": "simulated pods have no ports",
    "object.edit": "simulated objects have no manifest; press m for other actions",
    "queue.edit": "simulated objects have no manifest; press e to edit the quota",
}
"""Action id → why a simulated cluster cannot offer it: it needs an API server."""


def asked_by(action: str, table: str, key: str) -> Command | PodAccess | None:
    """Return a Command or access like the one that an action sends, to check its permission; None if it needs none."""
    match action:
        case "object.logs" | "object.previous" | "object.shell" | "object.forward":
            return PodAccess(REACHES[action], key.rpartition("/")[0].rpartition("/")[2])
        case "object.edit" | "queue.edit":
            return Edit(table, key, "", "{}")
        case "object.delete":
            return Delete(table, key)
        case "workload.stop" | "workload.resume":
            return SetActive(key, False)
        case "workload.requeue":
            return Requeue(key)
        case "workload.priority":
            return SetPriority(key, 0)
        case "workload.move":
            return MoveToQueue(key, "")
        case "workload.check":
            return AnswerCheck(key, "", "Ready")
        case "queue.hold" | "queue.drain" | "queue.resume":
            return SetStopPolicy(key, StopPolicy.NONE)
        case "queue.quota":
            return SetQuota(key, "", "", 0)
        case "node.cordon" | "node.uncordon":
            return Cordon(key, True)
        case "node.taint" | "node.untaint":
            return SetTaint(key, "")
        case "node.drain":
            return Drain(key)
        case "node.fail":
            return FailNode(key)
        case "node.restore":
            return RestoreNode(key)
    return None


Source = Callable[[Snapshot], Iterable[Painted] | None]
"""Function that makes a screen's lines from a Snapshot; None where the object does not exist any more."""


class TextScreen(ConsoleScreen):
    """Shows the lines that `source` makes of each Snapshot; once the object is deleted, the last lines stay."""

    AUTO_FOCUS = "TextPane"

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        wrap: bool = True,
        copied: str = "",
        about: Subject | None = None,
        read: Callable[[Console], None] | None = None,
    ) -> None:
        """`name` is the crumb, `y y` copies `copied`, `read` reads more from a live cluster in a thread.

        The page of an object, which is named by `about`, offers its actions, and names of other objects lead to them.
        """
        super().__init__()
        self.groups = (ObjectActions(self),) if about is not None else ()
        self._about = about
        self._trail = name
        self._source = source
        self._wrap = wrap
        self._copied = copied
        self._last: list[Painted] = []
        self._reader = SnapshotWorker(self, lambda _: read(self.console), self._draw, reads=True) if read else None

    def body(self) -> ComposeResult:
        yield TextPane(wrap=self._wrap)

    def crumb(self) -> str:
        return self._trail

    def show(self, snapshot: Snapshot) -> None:
        self._draw()
        if self._reader is not None and self.console.foresees:
            self._reader.ask(snapshot)

    def _draw(self, _: None = None) -> None:
        found = self._source(self.snapshot)
        pane = self.query_one(TextPane)
        if found is not None:
            self._last = linked(self.snapshot, found, self._about.key) if self._about is not None else list(found)
            pane.show(self._last)
        else:
            pane.show([notice(PaneState.EMPTY, "Deleted. Last known state:"), (), *self._last])

    def subject(self) -> Subject | None:
        about = self._about
        return about if about is not None and about.key in getattr(self.snapshot, about.table) else None

    def handlers(self) -> Handlers:
        pane = self.query_one(TextPane)
        offered = {**super().handlers(), **scrolling(pane), **link_handlers(self, pane)}
        # The page is the description.
        offered.pop("object.describe", None)
        return {**offered, "object.copy-name": self._copy} if self._copied else offered

    def _copy(self) -> None:
        self.app.copy_to_clipboard(self._copied)
        self.flash(f"Copied {self._copied}")


def link_handlers(screen: ConsoleScreen, pane: TextPane) -> Handlers:
    """Return the actions on the names in a pane: the keys that move the cursor between them, and open the object."""
    if not pane.has_picks:
        return {}

    def step(way: int) -> None:
        pane.step(way)
        screen.refresh_frame()

    offered: dict[str, Handler] = {"table.down": lambda: step(1), "table.up": lambda: step(-1)}
    target = pane.target
    if target is not None:
        offered["object.open"] = lambda: screen.open(object_screen(*target))
    return offered


def find(snapshot: Snapshot, table: str, key: str) -> Object | None:
    """Return the object with this key in `table`, a name in `objects.TABLES`; None if there is none."""
    return cast("Object | None", getattr(snapshot, table).get(key))


def describe_screen(table: str, key: str) -> TextScreen:
    """Make the screen that describes an object."""
    if table == "cluster_queues":
        text = QueueText(key)
        return TextScreen(f"describe {key}", text.lines, copied=key, about=Subject(table, key), read=text.read)
    source = partial(describe, table=table, key=key)
    return TextScreen(f"describe {key}", source, copied=key, about=Subject(table, key))


def yaml_screen(table: str, key: str) -> TextScreen:
    """Make the screen that shows an object as YAML."""

    def source(snapshot: Snapshot) -> list[Painted] | None:
        obj = find(snapshot, table, key)
        return None if obj is None else yaml_lines(as_yaml(obj))

    return TextScreen(f"yaml {key}", source, wrap=False, copied=key)


def events_screen(table: str, key: str, history: Sequence[HistoryEvent], said: Sequence[KubeEvent] = ()) -> TextScreen:
    """Make the screen with an object's recorded `history` and its Kubernetes Events (`said`)."""

    def source(snapshot: Snapshot) -> list[Painted]:
        newest = history[-1].time if history else 0
        later = [row for row in about(snapshot.recent, table, key) if row.time > newest]
        return [*events([*history, *later], snapshot.time, key)[1:], *_of_kubernetes(said, snapshot.time)]

    return TextScreen(f"events {key}", source, copied=key)


def _of_kubernetes(said: Sequence[KubeEvent], now: Time) -> list[Painted]:
    if not said:
        return []
    lines = [BLANK, heading("Kubernetes Events")]
    for one in said:
        age, times = f"{format_span(max(0, now - one.time))} ago", f" ×{one.count}" if one.count > 1 else ""
        reason = (f"{one.reason:<16} ", "fault" if one.warning else "")
        lines.append(text_line((f"  {age:>12}  ", "dim"), reason, one.message, (f"{times}  {one.about}", "dim")))
    return lines


WIDTH = 24


def metrics_lines(metrics: QueueMetrics, both: Sequence[MetricComparison], now: Time) -> list[Painted]:
    """Return lines with Kueue's metrics of a ClusterQueue, beside the console's counts; none without a source."""
    if metrics.trouble:
        return [BLANK, heading("Kueue's metrics"), text_line((f"  {metrics.trouble}", "fault"))]
    if not metrics.source:
        return []
    age = f"{metrics.source}, {format_span(max(0, now - metrics.time))} ago"
    lines = [BLANK, heading("Kueue's metrics"), text_line((f"  {age}", "dim"))]
    lines += [_counted(one) for one in both]
    if metrics.inadmissible is not None:
        lines.append(field("Of these inadmissible", f"{metrics.inadmissible:,.0f}", width=WIDTH))
    if metrics.wait_median is not None and metrics.wait_p95 is not None:
        waits = f"p50 {_span(metrics.wait_median)}, p95 {_span(metrics.wait_p95)}, {_when(metrics)}"
        lines.append(field("Admission wait time", waits, width=WIDTH))
    if metrics.evicted:
        said = ", ".join(f"{reason} {count:,.0f}" for reason, count in sorted(metrics.evicted.items()))
        lines.append(field("Evicted", f"{said}, {_when(metrics)}", width=WIDTH))
    return lines


def _counted(one: MetricComparison) -> Painted:
    text = f"{one.theirs:,.0f}" if one.same else f"{one.theirs:,.0f} · console counts {one.ours:,.0f}"
    return field(one.name, text, "" if one.same else "held", width=WIDTH)


def _when(metrics: QueueMetrics) -> str:
    span = metrics.time - metrics.since
    if not metrics.since:
        return "since Kueue's manager started"
    return "in the last hour" if span == HOUR else f"since Kueue's manager started {format_span(span)} ago"


def _span(seconds: float) -> str:
    return format_span(int(seconds * SECOND))


class QueueText:
    """The description of a ClusterQueue, with Kueue's metrics, which `read` gets from the cluster."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._metrics = QueueMetrics(queue=queue)

    def read(self, console: Console) -> None:
        """Read Kueue's metrics; it may block."""
        self._metrics = console.queue_metrics(self._queue)

    def lines(self, snapshot: Snapshot) -> list[Painted] | None:
        """Return the description; None if the queue does not exist."""
        lines, metrics = describe(snapshot, "cluster_queues", self._queue), self._metrics
        if lines is None:
            return None
        return [*lines, *metrics_lines(metrics, list(counted(metrics, snapshot)), snapshot.time)]


class ObjectActions(ActionGroup):
    """Actions on the objects that a screen selects (`subject`, `subjects`), whatever their kind."""

    def __init__(self, screen: ConsoleScreen) -> None:
        self._screen = screen

    def handlers(self) -> Handlers:
        if self._screen.subject() is None:
            return {}
        return {
            "object.describe": self._describe,
            "object.yaml": self._yaml,
            "object.copy-name": self._copy_name,
            "object.copy-json": self._copy_json,
            "object.events": self._events,
            "object.menu": self._screen.actions.open_menu,
            "object.delete": self._delete,
            "object.edit": self._edit,
            "object.owner": self._show_owners,
            **self._pod_handlers(),
        }

    def refusal(self, action: Action) -> str:
        """Why the cluster does not support the action for this object, or RBAC forbids it."""
        subject, desk = self._screen.subject(), self._screen.console.object_access
        if desk is None:
            return SIMULATED.get(action.id, "")
        asked = asked_by(action.id, *subject) if subject is not None else None
        return desk.refusal(asked) if asked is not None else ""

    def _pod_handlers(self) -> Handlers:
        subjects = self._screen.subjects()
        if not subjects or subjects[0].table not in PODDED:
            return {}
        name = name_all([subject.key for subject in subjects])
        return {
            "object.logs": lambda: show_logs(self._screen, name, pods_of(self._screen.snapshot, subjects)),
            "object.previous": lambda: show_logs(
                self._screen, name, pods_of(self._screen.snapshot, subjects), previous=True
            ),
            "object.shell": lambda: open_shell(self._screen, pods_of(self._screen.snapshot, subjects)),
            "object.forward": lambda: ask_port(self._screen, pods_of(self._screen.snapshot, subjects)),
        }

    def _edit(self) -> None:
        if (subject := self._screen.subject()) is not None:
            edit(self._screen, *subject)

    def questions(self) -> Mapping[str, Callable[[], Question]]:
        return {"object.delete": self._confirm_delete}

    def _confirm_delete(self) -> Question:
        names = [subject.key for subject in self._screen.subjects()]
        lines = (f"{name_all(names)} and its dependents will be deleted.", "This cannot be undone.")
        return Question(f"Delete {name_all(names)}?", lines, yes="Delete", word=delete_word(self._screen.subjects()))

    def _describe(self) -> None:
        if (subject := self._screen.subject()) is not None:
            self._screen.open(describe_screen(*subject))

    def _show_owners(self) -> None:
        if (subject := self._screen.subject()) is not None:
            self._screen.open(ownership_screen(*subject))

    def _yaml(self) -> None:
        if (subject := self._screen.subject()) is not None:
            self._screen.open(yaml_screen(*subject))

    def _events(self) -> None:
        subject, desk = self._screen.subject(), self._screen.console.object_access
        if subject is None:
            return
        remembered = self._screen.console.history(subject.key)
        if desk is None:
            self._screen.open(events_screen(*subject, remembered))
        else:
            run_in_background(
                self._screen,
                lambda: desk.events(*subject),
                lambda said: self._screen.open(events_screen(*subject, remembered, said)),
            )

    def _copy_name(self) -> None:
        self._copy("\n".join(subject.key for subject in self._screen.subjects()))

    def _copy_json(self) -> None:
        objs = [find(self._screen.snapshot, *subject) for subject in self._screen.subjects()]
        self._copy("\n".join(msgspec.json.encode(obj).decode() for obj in objs if obj is not None))

    def _copy(self, text: str) -> None:
        self._screen.app.copy_to_clipboard(text)
        self._screen.flash(f"Copied {text[:60]}")

    def _delete(self) -> None:
        subjects = self._screen.subjects()
        self._screen.send([Delete(*subject) for subject in subjects], f"Deleting {name_all([s.key for s in subjects])}")


def delete_word(subjects: Sequence[Subject]) -> str:
    """The word to type before a delete: the name of one object, `delete` for several."""
    return called(subjects[0].key) if len(subjects) == 1 else "delete"


def name_all(names: list[str]) -> str:
    """Name objects in a text: `a`, or `a, b and 3 more`."""
    names = [called(name) for name in names]
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"
