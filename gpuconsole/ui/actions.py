"""The one registry of actions: footer, help, palette, menus and `gpuconsole keys` are generated from it.

Imports no Textual, so that the command line can print it. A screen offers an action by naming its id in `handlers()`;
a key means the first action with that key which the screen in front offers.
"""

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
    WHAT_IF = "What-if"
    SUBMIT = "Submit"


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


def _view(id: str, key: str, label: str, help: str, *aliases: str) -> Action:
    return Action(id=f"view.{id}", keys=(key,), label=label, help=help, scope=Scope.VIEWS, aliases=aliases)


ACTIONS: tuple[Action, ...] = (
    # Everywhere
    Action(
        id="app.command",
        keys=(":",),
        label="command",
        help="Open the command line: an alias, namespaces, a /filter.",
        scope=Scope.GLOBAL,
        footer=True,
    ),
    Action(
        id="app.palette",
        keys=("ctrl+p",),
        label="palette",
        help="Find any action by a few letters of its name.",
        scope=Scope.GLOBAL,
        footer=True,
    ),
    Action(
        id="app.help",
        keys=("?", "f1"),
        label="help",
        help="Show the keys that work here, now.",
        scope=Scope.GLOBAL,
        aliases=("help", "keys"),
        footer=True,
    ),
    Action(
        id="app.escape",
        keys=("escape",),
        label="back",
        help="Clear the filter; without one, go back to where you came from.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.back",
        keys=("q",),
        label="back or quit",
        help="Go back; on a first screen, quit after asking.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.quit",
        label="quit",
        help="Leave the console at once. Pressing ctrl+c twice does the same.",
        scope=Scope.GLOBAL,
        aliases=("q", "quit", "q!", "exit"),
    ),
    Action(
        id="app.previous",
        keys=("[",),
        label="earlier view",
        help="Go to the view before this one.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.next",
        keys=("]",),
        label="later view",
        help="Go forward again to the view after this one.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.last",
        keys=("-",),
        label="last view",
        help="Change to the view that was open last, and back.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.next-pane",
        keys=("tab",),
        label="next pane",
        help="Move to the next pane.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.previous-pane",
        keys=("shift+tab",),
        label="previous pane",
        help="Move to the previous pane.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.zoom",
        keys=("z",),
        label="zoom",
        help="Give the pane in front the whole screen, or take it back.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.refresh",
        keys=("ctrl+r",),
        label="refresh",
        help="Draw the newest data now.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.header",
        keys=("ctrl+e",),
        label="header",
        help="Show or hide the header.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.theme",
        label="theme",
        help="Change to the next theme, or to the one that is named.",
        scope=Scope.GLOBAL,
        aliases=("theme",),
        argument="[name]",
    ),
    Action(
        id="app.namespaces",
        label="namespaces",
        help="Show these namespaces only (several with commas); all without a name.",
        scope=Scope.GLOBAL,
        aliases=("ns", "namespaces"),
        argument="[a,b]",
    ),
    Action(
        id="app.all-namespaces",
        keys=("0",),
        label="all namespaces",
        help="Show all namespaces again.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.suspend",
        keys=("ctrl+z",),
        label="to the shell",
        help="Suspend the console; `fg` brings it back.",
        scope=Scope.GLOBAL,
    ),
    # Screens
    _view("dashboard", "1", "dash", "The cluster at a glance.", "dash", "dashboard", "pulse"),
    _view(
        "queues", "2", "queues", "Cohorts, ClusterQueues and LocalQueues as a tree.", "qu", "queues", "cq", "lq", "co"
    ),
    _view("workloads", "3", "workloads", "Workloads with their place in the queue.", "wl", "workloads", "workload"),
    _view("nodes", "4", "nodes", "Nodes with a map of their GPUs.", "no", "nodes", "node", "gpu"),
    _view("preemptions", "6", "preempt", "Who evicted whom, and why.", "pre", "preemptions"),
    _view("whatif", "7", "what-if", "Try changes in a fork of this cluster.", "sim", "whatif", "what-if"),
    Action(
        id="view.submit",
        keys=("n", "8"),
        label="submit",
        help="Submit a job from a template.",
        scope=Scope.VIEWS,
        aliases=("new", "submit"),
        footer=True,
    ),
    Action(
        id="view.history",
        keys=("alt+0",),
        label="history",
        help="What happened, line by line.",
        scope=Scope.VIEWS,
        aliases=("hist", "history", "ev", "events"),
    ),
    # Simulation
    Action(
        id="sim.pause",
        keys=(".",),
        label="pause",
        help="Pause the simulation, or let it run on.",
        scope=Scope.SIMULATION,
        aliases=("pause", "resume", "run"),
        footer=True,
    ),
    Action(
        id="sim.step",
        keys=(";",),
        label="step",
        help="Run the next single moment at which something happens.",
        scope=Scope.SIMULATION,
        aliases=("step",),
    ),
    Action(
        id="sim.faster",
        keys=(">",),
        label="faster",
        help="Run the simulation faster.",
        scope=Scope.SIMULATION,
    ),
    Action(
        id="sim.slower",
        keys=("<",),
        label="slower",
        help="Run the simulation slower.",
        scope=Scope.SIMULATION,
    ),
    Action(
        id="sim.speed",
        keys=("=",),
        label="speed",
        help="Set how many simulated seconds pass in a second (1 to 10,000).",
        scope=Scope.SIMULATION,
        aliases=("speed",),
        argument="[factor]",
    ),
    # Tables
    Action(id="table.down", keys=("j", "down"), label="down", help="Move down a row.", scope=Scope.TABLE),
    Action(id="table.up", keys=("k", "up"), label="up", help="Move up a row.", scope=Scope.TABLE),
    Action(id="table.top", keys=("g", "home"), label="top", help="Move to the first row.", scope=Scope.TABLE),
    Action(id="table.bottom", keys=("G", "end"), label="bottom", help="Move to the last row.", scope=Scope.TABLE),
    Action(id="table.page-down", keys=("pagedown",), label="page down", help="Move down a page.", scope=Scope.TABLE),
    Action(id="table.page-up", keys=("pageup",), label="page up", help="Move up a page.", scope=Scope.TABLE),
    Action(
        id="table.filter",
        keys=("/",),
        label="filter",
        help="Filter rows: a regular expression; !text inverts, -l key=value asks labels, -f text is fuzzy.",
        scope=Scope.TABLE,
        footer=True,
    ),
    Action(
        id="table.faults",
        keys=("!",),
        label="faults only",
        help="Show only rows that something is wrong with, or all again.",
        scope=Scope.TABLE,
    ),
    Action(id="table.mark", keys=("space",), label="mark", help="Mark the row, or unmark it.", scope=Scope.TABLE),
    Action(
        id="table.mark-range",
        keys=("v",),
        label="mark range",
        help="Mark all rows from the last marked one to this one.",
        scope=Scope.TABLE,
    ),
    Action(id="table.unmark", keys=("\\",), label="clear marks", help="Unmark all rows.", scope=Scope.TABLE),
    Action(
        id="table.column-left",
        keys=("shift+left",),
        label="column left",
        help="Pick the column to the left.",
        scope=Scope.TABLE,
    ),
    Action(
        id="table.column-right",
        keys=("shift+right",),
        label="column right",
        help="Pick the column to the right.",
        scope=Scope.TABLE,
    ),
    Action(
        id="table.sort",
        keys=("O",),
        label="sort",
        help="Sort by the picked column; again turns the order round, a third time drops it.",
        scope=Scope.TABLE,
    ),
    Action(id="table.sort-name", keys=("N",), label="by name", help="Sort by name.", scope=Scope.TABLE),
    Action(id="table.sort-age", keys=("A",), label="by age", help="Sort by age.", scope=Scope.TABLE),
    Action(id="table.sort-priority", keys=("P",), label="by priority", help="Sort by priority.", scope=Scope.TABLE),
    Action(id="table.sort-status", keys=("S",), label="by status", help="Sort by status.", scope=Scope.TABLE),
    Action(id="table.sort-usage", keys=("U",), label="by usage", help="Sort by usage.", scope=Scope.TABLE),
    Action(
        id="table.wide",
        keys=("ctrl+w",),
        label="wide",
        help="Show all columns, wider than the screen if need be.",
        scope=Scope.TABLE,
    ),
    # Under the cursor
    Action(
        id="object.open",
        keys=("enter",),
        label="open",
        help="Go deeper into what is under the cursor.",
        scope=Scope.OBJECT,
        footer=True,
    ),
    Action(
        id="object.explain",
        keys=("x",),
        label="explain",
        help="Say why it is where it is, or why it waits.",
        scope=Scope.OBJECT,
        footer=True,
    ),
    Action(
        id="object.who",
        keys=("w",),
        label="who preempted",
        help="Show who preempted it, and whom it preempted.",
        scope=Scope.OBJECT,
    ),
    Action(
        id="object.what-if",
        keys=("i",),
        label="what-if",
        help="Take it into a what-if.",
        scope=Scope.OBJECT,
        footer=True,
    ),
    Action(
        id="object.describe",
        keys=("d",),
        label="describe",
        help="Describe it in plain lines.",
        scope=Scope.OBJECT,
        footer=True,
    ),
    Action(
        id="object.yaml",
        keys=("y",),
        label="yaml",
        help="Show it as YAML; there, y copies its name.",
        scope=Scope.OBJECT,
        footer=True,
    ),
    Action(
        id="object.copy-name",
        keys=("y y",),
        label="copy name",
        help="Copy its name.",
        scope=Scope.OBJECT,
    ),
    Action(id="object.copy-json", keys=("Y",), label="copy JSON", help="Copy it as JSON.", scope=Scope.OBJECT),
    Action(id="object.events", keys=("E",), label="events", help="Show what happened to it.", scope=Scope.OBJECT),
    Action(id="object.owner", keys=("o",), label="owner", help="Go to what owns it.", scope=Scope.OBJECT),
    Action(
        id="object.menu",
        keys=("m",),
        label="menu",
        help="Show everything that can be done with it; a second key picks.",
        scope=Scope.OBJECT,
        footer=True,
    ),
    Action(
        id="object.delete",
        keys=("ctrl+x",),
        label="delete",
        help="Delete it and what it owns, after typing `delete`.",
        scope=Scope.OBJECT,
        changes=True,
        dangerous=True,
    ),
    # Workloads
    Action(
        id="workload.stop",
        keys=("s",),
        label="stop or resume",
        help="Stop the workload (spec.active: false), or let it go on.",
        scope=Scope.WORKLOAD,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="workload.resume",
        keys=("m r",),
        label="resume",
        help="Let a stopped workload queue again.",
        scope=Scope.WORKLOAD,
        changes=True,
    ),
    Action(
        id="workload.requeue",
        keys=("t",),
        label="requeue",
        help="Evict the workload and put it back in its queue.",
        scope=Scope.WORKLOAD,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="workload.priority",
        keys=("m p",),
        label="priority",
        help="Change its priority.",
        scope=Scope.WORKLOAD,
        changes=True,
    ),
    Action(
        id="workload.move",
        keys=("m q",),
        label="move to queue",
        help="Move it to another LocalQueue of its namespace.",
        scope=Scope.WORKLOAD,
        changes=True,
    ),
    Action(
        id="workload.duplicate",
        keys=("D",),
        label="duplicate",
        help="Open the submit form with a copy of it.",
        scope=Scope.WORKLOAD,
    ),
    # Queues
    Action(
        id="queue.fold",
        keys=("left", "h"),
        label="fold",
        help="Fold what is below, or move to the parent.",
        scope=Scope.QUEUE,
        footer=True,
    ),
    Action(
        id="queue.unfold",
        keys=("right", "l"),
        label="unfold",
        help="Unfold what is below: queues, then flavors.",
        scope=Scope.QUEUE,
        footer=True,
    ),
    Action(
        id="queue.hold",
        keys=("s",),
        label="hold or resume",
        help="Hold the queue (it admits nothing new), or resume it.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="queue.drain",
        keys=("m d",),
        label="hold and drain",
        help="Hold the queue and evict what it runs.",
        scope=Scope.QUEUE,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="queue.resume",
        keys=("m r",),
        label="resume",
        help="Let the queue admit again.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="queue.quota",
        keys=("e",),
        label="edit quota",
        help="Change nominal quota, borrowing limit or lending limit of one flavor.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="queue.resource",
        keys=("R",),
        label="resource",
        help="Choose the resource that the bars show.",
        scope=Scope.QUEUE,
    ),
    # Nodes
    Action(id="node.cordon", keys=("c",), label="cordon", help="Cordon the node.", scope=Scope.NODE, changes=True),
    Action(
        id="node.uncordon", keys=("u",), label="uncordon", help="Uncordon the node.", scope=Scope.NODE, changes=True
    ),
    Action(
        id="node.drain",
        keys=("r",),
        label="drain",
        help="Cordon the node and evict its pods.",
        scope=Scope.NODE,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="node.fail",
        keys=("m f",),
        label="fail node",
        help="Let the node stop answering: its pods fail.",
        scope=Scope.NODE,
        changes=True,
        dangerous=True,
    ),
    Action(
        id="node.restore",
        keys=("m r",),
        label="restore node",
        help="Bring a failed node back.",
        scope=Scope.NODE,
        changes=True,
    ),
    Action(
        id="node.left",
        keys=("left", "h"),
        label="left",
        help="Move to the node on the left in the map.",
        scope=Scope.NODE,
    ),
    Action(
        id="node.right",
        keys=("right", "l"),
        label="right",
        help="Move to the node on the right in the map.",
        scope=Scope.NODE,
    ),
    Action(
        id="node.layout",
        keys=("M",),
        label="map or list",
        help="Change between the map of GPUs and the list of nodes.",
        scope=Scope.NODE,
    ),
    Action(
        id="node.colour",
        keys=("B",),
        label="colour by",
        help="Colour GPUs by queue, by owner or by state.",
        scope=Scope.NODE,
    ),
    # What-if
    Action(
        id="whatif.add", keys=("a",), label="add", help="Add a change to the fork.", scope=Scope.WHAT_IF, footer=True
    ),
    Action(
        id="whatif.undo",
        keys=("u",),
        label="undo",
        help="Take the last change back out of the fork.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.run",
        keys=("enter",),
        label="run",
        help="Run the fork and the original to the horizon, and compare.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.horizon",
        keys=("h",),
        label="horizon",
        help="Set how far the fork looks ahead.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    # Submit
    Action(
        id="submit.send",
        keys=("ctrl+s",),
        label="submit",
        help="Submit what the form says.",
        scope=Scope.SUBMIT,
        changes=True,
        footer=True,
    ),
    Action(
        id="submit.preview",
        keys=("ctrl+y",),
        label="preview",
        help="Show the YAML that would be submitted.",
        scope=Scope.SUBMIT,
        footer=True,
    ),
    Action(
        id="submit.template",
        keys=("ctrl+t",),
        label="template",
        help="Choose a template.",
        scope=Scope.SUBMIT,
        footer=True,
    ),
    Action(
        id="submit.what-if",
        keys=("ctrl+o",),
        label="what-if",
        help="Try it in a fork before submitting it.",
        scope=Scope.SUBMIT,
        footer=True,
    ),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
ALIASES: dict[str, Action] = {alias: action for action in ACTIONS for alias in action.aliases}
