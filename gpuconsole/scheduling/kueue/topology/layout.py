"""Phase 2 of TAS: chooses a level and its domains, then assigns pods level by level to as few domains as possible.

Kueue 0.19 TASFlavorSnapshot.findLevelWithFitDomains and updateCountsToMinimumGeneric. BestFit takes the domains with
the most free capacity first, and as the last one the smallest that suffices; LeastFreeCapacity (unconstrained requests
with TASProfileMixed) starts with the least. Domain numbers stand for their values, so they break ties.

`TasUsage` has the usage of every leaf domain, by flavor. It mutates by replacing whole entries, never by changing one,
so that copies are shallow. `NonTasPodUsage` has the usage of pods that run on a topology's nodes without a topology
request (Kueue 0.19 tas_non_tas_pod_cache.go).

`balance_pods` is balanced placement: pods spread evenly over as few domains as they need (Kueue 0.19
tas_balanced_placement.go). The threshold is the number of slices that every chosen domain gets at least; the higher,
the more even. It is behind the gate TASBalancedPlacement, for preferred levels. Where no balanced placement exists
BestFit is used, as without the gate.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import EMPTY, PODS, Resources, add, count_in
from gpuconsole.scheduling.kueue.pod_resources import TopologyUsage
from gpuconsole.scheduling.kueue.topology.domains import (
    Counts,
    PlacementShape,
    TopologyDomainTree,
    count_domain,
    sort_domains,
    sort_with_leader,
)


class BalancedPlacement(NamedTuple):
    """Result of balanced placement: the chosen domains of a level, and counts with the pods given to each."""

    level: int
    chosen: list[int]
    counts: Counts


class _GreedySelection(NamedTuple):
    """What a greedy assignment would use: how many domains, and the last ones taken with and without a leader."""

    used: int
    last_with_leader: int | None
    last: int | None


def balance_pods(domains: TopologyDomainTree, counts: Counts, shape: PlacementShape) -> BalancedPlacement | None:
    """Find the domains under one parent with the highest threshold, and give each at least that many slices.

    None if the pods cannot be balanced.
    """
    candidates, best, threshold = best_candidates(domains, counts, shape)
    if not threshold or best is None:
        return None
    level = shape.level
    if level < shape.slice_level:
        chosen = smallest_set(domains, best, candidates, shape, by_entropy=True)
        if not chosen:
            return None
        candidates = [child for number in chosen for child in domains.children[number]]
        level += 1
    placed = place_evenly(domains, best, candidates, shape, threshold)
    return BalancedPlacement(level, placed, best) if placed else None


def best_candidates(
    domains: TopologyDomainTree, counts: Counts, shape: PlacementShape
) -> tuple[list[int], Counts | None, int]:
    """Return the sibling domains with the highest threshold (on ties the fewest), their counts, and the threshold.

    The counts leave out domains that cannot hold the threshold. ([], None, 0) if the pods fit under no parent.
    """
    if shape.level == 0:
        families = [domains.by_level[0]]
    else:
        families = [domains.children[parent] for parent in domains.by_level[shape.level - 1]]
    found: tuple[list[int], Counts | None] = ([], None)
    best, fewest = 0, 0
    for siblings in families:
        judged = _evaluate_siblings(domains, counts, shape, siblings, best)
        if judged is not None and (judged[0] > best or (judged[0] == best and judged[1] < fewest)):
            best, fewest, pruned = judged
            found = list(siblings), pruned
    return *found, best


def _evaluate_siblings(
    domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, siblings: Sequence[int], least: int
) -> tuple[int, int, Counts] | None:
    """Return the threshold of these siblings, how many of them are needed, and the pruned counts; None if no fit."""
    below = [c for s in siblings for c in domains.children[s]] if shape.level < shape.slice_level else siblings
    greedy = _greedy_selection(counts, below, shape)
    if greedy is None:
        return None
    threshold = _threshold(counts, shape, greedy)
    reserved = threshold
    if shape.leaders and greedy.last is not None:
        reserved = min(threshold, counts.slices_with_leader[greedy.last])
    if threshold < least:
        return None
    for attempt in dict.fromkeys((threshold, reserved)):
        if attempt != threshold and (attempt <= 0 or attempt < least):
            return None
        pruned = _prune_below_threshold(domains, counts, shape, siblings, attempt)
        fitting = _greedy_selection(pruned, siblings, shape)
        if fitting is not None:
            return attempt, fitting.used, pruned
    return None


def _greedy_selection(counts: Counts, numbers: Sequence[int], shape: PlacementShape) -> _GreedySelection | None:
    """Place slices, the leader's domain first, on as few domains as possible; None if they do not fit."""
    wanted, leaders, used = shape.count // shape.slice_size, shape.leaders, 0
    last_with_leader = last = None
    rest = list(numbers)
    if leaders:
        rest = sort_with_leader(counts, numbers, best_fit=True)
        while leaders > 0 and rest and counts.leaders[rest[0]] > 0:
            last_with_leader = rest.pop(0)
            used += 1
            leaders -= counts.leaders[last_with_leader]
            wanted -= counts.slices_with_leader[last_with_leader]
    if leaders > 0:
        return None
    for number in sort_domains(counts, rest, best_fit=True):
        if wanted <= 0 or not counts.slices[number]:
            break
        last = number
        used += 1
        wanted -= counts.slices[number]
    return None if wanted > 0 else _GreedySelection(used, last_with_leader, last)


