"""Writing the changes of a what-if to a file, for `gpuconsole whatif -f` and other what-ifs."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from gpuconsole.model.clock import Span
from gpuconsole.model.commands import Command
from gpuconsole.model.objects import Object
from gpuconsole.sim.scenario_steps import as_changes
from gpuconsole.ui.names import called


def is_there(path: str) -> str:
    """The error of an output path: existing files are not overwritten."""
    try:
        there = Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        # Writing reports the error.
        return ""
    return f"{path} already exists; choose another name" if there else ""


def free_file(stem: str) -> str:
    """An unused file name in the current folder."""
    return next(name for name in _names(stem) if not is_there(name))


def _names(stem: str) -> Iterator[str]:
    yield f"{stem}.yaml"
    yield from (f"{stem}-{number}.yaml" for number in count(2))


def write_changes(commands: Sequence[Command], horizon: Span, path: str) -> str:
    """Write the changes to `path`; the error message, empty on success."""
    try:
        document = as_changes(commands, horizon, _manifest)
    except LookupError as error:
        return str(error.args[0])
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    try:
        with Path(path).expanduser().open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"{path}: {error.strerror}"
    except RuntimeError as error:
        # `~nobody/…`
        return f"{path}: {error}"
    return ""


def _manifest(obj: Object) -> dict[str, Any]:
    """Raises LookupError: objects that the console generates have no manifest."""
    raise LookupError(f"{called(obj.key)} has no manifest that can be written; submit it from the form or a file")
