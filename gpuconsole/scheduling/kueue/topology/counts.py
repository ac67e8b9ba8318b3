"""Phase 1 of placing: how many pods and slices each domain could take (Kueue 0.19 TASFlavorSnapshot.fillInCounts)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gpuconsole.model.cluster import Node, PodTemplate, Taint
from gpuconsole.model.quantity import PODS
from gpuconsole.model.resources import EMPTY, MANY, Resources, add, count_in, subtract
from gpuconsole.scheduling.kueue.requests import ordered
from gpuconsole.scheduling.kueue.topology.demand import Demand
from gpuconsole.scheduling.kueue.topology.domains import Domains, Values
from gpuconsole.scheduling.kueue.topology.sites import Sites

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


class Shape(Struct, frozen=True):
    """How pods are to be laid out: levels as numbers, highest 0."""

    count: int
    leaders: int
    """1 where a leader pod is to be placed with the workers, else 0."""
    level: int
    slice_level: int
    slice_size: int
    inner_sizes: Mapping[int, int]
    """Level → size of further slices inside the slices."""


class Counts:
    """By domain: what it could take in phase 1, what it is given in phase 2. Mutated by the layout."""

    __slots__ = (
        "excluded",
        "leaders",
        "pods",
        "pods_with_leader",
        "scores",
        "slices",
        "slices_with_leader",
        "total_nodes",
    )

    def __init__(self, size: int) -> None:
        self.pods = [0] * size
        self.slices = [0] * size
        self.pods_with_leader = [0] * size
        self.slices_with_leader = [0] * size
        self.leaders = [0] * size
        self.scores = [0] * size
        """How much the pods would like to be there; never changes in phase 2."""
        self.excluded: Counter[str] = Counter()
        """Why nodes were left out, in the words of the message."""
        self.total_nodes = 0

    def copy(self) -> "Counts":
        """Counts that change on their own; what was excluded is shared."""
        twin = Counts(0)
        twin.pods, twin.slices, twin.leaders = self.pods[:], self.slices[:], self.leaders[:]
        twin.pods_with_leader, twin.slices_with_leader = self.pods_with_leader[:], self.slices_with_leader[:]
        twin.scores = self.scores
        twin.excluded, twin.total_nodes = self.excluded, self.total_nodes
        return twin


def count_domains(
    domains: Domains,
    sites: Sites,
    demand: Demand,
    leader: Demand | None,
    shape: Shape,
    assumed: Mapping[Values, Resources],
    *,
    empty: bool,
    affinity: bool,
    within: Values = (),
) -> Counts:
    """Fill in what every domain could take; `empty` counts as if no pod had been placed by topology yet.

    With `within` only what lies in that domain counts; with `affinity` it also sums up how well nodes suit the pods'
    preferred node affinity.
    """
    counts = Counts(len(domains.values))
    counts.total_nodes = len(domains.leaf_domains)
    requests = ordered(add(demand.per_pod, {PODS: 1}))
    leader_requests = ordered(add(leader.per_pod, {PODS: 1})) if leader is not None else None
    for values, leaf in domains.leaves.items():
        node = domains.nodes[leaf]
        why = _unsuitable(node, demand, domains) if node is not None else ""
        if why:
            counts.excluded[why] += 1
            continue
        if affinity and node is not None:
            counts.scores[domains.leaf_domains[leaf]] = _liking(node, demand.pod_set.template)
        if within and not belongs_to(domains.values[domains.leaf_domains[leaf]], within):
            counts.excluded["topologyDomain"] += 1
            continue
        left: Mapping[str, int] = (sites.offer if empty else sites.left)(domains.flavor.name, leaf)
        left = subtract(left, assumed.get(values, EMPTY))
        _count_leaf(counts, domains.leaf_domains[leaf], requests, leader_requests, left)
    for number in range(len(domains.values) - 1, -1, -1):
        count_domain(counts, domains, number, shape)
    return counts


def belongs_to(values: Values, above: Values) -> bool:
    """True if a domain is another one, or lies in it; everything lies in no domain."""
    return values[: len(above)] == above


def _unsuitable(node: Node, demand: Demand, domains: Domains) -> str:
    """Why no pod of the demand may run on this node, or nothing."""
    template = demand.pod_set.template
    tolerations = (*template.tolerations, *domains.flavor.tolerations)
    for taint in node.taints:
        if taint.effect in _KEEPS_AWAY and not any(toleration.tolerates(taint) for toleration in tolerations):
            return f'taint "{_taint_text(taint)}"'
    if any(node.labels.get(key) != value for key, value in template.node_selector.items()):
        return "nodeSelector"
    if template.affinity is not None and not any(
        term.expressions and all(expression.matches(node.labels) for expression in term.expressions)
        for term in template.affinity
    ):
        return "affinity"
    return ""


def _liking(node: Node, template: PodTemplate) -> int:
    """The weights of the preferred terms that hold for a node."""
    name = {"metadata.name": node.name}
    return sum(
        preferred.weight
        for preferred in template.preferred
        if (preferred.term.expressions or preferred.term.fields)
        and all(expression.matches(node.labels) for expression in preferred.term.expressions)
        and all(field.matches(name) for field in preferred.term.fields)
    )


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _count_leaf(
    counts: Counts, number: int, requests: Resources, leader_requests: Resources | None, left: Mapping[str, int]
) -> None:
    counts.pods[number], scarcest = count_in(requests, left)
    if not counts.pods[number] and scarcest:
        counts.excluded[f'resource "{scarcest}"'] += 1
    if leader_requests is not None and count_in(leader_requests, left)[0] > 0:
        counts.leaders[number] = 1
        left = subtract(left, leader_requests)
    counts.pods_with_leader[number] = count_in(requests, left)[0]


def count_domain(counts: Counts, domains: Domains, number: int, shape: Shape) -> None:
    """Roll up the children's counts; slices are counted at their level and summed above it."""
    level = len(domains.values[number]) - 1
    children = domains.children[number]
    if children:
        _roll_up(counts, number, children, shape, shape.inner_sizes.get(level + 1, 1))
    if level == shape.slice_level:
        counts.slices[number] = counts.pods[number] // shape.slice_size
        counts.slices_with_leader[number] = counts.pods_with_leader[number] // shape.slice_size


def _roll_up(counts: Counts, number: int, children: Sequence[int], shape: Shape, inner: int) -> None:
    """A child gives only whole inner slices; the leader is put where it costs the fewest workers."""
    pods = slices = leaders = score = 0
    pod_cost = slice_cost = MANY
    hosts_leader = False
    for child in children:
        child_pods = counts.pods[child] // inner * inner
        pods += child_pods
        slices += counts.slices[child]
        leaders = max(leaders, counts.leaders[child])
        score += counts.scores[child]
        if not shape.leaders or counts.leaders[child]:
            hosts_leader = True
            pod_cost = min(pod_cost, child_pods - counts.pods_with_leader[child] // inner * inner)
            slice_cost = min(slice_cost, counts.slices[child] - counts.slices_with_leader[child])
    counts.pods[number], counts.slices[number], counts.leaders[number] = pods, slices, leaders
    counts.scores[number] = score
    counts.pods_with_leader[number] = pods - pod_cost if hosts_leader else 0
    counts.slices_with_leader[number] = slices - slice_cost if hosts_leader else 0
