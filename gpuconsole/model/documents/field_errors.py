"""Field errors as Kubernetes reports them: field, kind of error, and text.

Field errors as Kubernetes reports them: field, kind of error, and text.

Error texts of Kubernetes for invalid label keys, label values, DNS names and identifiers (k8s.io/apimachinery).
"""

import re
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.documents.findings import Path, path_text
from gpuconsole.model.text import clean


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
    """One error about one field."""

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
        """Its remedy, or the default one of its kind."""
        return self.remedy or _WORDS[self.kind][2]

    @property
    def word(self) -> str:
        """Its code, or that of its kind."""
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
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
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
    return _check(text, _LABEL, 63, _broken(_LABEL_RULE, _LABEL, "my-name", "123-abc"))


def service_name(text: str) -> Faults:
    """Validate a DNS label that begins with a letter (RFC 1035)."""
    return _check(text, _LABEL_1035, 63, _broken(_LABEL_1035_RULE, _LABEL_1035, "my-name", "abc-123"))


def subdomain(text: str) -> Faults:
    """Validate a DNS subdomain (RFC 1123)."""
    return _check(text, _SUBDOMAIN, 253, _broken(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))


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
