"""What lint finds: a stable code, how bad it is, where it stands, the numbers that show it, and what would be right."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object

Evidence = Mapping[str, str | int]


class Level(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """It cannot work as it is written."""
    WARNING = "warning"
    """It works, and hardly does what its author thinks."""
    NOTE = "note"
    """Worth knowing; it may well be meant."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with what manifests say together."""

    code: str
    level: Level
    object: str
    """`Kind/name` or `Kind/namespace/name`, or the file of a configuration."""
    path: Path = ()
    """The field, from the object's root; empty for the object as a whole."""
    problem: str
    evidence: Evidence = {}
    """The numbers and names that show it."""
    fix: str
    line: int = 0
    """Where it stands, if only the text tells; 0 where the field does."""


def named(thing: Object) -> str:
    """How findings call an object; a Volcano Job is a Job there, as in its manifest."""
    if isinstance(thing, Job):
        kind = "Job" if thing.kind == "VolcanoJob" else thing.kind
        return f"{kind}/{thing.namespace}/{thing.name}"
    return f"{_KINDS.get(type(thing).__name__, type(thing).__name__)}/{thing.key}"


_KINDS = {"VolcanoQueue": "Queue", "KaiQueue": "Queue"}