def _threshold(counts: Counts, shape: PlacementShape, greedy: _GreedySelection) -> int:
    """Return the number of slices that every used domain can hold, at most the average per domain."""
    threshold = shape.count // shape.slice_size // greedy.used
    if greedy.last_with_leader is not None:
        threshold = min(threshold, counts.slices_with_leader[greedy.last_with_leader])
    if greedy.last is not None:
        threshold = min(threshold, counts.slices[greedy.last])
    return threshold


def _prune_below_threshold(
    domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, siblings: Sequence[int], threshold: int
) -> Counts:
    """Copy the counts, without the pods, or only the leader, of domains that cannot hold the threshold with them."""
    pruned = counts.copy()
    plain = replace(shape, inner_sizes={})
    for sibling in siblings:
        for child in domains.children[sibling]:
            _prune_one(domains, pruned, shape, child, threshold)
    for sibling in siblings:
        _recount_domain(domains, pruned, plain, sibling)
        _prune_one(domains, pruned, shape, sibling, threshold)
    return pruned


def _prune_one(domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, number: int, threshold: int) -> None:
    if counts.slices[number] < threshold:
        _clear_domain(domains, counts, number, pods=True)
    elif shape.leaders and counts.leaders[number] > 0 and counts.slices_with_leader[number] < threshold:
        _clear_domain(domains, counts, number, pods=False)


def _clear_domain(domains: TopologyDomainTree, counts: Counts, number: int, *, pods: bool) -> None:
    """Set the leader counts of a domain and its subtree to 0 and, with `pods`, the others too."""
    counts.pods_with_leader[number] = counts.slices_with_leader[number] = counts.leaders[number] = 0
    if pods:
        counts.pods[number] = counts.slices[number] = 0
    for child in domains.children[number]:
        _clear_domain(domains, counts, child, pods=pods)


def _recount_domain(domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, number: int) -> None:
    for child in domains.children[number]:
        _recount_domain(domains, counts, shape, child)
    count_domain(counts, domains, number, shape)


def smallest_set(
    domains: TopologyDomainTree, counts: Counts, numbers: Sequence[int], shape: PlacementShape, *, by_entropy: bool
) -> list[int]:
    """Return the fewest domains that hold the whole group, with the least excess capacity; empty if there are none."""
    greedy = _greedy_selection(counts, numbers, shape)
    if greedy is None:
        return []
    ordered = sorted(numbers, key=lambda n: _entropy_rank(domains, counts, n)) if by_entropy else sorted(numbers)
    wanted = shape.count // shape.slice_size * shape.slice_size
    sets: list[dict[int, dict[int, list[int]]]] = [{} for _ in range(greedy.used + 1)]
    sets[0] = {shape.leaders: {wanted: []}}
    for number in ordered:
        for size in range(greedy.used, 0, -1):
            for leaders in sorted(sets[size - 1]):
                for pods in sorted(sets[size - 1][leaders]):
                    if leaders > 0 or pods > 0:
                        _extend_sets(counts, sets, size, leaders, pods, number)
    enough = [pods for pods in sets[greedy.used].get(0, {}) if pods <= 0]
    return sets[greedy.used][0][max(enough)] if enough else []


