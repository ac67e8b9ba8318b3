"""InterPodAffinity: required and preferred affinity and anti-affinity between pods (kube-scheduler's plugin).

`affinity_counts` counts matching pods by topology domain, and `refusal` checks a node against the counts;
`preferred_weights` and `raw_scores` do the same for preferred terms. KAI and Volcano use them as well.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import NAMESPACE_NAME, NO_LABELS
from gpuconsole.model.pod_template import PodAffinity, PodTerm

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
MAX_SCORE = 100
NO_TERMS = PodAffinity()

Domain = tuple[str, str]
"""(topology key, value)."""

PodsByNode = tuple[Pod, Iterable[tuple[Node, int]]]
"""One pod of a group of equal pods, and (node, number of them) for each node that has some."""


class PodLister(Protocol):
    """The existing pods, by group and node, for affinity and spread: with the nodes, and the labels of namespaces."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]: ...

    def pod_groups(self) -> Iterable[PodsByNode]:
        """Every pod, grouped by equal namespace, labels and affinity terms."""

    def pod_groups_with_affinity(self) -> Iterable[PodsByNode]:
        """The groups whose pods have affinity terms."""


class StaticPodLister(Struct, frozen=True):
    """A fixed set of nodes and pods as a `PodLister`; every pod is a group of its own."""

    nodes: Mapping[str, Node]
    pods_on: Callable[[str], Iterable[Pod]]
    namespaces: Mapping[str, Mapping[str, str]] = {}

    def pod_groups(self) -> Iterator[PodsByNode]:
        """Every pod with its node."""
        for name, node in self.nodes.items():
            for pod in self.pods_on(name):
                yield pod, ((node, 1),)

    def pod_groups_with_affinity(self) -> Iterator[PodsByNode]:
        """Every pod that has affinity terms, with its node."""
        return (group for group in self.pod_groups() if has_pod_affinity(group[0]))


class InterPodAffinityState(Struct, frozen=True):
    """Counts of matching pods by topology domain for one pod (the plugin's PreFilter state)."""

    affinity: Mapping[Domain, int]
    """Pods that match all required affinity terms of the pod, by the domain of each term."""
    anti_affinity: Mapping[Domain, int]
    """Pods that match a required anti-affinity term of the pod, by domain."""
    existing_anti_affinity: Mapping[Domain, int]
    """Pods whose required anti-affinity terms match the pod, by domain."""
    is_first_of_group: bool
    """True if only the pod itself matches its required affinity: the first pod of a group may go to any domain."""


def has_pod_affinity(pod: Pod) -> bool:
    """True if the pod has pod affinity or anti-affinity terms."""
    return pod.template.pod_affinity is not None or pod.template.pod_anti_affinity is not None


