"""Constructors of field errors: the API server's text with the found value and a remedy."""

from gpuconsole.model.documents.fields import FieldError, FieldErrorKind
from gpuconsole.model.documents.findings import Path


def invalid(path: Path, value: object, detail: str, remedy: str, code: str = "") -> FieldError:
    """Error for a value that violates a rule."""
    return FieldError(FieldErrorKind.INVALID, path, detail, value, remedy, code)


def required(path: Path, detail: str, remedy: str, code: str = "") -> FieldError:
    """Error for a missing value."""
    return FieldError(FieldErrorKind.REQUIRED, path, detail, None, remedy, code)


def forbidden(path: Path, detail: str, remedy: str) -> FieldError:
    """Error for a value that is not allowed here."""
    return FieldError(FieldErrorKind.FORBIDDEN, path, detail, None, remedy)


def duplicate(path: Path, value: object, detail: str = "", deeper: Path = ()) -> FieldError:
    """Error for a value that must be unique."""
    return FieldError(FieldErrorKind.DUPLICATE, path, detail, value, deeper=deeper)


def not_supported(path: Path, value: object, supported: tuple[str, ...], code: str = "") -> FieldError:
    """Error for a value that is not in an enum."""
    listed = ", ".join(f'"{word}"' for word in supported)
    detail, remedy = (f"supported values: {listed}", f"it takes {', '.join(supported)}") if supported else ("", "")
    return FieldError(FieldErrorKind.NOT_SUPPORTED, path, detail, value, remedy, code)


def too_long(path: Path, most: int, code: str = "") -> FieldError:
    """Error for a string longer than `most` bytes."""
    return FieldError(FieldErrorKind.TOO_LONG, path, f"may not be more than {most} bytes", code=code)


def too_many(path: Path, count: int, most: int) -> FieldError:
    """Error for more than `most` entries."""
    detail = f"must have at most {most} items"
    return FieldError(FieldErrorKind.TOO_MANY, path, detail, count, f"{most} are allowed, shorten it")


def missing(path: Path) -> FieldError:
    """Error for a missing field that the schema requires."""
    return FieldError(FieldErrorKind.REQUIRED, path, remedy=f"write {path[-1]}")


def wrong_type(path: Path, value: object, detail: str, remedy: str = "") -> FieldError:
    """Error for a value of the wrong type."""
    return FieldError(FieldErrorKind.TYPE_INVALID, path, detail, value, remedy)


def not_found(path: Path, value: object) -> FieldError:
    """Error for a reference to an object that does not exist."""
    return FieldError(FieldErrorKind.NOT_FOUND, path, "", value)
