"""Node search one by one, for pods that depend on other pods and for profiles that sample nodes."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.feasibility import FeasibilityCache
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.pod_plugins import PodContextPlugins
from gpuconsole.scheduling.kube.scores import highest, total


class Found(Struct, frozen=True):
    """Feasible nodes in search order, and how many were evaluated to find enough."""

    numbers: tuple[int, ...]
    seen: int


def look(
    board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins, within: Sequence[int] | None = None
) -> Found:
    """Feasible nodes, starting where the last search ended, up to the profile's limit.

    `within` limits the search to these nodes, in the node cache's order.
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
    """The best of these nodes, the first among equals; None if there are none."""
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
    """Total of the scores that depend on pods anywhere, by node."""
    nodes: list[Node] = [node for number in numbers if (node := board.nodes[number].node) is not None]
    sums = [0] * len(nodes)
    for _, weight, wish in asking.wishes:
        scores = wish.normalised(nodes, wish.raw(nodes))
        for index, node in enumerate(nodes):
            sums[index] += weight * scores[node.name]
    return sums


def refused(board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins) -> tuple[Counter[str], int]:
    """Number of nodes by rejection reason of filters that match pods, and on how many of them preemption cannot help.

    A node that also lacks resources counts for the filter that comes first, so its shortages are subtracted.
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