def term_selects(term: PodTerm, owner: Pod, other: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """True if an affinity term of `owner` matches `other`."""
    if term.selector is None or not _selects_namespace(term, owner, other.namespace, namespaces):
        return False
    return term.selector.matches(other.labels) and _match_label_requirements(term, owner, other)


def _match_label_requirements(term: PodTerm, owner: Pod, other: Pod) -> bool:
    """Requirements that matchLabelKeys and mismatchLabelKeys add, for labels that the owner has."""
    own, its = owner.labels, other.labels
    return all(its.get(key) == own[key] for key in term.match_label_keys if key in own) and not any(
        its.get(key) == own[key] for key in term.mismatch_label_keys if key in own
    )


def _selects_namespace(term: PodTerm, owner: Pod, namespace: str, known: Mapping[str, Mapping[str, str]]) -> bool:
    if term.namespace_selector is None:
        return namespace in (term.namespaces or (owner.namespace,))
    labels = {**known.get(namespace, NO_LABELS), NAMESPACE_NAME: namespace}
    return namespace in term.namespaces or term.namespace_selector.matches(labels)


def affinity_counts(pod: Pod, existing_pods: PodLister) -> InterPodAffinityState:
    """Count the existing pods that matter for a pod's required affinity and anti-affinity, by topology domain."""
    said = (pod.template.pod_affinity, pod.template.pod_anti_affinity)
    groups = (
        existing_pods.pod_groups()
        if any(one is not None and one.required for one in said)
        else existing_pods.pod_groups_with_affinity()
    )
    return _with_groups(InterPodAffinityState({}, {}, {}, False), pod, groups, existing_pods.namespaces, 1)


def with_pods_moved(
    counts: InterPodAffinityState,
    pod: Pod,
    node: Node,
    pods: Iterable[Pod],
    namespaces: Mapping[str, Mapping[str, str]],
    sign: int,
) -> InterPodAffinityState:
    """The counts after these pods are removed from the node (`sign` −1) or added to it (1)."""
    return _with_groups(counts, pod, ((other, ((node, 1),)) for other in pods), namespaces, sign)


def _with_groups(
    counts: InterPodAffinityState,
    pod: Pod,
    groups: Iterable[PodsByNode],
    namespaces: Mapping[str, Mapping[str, str]],
    sign: int,
) -> InterPodAffinityState:
    affinity_terms = (pod.template.pod_affinity or NO_TERMS).required
    anti_affinity_terms = (pod.template.pod_anti_affinity or NO_TERMS).required
    affinity, anti_affinity, existing_anti_affinity = (
        dict(counts.affinity),
        dict(counts.anti_affinity),
        dict(counts.existing_anti_affinity),
    )
    for other, places in groups:
        nears = (
            affinity_terms
            if affinity_terms and all(term_selects(term, pod, other, namespaces) for term in affinity_terms)
            else ()
        )
        fars = [term for term in anti_affinity_terms if term_selects(term, pod, other, namespaces)]
        anti = other.template.pod_anti_affinity
        theirs = (
            [term for term in anti.required if term_selects(term, other, pod, namespaces)] if anti is not None else ()
        )
        if nears or fars or theirs:
            for node, number in places:
                _count_terms(affinity, node, nears, sign * number)
                _count_terms(anti_affinity, node, fars, sign * number)
                _count_terms(existing_anti_affinity, node, theirs, sign * number)
    alone = not affinity and all(term_selects(term, pod, pod, namespaces) for term in affinity_terms)
    return InterPodAffinityState(affinity, anti_affinity, existing_anti_affinity, alone)


def _count_terms(counts: dict[Domain, int], node: Node, terms: Iterable[PodTerm], number: int) -> None:
    for term in terms:
        value = node.labels.get(term.topology_key)
        if value is not None:
            domain = (term.topology_key, value)
            counts[domain] = counts.get(domain, 0) + number
            if not counts[domain]:
                del counts[domain]


def refusal(pod: Pod, node: Node, counts: InterPodAffinityState) -> str:
    """Why the pod cannot run on the node; empty if it can. Only `AFFINITY` cannot be resolved by preemption."""
    affinity_terms = (pod.template.pod_affinity or NO_TERMS).required
    keys = [term.topology_key for term in affinity_terms]
    if any(key not in node.labels for key in keys):
        return AFFINITY
    if not counts.is_first_of_group and any((key, node.labels[key]) not in counts.affinity for key in keys):
        return AFFINITY
    # Goes through the node's few labels, not through the domains: there may be one for each node.
    if counts.anti_affinity and any(domain in counts.anti_affinity for domain in node.labels.items()):
        return ANTI_AFFINITY
    if counts.existing_anti_affinity and any(domain in counts.existing_anti_affinity for domain in node.labels.items()):
        return EXISTING_ANTI_AFFINITY
    return ""


def preferred_weights(
    pod: Pod, existing_pods: PodLister, *, hard_weight: int = 1, ignore_existing_preferred: bool = False
) -> dict[Domain, int]:
    """Weight of the matching preferred terms, of the pod and of existing pods, by topology domain; empty if none.

    `hard_weight` is the weight of a required affinity of an existing pod (hardPodAffinityWeight);
    `ignore_existing_preferred` ignores preferences of existing pods, unless the pod has some itself
    (ignorePreferredTermsOfExistingPods).
    """
    counts: dict[Domain, int] = {}
    affinity_terms = (pod.template.pod_affinity or NO_TERMS).preferred
    anti_affinity_terms = (pod.template.pod_anti_affinity or NO_TERMS).preferred
    if ignore_existing_preferred and not affinity_terms and not anti_affinity_terms:
        return counts
    for other, places in (
        existing_pods.pod_groups()
        if affinity_terms or anti_affinity_terms
        else existing_pods.pod_groups_with_affinity()
    ):
        terms = [
            (weight, term)
            for weight, term in affinity_terms
            if term_selects(term, pod, other, existing_pods.namespaces)
        ]
        terms += [
            (-weight, term)
            for weight, term in anti_affinity_terms
            if term_selects(term, pod, other, existing_pods.namespaces)
        ]
        theirs = _preferred_terms_of(other, hard_weight)
        terms += [(weight, term) for weight, term in theirs if term_selects(term, other, pod, existing_pods.namespaces)]
        for node, number in places if terms else ():
            for weight, term in terms:
                _add_weight(counts, node, term, weight * number)
    return counts


def raw_scores(nodes: Iterable[Node], counts: Mapping[Domain, int]) -> dict[str, int]:
    """Sum of the weights of each node's domains, by node name, before it is normalised."""
    return {node.name: sum(counts.get(domain, 0) for domain in node.labels.items()) for node in nodes}


def scores(pod: Pod, nodes: Iterable[Node], existing_pods: PodLister, *, hard_weight: int = 1) -> dict[str, int]:
    """Score of each node by preferred affinity of the pod and of existing pods, 0 to 100; empty if none has one."""
    counts = preferred_weights(pod, existing_pods, hard_weight=hard_weight)
    return normalised(raw_scores(nodes, counts)) if counts else {}


def _preferred_terms_of(pod: Pod, hard_weight: int) -> Iterator[tuple[int, PodTerm]]:
    """Preferred terms of an existing pod, with their weights."""
    affinity_terms, anti_affinity_terms = pod.template.pod_affinity, pod.template.pod_anti_affinity
    if affinity_terms is not None:
        yield from affinity_terms.preferred
        if hard_weight:
            yield from ((hard_weight, term) for term in affinity_terms.required)
    if anti_affinity_terms is not None:
        yield from ((-weight, term) for weight, term in anti_affinity_terms.preferred)


def _add_weight(counts: dict[Domain, int], node: Node, term: PodTerm, weight: int) -> None:
    value = node.labels.get(term.topology_key)
    if value is not None:
        domain = (term.topology_key, value)
        counts[domain] = counts.get(domain, 0) + weight


def normalised(raw: Mapping[str, int]) -> dict[str, int]:
    """Raw scores scaled to 0 to 100 between the lowest and the highest; all 0 if they are equal."""
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    if highest == lowest:
        return dict.fromkeys(raw, 0)
    return {name: int(MAX_SCORE * ((score - lowest) / (highest - lowest))) for name, score in raw.items()}
