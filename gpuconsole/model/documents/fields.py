"""Field errors as Kubernetes reports them: which field, what kind of error, and in which words."""

from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.documents.findings import Path, path_text
from gpuconsole.model.text import clean


class FieldErrorKind(StrEnum):
    """The kinds of k8s.io/apimachinery's field errors, by the names that they have there."""

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
"""The words of kubectl, a code for programs, and what helps where nothing more is known."""
_VALUELESS = (FieldErrorKind.REQUIRED, FieldErrorKind.FORBIDDEN, FieldErrorKind.TOO_LONG)


class FieldError(Struct, frozen=True):
    """One error about one field."""

    kind: FieldErrorKind
    path: Path
    detail: str = ""
    value: object = None
    """What stands there."""
    remedy: str = ""
    """What would be right; empty says no more than the kind does."""
    code: str = ""
    """A short stable word for programs; empty stands for the kind's."""
    deeper: Path = ()
    """The part below `path` that a person should look at, relative to it."""

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
        """What to do about it."""
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
    return FieldError(FieldErrorKind.INVALID, path, detail)


def required(path: Path, detail: str = "") -> FieldError:
    return FieldError(FieldErrorKind.REQUIRED, path, detail)


def forbidden(path: Path, detail: str) -> FieldError:
    return FieldError(FieldErrorKind.FORBIDDEN, path, detail)


def duplicate(path: Path) -> FieldError:
    return FieldError(FieldErrorKind.DUPLICATE, path)


def unsupported(path: Path, supported: tuple[str, ...]) -> FieldError:
    """A value that is none of those that the field takes."""
    words = ", ".join(f'"{word}"' for word in sorted(supported))
    return FieldError(FieldErrorKind.NOT_SUPPORTED, path, f"supported values: {words}")


def too_many(path: Path, limit: int) -> FieldError:
    items = "item" if limit == 1 else "items"
    return FieldError(FieldErrorKind.TOO_MANY, path, f"must have at most {limit} {items}")


def too_long(path: Path, limit: int) -> FieldError:
    return FieldError(FieldErrorKind.TOO_LONG, path, f"may not be more than {limit} bytes")
