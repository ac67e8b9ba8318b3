"""PodDisruptionBudgets as the reason for pending pods, found by trying a looser budget.

kube-scheduler preempts protected pods if there are no other victims, and Kueue suspends jobs without checking budgets;
so a budget never delays what they schedule. Volcano's plugin `pdb` never preempts protected pods.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuconsole.insight.explanation import PendingExplanation
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.insight.shortage import Remedy
from gpuconsole.insight.unblock.change_commands import covered
from gpuconsole.insight.unblock.placement_trial import PlacementTrial, pods_of
from gpuconsole.insight.unblock.pod_kinds import protected
from gpuconsole.insight.unblock.steps import LoosenBudget
from gpuconsole.insight.unblock.words import in_words
from gpuconsole.model.cluster import Pod, PodDisruptionBudget, PodPhase
from gpuconsole.model.snapshot import Snapshot

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

MOST_PODS = 6


def kept_by_budget(simulation: "Simulation", explanation: PendingExplanation) -> PendingExplanation | None:
    """Explain pods that only a looser budget lets start; None if the budget is not the reason."""
    trial = PlacementTrial(simulation, explanation.subject)
    for step in protected(trial):
        if isinstance(step, LoosenBudget):
            budget = trial.snapshot.pod_disruption_budgets[step.budget]
            pods = covered(trial.snapshot, budget)
            may = budget.allowed(len(pods), sum(map(_healthy, pods)))
            headline = (
                f"Preemption is blocked by PodDisruptionBudget {budget.key}:"
                f" {may} of its {len(pods)} pods may be evicted."
            )
            return replace(
                explanation,
                code=PendingReason.DISRUPTION_BUDGET,
                headline=headline,
                lines=(*_arithmetic(budget, pods, may), *explanation.lines),
                remedies=(Remedy(True, in_words((step,), trial.snapshot)),),
            )
    return None


def _arithmetic(budget: PodDisruptionBudget, pods: list[Pod], may: int) -> Iterator[str]:
    healthy = sum(map(_healthy, pods))
    rule = (
        f"maxUnavailable {budget.max_unavailable}" if budget.max_unavailable else f"minAvailable {budget.min_available}"
    )
    yield f"PodDisruptionBudget {budget.key}: {rule}; {len(pods)} pods, {healthy} healthy → {may} may be evicted"
    shown = [f"{pod.key} on {pod.node}" for pod in pods if pod.node][:MOST_PODS]
    more = sum(bool(pod.node) for pod in pods) - len(shown)
    yield f"protects {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"


def _healthy(pod: Pod) -> bool:
    return pod.phase is PodPhase.RUNNING and not pod.deleted and not pod.unready


def keeping_drained(snapshot: Snapshot, key: str) -> Iterator[str]:
    """Budgets that block the drain of cordoned nodes: they allow no eviction of the pods there."""
    pods = pods_of(snapshot, key)
    shut = [pod for pod in pods if pod.node and (node := snapshot.nodes.get(pod.node)) and node.unschedulable]
    for budget in snapshot.pod_disruption_budgets.all() if shut else ():
        known = covered(snapshot, budget)
        kept = dict.fromkeys(pod.node for pod in shut if pod in known)
        if kept and not budget.allowed(len(known), sum(map(_healthy, known))):
            yield f"cordoned: {', '.join(kept)}; PodDisruptionBudget {budget.key} allows no eviction"
