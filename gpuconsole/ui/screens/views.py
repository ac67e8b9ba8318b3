"""The ten top screens by name: the only list of them. A new screen is one file and one line here."""

from collections.abc import Callable

from textual.screen import Screen

from gpuconsole.ui.screens.dashboard import DashboardScreen
from gpuconsole.ui.screens.history import HistoryScreen
from gpuconsole.ui.screens.later import later
from gpuconsole.ui.screens.nodes import NodesScreen
from gpuconsole.ui.screens.preemptions import PreemptionsScreen
from gpuconsole.ui.screens.queues import QueuesScreen
from gpuconsole.ui.screens.submit import SubmitScreen
from gpuconsole.ui.screens.whatif import WhatIfScreen
from gpuconsole.ui.screens.workloads import WorkloadsScreen

VIEWS: dict[str, Callable[[], Screen[None]]] = {
    "dashboard": DashboardScreen,
    "queues": QueuesScreen,
    "workloads": WorkloadsScreen,
    "nodes": NodesScreen,
    "topology": later("topology", "Topology", "4 shows nodes and their GPUs."),
    "preemptions": PreemptionsScreen,
    "whatif": WhatIfScreen,
    "submit": SubmitScreen,
    "cost": later("cost", "Cost", "6 prices the work that preemptions lost."),
    "history": HistoryScreen,
}
