"""Writing the changes of a what-if to a file that a command and another what-if can read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from gpuconsole.model.clock import Span
from gpuconsole.model.commands import Command
from gpuconsole.model.objects import Object
from gpuconsole.sim.changes import as_changes
from gpuconsole.ui.names import called


def write_changes(commands: Sequence[Command], horizon: Span, path: str) -> str:
    """Write them there; why not, in words, or nothing if they are written."""
    try:
        document = as_changes(commands, horizon, _manifest)
    except LookupError as error:
        return str(error.args[0])
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    try:
        Path(path).expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        return f"{path}: {error.strerror}"
    except RuntimeError as error:
        # `~nobody/…`
        return f"{path}: {error}"
    return ""


def _manifest(thing: Object) -> dict[str, Any]:
    """What the console makes up itself has no manifest. Raises LookupError."""
    raise LookupError(f"{called(thing.key)} has no manifest that could be written; submit it from the form or a file")
