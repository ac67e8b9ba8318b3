"""Balanced placement: pods spread evenly over as few domains as they need (Kueue 0.19 tas_balanced_placement.go).

The threshold is the number of slices that every chosen domain gets at least; the higher, the more even.

Behind the gate TASBalancedPlacement, for preferred levels. Where no balanced placement exists BestFit is used, as
without the gate.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

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
