"""Editing of a manifest in $EDITOR; a diff is shown before anything is applied."""

import difflib
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from textual.app import ComposeResult

from gpuconsole.backends.object_access import Manifest
from gpuconsole.model.commands import Edit
from gpuconsole.model.documents.yaml_json import FormError, read_yaml
from gpuconsole.model.text import clean
from gpuconsole.ui.actions import Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.screens.background import outside, run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen, scrolling
from gpuconsole.ui.widgets.dialogs import Question
from gpuconsole.ui.widgets.textpane import TextPane, text_line

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
    if screen.left_for(f"edit {called(key)}"):
        return
    written = in_editor(screen, text or as_text(manifest.document))
    if written is None:
        return
    try:
        after = read(written, manifest.document)
    except NotYaml as error:
        question = Question("Edit again?", (clean(str(error)), "Nothing was applied."), yes="Edit again")
        screen.ask(question, lambda: _open(screen, table, key, manifest, written))
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
        super().on_mount()
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
        self.ask(Question(f"Apply this to {called(self._key)}?", lines, yes="Apply"), self._apply)

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
