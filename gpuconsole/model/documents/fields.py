"""Field errors as Kubernetes reports them: field, kind of error, and text."""

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
