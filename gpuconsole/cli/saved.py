"""Reads saved Snapshot files, and explains what is wrong with an invalid one."""

import re
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpuconsole.cli.options import OpenRequest
from gpuconsole.errors import SourceError
from gpuconsole.insight.tables import counted
from gpuconsole.model.objects import insane_values
from gpuconsole.model.snapshot import FORMAT, KUEUES, SnapshotFile, decode
from gpuconsole.model.text import clean
from gpuconsole.sim.engine import policy_of_snapshot
from gpuconsole.sim.policy import SimPolicy

REMEDY = "create one with `gpuconsole snapshot save`; open manifests and scenarios without --snapshot"
SHOWN = 5
"""Number of keys shown of a document that is not a snapshot."""
_PLACED = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<path>.*)`")
_OBJECT = re.compile(r"objects\[(?P<number>\d+)\]\.?(?P<path>.*)")


def saved_in(file: Path) -> tuple[SnapshotFile, SimPolicy | None]:
    """Read a saved Snapshot, and the policy of the simulation that it was saved from, if any. Raises SourceError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SourceError(str(file), error.strerror or str(error)) from error
    saved = _decoded(file, data)
    wrong = next(insane_values(saved.objects), None)
    if wrong is not None:
        raise SourceError(str(file), wrong)
    try:
        return saved, policy_of_snapshot(saved)
    except UnicodeDecodeError as error:
        raise _not_utf_8(file, data) from error
    except msgspec.DecodeError as error:
        raise SourceError(str(file), f"policy: {error}") from error


def _decoded(file: Path, data: bytes) -> SnapshotFile:
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise SourceError(str(file), _wrong(_document(data), str(error))) from error
    except UnicodeDecodeError as error:
        raise _not_utf_8(file, data) from error
    except (msgspec.DecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SourceError(str(file), f"not a snapshot: {why}; {REMEDY}") from error


def _not_utf_8(file: Path, data: bytes) -> SourceError:
    """The position in a file that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        said = f"not valid UTF-8: byte {data[error.start]:#04x} at position {error.start}; {REMEDY}"
        return SourceError(str(file), said, line)
    return SourceError(str(file), f"its strings are not valid UTF-8; {REMEDY}")


def _document(data: bytes) -> Any:
    """The JSON document; None if what follows its first wrong value is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _wrong(document: Any, problem: str) -> str:
    """The error of a JSON document: not a Snapshot, or an invalid field."""
    if not isinstance(document, dict):
        return f"not a snapshot, but {_kind_of(document)}; {REMEDY}"
    if document.get("format", FORMAT) != FORMAT:
        return problem
    if not ("objects" in document and "time" in document):
        return f"not a snapshot: `time` and `objects` are required, {_keys(document)}; {REMEDY}"
    found = _PLACED.fullmatch(problem)
    if found is None:
        return problem
    text = found["problem"]
    place = _OBJECT.fullmatch(found["path"])
    where = found["path"] if place is None else f"{_name(document['objects'], int(place['number']))} {place['path']}"
    return f"{where.rstrip()}: {text[:1].lower()}{text[1:]}; save the cluster again with `gpuconsole snapshot save`"


def _kind_of(value: Any) -> str:
    match value:
        case list():
            return f"a list of {counted(len(value), 'value')}"
        case str():
            return "a string"
        case None:
            return "null"
        case _:
            return "a number" if type(value) is not bool else "true or false"


def _keys(document: dict[str, Any]) -> str:
    """The keys that a document has instead."""
    if not document:
        return "found nothing"
    shown = ", ".join(islice((clean(key) for key in document), SHOWN))
    more = len(document) - SHOWN
    return f"found {shown}{f' and {more} more' if more > 0 else ''}"


def _name(objects: Any, number: int) -> str:
    """The name of the object with this number, by its own fields."""
    obj = objects[number] if isinstance(objects, list) and number < len(objects) else None
    fields = (obj.get(key) for key in ("type", "namespace", "name")) if isinstance(obj, dict) else ()
    return "/".join(clean(part) for part in fields if isinstance(part, str) and part) or f"objects[{number}]"


def with_overrides(saved: SnapshotFile, request: OpenRequest) -> SnapshotFile:
    """The file without assumptions about Kueue that a given Configuration replaces."""
    if request.kueue_config is None and not request.feature_gates:
        return saved
    assumed = tuple(text for text in saved.seen.assumed if not text.startswith(KUEUES))
    return replace(saved, seen=replace(saved.seen, assumed=assumed))
