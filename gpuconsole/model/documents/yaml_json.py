"""Bounded reading of YAML and JSON: depth, size and aliases are limited, and every value has its line.

The YAML tree is built from libyaml's events, so that reading stops where a document exceeds a limit. Plain scalars have
the values that Kubernetes gives them (sigs.k8s.io/yaml: YAML 1.1 without timestamps and base 60). Lines of JSON are
determined only when a finding needs them.

`find_configuration` finds a scheduler's configuration file: a document alone, among others, or in a ConfigMap.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import yaml
from msgspec import Struct

from gpuconsole.model.documents.findings import DocumentFindings, Key, Path

_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_BASED = re.compile(r"([-+]?)0(?:[xX]([0-9a-fA-F_]+)|[bB]([01_]+)|[oO]?([0-7_]+))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_FIRST = frozenset("+-.0123456789")
LONGEST_NUMBER = 64

Scalar = str | int | float | bool | None


def resolve(text: str) -> Scalar:
    """Return the value of a plain YAML scalar. A number that is too long stays a string."""
    if not text:
        return None
    if text[0] in _FIRST:
        return _number(text) if len(text) <= LONGEST_NUMBER else text
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return None if text in _NULL else text


def _number(text: str) -> Scalar:
    if _DECIMAL.fullmatch(text):
        return int(text.replace("_", ""))
    based = _BASED.fullmatch(text)
    if based is not None:
        return _in_base(based) if any(g and g.strip("_") for g in based.groups()[1:]) else text
    plain = text if text[0] == "." else text.replace("_", "")
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        # JSON has no infinity, so such a number cannot reach an API server; it stays a string.
        return number if abs(number) < float("inf") else text
    return text


def _in_base(match: re.Match[str]) -> int:
    sign, hexadecimal, binary, octal = match.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (binary, 2) if binary else (octal, 8)
    number = int(digits.replace("_", ""), base)
    return -number if sign == "-" else number


def key_text(value: Scalar) -> str:
    """Return a mapping key as in JSON: always a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


