"""InterPodAffinity: pods that have to be, or would rather be, near others or far from them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from gpuconsole.model.cluster import NAMESPACE_NAME, NO_LABELS, Node, Pod, PodAffinity, PodTerm

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
MAX_SCORE = 100
NOTHING = PodAffinity()

Domain = tuple[str, str]
"""(topology key, value)."""


class Surroundings(Struct, frozen=True):
    """Nodes, the pods on each, and the labels of namespaces."""

    nodes: Mapping[str, Node]
    on: Callable[[str], Iterable[Pod]]
    namespaces: Mapping[str, Mapping[str, str]] = {}

    def pods(self) -> Iterator[tuple[Node, Pod]]:
        for name, node in self.nodes.items():
            for pod in self.on(name):
                yield node, pod


class Nearness(Struct, frozen=True):
    """What one pod meets in each domain (the plugin's PreFilter)."""

    wanted: Mapping[Domain, int]
    """Pods that satisfy all that the pod wants near it, by the domain of each of its terms."""
    shunned: Mapping[Domain, int]
    """Pods that it wants far from it."""
    shunning: Mapping[Domain, int]
    """Pods that want such a pod far from them."""
    alone: bool
    """Nobody satisfies what it wants, but it would itself: the first of its kind may go anywhere."""


def is_picky(pod: Pod) -> bool:
    """True if the pod says anything about others, so that it counts for them too."""
    return pod.template.pod_affinity is not None or pod.template.pod_anti_affinity is not None


def selects(term: PodTerm, owner: Pod, other: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """True if the term of one pod means another."""
    if term.selector is None or not _in_namespace(term, owner, other.namespace, namespaces):
        return False
    return term.selector.matches(other.labels)


def _in_namespace(term: PodTerm, owner: Pod, namespace: str, known: Mapping[str, Mapping[str, str]]) -> bool:
    if term.namespace_selector is None:
        return namespace in (term.namespaces or (owner.namespace,))
    labels = {**known.get(namespace, NO_LABELS), NAMESPACE_NAME: namespace}
    return namespace in term.namespaces or term.namespace_selector.matches(labels)


def nearness(pod: Pod, around: Surroundings) -> Nearness:
    """What the pod meets, counted over all nodes."""
    near = (pod.template.pod_affinity or NOTHING).required
    far = (pod.template.pod_anti_affinity or NOTHING).required
    wanted: dict[Domain, int] = {}
    shunned: dict[Domain, int] = {}
    shunning: dict[Domain, int] = {}
    for node, other in around.pods():
        if near and all(selects(term, pod, other, around.namespaces) for term in near):
            _count(wanted, node, near)
        _count(shunned, node, (term for term in far if selects(term, pod, other, around.namespaces)))
        theirs = (other.template.pod_anti_affinity or NOTHING).required
        _count(shunning, node, (term for term in theirs if selects(term, other, pod, around.namespaces)))
    alone = not wanted and all(selects(term, pod, pod, around.namespaces) for term in near)
    return Nearness(wanted, shunned, shunning, alone)


def _count(counts: dict[Domain, int], node: Node, terms: Iterable[PodTerm]) -> None:
    for term in terms:
        value = node.labels.get(term.topology_key)
        if value is not None:
            domain = (term.topology_key, value)
            counts[domain] = counts.get(domain, 0) + 1


def refusal(pod: Pod, node: Node, found: Nearness) -> str:
    """Why the pod may not be on the node; empty if it may. Only `AFFINITY` is what no eviction could change."""
    near = (pod.template.pod_affinity or NOTHING).required
    keys = [term.topology_key for term in near]
    if any(key not in node.labels for key in keys):
        return AFFINITY
    if not found.alone and any((key, node.labels[key]) not in found.wanted for key in keys):
        return AFFINITY
    if any(node.labels.get(key) == value for key, value in found.shunned):
        return ANTI_AFFINITY
    if any(node.labels.get(key) == value for key, value in found.shunning):
        return EXISTING_ANTI_AFFINITY
    return ""


def scores(pod: Pod, nodes: Iterable[Node], around: Surroundings, *, hard_weight: int = 1) -> dict[str, int]:
    """How much the pod and those that are there want each other, 0 to 100; empty if nobody minds.

    `hard_weight` is what a required affinity of a pod that is there counts (hardPodAffinityWeight).
    """
    likings: dict[Domain, int] = {}
    near = (pod.template.pod_affinity or NOTHING).preferred
    far = (pod.template.pod_anti_affinity or NOTHING).preferred
    for node, other in around.pods():
        for sign, terms in ((1, near), (-1, far)):
            for weight, term in terms:
                _like(likings, node, term, sign * weight, selects(term, pod, other, around.namespaces))
        for weight, term in _likes_of(other, hard_weight):
            _like(likings, node, term, weight, selects(term, other, pod, around.namespaces))
    if not likings:
        return {}
    return _normalised(
        {
            node.name: sum(weight for (key, value), weight in likings.items() if node.labels.get(key) == value)
            for node in nodes
        }
    )


def _likes_of(pod: Pod, hard_weight: int) -> Iterator[tuple[int, PodTerm]]:
    """What a pod that is there says about others, with what it weighs."""
    near, far = pod.template.pod_affinity, pod.template.pod_anti_affinity
    if near is not None:
        yield from near.preferred
        if hard_weight:
            yield from ((hard_weight, term) for term in near.required)
    if far is not None:
        yield from ((-weight, term) for weight, term in far.preferred)


def _like(likings: dict[Domain, int], node: Node, term: PodTerm, weight: int, matches: bool) -> None:
    value = node.labels.get(term.topology_key)
    if matches and value is not None:
        domain = (term.topology_key, value)
        likings[domain] = likings.get(domain, 0) + weight


def _normalised(raw: Mapping[str, int]) -> dict[str, int]:
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    if highest == lowest:
        return dict.fromkeys(raw, 0)
    return {name: int(MAX_SCORE * ((score - lowest) / (highest - lowest))) for name, score in raw.items()}
