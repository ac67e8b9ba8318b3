"""Field errors as Kubernetes reports them: which field, what kind of error, and in which words."""

from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.documents.findings import Path, path_text


class FieldErrorKind(StrEnum):
    """The kinds of k8s.io/apimachinery's field errors, by the names that they have there."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    NOT_SUPPORTED = "FieldValueNotSupported"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"
    TOO_MANY = "FieldValueTooMany"
    TOO_LONG = "FieldValueTooLong"


class FieldError(Struct, frozen=True):
    """One error about one field."""

    kind: FieldErrorKind
    path: Path
    detail: str = ""

    @property
    def field(self) -> str:
        """The field as Kubernetes writes it."""
        return path_text(self.path)


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
