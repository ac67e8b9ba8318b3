"""Where themes and fixtures are: inside the wheel, or at the top of the checkout."""

from pathlib import Path

from gpuconsole.errors import ConsoleError

_PACKAGE = Path(__file__).resolve().parent


def price_table() -> Path:
    """The price table that comes along."""
    return folder("fixtures") / "prices.yaml"


def catalogue() -> Path:
    """The catalogue of machines that comes along."""
    return folder("fixtures") / "instances.yaml"


def folder(name: str) -> Path:
    """The folder `themes` or `fixtures`. Raises ConsoleError where the installation lacks it."""
    for place in (_PACKAGE / "_assets" / name, _PACKAGE.parent / name):
        if place.is_dir():
            return place
    raise ConsoleError(f"{name}/ is missing beside {_PACKAGE}; install gpuconsole again")
