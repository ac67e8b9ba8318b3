"""Actions available on every screen: views, tables, simulated time, drills, and reports about the whole cluster.

Reports come last, because a screen's own keys have precedence.
"""

from gpuconsole.ui.actions.action import Action, Scope

EVERYWHERE: tuple[Action, ...] = (
    Action(
        id="app.command",
        keys=(":",),
        label="command",
        help="Open the command prompt: alias, namespaces, /filter.",
        scope=Scope.GLOBAL,
        footer=True,
    ),
    Action(
        id="app.palette",
        keys=("ctrl+p",),
        label="palette",
        help="Search all actions by name.",
        scope=Scope.GLOBAL,
        footer=True,
    ),
    Action(
        id="app.help",
        keys=("?", "f1"),
        label="help",
        help="Show the keys that work on this screen.",
        scope=Scope.GLOBAL,
        aliases=("help", "keys"),
        footer=True,
    ),
    Action(
        id="app.glossary",
        keys=("H",),
        label="glossary",
        help="Explain the selected column head, or a given term.",
        scope=Scope.GLOBAL,
        aliases=("glossary", "term"),
        argument="[term]",
        footer=True,
    ),
    Action(
        id="app.escape",
        keys=("escape",),
        label="back",
        help="Clear the filter; without a filter, go back.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.back",
        keys=("q",),
        label="back or quit",
        help="Go back; on a top-level screen, quit after confirmation.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.quit",
        label="quit",
        help="Quit without confirmation, as ctrl+c pressed twice.",
        scope=Scope.GLOBAL,
        aliases=("q", "quit", "q!", "exit"),
    ),
    Action(
        id="app.previous",
        keys=("[",),
        label="previous view",
        help="Go back one view in the view history.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.next",
        keys=("]",),
        label="next view",
        help="Go forward one view in the view history.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.last",
        keys=("-",),
        label="last view",
        help="Switch between this view and the last one.",
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
        help="Maximize the active pane, or restore it.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.refresh",
        keys=("ctrl+r",),
        label="refresh",
        help="Refresh with the newest data.",
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
        help="Choose a theme, or switch to the named one.",
        scope=Scope.GLOBAL,
        aliases=("theme",),
        argument="[name]",
    ),
    Action(
        id="app.namespaces",
        label="namespaces",
        help="Show only these namespaces (comma-separated); empty shows all.",
        scope=Scope.GLOBAL,
        aliases=("ns", "namespaces"),
        argument="[a,b]",
    ),
    Action(
        id="app.all-namespaces",
        keys=("0",),
        label="all namespaces",
        help="Show all namespaces.",
        scope=Scope.GLOBAL,
    ),
    Action(
        id="app.tour",
        label="tour",
        help="Take a tour of the console in eight steps.",
        scope=Scope.GLOBAL,
        aliases=("tour",),
    ),
    Action(
        id="app.rights",
        label="permissions",
        help="List missing RBAC permissions: verb, resource, namespace.",
        scope=Scope.GLOBAL,
        aliases=("rights", "health"),
    ),
    Action(
        id="app.view",
        label="saved views",
        help="Open a saved view: screen, filter, sort and columns; `save NAME` saves.",
        scope=Scope.GLOBAL,
        aliases=("view", "views"),
        argument="[[save|delete] name]",
    ),
    Action(
        id="app.messages",
        label="messages",
        help="List the messages of this session, newest first.",
        scope=Scope.GLOBAL,
        aliases=("messages", "msg"),
    ),
    Action(
        id="app.export",
        keys=("X",),
        label="export",
        help="Write this table or screen to a file: CSV, JSON, Markdown, SVG.",
        scope=Scope.GLOBAL,
        aliases=("export",),
        argument="[file]",
    ),
    Action(
        id="app.copy",
        keys=('"',),
        label="copy",
        help="Copy the cell, the row, or the object as YAML or JSON.",
        scope=Scope.GLOBAL,
        aliases=("copy",),
        argument="[cell|row|name|yaml|json]",
    ),
    Action(
        id="app.suspend",
        keys=("ctrl+z",),
        label="suspend",
        help="Suspend the console; `fg` resumes it.",
        scope=Scope.GLOBAL,
    ),
)


def _view(id: str, key: str, label: str, help: str, *aliases: str) -> Action:
    return Action(id=f"view.{id}", keys=(key,), label=label, help=help, scope=Scope.VIEWS, aliases=aliases)


