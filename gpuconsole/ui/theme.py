"""Themes from YAML files: the colours of Textual's `Theme`, and one for each role.

Bundled themes are in `themes/`; the user's are in the folder `themes` beside the configuration file, and are read again
when they change.
"""

import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from gpuconsole.model.documents.yaml_json import FormError, read_yaml

COLOURS = (
    "own",
    "borrowed",
    "lent",
    "pending",
    "victim",
    "idle",
    "fault",
    "held",
    "dim",
    "series-1",
    "series-2",
    "series-3",
    "series-4",
    "series-5",
    "series-6",
    "series-7",
    "series-8",
)
"""Names that a theme must define in `variables`: a colour for each role, and a series for queues and owners."""

DEFAULT = "console-dark"
"""Name of the theme that is used unless another is chosen."""
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_TEXT_STYLES = {"none", "not", "bold", "dim", "italic", "underline", "reverse", "strike"}
_FIELDS = {field.name for field in fields(Theme)}
_PLAIN = ("name", "dark", "ansi", "variables", "luminosity_spread", "text_alpha")


class ThemeError(ValueError):
    """A theme file is invalid; the message names the file, the problem and the fix."""


def load_theme(path: Path) -> Theme:
    """Read one theme. Raises ThemeError for unknown keys, missing roles and invalid colours."""
    try:
        document = read_yaml(path.read_text(encoding="utf-8")).value
    except FormError as error:
        raise ThemeError(f"{path}:{error.problem.line}: cannot be read: {error.problem.problem}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ThemeError(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ThemeError(f"{path}: not a theme: it must be a mapping with name, primary and variables")
    _check_keys(path, document)
    _check_colours(path, document)
    theme = Theme(**document)
    theme.to_color_system().generate()
    return theme


def load_themes(folder: Path) -> list[Theme]:
    """Read all themes of a folder, the default first, then dark ones. Raises ThemeError, also where there is none."""
    themes = [load_theme(path) for path in sorted(folder.glob("*.yaml"))]
    if not themes:
        raise ThemeError(f"{folder}: no themes; add one YAML file per theme")
    return in_order(themes)


def in_order(themes: Iterable[Theme]) -> list[Theme]:
    """Sort themes: the default first, then dark ones, then by name."""
    return sorted(themes, key=lambda theme: (theme.name != DEFAULT, not theme.dark, theme.name))


def find_theme(themes: Iterable[Theme], wanted: str) -> Theme | None:
    """Return the theme with this name, else the one with the shortest name that contains it."""
    named = [theme for theme in themes if wanted in theme.name]
    return min(named, key=lambda theme: len(theme.name), default=None)


class UserThemes:
    """The user's own themes: the YAML files of a folder, which may change while the console runs. Mutates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, int]] = {}
        """File → (time of the last change in ns, bytes) when it was read."""

    def read_changed(self) -> tuple[list[Theme], list[str]]:
        """Read the files that are new or changed since the last call; return their themes, and the errors in others."""
        themes: list[Theme] = []
        problems: list[str] = []
        for path in sorted(self._folder.glob("*.yaml")):
            try:
                about = path.stat()
                version = about.st_mtime_ns, about.st_size
                if self._read.get(path) == version:
                    continue
                self._read[path] = version
                themes.append(load_theme(path))
            except (OSError, ThemeError) as error:
                problems.append(str(error))
        return themes, problems


def _check_keys(path: Path, document: dict[Any, Any]) -> None:
    unknown = sorted(str(key) for key in document if key not in _FIELDS)
    if unknown:
        raise ThemeError(f"{path}: unknown {_names(unknown)}; known keys: {_names(sorted(_FIELDS))}")
    if not isinstance(document.get("name"), str) or not isinstance(document.get("primary"), str):
        raise ThemeError(f"{path}: name and primary are required")
    if not _NAME.fullmatch(document["name"]):
        raise ThemeError(f"{path}: name: use letters, digits, - and _, beginning with a letter")
    variables = document.get("variables")
    missing = [name for name in COLOURS if not isinstance(variables, dict) or name not in variables]
    if missing:
        raise ThemeError(f"{path}: variables: {_names(missing)} missing")


def _check_colours(path: Path, document: dict[Any, Any]) -> None:
    colours = {key: value for key, value in document.items() if key not in _PLAIN and value is not None}
    for name, value in document["variables"].items():
        if not str(name).endswith("-style"):
            colours[f"variables.{name}"] = value
        elif not set(str(value).split()) <= _TEXT_STYLES:
            raise ThemeError(f"{path}: variables.{name}: {value!r} is not a text style, such as bold or underline")
    for key in ("dark", "ansi"):
        if not isinstance(document.get(key, True), bool):
            raise ThemeError(f"{path}: {key}: {document[key]!r} is not true or false")
    for key in ("luminosity_spread", "text_alpha"):
        if not isinstance(document.get(key, 0.0), int | float):
            raise ThemeError(f"{path}: {key}: {document[key]!r} is not a number")
    for key, value in colours.items():
        try:
            Color.parse(str(value))
        except ColorParseError as error:
            raise ThemeError(f"{path}: {key}: {value!r} is not a colour; use '#5f87d7' or a colour name") from error


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
