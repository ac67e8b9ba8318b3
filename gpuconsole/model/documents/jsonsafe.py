"""Bounded reading of JSON; line numbers are determined only when a finding needs them."""

import json
from collections.abc import Iterator
from typing import Any

from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.yamlsafe import (
    MOST_DEPTH,
    FormError,
    YamlDocument,
    YamlPosition,
    YamlProblem,
    read_yaml,
)

MOST_VALUES = 4_000_000


class LazyPlace(YamlPosition):
    """Lines of a JSON document, determined on first use by reading it as YAML."""

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
