"""Phase 1 of TAS: counts how many pods of one kind each domain can take; counts are cached between searches.

Most searches place pods like those of earlier ones, and few nodes change in between: only those, and the domains above
them, are recounted. The usage of a leaf is replaced when it changes, never edited (see `TasUsage`), so changes are
found by comparing identities. Pods count only on nodes where they may run, and may prefer some of them
(`exclusion_reason`, `affinity_score`; Kueue 0.19 TASFlavorSnapshot, node match).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import compress
from operator import is_not
from typing import Any

import msgspec

from gpuconsole.model.cluster import Node
from gpuconsole.model.documents.pods_and_selectors import format_taint
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import EMPTY, PODS, Resources, add, count_in, subtract
from gpuconsole.scheduling.kueue.pod_resources import in_kueue_order
from gpuconsole.scheduling.kueue.topology.demand import TasPodSetRequest
from gpuconsole.scheduling.kueue.topology.domains import (
    Counts,
    PlacementShape,
    TopologyDomainTree,
    Values,
    belongs_to,
    count_domain,
)
from gpuconsole.scheduling.kueue.topology.layout import TasUsage


def exclusion_reason(node: Node, demand: TasPodSetRequest, domains: TopologyDomainTree) -> str:
    """Return why no pod of the request may run on this node; empty if one may."""
    template = demand.pod_set.template
    tolerations = (*template.tolerations, *domains.flavor.tolerations)
    for taint in node.taints:
        if taint.keeps_pods_away and not any(toleration.tolerates(taint) for toleration in tolerations):
            return f'taint "{format_taint(taint)}"'
    if any(node.labels.get(key) != value for key, value in template.node_selector.items()):
        return "nodeSelector"
    if template.affinity is not None and not any(
        term.expressions and all(expression.matches(node.labels) for expression in term.expressions)
        for term in template.affinity
    ):
        return "affinity"
    return ""


def affinity_score(node: Node, template: PodTemplate) -> int:
    """Return the sum of the weights of the preferred node affinity terms that match a node."""
    name = {"metadata.name": node.name}
    return sum(
        preferred.weight
        for preferred in template.preferred
        if (preferred.term.expressions or preferred.term.fields)
        and all(expression.matches(node.labels) for expression in preferred.term.expressions)
        and all(field.matches(name) for field in preferred.term.fields)
    )


MAX_CACHED = 48
"""Maximum number of `DomainCounts` that are cached in `TasUsage.domain_counts`."""
_NEVER: Resources = {}
"""Stands for the usage of a leaf that was not counted yet."""


def domain_counts(
    domains: TopologyDomainTree,
    sites: TasUsage,
    demand: TasPodSetRequest,
    leader: TasPodSetRequest | None,
    shape: PlacementShape,
    *,
    empty: bool,
    affinity: bool,
    within: Values = (),
) -> "DomainCounts":
    """Return the counts of these pods for the current usage; `empty` ignores pods with topology assignments.

    `within` excludes leaves outside that domain; `affinity` adds the scores of preferred node affinity.
    """
    key = _key(domains, demand, leader, shape, empty, affinity, within)
    known: DomainCounts | None = sites.domain_counts.get(key)
    if known is None:
        known = DomainCounts(domains, demand, leader, shape, empty=empty, affinity=affinity, within=within)
        if len(sites.domain_counts) >= MAX_CACHED:
            del sites.domain_counts[next(iter(sites.domain_counts))]
        sites.domain_counts[key] = known
    known.update(sites)
    return known


def _key(
    domains: TopologyDomainTree,
    demand: TasPodSetRequest,
    leader: TasPodSetRequest | None,
    shape: PlacementShape,
    empty: bool,
    affinity: bool,
    within: Values,
) -> Hashable:
    """Return the cache key: equal for searches with equal counts."""
    template = demand.pod_set.template
    choosy = (template.tolerations, template.node_selector, template.affinity, template.preferred)
    return (
        domains.flavor.name,
        tuple(demand.per_pod.items()),
        tuple(leader.per_pod.items()) if leader is not None else None,
        (shape.leaders, shape.slice_level, shape.slice_size, tuple(shape.inner_sizes.items())),
        (empty, affinity, within),
        msgspec.json.encode(choosy, order="deterministic") if any(choosy) else b"",
    )


class DomainCounts:
    """How many pods of one kind fit in each domain of a topology. Mutates: `update` updates it to the current usage."""

    __slots__ = (
        "_counts",
        "_domains",
        "_empty",
        "_excluded",
        "_leader_requests",
        "_offers",
        "_requests",
        "_scarce",
        "_shape",
        "_used",
        "found",
    )

    def __init__(
        self,
        domains: TopologyDomainTree,
        demand: TasPodSetRequest,
        leader: TasPodSetRequest | None,
        shape: PlacementShape,
        *,
        empty: bool,
        affinity: bool,
        within: Values,
    ) -> None:
        self._domains, self._shape, self._empty = domains, shape, empty
        self._requests = in_kueue_order(add(demand.per_pod, {PODS: 1}))
        self._leader_requests = in_kueue_order(add(leader.per_pod, {PODS: 1})) if leader is not None else None
        self._counts = counts = Counts(len(domains.values))
        counts.total_nodes = len(domains.leaf_domains)
        self._excluded: list[bool] = []
        """Per leaf: True if the pods may not run there, whatever its free capacity."""
        for number, node in zip(domains.leaf_domains, domains.nodes, strict=True):
            why = exclusion_reason(node, demand, domains) if node is not None else ""
            if not why:
                if affinity and node is not None:
                    counts.scores[number] = affinity_score(node, demand.pod_set.template)
                why = "topologyDomain" if within and not belongs_to(domains.values[number], within) else ""
            self._excluded.append(bool(why))
            if why:
                counts.excluded[why] += 1
        self._scarce = [""] * len(domains.leaf_domains)
        """Per leaf: the scarcest resource if no pod fits, else empty."""
        self._used: list[Resources] = [_NEVER] * len(domains.leaf_domains)
        self._offers: list[Resources] = self._used
        self.found: dict[Hashable, Any] = {}
        """Search → its assignment or failure message for these counts; cleared when a count changes."""

    def counts(self, sites: TasUsage, assumed: Mapping[Values, Resources]) -> Counts:
        """Return a copy of the counts for the layout to modify, reduced by the `assumed` usage."""
        counts = self._counts.copy()
        counts.excluded = Counter(self._counts.excluded)
        taken = {
            self._domains.leaves[values]: usage for values, usage in assumed.items() if values in self._domains.leaves
        }
        if taken:
            self._count(counts, self._scarce[:], sites, taken, taken)
        return counts

    def update(self, sites: TasUsage) -> None:
        """Recount the leaves whose usage or capacity is another object than when they were counted."""
        flavor = self._domains.flavor.name
        offers = sites.free.get(flavor) or self._domains.free
        used = self._offers if self._empty else sites.used[flavor]
        numbers = range(len(self._scarce))
        changed = set() if self._empty else set(compress(numbers, map(is_not, used, self._used)))
        if offers is not self._offers:
            changed.update(compress(numbers, map(is_not, offers, self._offers)))
        if changed:
            self.found.clear()
            self._count(self._counts, self._scarce, sites, changed, {})
            self._offers = offers
            self._used = used if self._empty else used[:]

    def _count(
        self,
        counts: Counts,
        scarce: list[str],
        sites: TasUsage,
        leaves: Iterable[int],
        taken: Mapping[int, Resources],
    ) -> None:
        """Count some leaves, less `taken`, and the domains above them."""
        flavor, domains = self._domains.flavor.name, self._domains
        numbers = set()
        for leaf in leaves:
            if not self._excluded[leaf]:
                left: Resources = (sites.capacity_for_tas if self._empty else sites.free_of)(flavor, leaf)
                self._count_leaf(counts, scarce, leaf, subtract(left, taken.get(leaf, EMPTY)))
            numbers.add(domains.leaf_domains[leaf])
        while numbers:
            for number in numbers:
                count_domain(counts, domains, number, self._shape)
            numbers = {parent for number in numbers if (parent := domains.parent[number]) >= 0}

    def _count_leaf(self, counts: Counts, scarce: list[str], leaf: int, left: Resources) -> None:
        number = self._domains.leaf_domains[leaf]
        counts.pods[number], scarcest = count_in(self._requests, left)
        if counts.pods[number]:
            scarcest = ""
        if scarcest != scarce[leaf]:
            _update_excluded(counts.excluded, scarce[leaf], scarcest)
            scarce[leaf] = scarcest
        if self._leader_requests is None:
            counts.pods_with_leader[number] = counts.pods[number]
            return
        counts.leaders[number] = 1 if count_in(self._leader_requests, left)[0] > 0 else 0
        if counts.leaders[number]:
            left = subtract(left, self._leader_requests)
        counts.pods_with_leader[number] = count_in(self._requests, left)[0]


def _update_excluded(excluded: Counter[str], before: str, after: str) -> None:
    """Update the exclusions for a leaf whose scarcest resource changed; empty for a leaf on which pods fit."""
    if before:
        name = f'resource "{before}"'
        excluded[name] -= 1
        if not excluded[name]:
            del excluded[name]
    if after:
        excluded[f'resource "{after}"'] += 1