VIEWS: tuple[Action, ...] = (
    _view(
        "dashboard",
        "1",
        "dash",
        "Cluster overview: GPUs, pending work, queues, problems.",
        "dash",
        "dashboard",
        "pulse",
    ),
    _view(
        "queues", "2", "queues", "Cohorts, ClusterQueues and LocalQueues as a tree.", "qu", "queues", "cq", "lq", "co"
    ),
    _view("workloads", "3", "workloads", "Workloads with their position in the queue.", "wl", "workloads", "workload"),
    _view("nodes", "4", "nodes", "Nodes and their GPUs: map, list, devices.", "no", "nodes", "node", "gpu"),
    _view("topology", "5", "topology", "Blocks, racks and hosts, and the gangs that fit.", "topo", "topology", "racks"),
    _view(
        "preemptions", "6", "preempt", "Preemption history: victim, preemptor, rule, lost work.", "pre", "preemptions"
    ),
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
    _view("cost", "9", "cost", "Cost of node pools, queues, teams and workloads.", "cost", "pools"),
    Action(
        id="view.history",
        keys=("alt+0",),
        label="history",
        help="Event history, newest first.",
        scope=Scope.VIEWS,
        aliases=("hist", "history", "ev", "events"),
    ),
)


def _list(id: str, label: str, help: str, *aliases: str) -> Action:
    return Action(id=f"list.{id}", label=label, help=help, scope=Scope.LISTS, aliases=aliases)


LISTS: tuple[Action, ...] = (
    _list("pods", "pods", "List pods: phase, restarts, node, GPUs, workload, queue.", "po", "pods", "pod"),
    _list("flavors", "flavors", "List flavors: quota, borrowed and free GPUs, nodes, queues.", "fl", "flavors"),
    _list("cohorts", "cohorts", "List cohorts: quota, borrowed and free GPUs, pending workloads.", "cohorts"),
    _list("checks", "checks", "List admission checks: state per workload, controller, message.", "checks", "ac"),
    _list("users", "users", "List users: GPUs in use, pending GPUs, cost rate.", "users", "user"),
)

SIMULATION: tuple[Action, ...] = (
    Action(
        id="sim.pause",
        keys=(".",),
        label="pause",
        help="Pause or resume the simulation.",
        scope=Scope.SIMULATION,
        aliases=("pause", "resume", "run"),
        footer=True,
    ),
    Action(
        id="sim.step",
        keys=(";",),
        label="step",
        help="Advance the simulation to the next event.",
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
        help="Set simulated seconds per real second (1 to 10,000).",
        scope=Scope.SIMULATION,
        aliases=("speed",),
        argument="[factor]",
    ),
)


TABLES: tuple[Action, ...] = (
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
        help="Filter rows: regex, !regex, -l label, -f fuzzy, gpus>=8 and queue=a.",
        scope=Scope.TABLE,
        footer=True,
    ),
    Action(
        id="table.faults",
        keys=("!",),
        label="problems only",
        help="Show only rows with problems, or all rows.",
        scope=Scope.TABLE,
    ),
    Action(id="table.mark", keys=("space",), label="mark", help="Mark the row, or unmark it.", scope=Scope.TABLE),
    Action(
        id="table.mark-range",
        keys=("v",),
        label="mark range",
        help="Mark all rows between the last marked row and this one.",
        scope=Scope.TABLE,
    ),
    Action(id="table.unmark", keys=("\\",), label="clear marks", help="Unmark all rows.", scope=Scope.TABLE),
    Action(
        id="table.column-left",
        keys=("shift+left",),
        label="column left",
        help="Select the column to the left.",
        scope=Scope.TABLE,
    ),
    Action(
        id="table.column-right",
        keys=("shift+right",),
        label="column right",
        help="Select the column to the right.",
        scope=Scope.TABLE,
    ),
    Action(
        id="table.sort",
        keys=("O",),
        label="sort",
        help="Sort by the selected column: ascending, descending, off.",
        scope=Scope.TABLE,
    ),
    Action(id="table.sort-name", keys=("N",), label="by name", help="Sort by name.", scope=Scope.TABLE),
    Action(id="table.sort-age", keys=("A",), label="by age", help="Sort by age.", scope=Scope.TABLE),
    Action(id="table.sort-priority", keys=("P",), label="by priority", help="Sort by priority.", scope=Scope.TABLE),
    Action(id="table.sort-status", keys=("S",), label="by status", help="Sort by status.", scope=Scope.TABLE),
    Action(id="table.sort-usage", keys=("U",), label="by usage", help="Sort by usage.", scope=Scope.TABLE),
    Action(
        id="table.columns",
        keys=("|",),
        label="columns",
        help="Show, hide, order and resize the columns of the table.",
        scope=Scope.TABLE,
        aliases=("columns", "cols"),
    ),
    Action(
        id="table.wide",
        keys=("ctrl+w",),
        label="wide",
        help="Show all columns; scroll sideways where they do not fit.",
        scope=Scope.TABLE,
    ),
)


