"""Action: an operation that the operator can run, with its keys, label and help."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct


class Scope(StrEnum):
    """Group of an action in the help, in the order shown."""

    GLOBAL = "Everywhere"
    VIEWS = "Screens"
    LISTS = "Object lists"
    TIME = "Time line"
    SIMULATION = "Simulation"
    TABLE = "Tables"
    WINDOW = "Time window"
    PANELS = "Dashboard panels"
    CHARTS = "Charts"
    OBJECT = "Selected object"
    WORKLOAD = "Workloads"
    QUEUE = "Queues"
    NODE = "Nodes"
    TOPOLOGY = "Topology"
    COST = "Cost"
    WHAT_IF = "What-if"
    SUBMIT = "Submit"
    EDIT = "Edit"
    LOGS = "Logs"
    FORWARDS = "Port-forwards"
    DRILLS = "Drills"
    ANSWERS = "Answers"


class Action(Struct, frozen=True, kw_only=True):
    """An operation that the operator can run."""

    id: str
    keys: tuple[str, ...] = ()
    """Textual key names; punctuation and capitals stand for themselves; `m p` is `m`, then `p`."""
    label: str
    """One to three words, shown in footer and menus."""
    help: str
    """What the action does: one sentence of at most 12 words."""
    scope: Scope
    aliases: tuple[str, ...] = ()
    """Names at the `:` prompt; the first one is preferred."""
    argument: str = ""
    """Argument after the alias at the `:` prompt, if any."""
    changes: bool = False
    """Sends a Command to the cluster; a read-only session refuses it."""
    dangerous: bool = False
    """Loses work or cannot be undone: asks for confirmation, with Cancel as the default."""
    footer: bool = False
    """Shown in the footer."""


Handler = Callable[[], object]
"""Function that runs an action."""
Handlers = Mapping[str, Handler]
"""Action id → handler."""
