"""Usage of pods that run on a topology's nodes without a topology request (Kueue 0.19 tas_non_tas_pod_cache.go)."""

from collections.abc import Mapping, Sequence

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import PODS, Resources, add

PLACED_BY_TOPOLOGY = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
"""Annotations of pods with a topology request: their usage counts through their workload."""

Moves = Sequence[tuple[str, Resources, int]]
"""(node, amounts, sign): usage added (1) or removed (-1)."""


def placed_by_topology(pod: Pod) -> bool:
    """True for a pod with a topology annotation (IsTAS)."""
    return not pod.annotations.keys().isdisjoint(PLACED_BY_TOPOLOGY)


def is_non_tas_pod(pod: Pod) -> bool:
    """True for an unfinished pod on a node, without a topology annotation (belongsToNonTASCache)."""
    return bool(pod.node) and not pod.done and not placed_by_topology(pod)


class NonTasPodUsage:
    """Usage of non-TAS pods, by pod and by node. Mutates by `add_pod` and `remove_pod`."""

    __slots__ = ("_pods", "used")

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Resources]] = {}
        """Pod → its node, and what it uses there."""
        self.used: dict[str, Resources] = {}
        """Node → total usage, including `pods`; replaced, never changed in place."""

    def copy(self) -> "NonTasPodUsage":
        """An independent copy."""
        twin = NonTasPodUsage()
        twin._pods, twin.used = self._pods.copy(), self.used.copy()
        return twin

    def add_pod(self, pod: Pod) -> Moves:
        """Add or update a pod; returns the changes of usage."""
        if not is_non_tas_pod(pod):
            return self.remove_pod(pod.key)
        now = pod.node, add(pod.template.requests, {PODS: 1})
        if self._pods.get(pod.key) == now:
            return ()
        gone = self.remove_pod(pod.key)
        self._pods[pod.key] = now
        self.used[pod.node] = moved(self.used.get(pod.node, {}), now[1], 1)
        return (*gone, (*now, 1))

    def remove_pod(self, key: str) -> Moves:
        """Remove a pod, if known; returns the changes of usage."""
        known = self._pods.pop(key, None)
        if known is None:
            return ()
        node, uses = known
        left = moved(self.used[node], uses, -1)
        if any(left.values()):
            self.used[node] = left
        else:
            del self.used[node]
        return ((node, uses, -1),)


def moved(total: Resources, amounts: Mapping[str, int], sign: int) -> Resources:
    """Return the total with the amounts added or, with sign -1, subtracted."""
    return {**total, **{name: total.get(name, 0) + sign * amount for name, amount in amounts.items()}}
