"""Findings in input documents: position, problem and remedy; and errors of fields in Kubernetes' words.

`DocumentFindings` collects the findings of one document. A `FieldError` is an error as the API server reports it:
field, kind of error, and text. The last functions return the texts of k8s.io/apimachinery for invalid label keys, label
values, DNS names and identifiers.
"""

import re
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
    """The object cannot be used as it is, or (strict) the API server would refuse it."""
    WARNING = "warning"
    """The object can be used, but probably not with the intended effect, or the API server would refuse it."""
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
        """Report a value that is understood here, but that the API server would refuse: an error if strict, else a
        warning.
        """
        self.add(Severity.ERROR if self.strict else Severity.WARNING, path, problem, remedy, code)


class Silence(DocumentFindings):
    """Discards findings, for objects that an API server has already accepted."""

    is_recorded = False

    def add(self, severity: Severity, path: Path, problem: str, remedy: str, code: str, *, deeper: Path = ()) -> None:
        """Discard the finding."""


class FieldErrorKind(StrEnum):
    """Kinds of field errors in k8s.io/apimachinery, with their names there."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    NOT_SUPPORTED = "FieldValueNotSupported"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"
    TOO_MANY = "FieldValueTooMany"
    TOO_LONG = "FieldValueTooLong"
    NOT_FOUND = "FieldValueNotFound"
    TYPE_INVALID = "FieldValueTypeInvalid"


_WORDS = {
    FieldErrorKind.INVALID: ("Invalid value", "bad-value", "correct it"),
    FieldErrorKind.REQUIRED: ("Required value", "required", "write it"),
    FieldErrorKind.NOT_SUPPORTED: ("Unsupported value", "bad-value", "write one of the supported values"),
    FieldErrorKind.DUPLICATE: ("Duplicate value", "duplicate", "drop or rename one of them"),
    FieldErrorKind.FORBIDDEN: ("Forbidden", "forbidden", "drop it"),
    FieldErrorKind.TOO_MANY: ("Too many", "too-many", "drop some"),
    FieldErrorKind.TOO_LONG: ("Too long", "too-long", "shorten it"),
    FieldErrorKind.NOT_FOUND: ("Not found", "not-found", "name one that exists"),
    FieldErrorKind.TYPE_INVALID: ("Invalid value", "wrong-type", "write a value of that type"),
}
"""kubectl's words, a code for programs, and the default remedy."""
_VALUELESS = (FieldErrorKind.REQUIRED, FieldErrorKind.FORBIDDEN, FieldErrorKind.TOO_LONG)


class FieldError(Struct, frozen=True):
    """An error in one field of an object, as the API server reports it."""

    kind: FieldErrorKind
    path: Path
    detail: str = ""
    value: object = None
    """Value in the document."""
    remedy: str = ""
    """How to correct it; empty for the default of the kind."""
    code: str = ""
    """Short stable code for programs; empty for that of the kind."""
    deeper: Path = ()
    """Path from `path` to the part that the user should look at."""

    @property
    def field(self) -> str:
        """The field as Kubernetes writes it; empty for the whole object."""
        return path_text(self.path)

    @property
    def problem(self) -> str:
        """The error as kubectl prints it, without the field."""
        words = _WORDS[self.kind][0]
        if self.kind not in _VALUELESS and not isinstance(self.value, (dict, list, type(None))):
            words += f": {_shown(self.value)}"
        return f"{words}: {self.detail}" if self.detail else words

    @property
    def advice(self) -> str:
        """How to correct the error: its remedy, or the default of its kind."""
        return self.remedy or _WORDS[self.kind][2]

    @property
    def word(self) -> str:
        """Short stable code for programs: that of the error, or of its kind."""
        return self.code or _WORDS[self.kind][1]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{clean(value, 80)}"' if isinstance(value, str) else clean(str(value), 80)


def invalid(path: Path, detail: str) -> FieldError:
    """Error for a value that violates a rule."""
    return FieldError(FieldErrorKind.INVALID, path, detail)


