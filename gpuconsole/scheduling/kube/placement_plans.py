"""Placement plans for one pod or one gang: found in a trial, carried out by the session.

`place` finds a node for a pod, and `claim` the node whose victims have the lowest rank; `place_gang` and `claim_gang`
do so for the pods of a gang at once. `look` and `choose` search the nodes one by one, for pods that depend on other
pods and for profiles that sample nodes. `refusal` and `gang_refusal` say why there is no plan.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.feasibility import FeasibilityCache
from gpuconsole.scheduling.kube.framework_runtime import NOTHING, PodContextPlugins
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, Reservation
from gpuconsole.scheduling.kube.preemption import DisruptionAllowance, Victims, victims
from gpuconsole.scheduling.kube.scheduling_queue import PendingPod, PodGang
from gpuconsole.scheduling.kube.scores import highest, total


class Found(Struct, frozen=True):
    """Result of a node search: feasible nodes in search order, and how many nodes were evaluated."""

    numbers: tuple[int, ...]
    seen: int


def look(
    board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins, within: Sequence[int] | None = None
) -> Found:
    """Search feasible nodes, starting where the last search ended, up to the number that the profile allows.

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
    """Count nodes that filters by other pods or claims reject: (nodes by reason, nodes that preemption cannot help).

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


class Binding(Struct, frozen=True):
    """Step of a plan: bind a pod to a node now."""

    waiter: PendingPod
    number: int


class NodeNomination(Struct, frozen=True):
    """Step of a plan: evict victims on a node, and nominate the pod to it until they have terminated."""

    waiter: PendingPod
    number: int
    victims: tuple[AssignedPod, ...]


Step = Binding | NodeNomination


def place(board: NodeCache, waiter: PendingPod, within: Sequence[int] | None = None) -> Binding | None:
    """Find a node for a pod: its nominated node if that fits, else the best one; None if no node fits.

    `within` limits the candidates; the nominated node then has no precedence.
    """
    outlook, asking = board.outlook(waiter.shape, waiter.priority), board.asking(waiter)
    if waiter.nominated and within is None:
        number = board.number(waiter.nominated)
        fits = not asking.trouble and outlook.refresh().fits(number)
        if fits and asking.refusal(board.nodes[number]) is None:
            return Binding(waiter, number)
    found = _find(board, waiter, outlook, asking, within)
    return None if found is None else Binding(waiter, found)


def _find(
    board: NodeCache,
    waiter: PendingPod,
    outlook: FeasibilityCache,
    asking: PodContextPlugins,
    within: Sequence[int] | None,
) -> int | None:
    if asking.trouble:
        return None
    if within is None and asking.silent and board.policy.profile is None:
        return outlook.drawn(waiter.pod) if board.policy.packing == "random" else outlook.best()
    found = look(board, outlook, asking, within)
    board.start = (board.start + found.seen) % max(1, len(board.order))
    return choose(board, outlook, asking, found.numbers)


def claim(board: NodeCache, waiter: PendingPod) -> NodeNomination | None:
    """Find the node on which preemption for the pod costs least (`preemption.Victims.rank`), with its victims.

    None if the pod may not preempt, or if preemption helps on no node.
    """
    if waiter.never or not board.policy.preempts:
        return None
    outlook, asking = board.outlook(waiter.shape, waiter.priority), board.asking(waiter)
    budgets = board.budgets()
    if asking.trouble:
        return None
    if board.policy.profile is None and not asking.concerns and not budgets:
        found = outlook.evicting.cheapest()
    else:
        found = _cheapest(board, outlook, asking, budgets)
    return None if found is None else NodeNomination(waiter, found[0], found[1].seats)


def _cheapest(
    board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins, budgets: tuple[DisruptionAllowance, ...]
) -> tuple[int, Victims] | None:
    """Simulate preemption node by node until enough have victims, one of them without violating a PodDisruptionBudget.

    This is kube-scheduler's DryRunPreemption.
    """
    candidates = [number for number in board.order if _could_help(board, outlook, asking, number)]
    enough = board.rules.dry_runs(len(candidates))
    found: list[tuple[int, Victims]] = []
    kept = False
    for number in candidates:
        if asking.concerns or budgets:
            one = victims(board.nodes[number], outlook.shape, outlook.priority, asking, budgets)
        else:
            one = outlook.evicting.victims_on(number)
        if one is not None:
            found.append((number, one))
            kept = kept or not one.rank[0]
            if kept and len(found) >= enough:
                break
    return min(found, key=lambda item: item[1].rank, default=None)


def _could_help(board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins, number: int) -> bool:
    """True if the node refuses the pod for a reason that preemption can resolve."""
    if outlook.unresolvable(number):
        return False
    found = asking.refusal(board.nodes[number]) if asking.concerns else None
    return not found.final if found is not None else not outlook.fits(number)


def awaits(board: NodeCache, waiter: PendingPod) -> bool:
    """True if the pod may not preempt now: a pod on its nominated node is still terminating.

    kube-scheduler's PodEligibleToPreemptOthers.
    """
    if not waiter.nominated:
        return False
    number = board.number(waiter.nominated)
    if board.outlook(waiter.shape, waiter.priority).unresolvable(number):
        return False
    return any(seat.leaving for seat in board.nodes[number].seats.values())


def place_gang(board: NodeCache, gang: PodGang, now: Time) -> list[Step] | None:
    """Find nodes for as many pods of the gang as fit now; None if there are none, or fewer than it needs at once."""
    if not _enough(board, gang):
        return None
    steps: list[Step] = []
    start = board.start
    with board.trial():
        for waiter in gang.members:
            found = place(board, waiter)
            if found is not None:
                seat = AssignedPod(waiter.pod, waiter.shape, waiter.priority, now, who=waiter.who)
                board.seat(found.number, seat)
                board.promise(waiter.who, found.number)
                steps.append(found)
    if steps and len(steps) >= gang.needed:
        return steps
    board.start = start
    return None


def claim_gang(board: NodeCache, gang: PodGang) -> list[Step] | None:
    """Find victims for the pods that the gang needs; None if preemption does not make the whole gang fit.

    Pods that fit now are nominated too: a gang holds nothing until all of it can be placed.
    """
    if not board.policy.preempts or not _enough(board, gang, evicting=True):
        return None
    # Pods beyond the gang's minimum preempt one at a time.
    wanted = max(gang.needed, 1)
    steps: list[Step] = []
    start = board.start
    with board.trial():
        for waiter in gang.members:
            step = place(board, waiter) or claim(board, waiter)
            if step is None or len(steps) == wanted:
                continue
            found = NodeNomination(waiter, step.number, step.victims if isinstance(step, NodeNomination) else ())
            for seat in found.victims:
                board.leave(found.number, seat.pod)
            board.reserve(found.number, Reservation(waiter.pod, waiter.shape, waiter.priority, waiter.who))
            steps.append(found)
    board.start = start
    return steps if len(steps) == wanted else None


def refusal(board: NodeCache, waiter: PendingPod, *, filled: bool = False) -> str:
    """The FailedScheduling message of a pod that fits no node; `filled`: once all equal pods that fit are placed."""
    outlook, asking = board.outlook(waiter.shape, waiter.priority), board.asking(waiter)
    if asking.concerns or asking.trouble:
        return _refusal(board, outlook, asking, waiter.never, filled)
    known = outlook.texts.get((waiter.never, filled))
    if known is None:
        known = outlook.texts[waiter.never, filled] = _refusal(board, outlook, NOTHING, waiter.never, filled)
    return known


def _refusal(board: NodeCache, outlook: FeasibilityCache, asking: PodContextPlugins, never: bool, filled: bool) -> str:
    nodes = board.described
    if asking.trouble and nodes:
        text, unhelpful = filters.nowhere(nodes, asking.trouble), nodes
    else:
        others, final = refused(board, outlook, asking)
        # If other pods make some nodes unfit, those nodes have free resources, so they do not count as filled.
        text = filters.unavailable(nodes, Counter(outlook.reasons(filled and not others)) + others)
        unhelpful = nodes - outlook.resolvable + final
    if not board.policy.preempts or not nodes:
        return text
    return f"{text} {filters.NEVER if never else filters.preemption(nodes, unhelpful)}"


def gang_refusal(board: NodeCache, gang: PodGang) -> str:
    """The message of a pending gang: how many of its pods fit, and the reason of the first that does not.

    Pods beyond the minimum of a running gang get the message of a single pod.
    """
    fitting, first = 0, None
    for waiter, count in gang.kinds:
        slots = board.outlook(waiter.shape, waiter.priority).slots
        fitting += min(slots, count)
        if slots < count and first is None:
            first = waiter
    last = first or gang.members[-1]
    if not gang.needed:
        return refusal(board, last)
    fitting = min(fitting, gang.needed)
    return filters.gang_waits(gang.name, fitting, gang.needed, refusal(board, last, filled=True))


def _enough(board: NodeCache, gang: PodGang, evicting: bool = False) -> bool:
    """Quick check: False if too few of the gang's pods fit even when each class of pods is counted alone."""
    places = 0
    for waiter, count in gang.kinds:
        outlook = board.outlook(waiter.shape, waiter.priority)
        places += min(count, outlook.evicting.reachable() if evicting else outlook.slots)
    return places >= max(gang.needed, 1)
