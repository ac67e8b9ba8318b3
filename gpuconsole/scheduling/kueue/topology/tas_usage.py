"""Topology usage: the usage of every leaf domain, by flavor.

`TasUsage` mutates by replacing whole entries, never by changing one, so that copies are shallow.

Usage of pods that run on a topology's nodes without a topology request (Kueue 0.19 tas_non_tas_pod_cache.go).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import EMPTY, PODS, Resources, add, count_in
from gpuconsole.scheduling.kueue.requests import TopologyUsage
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree

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


class TasUsage:
    """Usage per flavor and leaf. Usage in domains that a flavor no longer has counts only for other flavors."""

    __slots__ = ("elsewhere", "free", "tallies", "topologies", "used")

    def __init__(
        self, topologies: Mapping[str, TopologyDomainTree], used: dict[str, list[Resources]] | None = None
    ) -> None:
        self.topologies = topologies
        self.used = used if used is not None else {name: [EMPTY] * len(d.free) for name, d in topologies.items()}
        self.elsewhere: dict[str, dict[tuple[str, ...], Resources]] = {}
        """Flavor → usage on nodes that it no longer selects: the pods still run there, and other flavors see them."""
        self.free: dict[str, list[Resources]] = {}
        """Flavor → capacity of each leaf less the usage of non-TAS pods; only flavors that had such pods."""
        self.tallies: dict[Hashable, Any] = {}
        """Cached counts of searches (see `domain_counts`); copies share them, forks do not."""

    def copy(self) -> "TasUsage":
        """A copy with its own usage, for `restore`; cached counts are shared."""
        twin = TasUsage(self.topologies, {flavor: used[:] for flavor, used in self.used.items()})
        twin.free = self.free
        twin.tallies = self.tallies
        twin.elsewhere = {flavor: used.copy() for flavor, used in self.elsewhere.items()}
        return twin

    def fork(self) -> "TasUsage":
        """A copy that may be used at the same time as this one."""
        twin = self.copy()
        twin.tallies = {}
        return twin

    def restore(self, saved: "TasUsage") -> None:
        """Restore the usage of a copy that was made earlier."""
        self.used, self.elsewhere = saved.used, saved.elsewhere

    def shared(self) -> "TasUsage":
        """A copy in which flavors of the same nodes see each other's usage (TASHandleOverlappingFlavors)."""
        result = self.copy()
        by_host = [name for name, domains in self.topologies.items() if domains.hostnames]
        for flavor in by_host if len(by_host) > 1 else ():
            domains = self.topologies[flavor]
            for other in by_host:
                if other != flavor:
                    self._add_other(result.used[flavor], domains, other)
        return result

    def _add_other(self, used: list[Resources], domains: TopologyDomainTree, other: str) -> None:
        for values, leaf in self.topologies[other].leaves.items():
            amount = self.used[other][leaf]
            if amount and values in domains.leaves:
                at = domains.leaves[values]
                used[at] = add(used[at], amount)
        for values, amount in self.elsewhere.get(other, {}).items():
            if values in domains.leaves:
                at = domains.leaves[values]
                used[at] = add(used[at], amount)

    def add(self, places: Iterable[TopologyUsage], sign: int = 1) -> None:
        """Add usage or, with `sign` -1, subtract it; flavors without a topology are ignored."""
        for place in places:
            domains = self.topologies.get(place.flavor)
            if domains is None:
                continue
            leaf = domains.leaves.get(place.values)
            if leaf is None:
                elsewhere = self.elsewhere.setdefault(place.flavor, {})
                elsewhere[place.values] = _with(elsewhere.get(place.values, EMPTY), place, sign)
            else:
                used = self.used[place.flavor]
                used[leaf] = _with(used[leaf], place, sign)

    def fits(self, places: Iterable[TopologyUsage]) -> bool:
        """True if every domain has enough capacity; pod sets are checked one by one, not summed, as in Kueue."""
        for place in places:
            domains = self.topologies[place.flavor]
            leaf = domains.leaves.get(place.values)
            if leaf is None or count_in(place.per_pod, self.left(place.flavor, leaf))[0] < place.count:
                return False
        return True

    def occupy(self, moves: Moves) -> None:
        """Apply usage changes of non-TAS pods."""
        for node, amounts, sign in moves:
            for flavor, domains in self.topologies.items():
                leaf = domains.leaf_of.get(node)
                if leaf is not None:
                    free = [*self.free.get(flavor, domains.free)]
                    free[leaf] = moved(free[leaf], amounts, -sign)
                    self.free = {**self.free, flavor: free}

    def offer(self, flavor: str, leaf: int) -> Resources:
        """Return the capacity of a leaf for pods with topology assignments."""
        return (self.free.get(flavor) or self.topologies[flavor].free)[leaf]

    def left(self, flavor: str, leaf: int) -> dict[str, int]:
        """Return the free capacity of a leaf; negative where it is overcommitted."""
        left = dict(self.offer(flavor, leaf))
        for name, amount in self.used[flavor][leaf].items():
            left[name] = left.get(name, 0) - amount
        return left


def _with(used: Resources, place: TopologyUsage, sign: int) -> Resources:
    total = dict(used)
    for name, amount in place.per_pod.items():
        total[name] = total.get(name, 0) + sign * amount * place.count
    total[PODS] = total.get(PODS, 0) + sign * place.count
    return total
