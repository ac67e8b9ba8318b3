"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used in equal proportion.

As in kube-scheduler up to 1.35: only the balance with the pod on the node counts. Later releases compare it with the
balance without the pod (kubernetes pull request 135573).
"""

import math

from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.kube.images import Images
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.plugins.roles import UsageScoreFunction
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from gpuconsole.scheduling.kube.scores import MAX_SCORE

ALWAYS = (CPU, MEMORY, "ephemeral-storage")
"""Resources that count even for a pod that does not ask for them."""


def balanced_allocation_score(rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None:
    """⌊(1 − standard deviation of the used fractions) · 100⌋; None for a pod that requests none of the balanced
    resources.

    Actual requests count, without the defaults of other scores (balanced_allocation.go, useRequested).
    """
    asked = [name for name, _ in rules.balanced if name in ALWAYS or name in shape.requests]
    if not any(name in shape.requests for name in asked):
        return None
    return lambda state: balance(_used_fractions(state, shape, asked))


def _used_fractions(state: NodeState, shape: PodClass, names: list[str]) -> list[float]:
    assert state.node is not None
    sizes = ((name, state.node.allocatable.get(name, 0)) for name in names)
    return [min(1.0, (state.used.get(name, 0) + shape.requests.get(name, 0)) / size) for name, size in sizes if size]


def balance(parts: list[float]) -> int:
    """The score of these used fractions, each 0 to 1."""
    deviation = 0.0
    if len(parts) == 2:
        deviation = abs((parts[0] - parts[1]) / 2)
    elif len(parts) > 2:
        mean = sum(parts) / len(parts)
        deviation = math.sqrt(sum((part - mean) ** 2 for part in parts) / len(parts))
    return int((1 - deviation) * MAX_SCORE)
