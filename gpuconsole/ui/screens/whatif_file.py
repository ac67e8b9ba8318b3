"""Writing the changes of a what-if to a file that a command and another what-if can read."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from gpuconsole.model.clock import Span
from gpuconsole.model.commands import Command
from gpuconsole.model.objects import Object
from gpuconsole.sim.changes import as_changes
from gpuconsole.ui.names import called


def is_there(path: str) -> str:
    """What is wrong with a path to write to: nothing is written over."""
    try:
        there = Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        # Writing says what is wrong with it.
        return ""
    return f"{path} already exists; choose another name" if there else ""


def free_file(stem: str) -> str:
    """A name in the current folder that no file has yet."""
    return next(name for name in _names(stem) if not is_there(name))


def _names(stem: str) -> Iterator[str]:
    yield f"{stem}.yaml"
    yield from (f"{stem}-{number}.yaml" for number in count(2))


def write_changes(commands: Sequence[Command], horizon: Span, path: str) -> str:
    """Write them there; why not, in words, or nothing if they are written."""
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


def _manifest(thing: Object) -> dict[str, Any]:
    """What the console makes up itself has no manifest. Raises LookupError."""
    raise LookupError(f"{called(thing.key)} has no manifest to write; submit it from the form or a file")
