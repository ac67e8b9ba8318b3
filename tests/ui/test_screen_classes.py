"""What a screen consists of: few classes above it, and objects that it owns."""

import pkgutil
from importlib import import_module

from textual.screen import Screen

from gpuconsole import ui

MOST = 3
"""Maximum number of our own classes in the hierarchy of a screen, itself and mix-ins included."""


def subclasses(cls: type[object]) -> list[type[object]]:
    below: list[type[object]] = cls.__subclasses__()
    return [*below, *(deeper for one in below for deeper in subclasses(one))]


def own_classes(cls: type[object]) -> list[str]:
    return [one.__name__ for one in cls.__mro__ if one.__module__.startswith("gpuconsole.")]


def test_a_screen_has_few_of_our_own_classes_above_it() -> None:
    for found in pkgutil.walk_packages(ui.__path__, f"{ui.__name__}."):
        import_module(found.name)
    ours = {cls.__name__: own_classes(cls) for cls in subclasses(Screen) if own_classes(cls)}
    assert {name: chain for name, chain in ours.items() if len(chain) > MOST} == {}
    assert ours["WorkloadsScreen"] == ["WorkloadsScreen", "ConsoleScreen", "TunedScreen"]
    assert ours["Palette"] == ["Palette", "Dialog"]
