"""The files that a scenario names: they are looked for beside the scenario's own file."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuconsole.model.documents.sources import Source, read_sources


def included(scenario: Mapping[str, Any], origin: str) -> Iterator[Source]:
    """Read what `files` of a scenario names; nothing if the scenario itself is in no file."""
    names = scenario.get("files")
    if isinstance(names, list) and os.path.isfile(origin):
        folder = Path(origin).parent
        yield from read_sources([folder / name for name in names if isinstance(name, str)], None)


def is_same_file(one: str, other: str) -> bool:
    """True for two names of one existing file."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