def _extend_sets(
    counts: Counts, sets: list[dict[int, dict[int, list[int]]]], size: int, leaders: int, pods: int, number: int
) -> None:
    """Add a domain to the set of `size - 1` domains that leaves these leaders and pods to place.

    Of sets with the same size and remainder the first one found is kept.
    """
    grown = [*sets[size - 1][leaders][pods], number]
    if leaders > 0 and counts.leaders[number] > 0:
        after = sets[size].setdefault(leaders - counts.leaders[number], {})
        after.setdefault(pods - counts.pods_with_leader[number], grown)
    if counts.slices[number] > 0:
        sets[size].setdefault(leaders, {}).setdefault(pods - counts.pods[number], grown)


def _entropy_rank(domains: TopologyDomainTree, counts: Counts, number: int) -> tuple[int, int, float, int]:
    """Sort key: domains for the leader first, then by capacity with the leader, then by entropy of the children."""
    return (
        -counts.leaders[number],
        -counts.slices_with_leader[number],
        -_entropy(counts, domains.children[number]),
        number,
    )


def _entropy(counts: Counts, numbers: Sequence[int]) -> float:
    total = float(sum(counts.pods[number] for number in numbers))
    entropy = 0.0
    for number in numbers:
        if counts.pods[number] > 0:
            part = counts.pods[number] / total
            entropy += -part * math.log2(part)
    return entropy


def place_evenly(
    domains: TopologyDomainTree, counts: Counts, numbers: Sequence[int], shape: PlacementShape, threshold: int
) -> list[int]:
    """Assign `threshold` slices to each domain of the smallest set that fits, and the remaining ones to the first.

    Returns the domains and updates the counts; empty if no set fits or the threshold is too high.
    """
    chosen = smallest_set(domains, counts, numbers, shape, by_entropy=False)
    extra = shape.count // shape.slice_size - len(chosen) * threshold
    if not chosen or extra < 0:
        return []
    chosen = sort_with_leader(counts, chosen, best_fit=True)
    leaders = shape.leaders
    for number in chosen:
        more, hosts = 0, 0
        if leaders > 0:
            more, hosts = min(counts.slices_with_leader[number] - threshold, extra), 1
            leaders -= 1
        elif extra > 0:
            more = min(counts.slices[number] - threshold, extra)
        given = threshold + more
        counts.leaders[number] = hosts
        counts.pods[number], counts.slices[number] = given * shape.slice_size, given
        counts.slices_with_leader[number] = given
        counts.pods_with_leader[number] = counts.pods[number] - hosts
        extra -= more
    return chosen if extra <= 0 and leaders <= 0 else []


class TasGates(Struct, frozen=True):
    """The feature gates that decide how pods are placed."""

    mixed: bool = True
    """TASProfileMixed: unconstrained requests use LeastFreeCapacity."""
    balanced: bool = False
    """TASBalancedPlacement: pods with a preferred level are spread evenly."""
    affinity: bool = False
    """TASRespectNodeAffinityPreferred: nodes that match preferred node affinity come first."""
    overlapping: bool = True
    """TASHandleOverlappingFlavors: flavors that share nodes see each other's usage."""
    elastic: bool = False
    """ElasticJobsViaWorkloadSlicesWithTAS: a replacing workload slice keeps the domains of running pods."""


class DoesNotFit(Exception):
    """Error: the pods do not fit at `level`, only `fitting` slices or leaders (None: the level has no domain)."""

    def __init__(self, level: int, fitting: int | None) -> None:
        super().__init__(level, fitting)
        self.level = level
        self.fitting = fitting