def _time(id: str, key: str, label: str, help: str, *, footer: bool = True) -> Action:
    return Action(id=f"time.{id}", keys=(key,), label=label, help=help, scope=Scope.TIME, footer=footer)


TIME_TRAVEL: tuple[Action, ...] = (
    _time("earlier", "left", "-1 min", "Show the cluster a minute earlier."),
    _time("later", "right", "+1 min", "Show the cluster a minute later."),
    _time("hour-earlier", "shift+left", "-1 h", "Show the cluster an hour earlier."),
    _time("hour-later", "shift+right", "+1 h", "Show the cluster an hour later."),
    _time("previous-preemption", "(", "previous preemption", "Go to the previous preemption.", footer=False),
    _time("next-preemption", ")", "next preemption", "Go to the next preemption.", footer=False),
    _time("previous-admission", "{", "previous admission", "Go to the previous admission.", footer=False),
    _time("next-admission", "}", "next admission", "Go to the next admission.", footer=False),
    _time("previous-failure", "ctrl+left", "previous node failure", "Go to the previous node failure.", footer=False),
    _time("next-failure", "ctrl+right", "next node failure", "Go to the next node failure.", footer=False),
    _time("play", ".", "play", "Play the recording from here, or stop."),
    _time("now", "escape", "present", "Close the time line, and show the present."),
)
"""While the time line is open; their keys have precedence over those of the screen."""

TIME_LINE: tuple[Action, ...] = (
    Action(
        id="time.open",
        keys=("ctrl+t",),
        label="time line",
        help="Open the time line to show an earlier time, or close it.",
        scope=Scope.TIME,
        aliases=("at", "time"),
        argument="[time]",
    ),
)

DRILLS: tuple[Action, ...] = (
    Action(
        id="drill.go-on",
        keys=("enter",),
        label="continue",
        help="Show the victims and the reasons, then the next step.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.name",
        keys=("a",),
        label="pick victim",
        help="Predict a victim by name, or undo it; Space marks a row.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.again",
        keys=("R",),
        label="restart",
        help="Restart the drill from its first step.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.file",
        keys=("o",),
        label="open a file",
        help="Open a drill from a file.",
        scope=Scope.DRILLS,
        footer=True,
    ),
)


def _answer(id: str, key: str, label: str, help: str, *aliases: str, argument: str = "") -> Action:
    name, scope = f"answer.{id}", Scope.ANSWERS
    return Action(
        id=name, keys=(key,), label=label, help=help, scope=scope, aliases=aliases, argument=argument, footer=True
    )


ANSWERS: tuple[Action, ...] = (
    _answer(
        "ledger", "b", "ledger", "Show quota loans: lenders, borrowers, and workloads evicted by a reclaim.", "ledger"
    ),
    _answer(
        "slots",
        "F",
        "slots",
        "Show how many gangs fit now by quota, nodes and topology.",
        "slots",
    ),
    _answer("shares", "f", "shares", "Show fair shares, their calculation, and the admission order.", "shares", "fair"),
    _answer(
        "antipatterns",
        "L",
        "anti-patterns",
        "Show anti-patterns: wasted GPUs, daily cost, suggested fixes.",
        "antipatterns",
        "waste",
    ),
    _answer("risk", "K", "risk", "Show the preemption risk of running workloads.", "risk"),
    _answer(
        "drills",
        "T",
        "drills",
        "Play a drill: predict the victims of each step, then check.",
        "drills",
        "drill",
        argument="[file]",
    ),
    _answer("shadow", "V", "agreement", "Show how often the engine decided as Kueue did.", "shadow", "agreement"),
    _answer("alerts", "J", "alerts", "Show the alerts of your rules: firing, pending and resolved.", "alerts"),
    Action(
        id="alert.silence",
        keys=("Q",),
        label="silence",
        help="Silence the selected alert for an hour, or end its silence.",
        scope=Scope.ANSWERS,
        footer=True,
    ),
)