MOST_DEPTH = 100
MOST_NODES = 1_000_000
"""Most values of a YAML document."""
MOST_ALIASED = 100_000
"""Most values that aliases may repeat: they use no memory, but each is visited."""
MERGE = "<<"
"""Key whose mapping is merged into the one that contains it."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING = "tag:yaml.org,2002:str"
_TEMPLATE = re.compile(r"\{\{-?\s*[.$\"\w][^{}]*\}\}")
TEMPLATE = "template"
"""Code of the problem that a document must be rendered first."""
_PLAIN_TAGS = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))
_CONTAINER_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!")


class YamlPosition:
    """Finds the line of a value in a document by its path."""

    __slots__ = ("children", "line")

    def __init__(self, line: int, children: "dict[Key, YamlPosition] | None" = None) -> None:
        self.line = line
        self.children = children

    def find(self, path: Path) -> int:
        """Return the line of a path, or of the nearest value around it if the path does not exist."""
        place = self
        for key in path:
            child = place.children.get(key) if place.children else None
            if child is None:
                break
            place = child
        return place.line


class YamlProblem(Struct, frozen=True):
    """Problem in the syntax of a document."""

    line: int
    problem: str
    remedy: str
    code: str
    path: Path = ()


class YamlDocument(Struct, frozen=True):
    """Decoded document: its value, its lines, and problems that did not keep it from being read."""

    value: Any
    place: YamlPosition
    troubles: tuple[YamlProblem, ...] = ()


class FormError(Exception):
    """The document cannot be read; `problem` says where and why."""

    def __init__(self, trouble: YamlProblem) -> None:
        super().__init__(trouble.problem)
        self.problem = trouble


class _Frame:
    """Mapping or list that is being read. Mutable."""

    __slots__ = ("anchor", "is_map", "key", "key_line", "merges", "place", "places", "size", "value")

    def __init__(self, line: int, anchor: str | None, is_map: bool) -> None:
        self.value: Any = {} if is_map else []
        self.places: dict[Key, YamlPosition] = {}
        self.place = YamlPosition(line, self.places)
        self.anchor = anchor
        self.is_map = is_map
        self.key: str | None = None
        self.key_line = line
        self.size = 1
        self.merges: list[tuple[Any, YamlPosition]] = []


class _Builder:
    """Builds the tree of one document from events. Mutable; `build` is called once."""

    def __init__(self, first_line: int) -> None:
        self._offset = first_line
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, YamlPosition, int]] = {}
        self._troubles: list[YamlProblem] = []
        self._aliased = 0
        self._root: tuple[Any, YamlPosition] = (None, YamlPosition(first_line))

    def build(self, text: str) -> YamlDocument:
        """Return the document. Raises FormError."""
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._take(event)
        except yaml.MarkedYAMLError as error:
            raise FormError(self._syntax(error, text)) from None
        except (yaml.YAMLError, RecursionError) as error:
            raise self._stop(self._offset, f"invalid YAML: {error}", "fix the syntax", "syntax") from None
        value, place = self._root
        return YamlDocument(value, place, tuple(self._troubles))

    def _syntax(self, error: yaml.MarkedYAMLError, text: str) -> YamlProblem:
        mark = error.problem_mark or error.context_mark
        number = mark.line if mark is not None else 0
        problem = " ".join(part for part in (error.context, error.problem) if part)
        line = next(islice(text.split("\n"), number, None), "")
        tab = "\t" in line[: len(line) - len(line.lstrip())]
        remedy = "indent with spaces, not with tabs" if tab else "fix the syntax: indentation, quotes, colons"
        return YamlProblem(self._offset + number, f"invalid YAML: {problem}", remedy, "syntax")

    def _stop(self, line: int, problem: str, remedy: str, code: str) -> FormError:
        return FormError(YamlProblem(line, problem, remedy, code))

    def _take(self, event: Any) -> None:
        match event:
            case yaml.ScalarEvent():
                line = self._line(event)
                self._add(self._scalar(event, line), YamlPosition(line), 1, event.anchor)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event, isinstance(event, yaml.MappingStartEvent))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event)

    def _line(self, event: Any) -> int:
        return self._offset + int(event.start_mark.line)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> Any:
        tag, text = event.tag, event.value
        if tag is None or tag == "!":
            return resolve(text) if event.implicit[0] and tag is None else text
        if tag in _PLAIN_TAGS:
            return resolve(text)
        if tag != _STRING:
            self._trouble(line, f"the tag {tag} is not allowed", "drop the tag; Kubernetes takes plain values", "tag")
        return text

    def _trouble(self, line: int, problem: str, remedy: str, code: str) -> None:
        if len(self._troubles) < 100:
            self._troubles.append(YamlProblem(line, problem, remedy, code, self._path()))

    def _path(self) -> Path:
        keys: list[Key] = []
        for frame in self._stack:
            if frame.is_map and frame.key is not None:
                keys.append(frame.key)
            elif not frame.is_map:
                keys.append(len(frame.value))
        return tuple(keys)

    def _open(self, event: Any, is_map: bool) -> None:
        line = self._line(event)
        if self._expects_key():
            raise self._stop(line, "a mapping key must be a text", "write a plain key", "bad-key")
        if event.tag is not None and event.tag not in _CONTAINER_TAGS:
            self._trouble(line, f"the tag {event.tag} is not allowed", "drop the tag", "tag")
        if len(self._stack) >= MOST_DEPTH:
            problem = f"it is nested deeper than {MOST_DEPTH} levels"
            raise self._stop(line, problem, "a manifest has some ten levels", "too-deep")
        self._stack.append(_Frame(line, event.anchor, is_map))

    def _expects_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].is_map and self._stack[-1].key is None

    def _close(self) -> None:
        frame = self._stack.pop()
        for value, place in frame.merges:
            _merge(frame, value, place)
        self._add(frame.value, frame.place, frame.size, frame.anchor)

    def _alias(self, event: yaml.AliasEvent) -> None:
        line = self._line(event)
        if any(frame.anchor == event.anchor for frame in self._stack):
            raise self._stop(line, f"*{event.anchor} contains itself", "write the value out", "alias-cycle")
        known = self._anchors.get(str(event.anchor))
        if known is None:
            raise self._stop(line, f"*{event.anchor} is not defined above", f"define &{event.anchor}", "bad-alias")
        value, place, size = known
        self._aliased += size
        if self._aliased > MOST_ALIASED:
            problem = f"its aliases repeat more than {MOST_ALIASED} values"
            raise self._stop(line, problem, "write it without aliases of aliases", "too-many-aliases")
        self._add(value, YamlPosition(line, place.children), size, None)

    def _add(self, value: Any, place: YamlPosition, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, place, size)
        if not self._stack:
            self._root = (value, place)
            return
        frame = self._stack[-1]
        frame.size += size
        if frame.size > MOST_NODES:
            raise self._stop(place.line, f"it has more than {MOST_NODES} values", "split the file", "too-large")
        if not frame.is_map:
            frame.places[len(frame.value)] = place
            frame.value.append(value)
        elif frame.key is None:
            self._key(frame, value, place.line)
        else:
            self._entry(frame, frame.key, value, place)

    def _key(self, frame: _Frame, value: Any, line: int) -> None:
        if isinstance(value, (dict, list)):
            raise self._stop(line, "a mapping key must be a text", "write a plain key", "bad-key")
        frame.key, frame.key_line = key_text(value), line

    def _entry(self, frame: _Frame, key: str, value: Any, place: YamlPosition) -> None:
        if key == MERGE and isinstance(value, (dict, list)):
            frame.merges.append((value, place))
        else:
            if key in frame.value:
                first = frame.places[key].line
                problem = f"the key {key!r:.100} is duplicated, first at line {first}"
                self._trouble(frame.key_line, problem, "remove one of them; the last one would win", "duplicate-key")
            frame.value[key] = value
            frame.places[key] = YamlPosition(frame.key_line, place.children)
        frame.key = None


def _merge(frame: _Frame, value: Any, place: YamlPosition) -> None:
    """Add the entries of a merge key (`<<`) that the mapping does not have."""
    sources = [(value, place)] if isinstance(value, dict) else []
    if isinstance(value, list) and place.children is not None:
        sources = [(item, place.children[n]) for n, item in enumerate(value) if isinstance(item, dict)]
    for source, where in sources:
        for key, item in source.items():
            if key not in frame.value:
                frame.value[key] = item
                frame.places[key] = YamlPosition(place.line, (where.children or {})[key].children)


def read_yaml(text: str, first_line: int = 1) -> YamlDocument:
    """Read one YAML document (JSON too). Raises FormError with line and reason."""
    try:
        return _Builder(first_line).build(text)
    except FormError as error:
        lines = text.split("\n")[: error.problem.line - first_line + 1]
        # A loop or condition of a template on its own line may cause the error further down.
        if not (_TEMPLATE.search(lines[-1]) or any(_TEMPLATE.match(line.lstrip()) for line in lines)):
            raise
        problem, remedy = "this is a template, not a manifest yet", "render it first, such as by helm template"
        raise FormError(YamlProblem(error.problem.line, problem, remedy, TEMPLATE)) from None


def sections(text: str) -> Iterator[tuple[str, int]]:
    """Split a stream into documents at lines that begin with `---`, as kubectl does, with the first line of each.

    So a syntax error in one document does not hide the others.
    """
    lines = text.split("\n")
    start = 0
    for number, line in enumerate(lines):
        if line.startswith("---") and (len(line) == 3 or line[3] in " \t\r"):
            yield from _section(lines, start, number)
            # Text after the dashes belongs to the new document.
            lines[number] = "   " + line[3:]
            start = number
    yield from _section(lines, start, len(lines))


def _section(lines: list[str], start: int, end: int) -> Iterator[tuple[str, int]]:
    part = lines[start:end]
    if any(line.strip() and not line.lstrip().startswith(("#", "%")) and line.strip() != "..." for line in part):
        yield "\n".join("" if line.startswith("%") else line for line in part), start + 1


MOST_VALUES = 4_000_000
"""Most values of a JSON text."""


class LazyPlace(YamlPosition):
    """Finds the line of a value in a JSON document, which is read as YAML for this on first use."""

    __slots__ = ("_text",)

    def __init__(self, line: int, text: str) -> None:
        super().__init__(line)
        self._text: str | None = text

    def find(self, path: Path) -> int:
        """Return the line of a path; the first line if the document cannot be read as YAML."""
        if self._text is not None:
            text, self._text = self._text, None
            try:
                self.children = read_yaml(text, self.line).place.children
            except FormError:
                # JSON that is not YAML (such as an escaped surrogate pair): use its first line.
                self.children = None
        return super().find(path)


class _NotPlain(Exception):
    """JSON that the YAML reader must handle: it repeats keys, or is too deeply nested."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotPlain
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=str)