class PodLayout:
    """Distributes one group of pods over domains. Mutates its counts, from capacity to assigned pods."""

    def __init__(
        self,
        domains: TopologyDomainTree,
        counts: Counts,
        shape: PlacementShape,
        *,
        required: bool,
        unconstrained: bool,
        gates: TasGates,
    ) -> None:
        self._domains = domains
        self._counts = counts
        self._balanced = gates.balanced and not required and not unconstrained
        self._shape = shape
        self._required = required
        self._unconstrained = unconstrained
        self._best_fit = not (unconstrained and gates.mixed)
        self._wanted = shape.count // shape.slice_size

    def place(self) -> tuple[list[int], Counts]:
        """Return the chosen domains of the lowest level with the pods and leaders of each. Raises DoesNotFit."""
        shape, lowest = self._shape, len(self._domains.levels) - 1
        balanced = balance_pods(self._domains, self._counts, shape) if self._balanced else None
        if balanced is not None:
            level, current, self._counts = balanced
        else:
            level, current = self._find_level(shape.level)
        current = self._distribute(current, shape.count, shape.leaders, shape.slice_size, slices=True)
        while balanced is None and level < min(lowest, shape.slice_level):
            below = self._sorted(child for number in current for child in self._domains.children[number])
            current = self._distribute(below, shape.count, shape.leaders, shape.slice_size, slices=True)
            level += 1
        while level < lowest:
            size = shape.slice_size if level < shape.slice_level else shape.inner_sizes.get(level + 1, 1)
            level += 1
            current = [child for number in current for child in self._assign_to_children(number, size)]
        return current, self._counts

    def _assign_to_children(self, number: int, size: int) -> list[int]:
        """Distribute the pods of a domain over its children.

        As in Kueue the children are sorted before their inner slices are counted, so inside slices those with the
        least free capacity come first.
        """
        counts = self._counts
        children = self._sorted(self._domains.children[number])
        if size > 1:
            for child in children:
                counts.slices[child] = counts.pods[child] // size
                counts.slices_with_leader[child] = counts.pods_with_leader[child] // size
        return self._distribute(children, counts.pods[number], counts.leaders[number], size, slices=size > 1)

    def _find_level(self, level: int) -> tuple[int, list[int]]:
        """Return the level and the domains that hold the whole group."""
        counts, leaders = self._counts, self._shape.leaders
        everything = self._domains.by_level[level]
        if not everything:
            raise DoesNotFit(level, None)
        order = self._sorted_with_leader(everything)
        top = order[0]
        if self._fits_all(top) and self._best_fit:
            needed = counts.slices_with_leader if leaders else counts.slices
            return level, [self._smallest_sufficient(order, self._wanted, needed, leaders)]
        if not self._best_fit:
            for number in order:
                if self._fits_all(number):
                    return level, [number]
        if self._required:
            for at, number in enumerate(order):
                if self._fits_all(number):  # Not the first: domains with a higher affinity score are too small.
                    needed = counts.slices_with_leader if leaders else counts.slices
                    return level, [self._smallest_sufficient(order[at:], self._wanted, needed, leaders)]
            raise DoesNotFit(level, counts.slices[top])
        if level > 0 and not self._unconstrained:
            return self._find_level(level - 1)
        return level, self._find_several(level, order)

    def _fits_all(self, number: int) -> bool:
        counts = self._counts
        return counts.slices_with_leader[number] >= self._wanted and counts.leaders[number] >= self._shape.leaders

    def _find_several(self, level: int, order: list[int]) -> list[int]:
        """Choose domains greedily until the group fits; the leader's domain comes first."""
        counts = self._counts
        chosen: list[int] = []
        wanted, leaders = self._wanted, self._shape.leaders
        order = self._leader_first(order, self._shape.count, leaders, self._shape.slice_size, slices=True)
        used = 0
        while leaders > 0 and used < len(order) and counts.leaders[order[used]] > 0:
            number = order[used]
            if self._best_fit and counts.slices_with_leader[number] >= wanted:
                number = self._smallest_sufficient(order[used:], wanted, counts.slices_with_leader, leaders)
            chosen.append(number)
            leaders -= counts.leaders[number]
            wanted -= counts.slices_with_leader[number]
            used += 1
        if leaders > 0:
            raise DoesNotFit(level, self._shape.leaders - leaders)
        rest = self._sorted(order[used:])
        for at, candidate in enumerate(rest):
            if wanted <= 0:
                break
            number = candidate
            if self._best_fit and counts.slices[number] >= wanted:
                number = self._smallest_sufficient(rest[at:], wanted, counts.slices, 0)
            chosen.append(number)
            wanted -= counts.slices[number]
        if wanted > 0:
            raise DoesNotFit(level, self._wanted - wanted)
        return chosen

    def _distribute(self, order: Sequence[int], count: int, leaders: int, size: int, *, slices: bool) -> list[int]:
        """Give `count` pods, in whole slices of `size` or one by one, to as few of the domains as possible."""
        counts = self._counts
        order = self._leader_first(order, count, leaders, size, slices=slices)
        capacity = counts.slices if slices else counts.pods
        with_leader = counts.slices_with_leader if slices else counts.pods_with_leader
        unit = size if slices else 1
        left = count // unit
        chosen: list[int] = []
        for at, candidate in enumerate(order):
            number = candidate
            room = with_leader if leaders else capacity
            if self._best_fit and room[number] >= left and counts.leaders[number] >= leaders:
                number = self._smallest_sufficient(order[at:], left, room, leaders)
            given = min(room[number], left)
            last = room[number] >= left and counts.leaders[number] >= leaders
            counts.leaders[number] = min(counts.leaders[number], leaders)
            with_leader[number] = min(with_leader[number], left) if leaders else with_leader[number]
            capacity[number], counts.pods[number] = given, given * unit
            chosen.append(number)
            leaders -= counts.leaders[number]
            left -= given
            if last:
                return chosen
        return []

    def _smallest_sufficient(self, order: Sequence[int], needed: int, room: Sequence[int], leaders: int) -> int:
        """Return the first of the smallest domains with enough capacity; the first of all if none has enough.

        Only domains with the same affinity score as the first one are compared.
        """
        scores = self._counts.scores
        tier = itertools.takewhile(lambda n: scores[n] == scores[order[0]], order)
        enough = [n for n in tier if self._counts.leaders[n] >= leaders and room[n] >= needed]
        return min(enough, key=lambda number: room[number]) if enough else order[0]

    def _leader_first(self, order: Sequence[int], count: int, leaders: int, size: int, *, slices: bool) -> list[int]:
        """Move the first domain that can host the leader and still leaves capacity for all workers to the front."""
        counts = self._counts
        capacity = counts.slices if slices else counts.pods
        with_leader = counts.slices_with_leader if slices else counts.pods_with_leader
        if not leaders or len(order) < 2:
            return list(order)
        spare = sum(capacity[number] for number in order) - (count // size if slices else count)
        for number in order:
            if counts.leaders[number] >= leaders and capacity[number] - with_leader[number] <= spare:
                return [number, *(other for other in order if other != number)]
        return list(order)

    def _sorted_with_leader(self, numbers: Iterable[int]) -> list[int]:
        return sort_with_leader(self._counts, numbers, best_fit=self._best_fit)

    def _sorted(self, numbers: Iterable[int]) -> list[int]:
        return sort_domains(self._counts, numbers, best_fit=self._best_fit)


PLACED_BY_TOPOLOGY = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
)
"""Annotations of pods with a topology request: their usage counts through their workload."""

