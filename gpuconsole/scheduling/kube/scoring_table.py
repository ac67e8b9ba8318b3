"""The table of filters and scores of one pod, from scratch: nothing that is remembered between passes is used."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import filters, messages, scores
from gpuconsole.scheduling.kube.board import Board
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.packed import drawn
from gpuconsole.scheduling.kube.placing import refusal
from gpuconsole.scheduling.kube.scores import MAX_SCORE
from gpuconsole.scheduling.kube.units import Waiter
from gpuconsole.scheduling.score_table import FilterColumn, NodeRow, NodeScore, ScoreColumn, ScoreTable

FILTERS = ("NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit")


def score_table(board: Board, waiter: Waiter) -> ScoreTable:
    """What the scheduler would do with this pod now; its own seat and reservation have been taken off the board."""
    policy, shape = board.policy, waiter.shape
    states = sorted((state for state in board.nodes if state.node is not None), key=lambda state: state.name)
    plugins = (
        ScoreColumn("NodeResourcesFit", policy.fit_weight),
        ScoreColumn("NodeAffinity", policy.affinity_weight, skipped=not shape.preferred),
        ScoreColumn("TaintToleration", policy.taint_weight),
    )
    rows = [NodeRow(node=state.name, verdicts=_verdicts(state, waiter)) for state in states]
    fitting = [number for number, row in enumerate(rows) if row.fits]
    raw = {number: _raw(board, states[number], waiter) for number in fitting}
    highest = [max((line[index] for line in raw.values()), default=0) for index in (1, 2)]
    for number, (fit, preference, dislikes) in raw.items():
        affinity = preference * MAX_SCORE // highest[0] if highest[0] else 0
        taints = MAX_SCORE - (dislikes * MAX_SCORE // highest[1] if highest[1] else 0)
        pairs = zip((fit, preference, dislikes), (fit, affinity, taints), plugins, strict=True)
        line = tuple(NodeScore(one, normal, normal * column.weight) for one, normal, column in pairs)
        rows[number] = replace(rows[number], scores=line, total=sum(score.weighted for score in line))
    tops = [number for number in fitting if rows[number].total == max(rows[other].total for other in fitting)]
    if policy.score == "random" and fitting:
        name = drawn(waiter.pod, [rows[number].node for number in fitting])
        tops = [number for number in fitting if rows[number].node == name]
    if tops:
        rows[tops[0]] = replace(rows[tops[0]], chosen=True)
    outlook = board.outlook(shape, waiter.priority)
    return ScoreTable(
        pod=waiter.pod,
        scheduler="kube-scheduler",
        filters=tuple(FilterColumn(name) for name in FILTERS),
        plugins=plugins,
        rows=tuple(rows),
        tie=tuple(rows[number].node for number in tops[1:]),
        message="" if tops else refusal(board, outlook, never=waiter.never),
    )


def _verdicts(state: NodeState, waiter: Waiter) -> tuple[str, ...]:
    node, shape = _node(state), waiter.shape
    left = filters.room(state, shape, waiter.priority)
    return (
        filters.unschedulable(node, shape),
        filters.tainted(node, shape),
        "" if filters.affine(node, shape) else messages.NO_AFFINITY,
        "" if filters.slots(left, shape) else ", ".join(filters.shortages(left, shape)),
    )


def _raw(board: Board, state: NodeState, waiter: Waiter) -> tuple[int, int, int]:
    node, shape = _node(state), waiter.shape
    return board.fit_score(state, shape), scores.preference(node, shape), scores.dislikes(node, shape)


def _node(state: NodeState) -> Node:
    assert state.node is not None
    return state.node
