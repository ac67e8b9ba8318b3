"""Limits outside Volcano that a session observes: disruption budgets and namespace quotas."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.cluster import Pod, PodDisruptionBudget
from gpuconsole.model.labels import LabelSelector


class OpenBudget(Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget, and how many of its pods may be disrupted now."""

    namespace: str
    selector: LabelSelector | None = None
    allowed: int = 0
    """status.disruptionsAllowed."""
    disrupted: frozenset[str] = frozenset()
    """Names of pods whose disruption is under way (status.disruptedPods)."""

    def covers(self, pod: Pod) -> bool:
        """True if the budget selects this pod and its disruption is not under way; an empty selector selects no pod
        here.
        """
        if pod.namespace != self.namespace or self.selector is None or pod.name in self.disrupted:
            return False
        asks = self.selector.match_labels or self.selector.match_expressions
        return bool(asks) and self.selector.matches(pod.labels)


def open_budget(budget: PodDisruptionBudget, pods: Iterable[Pod], healthy: Iterable[str]) -> OpenBudget:
    """Allowed disruptions of a budget: healthy pods above the required number, as the disruption controller counts.

    `pods` are those of the cluster, `healthy` the keys of those that are ready.
    """
    covered = [
        pod
        for pod in pods
        if pod.namespace == budget.namespace and budget.selector is not None and budget.selector.matches(pod.labels)
    ]
    ready = set(healthy)
    allowed = budget.allowed(len(covered), sum(pod.key in ready for pod in covered))
    return OpenBudget(namespace=budget.namespace, selector=budget.selector, allowed=allowed)
