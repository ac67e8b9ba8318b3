"""The ten top screens by name: the only list of them. A new screen is one file and one line here."""

from collections.abc import Callable

from textual.screen import Screen

from gpuconsole.ui.screens.dashboard import DashboardScreen
from gpuconsole.ui.screens.later import later
from gpuconsole.ui.screens.queues import QueuesScreen

VIEWS: dict[str, Callable[[], Screen[None]]] = {
    "dashboard": DashboardScreen,
    "queues": QueuesScreen,
    "workloads": later("workloads", "Workloads"),
    "nodes": later("nodes", "Nodes"),
    "topology": later("topology", "Topology"),
    "preemptions": later("preemptions", "Preemptions"),
    "whatif": later("whatif", "What-if"),
    "submit": later("submit", "Submit"),
    "cost": later("cost", "Cost"),
    "history": later("history", "History"),
}
