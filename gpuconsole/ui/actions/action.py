"""An action: something that an operator can do, with its keys and words."""

from enum import StrEnum

from msgspec import Struct


class Scope(StrEnum):
    """Where an action belongs; the order is that of the help."""

    GLOBAL = "Everywhere"
    VIEWS = "Screens"
    SIMULATION = "Simulation"
    TABLE = "Tables"
    OBJECT = "Under the cursor"
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
    """Something that an operator can do."""

    id: str
    keys: tuple[str, ...] = ()
    """As Textual spells them, punctuation and capitals as themselves; `m p` is `m`, then `p`."""
    label: str
    """One to three words, for footer and menus."""
    help: str
    """One sentence."""
    scope: Scope
    aliases: tuple[str, ...] = ()
    """Names on the command line, the first one preferred."""
    argument: str = ""
    """What the command line takes after the alias, if anything."""
    changes: bool = False
    """Sends a Command to the cluster, so that a read-only session refuses it."""
    dangerous: bool = False
    """Loses work or cannot be taken back: it asks first, with Cancel as the default."""
    footer: bool = False
    """Worth a place in the footer."""
