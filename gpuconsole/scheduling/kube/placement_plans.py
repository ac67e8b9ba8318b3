"""Placement plans for one pod or one gang: found in a trial, carried out by the session.

`plan_binding` finds a node for a pod, and `plan_preemption` the node whose victims have the lowest rank; `plan_gang`
and `plan_gang_preemption` do so for the pods of a gang at once. `find_feasible_nodes` and `select_node` search the
nodes one by one, for pods that depend on other pods and for profiles that sample nodes. `failure_message` and
`gang_failure_message` say why there is no plan.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube import filters
from gpuconsole.scheduling.kube.feasibility import FeasibilityCache
from gpuconsole.scheduling.kube.framework_runtime import NO_POD_PLUGINS, PodContextPlugins
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.pod_classes import AssignedPod, Reservation
from gpuconsole.scheduling.kube.preemption import DisruptionAllowance, Victims, find_victims
from gpuconsole.scheduling.kube.scheduling_queue import PendingPod, PodGang
from gpuconsole.scheduling.kube.scores import highest_raw_scores, total_score


class FeasibleNodes(Struct, frozen=True):
    """Result of a node search: feasible nodes in search order, and how many nodes were evaluated."""

    numbers: tuple[int, ...]
    evaluated: int


def find_feasible_nodes(
    node_cache: NodeCache,
    feasibility: FeasibilityCache,
    pod_plugins: PodContextPlugins,
    candidates: Sequence[int] | None = None,
) -> FeasibleNodes:
    """Search feasible nodes, starting where the last search ended, up to the number that the profile allows.

    `candidates` limits the search to these nodes, in the node cache's order.
    """
    order = node_cache.order if candidates is None else candidates
    wanted, count = node_cache.profile.nodes_to_find(len(order)), len(order)
    found: list[int] = []
    seen = 0
    while seen < count and len(found) < wanted:
        number = order[(node_cache.next_start_index + seen) % count]
        seen += 1
        if feasibility.fits(number) and (
            not pod_plugins.filters or pod_plugins.refusal(node_cache.nodes[number]) is None
        ):
            found.append(number)
    return FeasibleNodes(tuple(found), seen)


def select_node(
    node_cache: NodeCache, feasibility: FeasibilityCache, pod_plugins: PodContextPlugins, numbers: Sequence[int]
) -> int | None:
    """The best of these nodes, the first among equals; None if there are none."""
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    verdicts = [feasibility.result(number) for number in numbers]
    most = highest_raw_scores(verdict.raw_scores for verdict in verdicts)
    totals = [total_score(feasibility.plugins.weights, verdict.fit, verdict.raw_scores, most) for verdict in verdicts]
    if pod_plugins.scores:
        extra = _pod_scores(node_cache, pod_plugins, numbers)
        totals = [one + more for one, more in zip(totals, extra, strict=True)]
    return numbers[totals.index(max(totals))]


def _pod_scores(node_cache: NodeCache, pod_plugins: PodContextPlugins, numbers: Sequence[int]) -> list[int]:
    """Total of the scores that depend on pods anywhere, by node."""
    nodes: list[Node] = [node for number in numbers if (node := node_cache.nodes[number].node) is not None]
    sums = [0] * len(nodes)
    for _, weight, wish in pod_plugins.scores:
        scores = wish.normalised(nodes, wish.raw(nodes))
        for index, node in enumerate(nodes):
            sums[index] += weight * scores[node.name]
    return sums


def count_rejected(
    node_cache: NodeCache, feasibility: FeasibilityCache, pod_plugins: PodContextPlugins
) -> tuple[Counter[str], int]:
    """Count nodes that filters by other pods or claims reject: (nodes by reason, nodes that preemption cannot help).

    A node that also lacks resources counts for the filter that comes first, so its shortages are subtracted.
    """
    reasons: Counter[str] = Counter()
    final = 0
    for number in node_cache.order if pod_plugins.filters else ():
        verdict = feasibility.result(number)
        found = None if verdict.unresolvable else pod_plugins.refusal(node_cache.nodes[number], early=not verdict.slots)
        if found is not None:
            reasons.update(found.texts)
            reasons.subtract(verdict.reasons)
            final += found.is_unresolvable
    return reasons, final


class Binding(Struct, frozen=True):
    """Step of a plan: bind a pod to a node now."""

    pod: PendingPod
    number: int


class NodeNomination(Struct, frozen=True):
    """Step of a plan: evict victims on a node, and nominate the pod to it until they have terminated."""

    pod: PendingPod
    number: int
    victims: tuple[AssignedPod, ...]


PlanStep = Binding | NodeNomination


def plan_binding(
    node_cache: NodeCache, pending_pod: PendingPod, candidates: Sequence[int] | None = None
) -> Binding | None:
    """Find a node for a pod: its nominated node if that fits, else the best one; None if no node fits.

    `candidates` limits the nodes; the nominated node then has no precedence.
    """
    feasibility, pod_plugins = (
        node_cache.feasibility(pending_pod.pod_class, pending_pod.priority),
        node_cache.pod_plugins(pending_pod),
    )
    if pending_pod.nominated and candidates is None:
        number = node_cache.number(pending_pod.nominated)
        fits = not pod_plugins.prefilter_rejection and feasibility.refresh().fits(number)
        if fits and pod_plugins.refusal(node_cache.nodes[number]) is None:
            return Binding(pending_pod, number)
    found = _find_node(node_cache, pending_pod, feasibility, pod_plugins, candidates)
    return None if found is None else Binding(pending_pod, found)


def _find_node(
    node_cache: NodeCache,
    pending_pod: PendingPod,
    feasibility: FeasibilityCache,
    pod_plugins: PodContextPlugins,
    candidates: Sequence[int] | None,
) -> int | None:
    if pod_plugins.prefilter_rejection:
        return None
    if candidates is None and pod_plugins.is_empty and node_cache.policy.profile is None:
        return feasibility.random_node(pending_pod.pod) if node_cache.policy.packing == "random" else feasibility.best()
    found = find_feasible_nodes(node_cache, feasibility, pod_plugins, candidates)
    node_cache.next_start_index = (node_cache.next_start_index + found.evaluated) % max(1, len(node_cache.order))
    return select_node(node_cache, feasibility, pod_plugins, found.numbers)


def plan_preemption(node_cache: NodeCache, pending_pod: PendingPod) -> NodeNomination | None:
    """Find the node on which preemption for the pod costs least (`preemption.Victims.rank`), with its victims.

    None if the pod may not preempt, or if preemption helps on no node.
    """
    if pending_pod.preempts_never or not node_cache.policy.preempts:
        return None
    feasibility, pod_plugins = (
        node_cache.feasibility(pending_pod.pod_class, pending_pod.priority),
        node_cache.pod_plugins(pending_pod),
    )
    budgets = node_cache.budgets()
    if pod_plugins.prefilter_rejection:
        return None
    if node_cache.policy.profile is None and not pod_plugins.filters and not budgets:
        found = feasibility.preemption.cheapest()
    else:
        found = _cheapest_victims(node_cache, feasibility, pod_plugins, budgets)
    return None if found is None else NodeNomination(pending_pod, found[0], found[1].pods)


def _cheapest_victims(
    node_cache: NodeCache,
    feasibility: FeasibilityCache,
    pod_plugins: PodContextPlugins,
    budgets: tuple[DisruptionAllowance, ...],
) -> tuple[int, Victims] | None:
    """Simulate preemption node by node until enough have victims, one of them without violating a PodDisruptionBudget.

    This is kube-scheduler's DryRunPreemption.
    """
    candidates = [
        number for number in node_cache.order if _preemption_may_help(node_cache, feasibility, pod_plugins, number)
    ]
    enough = node_cache.profile.preemption_candidates(len(candidates))
    found: list[tuple[int, Victims]] = []
    kept = False
    for number in candidates:
        if pod_plugins.filters or budgets:
            one = find_victims(
                node_cache.nodes[number], feasibility.pod_class, feasibility.priority, pod_plugins, budgets
            )
        else:
            one = feasibility.preemption.victims_on(number)
        if one is not None:
            found.append((number, one))
            kept = kept or not one.rank[0]
            if kept and len(found) >= enough:
                break
    return min(found, key=lambda item: item[1].rank, default=None)


def _preemption_may_help(
    node_cache: NodeCache, feasibility: FeasibilityCache, pod_plugins: PodContextPlugins, number: int
) -> bool:
    """True if the node refuses the pod for a reason that preemption can resolve."""
    if feasibility.unresolvable(number):
        return False
    found = pod_plugins.refusal(node_cache.nodes[number]) if pod_plugins.filters else None
    return not found.is_unresolvable if found is not None else not feasibility.fits(number)


def is_preemption_pending(node_cache: NodeCache, pending_pod: PendingPod) -> bool:
    """True if the pod may not preempt now: a pod on its nominated node is still terminating.

    kube-scheduler's PodEligibleToPreemptOthers.
    """
    if not pending_pod.nominated:
        return False
    number = node_cache.number(pending_pod.nominated)
    if node_cache.feasibility(pending_pod.pod_class, pending_pod.priority).unresolvable(number):
        return False
    return any(assigned.terminating for assigned in node_cache.nodes[number].pods.values())


def plan_gang(node_cache: NodeCache, gang: PodGang, now: Time) -> list[PlanStep] | None:
    """Find nodes for as many pods of the gang as fit now; None if there are none, or fewer than it needs at once."""
    if not _may_fit_gang(node_cache, gang):
        return None
    steps: list[PlanStep] = []
    start = node_cache.next_start_index
    with node_cache.trial():
        for pending_pod in gang.pending_by_size:
            found = plan_binding(node_cache, pending_pod)
            if found is not None:
                assigned = AssignedPod(
                    pending_pod.pod, pending_pod.pod_class, pending_pod.priority, now, obj=pending_pod.obj
                )
                node_cache.assign(found.number, assigned)
                node_cache.assume_claims(pending_pod.obj, found.number)
                steps.append(found)
    if steps and len(steps) >= gang.needed:
        return steps
    node_cache.next_start_index = start
    return None


def plan_gang_preemption(node_cache: NodeCache, gang: PodGang) -> list[PlanStep] | None:
    """Find victims for the pods that the gang needs; None if preemption does not make the whole gang fit.

    Pods that fit now are nominated too: a gang holds nothing until all of it can be placed.
    """
    if not node_cache.policy.preempts or not _may_fit_gang(node_cache, gang, evicting=True):
        return None
    # Pods beyond the gang's minimum preempt one at a time.
    wanted = max(gang.needed, 1)
    steps: list[PlanStep] = []
    start = node_cache.next_start_index
    with node_cache.trial():
        for pending_pod in gang.pending_by_size:
            step = plan_binding(node_cache, pending_pod) or plan_preemption(node_cache, pending_pod)
            if step is None or len(steps) == wanted:
                continue
            found = NodeNomination(pending_pod, step.number, step.victims if isinstance(step, NodeNomination) else ())
            for assigned in found.victims:
                node_cache.mark_terminating(found.number, assigned.pod)
            node_cache.reserve(
                found.number, Reservation(pending_pod.pod, pending_pod.pod_class, pending_pod.priority, pending_pod.obj)
            )
            steps.append(found)
    node_cache.next_start_index = start
    return steps if len(steps) == wanted else None


def failure_message(node_cache: NodeCache, pending_pod: PendingPod, *, filled: bool = False) -> str:
    """The FailedScheduling message of a pod that fits no node; `filled`: once all equal pods that fit are placed."""
    feasibility, pod_plugins = (
        node_cache.feasibility(pending_pod.pod_class, pending_pod.priority),
        node_cache.pod_plugins(pending_pod),
    )
    if pod_plugins.filters or pod_plugins.prefilter_rejection:
        return _failure_message(node_cache, feasibility, pod_plugins, pending_pod.preempts_never, filled)
    known = feasibility.texts.get((pending_pod.preempts_never, filled))
    if known is None:
        known = feasibility.texts[pending_pod.preempts_never, filled] = _failure_message(
            node_cache, feasibility, NO_POD_PLUGINS, pending_pod.preempts_never, filled
        )
    return known


def _failure_message(
    node_cache: NodeCache, feasibility: FeasibilityCache, pod_plugins: PodContextPlugins, never: bool, filled: bool
) -> str:
    nodes = node_cache.nodes_with_object
    if pod_plugins.prefilter_rejection and nodes:
        text, unhelpful = filters.prefilter_message(nodes, pod_plugins.prefilter_rejection), nodes
    else:
        others, final = count_rejected(node_cache, feasibility, pod_plugins)
        # If other pods make some nodes unfit, those nodes have free resources, so they do not count as filled.
        text = filters.fit_error_message(nodes, Counter(feasibility.reasons(filled and not others)) + others)
        unhelpful = nodes - feasibility.resolvable + final
    if not node_cache.policy.preempts or not nodes:
        return text
    return f"{text} {filters.PREEMPTION_NEVER if never else filters.preemption_message(nodes, unhelpful)}"


def gang_failure_message(node_cache: NodeCache, gang: PodGang) -> str:
    """The message of a pending gang: how many of its pods fit, and the reason of the first that does not.

    Pods beyond the minimum of a running gang get the message of a single pod.
    """
    fitting, first = 0, None
    for pending_pod, count in gang.pending_by_class:
        slots = node_cache.feasibility(pending_pod.pod_class, pending_pod.priority).slots
        fitting += min(slots, count)
        if slots < count and first is None:
            first = pending_pod
    last = first or gang.pending_by_size[-1]
    if not gang.needed:
        return failure_message(node_cache, last)
    fitting = min(fitting, gang.needed)
    return filters.gang_pending_message(gang.name, fitting, gang.needed, failure_message(node_cache, last, filled=True))


def _may_fit_gang(node_cache: NodeCache, gang: PodGang, evicting: bool = False) -> bool:
    """Quick check: False if too few of the gang's pods fit even when each class of pods is counted alone."""
    places = 0
    for pending_pod, count in gang.pending_by_class:
        feasibility = node_cache.feasibility(pending_pod.pod_class, pending_pod.priority)
        places += min(count, feasibility.preemption.slots_after_preemption() if evicting else feasibility.slots)
    return places >= max(gang.needed, 1)