def looks_like_json(text: str) -> bool:
    """True if a text begins with a JSON object or list."""
    return text.lstrip()[:1] in ("{", "[")


def read_json(text: str) -> list[YamlDocument] | None:
    """Read one JSON value after another; None if the text is not plain JSON, so that the YAML reader reports why.

    Raises FormError if it has too many values.
    """
    if text.count(",") + text.count("{") + text.count("[") > MOST_VALUES:
        problem = f"it has more than {MOST_VALUES} values"
        raise FormError(YamlProblem(1, problem, "split the file", "too-large"))
    try:
        return list(_values(text))
    except (ValueError, RecursionError, _NotPlain):
        return None


def _values(text: str) -> Iterator[YamlDocument]:
    position, line = 0, 1
    while True:
        start = position
        while position < len(text) and text[position] in " \t\r\n":
            position += 1
        if position == len(text):
            return
        line += text.count("\n", start, position)
        value, end = _DECODER.raw_decode(text, position)
        if _depth(value) > MOST_DEPTH:
            raise _NotPlain
        yield YamlDocument(value, LazyPlace(line, text[position:end]))
        line += text.count("\n", position, end)
        position = end


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return depth


Holds = Callable[[str, str], bool]
"""Called with key and text of an entry of a ConfigMap; returns True if it is the wanted configuration."""


