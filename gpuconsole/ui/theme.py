"""Themes from YAML files: the colours of Textual's `Theme`, and one for each role."""

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
    """Read all themes of a folder, dark ones first. Raises ThemeError, also where there is none."""
    themes = [load_theme(path) for path in sorted(folder.glob("*.yaml"))]
    if not themes:
        raise ThemeError(f"{folder}: no themes; add one YAML file per theme")
    return sorted(themes, key=lambda theme: (not theme.dark, theme.name))


def _check_keys(path: Path, document: dict[Any, Any]) -> None:
    unknown = sorted(str(key) for key in document if key not in _FIELDS)
    if unknown:
        raise ThemeError(f"{path}: unknown {_names(unknown)}; known keys: {_names(sorted(_FIELDS))}")
    if not isinstance(document.get("name"), str) or not isinstance(document.get("primary"), str):
        raise ThemeError(f"{path}: name and primary are required")
    variables = document.get("variables")
    missing = [name for name in COLOURS if not isinstance(variables, dict) or name not in variables]
    if missing:
        raise ThemeError(f"{path}: variables: {_names(missing)} missing")


def _check_colours(path: Path, document: dict[Any, Any]) -> None:
    colours = {key: value for key, value in document.items() if key not in _PLAIN and value is not None}
    colours |= {f"variables.{name}": document["variables"][name] for name in COLOURS}
    for key, value in colours.items():
        try:
            Color.parse(str(value))
        except ColorParseError as error:
            raise ThemeError(f"{path}: {key}: {value!r} is not a colour; use '#5f87d7' or a colour name") from error


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
