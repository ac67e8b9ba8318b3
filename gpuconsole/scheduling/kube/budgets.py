"""PodDisruptionBudgets in preemption: finds evictions that would violate a budget."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.cluster import Pod, PodDisruptionBudget
from gpuconsole.model.labels import LabelSelector
from gpuconsole.scheduling.kube.nodes import AssignedPod


class DisruptionAllowance(Struct, frozen=True):
    """A budget and how many of its pods may be disrupted now (status.disruptionsAllowed)."""

    namespace: str
    selector: LabelSelector
    allowed: int

    def covers(self, pod: Pod) -> bool:
        """True if the budget selects the pod; pods without labels are never selected."""
        return bool(pod.labels) and pod.namespace == self.namespace and self.selector.matches(pod.labels)


def opened(budgets: Iterable[PodDisruptionBudget], pods: Iterable[tuple[Pod, bool]]) -> tuple[DisruptionAllowance, ...]:
    """Allowed disruptions of each budget, as the disruption controller counts; `pods` come with whether they are
    healthy.

    A budget with an empty selector covers no pod in preemption (filterPodsWithPDBViolation).
    """
    living: dict[str, list[tuple[Pod, bool]]] = {}
    for pod, healthy in pods:
        living.setdefault(pod.namespace, []).append((pod, healthy))
    found = []
    for budget in budgets:
        selector = budget.selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            continue
        one = DisruptionAllowance(budget.namespace, selector, 0)
        covered = [healthy for pod, healthy in living.get(budget.namespace, ()) if one.covers(pod)]
        found.append(DisruptionAllowance(budget.namespace, selector, budget.allowed(len(covered), sum(covered))))
    return tuple(found)


def violating(seats: Iterable[AssignedPod], budgets: Iterable[DisruptionAllowance]) -> set[str]:
    """Pods whose eviction, in this order, would violate a budget."""
    listed = list(budgets)
    left = [budget.allowed for budget in listed]
    broken = set()
    for seat in seats:
        for index, budget in enumerate(listed):
            if seat.who is not None and budget.covers(seat.who):
                left[index] -= 1
                if left[index] < 0:
                    broken.add(seat.pod)
    return broken
