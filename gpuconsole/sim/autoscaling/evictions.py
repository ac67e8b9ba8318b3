"""Rules for evicting pods from a node: PodDisruptionBudgets, and annotations that forbid it. Pure."""

from collections.abc import Iterable, Mapping

from gpuconsole.model.cluster import Node, Pod, PodDisruptionBudget, PodPhase
from gpuconsole.model.labels import NO_LABELS

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


class EvictionAllowances:
    """How many more pods each PodDisruptionBudget lets be evicted. Mutates by `note_eviction`."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> None:
        everything = list(pods)
        self._budgets = [(budget, _allowed_disruptions(budget, everything)) for budget in budgets]
        self._used: dict[str, int] = {}

    def blocker(self, pod: Pod) -> str:
        """The key of a budget that forbids evicting this pod; empty if none does.

        A pod that is not running is never blocked.
        """
        if not _is_healthy(pod):
            return ""
        for budget, allowed in self._budgets:
            if budget_covers(budget, pod) and allowed - self._used.get(budget.key, 0) < 1:
                return budget.key
        return ""

    def covers(self, pod: Pod) -> bool:
        """True if a budget selects this pod."""
        return any(budget_covers(budget, pod) for budget, _ in self._budgets)

    def note_eviction(self, pod: Pod) -> None:
        """Count the pod as evicted, in all budgets that select it."""
        for budget, _ in self._budgets:
            if _is_healthy(pod) and budget_covers(budget, pod):
                self._used[budget.key] = self._used.get(budget.key, 0) + 1


def annotation_of(pod: Pod, key: str) -> str:
    """Return an annotation of a pod, else of its template; empty if absent."""
    return pod.annotations.get(key) or pod.template.annotations.get(key, "")


def node_disruption_blocker(node: Node) -> str:
    """Why Karpenter never disrupts this node, in Karpenter's words; empty if it may."""
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        return f'Disruption is blocked through the "{DO_NOT_DISRUPT}" annotation'
    return ""


def pods_disruption_blocker(pods: Iterable[Pod], allowances: EvictionAllowances) -> str:
    """Why Karpenter does not disrupt the node of these pods voluntarily, in its words; empty if it may."""
    for pod in sorted(pods, key=lambda pod: pod.key):
        if pod.done or pod.deleted:
            continue
        if annotation_of(pod, DO_NOT_DISRUPT) == "true":
            return f'Pod has "{DO_NOT_DISRUPT}" annotation (Pod={pod.key})'
        budget = allowances.blocker(pod)
        if budget:
            return f"PDB prevents pod evictions (PodDisruptionBudget={budget})"
    return ""


def _labels_of(pod: Pod) -> Mapping[str, str]:
    return {**pod.template.labels, **pod.labels} if pod.template.labels else pod.labels or NO_LABELS


def budget_covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """True if a budget selects the pod."""
    return (
        budget.namespace == pod.namespace
        and budget.selector is not None
        and not pod.done
        and budget.selector.matches(_labels_of(pod))
    )


def _is_healthy(pod: Pod) -> bool:
    return pod.phase is PodPhase.RUNNING and not pod.deleted


def _allowed_disruptions(budget: PodDisruptionBudget, pods: Iterable[Pod]) -> int:
    """Allowed disruptions of a budget (Kubernetes' disruption controller: healthy pods less the required ones)."""
    covered = [pod for pod in pods if budget_covers(budget, pod)]
    return budget.allowed(len(covered), sum(map(_is_healthy, covered)))