UsageChanges = Sequence[tuple[str, Resources, int]]
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
        copied = NonTasPodUsage()
        copied._pods, copied.used = self._pods.copy(), self.used.copy()
        return copied

    def add_pod(self, pod: Pod) -> UsageChanges:
        """Add or update a pod; returns the changes of usage."""
        if not is_non_tas_pod(pod):
            return self.remove_pod(pod.key)
        now = pod.node, add(pod.template.requests, {PODS: 1})
        if self._pods.get(pod.key) == now:
            return ()
        gone = self.remove_pod(pod.key)
        self._pods[pod.key] = now
        self.used[pod.node] = with_amounts(self.used.get(pod.node, {}), now[1], 1)
        return (*gone, (*now, 1))

    def remove_pod(self, key: str) -> UsageChanges:
        """Remove a pod, if known; returns the changes of usage."""
        known = self._pods.pop(key, None)
        if known is None:
            return ()
        node, uses = known
        left = with_amounts(self.used[node], uses, -1)
        if any(left.values()):
            self.used[node] = left
        else:
            del self.used[node]
        return ((node, uses, -1),)


def with_amounts(total: Resources, amounts: Mapping[str, int], sign: int) -> Resources:
    """Return the total with the amounts added or, with sign -1, subtracted."""
    return {**total, **{name: total.get(name, 0) + sign * amount for name, amount in amounts.items()}}


