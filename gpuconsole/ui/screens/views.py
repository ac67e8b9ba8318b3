"""Registry of the top-level screens by name. A new screen needs one file and one line here.

Each is imported on first use, to keep the start fast.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

if TYPE_CHECKING:
    from gpuconsole.ui.screens.base import ConsoleScreen

_SCREENS = {
    "dashboard": "DashboardScreen",
    "queues": "QueuesScreen",
    "workloads": "WorkloadsScreen",
    "nodes": "NodesScreen",
    "topology": "TopologyScreen",
    "preemptions": "PreemptionsScreen",
    "whatif": "WhatIfScreen",
    "submit": "SubmitScreen",
    "cost": "CostScreen",
    "history": "HistoryScreen",
}
"""Name of view and module → class of the screen."""
CHARTS = ("plot", "matrix", "waits", "gantt")
"""Names of the charts in `screens.plots`."""
ANSWERS = ("ledger", "slots", "shares", "antipatterns", "risk", "drills", "shadow", "alerts", *CHARTS)
"""Names of the reports in `screens.answers`, and of charts; the action `answer.NAME` opens one."""

LISTS = ("pods", "flavors", "cohorts", "checks", "users")
"""Names of the lists in `screens.object_lists`; the action `list.NAME` opens one."""


def list_screen(name: str) -> "ConsoleScreen":
    """Make the screen of the object list with this name, one of `LISTS`."""
    screen: ConsoleScreen = load("object_lists").list_screen(name)
    return screen


def ownership_screen(table: str, key: str) -> "ConsoleScreen":
    """Make the screen of the ownership tree that the object with `key` in `table` is in."""
    screen: ConsoleScreen = load("object_lists").OwnershipScreen(table, key)
    return screen


def object_screen(table: str, key: str) -> "ConsoleScreen":
    """Make the page of an object: of a workload, of a node, or its description; of a user the ownership tree."""
    screen: ConsoleScreen
    match table:
        case "workloads":
            screen = load("workloads").WorkloadDetailScreen(key)
        case "nodes":
            screen = load("nodes").NodeDetailScreen(key)
        case "users":
            screen = ownership_screen(table, key)
        case _:
            screen = load("objects").describe_screen(table, key)
    return screen


def answer_screen(name: str) -> "ConsoleScreen":
    """Make the screen of the report with this name, one of `ANSWERS`."""
    screen: ConsoleScreen = load("plots" if name in CHARTS else "answers").answer_screen(name)
    screen.is_answer = True
    return screen


def load(name: str) -> Any:
    """Import and return a module of `ui.screens` by name."""
    return import_module(f"gpuconsole.ui.screens.{name}")


def _made(name: str) -> Screen[None]:
    screen: Screen[None] = getattr(load(name), _SCREENS[name])()
    return screen


VIEWS: dict[str, Callable[[], Screen[None]]] = {name: partial(_made, name) for name in _SCREENS}
