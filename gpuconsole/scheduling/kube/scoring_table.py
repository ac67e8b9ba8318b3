"""Filter and score table of one pod, computed without the caches that passes share."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.framework_runtime import NodeLocalPlugins, PodContextPlugins, judge
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.placement_plans import refusal
from gpuconsole.scheduling.kube.plugins import MEETINGS, NODE_FILTERS, NODE_USAGE_FILTERS
from gpuconsole.scheduling.kube.plugins.framework import NodeRejection
from gpuconsole.scheduling.kube.profile import NODE_AFFINITY, TAINT_TOLERATION
from gpuconsole.scheduling.kube.scheduling_queue import PendingPod
from gpuconsole.scheduling.kube.scores import drawn, highest, normalised
from gpuconsole.scheduling.placement import FilterColumn, NodeRow, NodeScore, ScoreColumn, ScoreTable

Verdicts = Callable[[NodeState], str]
Pairs = Sequence[tuple[int, int]]
"""(raw, normalised) of one plugin for each node."""


class TableFilter(Struct, frozen=True):
    """One filter of the table; `ask` is None if it does not apply to the pod."""

    plugin: str
    ask: Verdicts | None


def score_table(board: NodeCache, waiter: PendingPod) -> ScoreTable:
    """Filter results and scores of every node for this pod, and the node that would be chosen now.

    The caller has removed the pod's own assignment and reservation from the node cache.
    """
    lens, asking = board.lens(waiter.shape), board.asking(waiter)
    judges = _judges(board, lens, asking, waiter)
    states = _in_turn(board)
    rows = [NodeRow(node=state.name, verdicts=_verdicts(judges, state), sampled=False) for state in states]
    sample, seen = _sample(rows, board.rules.wanted(len(rows)))
    rows = [replace(row, sampled=number < seen) for number, row in enumerate(rows)]
    columns = _scores(board, lens, asking, [states[number] for number in sample])
    for place, number in enumerate(sample):
        line = tuple(
            NodeScore(*pairs[place], pairs[place][1] * column.weight) if pairs else NodeScore(0, 0, 0)
            for column, pairs in columns
        )
        rows[number] = replace(rows[number], scores=line, total=sum(score.weighted for score in line))
    tops = _tops(board, waiter, rows, sample)
    if tops:
        rows[tops[0]] = replace(rows[tops[0]], chosen=True)
    return ScoreTable(
        pod=waiter.pod,
        scheduler="kube-scheduler",
        filters=tuple(FilterColumn(one.plugin, one.ask is None) for one in judges),
        plugins=tuple(column for column, _ in columns),
        rows=tuple(rows),
        tie=tuple(rows[number].node for number in tops[1:]),
        message="" if tops else refusal(board, waiter),
    )


def _in_turn(board: NodeCache) -> list[NodeState]:
    """The nodes in search order, starting where the next search begins."""
    order = board.order
    start = board.start % max(1, len(order))
    return [board.nodes[number] for number in (*order[start:], *order[:start])]


def _judges(
    board: NodeCache, lens: NodeLocalPlugins, asking: PodContextPlugins, waiter: PendingPod
) -> tuple[TableFilter, ...]:
    return tuple(
        TableFilter(name, _ask(name, board, lens, asking, waiter.priority))
        for name in board.rules.filters
        if name in NODE_FILTERS or name in NODE_USAGE_FILTERS or name in MEETINGS
    )


def _ask(
    name: str, board: NodeCache, lens: NodeLocalPlugins, asking: PodContextPlugins, priority: int
) -> Verdicts | None:
    if name in NODE_FILTERS:
        refuse = dict(lens.filters).get(name)
        return None if refuse is None else lambda state: refuse(_node(state))
    if name in NODE_USAGE_FILTERS:
        usage_filters = NODE_USAGE_FILTERS[name](board.rules, lens.shape)
        return None if usage_filters is None else lambda state: ", ".join(usage_filters(state, priority))
    concern = dict(asking.concerns).get(name)
    return None if concern is None else lambda state: _text(judge(concern, state, priority))


def _text(found: NodeRejection | None) -> str:
    return "" if found is None else ", ".join(found.texts)


def _verdicts(judges: Sequence[TableFilter], state: NodeState) -> tuple[str, ...]:
    return tuple("" if one.ask is None else one.ask(state) for one in judges)


def _sample(rows: Sequence[NodeRow], wanted: int) -> tuple[list[int], int]:
    """Feasible nodes up to the wanted number, and how many nodes were evaluated."""
    found: list[int] = []
    for number, row in enumerate(rows):
        if len(found) == wanted:
            return found, number
        if row.fits:
            found.append(number)
    return found, len(rows)


def _scores(
    board: NodeCache, lens: NodeLocalPlugins, asking: PodContextPlugins, states: Sequence[NodeState]
) -> list[tuple[ScoreColumn, Pairs]]:
    """Each scoring plugin with its scores of these nodes; no scores if it does not apply to the pod."""
    found: list[tuple[ScoreColumn, Pairs]] = []
    for name, weight in board.rules.scores:
        pairs = _pairs(name, lens, asking, states)
        found.append((ScoreColumn(name, weight, skipped=pairs is None), pairs or ()))
    return found


def _pairs(name: str, lens: NodeLocalPlugins, asking: PodContextPlugins, states: Sequence[NodeState]) -> Pairs | None:
    nodes = [_node(state) for state in states]
    if name in (NODE_AFFINITY, TAINT_TOLERATION):
        which = name == TAINT_TOLERATION
        if not which and not (lens.shape.preferred or lens.rules.added_preferred):
            return None
        raw_scores = [lens.raw_score(node) for node in nodes]
        most = highest(raw_scores) if raw_scores else (0, 0)
        return [(raw_score[which], normalised(raw_score, most)[which]) for raw_score in raw_scores]
    for plugin, _, score in lens.scores:
        if plugin == name:
            return [(value, value) for value in map(score, states)]
    for plugin, _, wish in asking.wishes:
        if plugin == name:
            raw = wish.raw(nodes)
            scaled = wish.normalised(nodes, raw)
            return [(raw.get(node.name, 0), scaled[node.name]) for node in nodes]
    return None


def _tops(board: NodeCache, waiter: PendingPod, rows: Sequence[NodeRow], sample: Sequence[int]) -> list[int]:
    """The nodes with the highest total, the chosen one first."""
    if board.policy.packing == "random" and sample:
        name = drawn(waiter.pod, [rows[number].node for number in sample])
        return [number for number in sample if rows[number].node == name]
    most = max((rows[number].total for number in sample), default=0)
    return [number for number in sample if rows[number].total == most]


def _node(state: NodeState) -> Node:
    assert state.node is not None
    return state.node
