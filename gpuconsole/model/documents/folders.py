"""Distinction between the manifests in a folder and files for other tools: Helm, Kustomize, editors."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from gpuconsole.model.documents.jsonsafe import looks_like_json, read_json
from gpuconsole.model.documents.yamlsafe import TEMPLATE, FormError, YamlDocument, read_yaml, sections

_KEYS = ("apiVersion", "kind")
_SCENARIO = ("steps", "objects", "arrivals", "files")
"""Each of these keys marks a scenario or a saved Snapshot."""
_TOP = tuple(re.compile(rf"^{key}:", re.MULTILINE) for key in _KEYS)
_ANYWHERE = tuple(re.compile(rf"""\b{key}["']?\s*:""") for key in _KEYS)
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml")
_MOST_CHARACTERS = 1_000_000
"""Most characters of a Kustomization that are read."""


def holds_manifest(text: str) -> bool:
    """True if a document has apiVersion and kind, or is a scenario or Snapshot; unreadable ones if they look so."""
    if all(key.search(text) for key in _TOP):
        return True
    try:
        trees = read_json(text) if looks_like_json(text) else None
    except FormError:
        return True
    if trees is not None:
        return any(_is_manifest(tree.value) for tree in trees)
    return any(_section_holds(section) for section, _ in sections(text))


def _section_holds(text: str) -> bool:
    try:
        return _is_manifest(read_yaml(text).value)
    except FormError:
        return all(key.search(text) for key in _ANYWHERE)


def _is_manifest(value: Any) -> bool:
    return isinstance(value, dict) and (all(key in value for key in _KEYS) or any(key in value for key in _SCENARIO))


def is_chart_template(file: str, text: str) -> bool:
    """True for a file in the templates folder of a Helm chart, or one elsewhere in the chart that must be rendered."""
    above = os.path.dirname(file)
    while above:
        parent, name = os.path.split(above)
        if name == "templates" and os.path.isfile(os.path.join(parent, "Chart.yaml")):
            return True
        if os.path.isfile(os.path.join(above, "Chart.yaml")):
            return _is_template(text)
        above = parent if parent != above else ""
    return False


def _is_template(text: str) -> bool:
    """True if the file can only be read after Helm renders it."""
    if "{{" not in text:
        return False
    try:
        for section, _ in sections(text):
            read_yaml(section)
    except FormError as error:
        return error.problem.code == TEMPLATE
    return False


def kustomize_patches(files: Iterable[str]) -> frozenset[str]:
    """Return the real paths of files that Kustomizations among `files` name as patches: parts of other objects.

    Kustomize: patches[].path, patchesStrategicMerge, patchesJson6902[].path, replacements[].path, configurations.
    """
    found: set[str] = set()
    for file in files:
        if os.path.basename(file) in _KUSTOMIZATIONS:
            folder = os.path.dirname(file)
            found |= {os.path.realpath(os.path.join(folder, name)) for name in _named_in(file)}
    return frozenset(found)


def _named_in(file: str) -> Iterator[str]:
    try:
        with open(file, encoding="utf-8") as stream:
            tree: YamlDocument = read_yaml(stream.read(_MOST_CHARACTERS))
    except (OSError, ValueError, FormError):
        return
    value = tree.value if isinstance(tree.value, dict) else {}
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902", "replacements", "configurations"):
        entries = value.get(key)
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("path") if isinstance(entry, dict) else entry
            # A patch may be written inline instead of as a file name.
            if isinstance(name, str) and "\n" not in name and "\0" not in name:
                yield name


def matches(file: str, folder: str, patterns: Sequence[str]) -> bool:
    """True if a glob matches a file's path as named or from its folder, or the name of it or of a parent folder."""
    inner = os.path.relpath(file, folder) if folder else file
    parts = inner.split(os.sep)
    ways = {file, inner, *parts, *(os.sep.join(parts[:n]) for n in range(1, len(parts)))}
    return any(fnmatchcase(way, pattern.removesuffix("/")) for pattern in patterns for way in ways)