def required(path: Path, detail: str = "") -> FieldError:
    """Error for a missing value."""
    return FieldError(FieldErrorKind.REQUIRED, path, detail)


def forbidden(path: Path, detail: str) -> FieldError:
    """Error for a value that is not allowed here."""
    return FieldError(FieldErrorKind.FORBIDDEN, path, detail)


def duplicate(path: Path) -> FieldError:
    """Error for a value that must be unique."""
    return FieldError(FieldErrorKind.DUPLICATE, path)


def unsupported(path: Path, supported: tuple[str, ...]) -> FieldError:
    """Error for a value that is not in an enum."""
    words = ", ".join(f'"{word}"' for word in sorted(supported))
    return FieldError(FieldErrorKind.NOT_SUPPORTED, path, f"supported values: {words}")


def too_many(path: Path, limit: int) -> FieldError:
    """Error for more than `limit` entries."""
    items = "item" if limit == 1 else "items"
    return FieldError(FieldErrorKind.TOO_MANY, path, f"must have at most {limit} {items}")


def too_long(path: Path, limit: int) -> FieldError:
    """Error for a string longer than `limit` bytes."""
    return FieldError(FieldErrorKind.TOO_LONG, path, f"may not be more than {limit} bytes")


_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""Pattern of a DNS label (RFC 1123), without its length."""
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""Pattern of a DNS subdomain (RFC 1123), without its length."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_VALUE_RULE = f"a valid label must be an empty string or {_NAME_RULE.removeprefix('must ')}"
_IDENTIFIER_RULE = "a valid C identifier must start with alphabetic character or '_', followed by a string of"

Faults = list[str]
"""Errors in a string; empty if it is valid."""


def _broken(rule: str, form: re.Pattern[str], *examples: str) -> str:
    shown = ",  or ".join(f"'{example}'" for example in examples)
    return f"{rule} (e.g. {shown}, regex used for validation is '{form.pattern}')"


def _check(text: str, form: re.Pattern[str], limit: int, broken: str) -> Faults:
    faults = [f"must be no more than {limit} bytes"] if len(text.encode()) > limit else []
    return faults if form.fullmatch(text) else [*faults, broken]


def label(text: str) -> Faults:
    """Validate a DNS label (RFC 1123)."""
    return _check(text, LABEL, 63, _broken(_LABEL_RULE, LABEL, "my-name", "123-abc"))


def service_name(text: str) -> Faults:
    """Validate a DNS label that begins with a letter (RFC 1035)."""
    return _check(text, _LABEL_1035, 63, _broken(_LABEL_1035_RULE, _LABEL_1035, "my-name", "abc-123"))


def subdomain(text: str) -> Faults:
    """Validate a DNS subdomain (RFC 1123)."""
    return _check(text, SUBDOMAIN, 253, _broken(_SUBDOMAIN_RULE, SUBDOMAIN, "example.com"))


def identifier(text: str) -> Faults:
    """Validate a C identifier."""
    rule = f"{_IDENTIFIER_RULE} alphanumeric characters or '_'"
    broken = _broken(rule, _IDENTIFIER, "my_name", "MY_NAME", "MyName")
    return [] if _IDENTIFIER.fullmatch(text) else [broken]


def label_value(text: str) -> Faults:
    """Validate the value of a label."""
    return _check(text, _VALUE, 63, _broken(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345"))


def label_key(text: str) -> Faults:
    """Validate the key of a label: an optional subdomain and `/`, then a name."""
    prefix, slash, name = text.rpartition("/")
    broken = _broken(_NAME_RULE, _NAME, "MyName", "my.name", "123-abc")
    if "/" in prefix:
        return [f"a valid label key {broken} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    before = [] if not slash else subdomain(prefix) if prefix else ["must be non-empty"]
    after = [] if name else ["must be non-empty"]
    after += _check(name, _NAME, 63, broken)
    return [*(f"prefix part {fault}" for fault in before), *(f"name part {fault}" for fault in after)]