class TasUsage:
    """Usage of the nodes in topologies, by flavor and leaf domain. Mutates.

    Usage in domains that a flavor no longer has counts only for other flavors.
    """

    __slots__ = ("domain_counts", "free", "topologies", "usage_in_shared_nodes", "used")

    def __init__(
        self, topologies: Mapping[str, TopologyDomainTree], used: dict[str, list[Resources]] | None = None
    ) -> None:
        self.topologies = topologies
        self.used = used if used is not None else {name: [EMPTY] * len(d.free) for name, d in topologies.items()}
        self.usage_in_shared_nodes: dict[str, dict[tuple[str, ...], Resources]] = {}
        """Flavor → usage on nodes that it no longer selects: the pods still run there, and other flavors see them."""
        self.free: dict[str, list[Resources]] = {}
        """Flavor → capacity of each leaf less the usage of non-TAS pods; only flavors that had such pods."""
        self.domain_counts: dict[Hashable, Any] = {}
        """Cached counts of searches (see `domain_counts`); copies share them, forks do not."""

    def copy(self) -> "TasUsage":
        """A copy with its own usage, for `restore`; cached counts are shared."""
        copied = TasUsage(self.topologies, {flavor: used[:] for flavor, used in self.used.items()})
        copied.free = self.free
        copied.domain_counts = self.domain_counts
        copied.usage_in_shared_nodes = {flavor: used.copy() for flavor, used in self.usage_in_shared_nodes.items()}
        return copied

    def fork(self) -> "TasUsage":
        """A copy that may be used at the same time as this one."""
        copied = self.copy()
        copied.domain_counts = {}
        return copied

    def restore(self, saved: "TasUsage") -> None:
        """Restore the usage of a copy that was made earlier."""
        self.used, self.usage_in_shared_nodes = saved.used, saved.usage_in_shared_nodes

    def with_shared_nodes(self) -> "TasUsage":
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
        for values, amount in self.usage_in_shared_nodes.get(other, {}).items():
            if values in domains.leaves:
                at = domains.leaves[values]
                used[at] = add(used[at], amount)

    def add_usage(self, places: Iterable[TopologyUsage], sign: int = 1) -> None:
        """Add usage or, with `sign` -1, subtract it; flavors without a topology are ignored."""
        for place in places:
            domains = self.topologies.get(place.flavor)
            if domains is None:
                continue
            leaf = domains.leaves.get(place.values)
            if leaf is None:
                elsewhere = self.usage_in_shared_nodes.setdefault(place.flavor, {})
                elsewhere[place.values] = _with(elsewhere.get(place.values, EMPTY), place, sign)
            else:
                used = self.used[place.flavor]
                used[leaf] = _with(used[leaf], place, sign)

    def fits(self, places: Iterable[TopologyUsage]) -> bool:
        """True if every domain has enough capacity; pod sets are checked one by one, not summed, as in Kueue."""
        for place in places:
            domains = self.topologies[place.flavor]
            leaf = domains.leaves.get(place.values)
            if leaf is None or count_in(place.per_pod, self.free_of(place.flavor, leaf))[0] < place.count:
                return False
        return True

    def apply_changes(self, changes: UsageChanges) -> None:
        """Apply usage changes of non-TAS pods."""
        for node, amounts, sign in changes:
            for flavor, domains in self.topologies.items():
                leaf = domains.leaf_of.get(node)
                if leaf is not None:
                    free = [*self.free.get(flavor, domains.free)]
                    free[leaf] = with_amounts(free[leaf], amounts, -sign)
                    self.free = {**self.free, flavor: free}

    def capacity_for_tas(self, flavor: str, leaf: int) -> Resources:
        """Return a leaf's capacity for pods with topology assignments: what other pods leave."""
        return (self.free.get(flavor) or self.topologies[flavor].free)[leaf]

    def free_of(self, flavor: str, leaf: int) -> dict[str, int]:
        """Return the free capacity of a leaf; negative where it is overcommitted."""
        left = dict(self.capacity_for_tas(flavor, leaf))
        for name, amount in self.used[flavor][leaf].items():
            left[name] = left.get(name, 0) - amount
        return left


def _with(used: Resources, place: TopologyUsage, sign: int) -> Resources:
    total = dict(used)
    for name, amount in place.per_pod.items():
        total[name] = total.get(name, 0) + sign * amount * place.count
    total[PODS] = total.get(PODS, 0) + sign * place.count
    return total
