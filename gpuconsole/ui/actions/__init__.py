"""Registry of all actions: footer, help, palette, menus and `gpuconsole keys` are generated from it.

Imports no Textual, so that the command line can print it. A screen offers an action by listing its id in `handlers()`;
a key runs the first action with that key that the active screen offers.
"""

from gpuconsole.ui.actions.action import Action as Action
from gpuconsole.ui.actions.action import Handler as Handler
from gpuconsole.ui.actions.action import Handlers as Handlers
from gpuconsole.ui.actions.action import Scope as Scope
from gpuconsole.ui.actions.global_actions import (
    ANSWERS,
    DRILLS,
    EVERYWHERE,
    LISTS,
    SIMULATION,
    TABLES,
    TIME_LINE,
    TIME_TRAVEL,
    VIEWS,
)
from gpuconsole.ui.actions.object_actions import (
    COST,
    MANIFESTS,
    NODES,
    OBJECTS,
    PLACES,
    PODS,
    QUEUES,
    SUBMIT,
    TOPOLOGY,
    WHAT_IF,
    WINDOW,
    WORKLOADS,
)
from gpuconsole.ui.actions.panel_actions import CHARTS, PANELS

ACTIONS: tuple[Action, ...] = (
    *TIME_TRAVEL,
    *EVERYWHERE,
    *PLACES,
    *VIEWS,
    *LISTS,
    *SIMULATION,
    *TABLES,
    *OBJECTS,
    *WORKLOADS,
    *QUEUES,
    *NODES,
    *TOPOLOGY,
    *COST,
    *WINDOW,
    *PANELS,
    *CHARTS,
    *WHAT_IF,
    *SUBMIT,
    *TIME_LINE,
    *MANIFESTS,
    *PODS,
    *DRILLS,
    *ANSWERS,
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
ALIASES: dict[str, Action] = {alias: action for action in ACTIONS for alias in action.aliases}
