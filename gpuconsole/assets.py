"""Finds the bundled themes, fixtures and docs, in the installed wheel or at the top of the checkout."""

from pathlib import Path

from gpuconsole.errors import ConsoleError

_PACKAGE = Path(__file__).resolve().parent


def price_table() -> Path:
    """The bundled price table."""
    return folder("fixtures") / "prices.yaml"


def catalogue() -> Path:
    """The bundled instance-type catalogue."""
    return folder("fixtures") / "instances.yaml"


def glossary() -> Path:
    """The glossary's Markdown file, docs/glossary.md."""
    return folder("docs") / "glossary.md"


def folder(name: str) -> Path:
    """Find the folder `themes`, `fixtures` or `docs`. Raises ConsoleError where the installation lacks it."""
    for place in (_PACKAGE / "_assets" / name, _PACKAGE.parent / name):
        if place.is_dir():
            return place
    raise ConsoleError(f"{name}/ is missing next to {_PACKAGE}; reinstall gpuconsole")