def named(*keys: str) -> Holds:
    """Return a function that recognizes the configuration in a ConfigMap by its key, one of these."""
    return lambda key, _: key in keys


def unwrapped(tree: YamlDocument, holds: Holds) -> YamlDocument:
    """Return the configuration in a ConfigMap, or the document itself. Raises FormError if it cannot be read."""
    held = tree.value.get("data") if isinstance(tree.value, dict) and tree.value.get("kind") == "ConfigMap" else None
    for key, text in held.items() if isinstance(held, dict) else ():
        if isinstance(text, str) and holds(key, text):
            return read_yaml(text, tree.place.find(("data", key)) + 1)
    return tree


def find_configuration(
    text: str,
    name: str,
    *,
    meant: Callable[[Mapping[str, Any]], bool],
    holds: Holds,
    absent: tuple[str, str],
    strict: bool = False,
) -> tuple[dict[str, Any] | None, DocumentFindings]:
    """Return the first document of a text that is a configuration, or None, and a report for findings in it.

    `meant` recognizes the document, `holds` its entry in a ConfigMap; `name` is the source in findings. If no document
    is found (`absent`: problem and remedy), or one cannot be read, the report contains that error.
    """
    try:
        for tree in _trees(text):
            inner = unwrapped(tree, holds)
            if isinstance(inner.value, dict) and meant(inner.value):
                return inner.value, DocumentFindings(name, line_of=inner.place.find, strict=strict)
    except FormError as error:
        trouble = error.problem
        report = DocumentFindings(name, line_of=lambda _: trouble.line)
        report.error((), trouble.problem, trouble.remedy, trouble.code)
        return None, report
    report = DocumentFindings(name)
    report.error((), *absent, "no-configuration")
    return None, report


def _trees(text: str) -> Iterable[YamlDocument]:
    """Read all documents before one is used, so that an error in any of them is reported."""
    return [read_yaml(part, line) for part, line in sections(text)]
