"""The top screens by name: the only list of them. A new screen is one file and one line here."""

from collections.abc import Callable

from textual.screen import Screen

from gpuconsole.ui.screens.cost import CostScreen
from gpuconsole.ui.screens.dashboard import DashboardScreen
from gpuconsole.ui.screens.history import HistoryScreen
from gpuconsole.ui.screens.nodes import NodesScreen
from gpuconsole.ui.screens.preemptions import PreemptionsScreen
from gpuconsole.ui.screens.queues import QueuesScreen
from gpuconsole.ui.screens.submit import SubmitScreen
from gpuconsole.ui.screens.topology import TopologyScreen
from gpuconsole.ui.screens.whatif import WhatIfScreen
from gpuconsole.ui.screens.workloads import WorkloadsScreen

VIEWS: dict[str, Callable[[], Screen[None]]] = {
    "dashboard": DashboardScreen,
    "queues": QueuesScreen,
    "workloads": WorkloadsScreen,
    "nodes": NodesScreen,
    "topology": TopologyScreen,
    "preemptions": PreemptionsScreen,
    "whatif": WhatIfScreen,
    "submit": SubmitScreen,
    "cost": CostScreen,
    "history": HistoryScreen,
}
