"""Volcano's scheduling decision for a pod as a table: predicates and plugin scores by node.

Queues and gangs are ignored: whether the job may start does not depend on nodes.
"""

from collections.abc import Mapping, Sequence

from gpuconsole.scheduling.placement import FilterColumn, NodeRow, NodeScore, ScoreColumn, ScoreTable
from gpuconsole.scheduling.volcano.api.fit_errors import FitErrors
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import Flag
from gpuconsole.scheduling.volcano.node_search import NOW, Finder, choose_node, resource_fit, room
from gpuconsole.scheduling.volcano.plugins.nodeorder import NodeorderPlugin
from gpuconsole.scheduling.volcano.plugins.predicates import PredicatesPlugin
from gpuconsole.scheduling.volcano.session import VolcanoSession

RESOURCES = "NodeResources"
UNIT = 100
"""Weighted scores are in hundredths because some are fractions."""
Columns = Mapping[tuple[str, int], Mapping[str, float]]
"""(plugin, weight) → raw score by node."""


def score_table(session: VolcanoSession, task: TaskInfo) -> ScoreTable:
    """The table for a task of the session that has no node."""
    names = (RESOURCES, *_filters(session))
    unprepared = _unprepared(session, task)
    nodes = _in_turn(session)
    verdicts = {node.name: {**_verdicts(session, task, node), **unprepared} for node in nodes}
    found, errors, looked = _search(session, task, unprepared)
    fitting = {node.name for node in found}
    columns = _scores(session, task, found)
    chosen = choose_node(session, task, found)
    rows = []
    for number, node in enumerate(nodes):
        scores = _line(columns, node.name) if node.name in fitting else ()
        rows.append(
            NodeRow(
                node=node.name,
                verdicts=tuple(verdicts[node.name].get(name, "") for name in names),
                scores=scores,
                total=sum(score.weighted for score in scores),
                sampled=number < looked,
                chosen=chosen is node,
            )
        )
    return ScoreTable(
        pod=task.key,
        scheduler="volcano",
        filters=tuple(FilterColumn(name) for name in names),
        plugins=tuple(ScoreColumn(name, weight) for name, weight in columns),
        rows=tuple(rows),
        tie=() if chosen is None else _ties(task, rows, chosen, found),
        message="" if chosen is not None else str(errors),
    )


def _filters(session: VolcanoSession) -> list[str]:
    """Names of all filters: plugins with predicates, and kube-scheduler's filters each by its own name."""
    inner = [one.name for plugin in session.plugins if isinstance(plugin, PredicatesPlugin) for one in plugin.filters]
    asked = {name for name in session.functions.predicates if name != PredicatesPlugin.name}
    listed = [plugin.name for plugin in session.plugins if plugin.name in asked]
    pods = [PredicatesPlugin.name] if inner else []
    return [*pods, *inner, *listed]


def _unprepared(session: VolcanoSession, task: TaskInfo) -> dict[str, str]:
    """Why the pre-predicates reject all nodes, by filter."""
    error = session.pre_predicate(task)
    return {status.plugin: status.reason for status in error.statuses} if error is not None else {}


def _verdicts(session: VolcanoSession, task: TaskInfo, node: NodeInfo) -> dict[str, str]:
    """Why the node is rejected, by filter: all are evaluated, although Volcano stops at the first rejection."""
    said: dict[str, str] = {}
    short = resource_fit(task, node)
    if short is not None:
        said[RESOURCES] = ", ".join(short.reasons)
    for name, ask in session.functions.predicates.items():
        error = ask(task, node)
        for status in error.statuses if error is not None else ():
            said.setdefault(status.plugin or name, status.reason)
    return said


def _in_turn(session: VolcanoSession) -> list[NodeInfo]:
    """The nodes in the order of the next search."""
    nodes = session.node_list
    start = session.search_start % max(1, len(nodes)) if len(nodes) > session.sampling.minimum_nodes else 0
    return [*nodes[start:], *nodes[:start]]


def _search(
    session: VolcanoSession, task: TaskInfo, unprepared: Mapping[str, str]
) -> tuple[list[NodeInfo], FitErrors, int]:
    """Feasible nodes, the fit errors of the others, and how many nodes were evaluated."""
    before, total = session.search_start, len(session.node_list)
    if unprepared:
        return [], FitErrors(next(iter(unprepared.values()))), 0
    finder = Finder(session, remembers=False)
    found, errors = finder.fitting(
        task, session.node_list, lambda one, node: resource_fit(one, node) or session.predicate_for_allocate(one, node)
    )
    looked = (session.search_start - before) % total if total > session.sampling.minimum_nodes else total
    return found, errors, looked or total


def _scores(session: VolcanoSession, task: TaskInfo, nodes: Sequence[NodeInfo]) -> Columns:
    """Raw scores by plugin; nodeorder has one column for each of kube-scheduler's scores."""
    columns: dict[tuple[str, int], Mapping[str, float]] = {}
    asking = session.functions
    for option in (option for tier in session.tiers for option in tier if Flag.NODE_ORDER in option.enabled):
        plugin = next((one for one in session.plugins if one.name == option.name), None)
        if isinstance(plugin, NodeorderPlugin):
            for score, weight in plugin.weights.items():
                columns[score, weight] = plugin.score(score, task, nodes)
            continue
        alone, batch = asking.node_order.get(option.name), asking.batch_node_order.get(option.name)
        if alone is not None:
            columns[option.name, 1] = {node.name: alone(task, node) for node in nodes}
        elif batch is not None and option.name != PredicatesPlugin.name:
            columns[option.name, 1] = batch(task, list(nodes))
    return columns


def _line(columns: Columns, node: str) -> tuple[NodeScore, ...]:
    return tuple(
        NodeScore(round(given.get(node, 0.0)), round(given.get(node, 0.0)), round(given.get(node, 0.0) * weight * UNIT))
        for (_, weight), given in columns.items()
    )


def _ties(task: TaskInfo, rows: Sequence[NodeRow], chosen: NodeInfo, found: Sequence[NodeInfo]) -> tuple[str, ...]:
    """Other nodes with the same total and the same room (now or soon) as the chosen one."""
    rooms = {node.name: room(task, node) for node in found}
    best = next(row.total for row in rows if row.node == chosen.name)
    wanted = rooms.get(chosen.name, NOW)
    return tuple(
        row.node
        for row in rows
        if row.node != chosen.name and row.total == best and row.scores and rooms.get(row.node) == wanted
    )
