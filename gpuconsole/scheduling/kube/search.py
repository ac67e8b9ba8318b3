"""The search through nodes, one by one: for pods that have to do with others, and where not every node is looked at."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.feasibility import FeasibilityCache
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.pod_plugins import PodContextPlugins
from gpuconsole.scheduling.kube.scores import highest, total


class Found(Struct, frozen=True):
    """Nodes that fit, in the order of the search, and how many were looked at until there were enough."""

    numbers: tuple[int, ...]
    seen: int


def look(
    board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins, within: Sequence[int] | None = None
) -> Found:
    """The nodes that fit, from where the last search ended; so many of them as the profile wants.

    `within` are the only nodes to look at, in the board's order.
    """
    order = board.order if within is None else within
    wanted, count = board.rules.wanted(len(order)), len(order)
    found: list[int] = []
    seen = 0
    while seen < count and len(found) < wanted:
        number = order[(board.start + seen) % count]
        seen += 1
        if outlook.fits(number) and (not asking.concerns or asking.refusal(board.nodes[number]) is None):
            found.append(number)
    return Found(tuple(found), seen)


def choose(
    board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins, numbers: Sequence[int]
) -> int | None:
    """The best of these nodes, the first among equals."""
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    verdicts = [outlook.verdict(number) for number in numbers]
    most = highest(verdict.raw_scores for verdict in verdicts)
    totals = [total(outlook.lens.weights, verdict.fit, verdict.raw_scores, most) for verdict in verdicts]
    if asking.wishes:
        extra = _wished(board, asking, numbers)
        totals = [one + more for one, more in zip(totals, extra, strict=True)]
    return numbers[totals.index(max(totals))]


def _wished(board: NodeCache, asking: PodContextPlugins, numbers: Sequence[int]) -> list[int]:
    """What scores by pods anywhere come to, for each node."""
    nodes: list[Node] = [node for number in numbers if (node := board.nodes[number].node) is not None]
    sums = [0] * len(nodes)
    for _, weight, wish in asking.wishes:
        scores = wish.normalised(nodes, wish.raw(nodes))
        for index, node in enumerate(nodes):
            sums[index] += weight * scores[node.name]
    return sums


def refused(board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins) -> tuple[Counter[str], int]:
    """Why nodes refuse the pod because of others, and on how many of them evicting cannot help.

    Where a node has no room either, that counts for less if it is looked at later.
    """
    reasons: Counter[str] = Counter()
    final = 0
    for number in board.order if asking.concerns else ():
        verdict = outlook.verdict(number)
        found = None if verdict.unresolvable else asking.refusal(board.nodes[number], early=not verdict.slots)
        if found is not None:
            reasons.update(found.texts)
            reasons.subtract(verdict.reasons)
            final += found.final
    return reasons, final
