"""Files that a scenario names, relative to the folder of the scenario's own file."""

import os
from collections.abc import Iterator
from pathlib import Path

from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.sources import UNREADABLE, SourceText, read_sources
from gpuconsole.model.text import clean


def included(scenario: Reader, origin: str) -> Iterator[SourceText]:
    """Read the files in `files` of a scenario; none if the scenario itself is not in a file.

    A file that cannot be read is reported at the field that names it.
    """
    names = scenario.value.get("files")
    if not isinstance(names, list) or not os.path.isfile(origin):
        return
    for position, name in enumerate(names):
        if isinstance(name, str):
            path = Path(origin).parent / name
            for source in read_sources([path], None):
                problem = next((one.problem for one in source.troubles if one.code == UNREADABLE), "")
                if problem and source.name == str(path):
                    said = f"{clean(name, 200)} {problem.removeprefix('it ')}"
                    scenario.report.error(
                        ("files", position), said, "the path is relative to the folder of the scenario", UNREADABLE
                    )
                else:
                    yield source


def is_same_file(one: str, other: str) -> bool:
    """True if both names are of one existing file."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
