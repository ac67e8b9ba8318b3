"""Submission of manifests from a file: validation, server-side dry run on live clusters, confirmation."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from gpuconsole.model.commands import Submit
from gpuconsole.model.manifests import LoadedManifests
from gpuconsole.model.text import clean
from gpuconsole.ui.actions import BY_ID
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.confirm import PromptField, Question
from gpuconsole.ui.yaml_view import as_documents

MOST = 4_000_000
"""Maximum file size in bytes."""
NAMED = 12
"""Number of shown lines of the server's answer."""


def ask_file(screen: ConsoleScreen) -> None:
    """Ask for the path of a file with manifests, and submit the file."""
    wanted = PromptField("Submit manifests from file", "", ("A YAML or JSON file.",), wrong_file)
    screen.prompt(wanted, lambda path: submit_file(screen, path))


def wrong_file(path: str) -> str:
    """The error of a path; empty if it can be read."""
    file = Path(path).expanduser()
    try:
        if not path or not file.is_file():
            return "no such file"
        return f"larger than {MOST:,} bytes" if file.stat().st_size > MOST else ""
    except (OSError, ValueError) as error:
        return str(error)


def submit_file(screen: ConsoleScreen, path: str) -> None:
    """Read a file, and ask whether to submit what is in it."""
    if refusal := screen.refusal(BY_ID["app.apply"]):
        screen.flash(refusal, "warning")
        return
    if wrong := wrong_file(path):
        screen.flash(f"{path}: {wrong}", "error")
        return
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        documents = as_documents(text)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        screen.flash(f"{path}: {' '.join(str(error).split())}", "error")
        return
    if not all(map(is_manifest, documents)):
        screen.flash(f"{path}: every document needs apiVersion, kind and metadata", "error")
        return
    loaded, desk = screen.console.check(text), screen.console.object_access
    if desk is not None:
        run_in_background(
            screen, lambda: desk.rehearse(documents), lambda said: _ask(screen, path, loaded, documents, said)
        )
    elif loaded.has_errors or not loaded.objects:
        found = next((finding for finding in loaded.findings), None)
        screen.flash(f"{path}: {f'{found.path}: {found.problem}' if found else 'no manifest in the file'}", "error")
    else:
        _ask(screen, path, loaded, documents, [obj.key for obj in loaded.objects])


def is_manifest(document: str) -> bool:
    """True for what has the fields of a manifest."""
    found = msgspec.json.decode(document)
    return isinstance(found, dict) and {"apiVersion", "kind", "metadata"} <= found.keys()


def _ask(
    screen: ConsoleScreen, path: str, loaded: LoadedManifests, documents: tuple[str, ...], answers: Sequence[str]
) -> None:
    title = f"Submit {len(answers)} object{'s' if len(answers) != 1 else ''} from {clean(path, 80)}?"
    objects = () if loaded.has_errors else loaded.objects
    said = f"Submitted {len(answers)} objects"
    screen.ask(
        Question(title, answer_lines(answers), yes="Submit"),
        lambda: screen.send([Submit(objects, documents)], said),
    )


def answer_lines(answers: Sequence[str]) -> tuple[Cell, ...]:
    """The server's answers to a dry run, cut to `NAMED` lines."""
    more = len(answers) - NAMED
    lines: list[Cell] = [(("✓ ", "good"), (clean(answer, 200), "")) for answer in answers[:NAMED]]
    return (*lines, *((f"… and {more} more",) if more > 0 else ()))
