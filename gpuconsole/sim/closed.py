"""Structs as closed forms, with every problem as a line: what of a scenario does not fit, and what is meant."""

from typing import TypeVar

from gpuconsole.model.documents.closed import UnknownKey, fit, unknown_keys
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.text import clean

T = TypeVar("T")


def convert(data: object, form: type[T], path: str, problems: list[str]) -> T | None:
    """Read `data` as `form`. What is wrong is added to `problems`, a line each; then the result is None."""
    unknown = [_line(path, found.path[:-1], _unknown(found)) for found in unknown_keys(data, form)]
    if unknown:
        problems.extend(unknown)
        return None
    result, misfits = fit(data, form)
    problems.extend(_line(path, misfit.path, misfit.problem) for misfit in misfits)
    return None if misfits else result


def _line(path: str, below: Path, text: str) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{clean(key, 80)}" for key in below)
    where = f"{path}{''.join(parts)}".removeprefix(".")
    return f"{where}: {text}" if where else text


def advice(key: str, known: list[str]) -> str:
    """Say that a key is unknown, and which is meant, or which there are."""
    return _unknown(UnknownKey((key,), tuple(known)))


def _unknown(found: UnknownKey) -> str:
    return f"unknown key {clean(repr(found.key), 80)}; {found.advice}"
