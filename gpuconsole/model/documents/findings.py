"""Findings in input documents: position, problem, and remedy."""

from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from gpuconsole.model.text import clean

Key = str | int
Path = tuple[Key, ...]


class MapKey(str):
    """Key of a free-form mapping, which Kubernetes writes in brackets: `resourceWeights[cpu]`."""

    __slots__ = ()


MOST_FINDINGS = 500
"""Most findings of one document that are kept; more would only use memory."""


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """It cannot be used as it is, or (strict) the API server would refuse it."""
    WARNING = "warning"
    """It can be used, but probably not with the intended effect, or the API server would refuse it."""
    NOTE = "note"
    """For information; nothing is wrong."""


class Finding(Struct, frozen=True, kw_only=True):
    """A finding in an input document: severity, position, problem and remedy."""

    severity: Severity
    file: str
    line: int
    """1-based line of the field, or of the nearest field around it in the file."""
    document: int
    """1-based number of the document in its file."""
    path: str
    """Field path, such as `spec.resourceGroups[0].flavors[1].resources`; empty for the document as a whole."""
    object: str
    """`Kind/name` or `Kind/namespace/name`; empty if it is unknown."""
    problem: str
    remedy: str
    code: str
    """Short stable code for programs, such as `wrong-type` or `unknown-flavor`."""


def path_text(path: Path) -> str:
    """Write a field path as Kubernetes does: `metadata.labels[kueue.x-k8s.io/queue-name]`, `spec.tasks[0].name`."""
    parts: list[str] = []
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif not isinstance(key, MapKey) and key.replace("_", "").replace("-", "").isalnum():
            parts.append(f".{key}" if parts else key)
        else:
            parts.append(f"[{key}]")
    return clean("".join(parts), 1000)


def first_line(path: Path) -> int:
    """Return line 1 for every path, for documents without known lines."""
    return 1


class DocumentFindings:
    """Findings of one document. Mutated by `add`; in strict mode, refusals of the API server are errors."""

    is_recorded: ClassVar[bool] = True
    """False if findings are discarded; checks that only add findings can be skipped then."""

    def __init__(
        self, file: str = "", document: int = 1, *, strict: bool = False, line_of: Callable[[Path], int] = first_line
    ) -> None:
        self.file = file
        self.document = document
        self.strict = strict
        self.object = ""
        self.findings: list[Finding] = []
        self.line_of = line_of
        self._said: set[tuple[Path, str]] = set()

    def add(self, severity: Severity, path: Path, problem: str, remedy: str, code: str, *, deeper: Path = ()) -> None:
        """Add a finding about a field. `deeper` leads from it to the part whose line is shown."""
        if len(self.findings) > MOST_FINDINGS or (path, problem) in self._said:
            return
        self._said.add((path, problem))
        if len(self.findings) == MOST_FINDINGS:
            problem, remedy, code = "too many findings to list", "fix these first", "too-many-findings"
        self.findings.append(
            Finding(
                severity=severity,
                file=self.file,
                line=self.line_of((*path, *deeper)),
                document=self.document,
                path=path_text(path),
                object=self.object,
                problem=clean(problem, 1000),
                remedy=clean(remedy, 1000),
                code=code,
            )
        )

    def keep(self, finding: Finding) -> None:
        """Add a finding from another report."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def about(self, name: str) -> "DocumentFindings":
        """Create a separate report for one object in the same document."""
        report = DocumentFindings(self.file, self.document, strict=self.strict, line_of=self.line_of)
        report.object = name
        return report

    def error(self, path: Path, problem: str, remedy: str, code: str) -> None:
        """Add an error about a field."""
        self.add(Severity.ERROR, path, problem, remedy, code)

    def warning(self, path: Path, problem: str, remedy: str, code: str) -> None:
        """Add a warning about a field."""
        self.add(Severity.WARNING, path, problem, remedy, code)

    def note(self, path: Path, problem: str, remedy: str, code: str) -> None:
        """Add a note about a field."""
        self.add(Severity.NOTE, path, problem, remedy, code)

    def refused(self, path: Path, problem: str, remedy: str, code: str) -> None:
        """Add a value that is understood here, but that the API server would refuse."""
        self.add(Severity.ERROR if self.strict else Severity.WARNING, path, problem, remedy, code)


class Silence(DocumentFindings):
    """Discards findings, for objects that an API server has already accepted."""

    is_recorded = False

    def add(self, severity: Severity, path: Path, problem: str, remedy: str, code: str, *, deeper: Path = ()) -> None:
        """Discard the finding."""
