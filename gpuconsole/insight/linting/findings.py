"""Lint findings: stable code, severity, place, evidence and fix."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object

Evidence = Mapping[str, str | int]


class LintLevel(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """It cannot work as it is written."""
    WARNING = "warning"
    """It works, but probably not as its author intends."""
    NOTE = "note"
    """Worth knowing; it may be intended."""


class LintFinding(Struct, frozen=True, kw_only=True):
    """One error or likely mistake in the combination of manifests."""

    code: str
    level: LintLevel
    object: str
    """`Kind/name` or `Kind/namespace/name`, or the file of a configuration."""
    path: Path = ()
    """The field, from the object's root; empty for the object as a whole."""
    problem: str
    evidence: Evidence = {}
    """The numbers and names that support it."""
    fix: str
    line: int = 0
    """Line number, if only the text gives it; 0 if the field does."""


def object_name(obj: Object) -> str:
    """Return the name of an object in findings, with its kind as in its manifest (a Volcano Job is a Job)."""
    if isinstance(obj, Job):
        kind = "Job" if obj.kind == "VolcanoJob" else obj.kind
        return f"{kind}/{obj.namespace}/{obj.name}"
    return f"{_KINDS.get(type(obj).__name__, type(obj).__name__)}/{obj.key}"


_KINDS = {"VolcanoQueue": "Queue", "KaiQueue": "Queue"}
