"""Actions on the panels of the dashboard (hide, enlarge, move), and on charts of the history."""

from gpuconsole.ui.actions.action import Action, Scope


def _panel(id: str, key: str, label: str, help: str, *aliases: str) -> Action:
    return Action(id=f"panel.{id}", keys=(f"Z {key}",), label=label, help=help, scope=Scope.PANELS, aliases=aliases)


PANELS: tuple[Action, ...] = (
    _panel("hide", "h", "hide panel", "Hide the active panel of the dashboard."),
    _panel("show", "s", "show panel", "Show a hidden panel of the dashboard.", "panels"),
    _panel("enlarge", "e", "enlarge panel", "Enlarge the active panel, or restore its size."),
    _panel("earlier", "p", "move panel earlier", "Move the active panel one place earlier."),
    _panel("later", "n", "move panel later", "Move the active panel one place later."),
    _panel("reset", "r", "reset panels", "Show all panels in their first order and size."),
)


def _chart(id: str, key: str, label: str, help: str, *aliases: str, argument: str = "") -> Action:
    name, scope = f"answer.{id}", Scope.CHARTS
    return Action(id=name, keys=(f"I {key}",), label=label, help=help, scope=scope, aliases=aliases, argument=argument)


CHARTS: tuple[Action, ...] = (
    _chart("plot", "p", "plot", "Plot a recorded series: GPUs, waits, cost.", "plot", argument="[series]"),
    _chart("matrix", "m", "preemption matrix", "Show preemptions by victim queue and preemptor queue.", "matrix"),
    _chart("waits", "w", "wait distribution", "Show the distribution of waits until admission, by queue.", "waits"),
    _chart("gantt", "g", "Gantt chart", "Show GPUs over time by workload, queue or namespace.", "gantt"),
    Action(
        id="chart.earlier",
        keys=("left",),
        label="earlier",
        help="Move the window of the chart half its length back.",
        scope=Scope.CHARTS,
        footer=True,
    ),
    Action(
        id="chart.later",
        keys=("right",),
        label="later",
        help="Move the window of the chart half its length forward.",
        scope=Scope.CHARTS,
        footer=True,
    ),
    Action(
        id="chart.series",
        keys=("B",),
        label="choose",
        help="Choose the plotted series, or what a chart groups by.",
        scope=Scope.CHARTS,
        footer=True,
    ),
)
