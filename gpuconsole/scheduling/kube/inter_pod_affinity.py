"""InterPodAffinity: required and preferred affinity and anti-affinity between pods (kube-scheduler's plugin).

`nearness` counts matching pods by topology domain, and `refusal` checks a node against the counts; `preferred_weights`
and `raw_scores` do the same for preferred terms. KAI and Volcano use them as well.
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
NOTHING = PodAffinity()

Domain = tuple[str, str]
"""(topology key, value)."""

Group = tuple[Pod, Iterable[tuple[Node, int]]]
"""One pod of a group of equal pods, and (node, number of them) for each node that has some."""


class PodLister(Protocol):
    """The existing pods, by group and node, for affinity and spread: with the nodes, and the labels of namespaces."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]: ...

    def groups(self) -> Iterable[Group]:
        """Every pod, grouped by equal namespace, labels and affinity terms."""

    def with_affinity(self) -> Iterable[Group]:
        """The groups whose pods have affinity terms."""


class StaticPodLister(Struct, frozen=True):
    """A fixed set of nodes and pods as a `PodLister`; every pod is a group of its own."""

    nodes: Mapping[str, Node]
    on: Callable[[str], Iterable[Pod]]
    namespaces: Mapping[str, Mapping[str, str]] = {}

    def groups(self) -> Iterator[Group]:
        """Every pod with its node."""
        for name, node in self.nodes.items():
            for pod in self.on(name):
                yield pod, ((node, 1),)

    def with_affinity(self) -> Iterator[Group]:
        """Every pod that has affinity terms, with its node."""
        return (group for group in self.groups() if has_pod_affinity(group[0]))


class InterPodAffinityState(Struct, frozen=True):
    """Counts of matching pods by topology domain for one pod (the plugin's PreFilter state)."""

    wanted: Mapping[Domain, int]
    """Pods that match all required affinity terms of the pod, by the domain of each term."""
    shunned: Mapping[Domain, int]
    """Pods that match a required anti-affinity term of the pod, by domain."""
    shunning: Mapping[Domain, int]
    """Pods whose required anti-affinity terms match the pod, by domain."""
    alone: bool
    """True if only the pod itself matches its required affinity: the first pod of a group may go to any domain."""


def has_pod_affinity(pod: Pod) -> bool:
    """True if the pod has pod affinity or anti-affinity terms."""
    return pod.template.pod_affinity is not None or pod.template.pod_anti_affinity is not None


def selects(term: PodTerm, owner: Pod, other: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """True if an affinity term of `owner` matches `other`."""
    if term.selector is None or not _in_namespace(term, owner, other.namespace, namespaces):
        return False
    return term.selector.matches(other.labels) and _compares(term, owner, other)


def _compares(term: PodTerm, owner: Pod, other: Pod) -> bool:
    """Requirements that matchLabelKeys and mismatchLabelKeys add, for labels that the owner has."""
    own, its = owner.labels, other.labels
    return all(its.get(key) == own[key] for key in term.match_label_keys if key in own) and not any(
        its.get(key) == own[key] for key in term.mismatch_label_keys if key in own
    )


def _in_namespace(term: PodTerm, owner: Pod, namespace: str, known: Mapping[str, Mapping[str, str]]) -> bool:
    if term.namespace_selector is None:
        return namespace in (term.namespaces or (owner.namespace,))
    labels = {**known.get(namespace, NO_LABELS), NAMESPACE_NAME: namespace}
    return namespace in term.namespaces or term.namespace_selector.matches(labels)


def nearness(pod: Pod, around: PodLister) -> InterPodAffinityState:
    """Count the existing pods that matter for a pod's required affinity and anti-affinity, by topology domain."""
    said = (pod.template.pod_affinity, pod.template.pod_anti_affinity)
    groups = around.groups() if any(one is not None and one.required for one in said) else around.with_affinity()
    return _counted(InterPodAffinityState({}, {}, {}, False), pod, groups, around.namespaces, 1)


def moved(
    found: InterPodAffinityState,
    pod: Pod,
    node: Node,
    pods: Iterable[Pod],
    namespaces: Mapping[str, Mapping[str, str]],
    by: int,
) -> InterPodAffinityState:
    """The counts after these pods are removed from the node (`by` −1) or added to it (1)."""
    return _counted(found, pod, ((other, ((node, 1),)) for other in pods), namespaces, by)


def _counted(
    found: InterPodAffinityState,
    pod: Pod,
    groups: Iterable[Group],
    namespaces: Mapping[str, Mapping[str, str]],
    by: int,
) -> InterPodAffinityState:
    near = (pod.template.pod_affinity or NOTHING).required
    far = (pod.template.pod_anti_affinity or NOTHING).required
    wanted, shunned, shunning = dict(found.wanted), dict(found.shunned), dict(found.shunning)
    for other, places in groups:
        nears = near if near and all(selects(term, pod, other, namespaces) for term in near) else ()
        fars = [term for term in far if selects(term, pod, other, namespaces)]
        anti = other.template.pod_anti_affinity
        theirs = [term for term in anti.required if selects(term, other, pod, namespaces)] if anti is not None else ()
        if nears or fars or theirs:
            for node, number in places:
                _count(wanted, node, nears, by * number)
                _count(shunned, node, fars, by * number)
                _count(shunning, node, theirs, by * number)
    alone = not wanted and all(selects(term, pod, pod, namespaces) for term in near)
    return InterPodAffinityState(wanted, shunned, shunning, alone)


def _count(counts: dict[Domain, int], node: Node, terms: Iterable[PodTerm], number: int) -> None:
    for term in terms:
        value = node.labels.get(term.topology_key)
        if value is not None:
            domain = (term.topology_key, value)
            counts[domain] = counts.get(domain, 0) + number
            if not counts[domain]:
                del counts[domain]


def refusal(pod: Pod, node: Node, found: InterPodAffinityState) -> str:
    """Why the pod cannot run on the node; empty if it can. Only `AFFINITY` cannot be resolved by preemption."""
    near = (pod.template.pod_affinity or NOTHING).required
    keys = [term.topology_key for term in near]
    if any(key not in node.labels for key in keys):
        return AFFINITY
    if not found.alone and any((key, node.labels[key]) not in found.wanted for key in keys):
        return AFFINITY
    # Goes through the node's few labels, not through the domains: there may be one for each node.
    if found.shunned and any(domain in found.shunned for domain in node.labels.items()):
        return ANTI_AFFINITY
    if found.shunning and any(domain in found.shunning for domain in node.labels.items()):
        return EXISTING_ANTI_AFFINITY
    return ""


def preferred_weights(
    pod: Pod, around: PodLister, *, hard_weight: int = 1, ignore_theirs: bool = False
) -> dict[Domain, int]:
    """Weight of the matching preferred terms, of the pod and of existing pods, by topology domain; empty if none.

    `hard_weight` is the weight of a required affinity of an existing pod (hardPodAffinityWeight); `ignore_theirs`
    ignores preferences of existing pods, unless the pod has some itself (ignorePreferredTermsOfExistingPods).
    """
    found: dict[Domain, int] = {}
    near = (pod.template.pod_affinity or NOTHING).preferred
    far = (pod.template.pod_anti_affinity or NOTHING).preferred
    if ignore_theirs and not near and not far:
        return found
    for other, places in around.groups() if near or far else around.with_affinity():
        terms = [(weight, term) for weight, term in near if selects(term, pod, other, around.namespaces)]
        terms += [(-weight, term) for weight, term in far if selects(term, pod, other, around.namespaces)]
        theirs = _likes_of(other, hard_weight)
        terms += [(weight, term) for weight, term in theirs if selects(term, other, pod, around.namespaces)]
        for node, number in places if terms else ():
            for weight, term in terms:
                _like(found, node, term, weight * number)
    return found


def raw_scores(nodes: Iterable[Node], found: Mapping[Domain, int]) -> dict[str, int]:
    """Sum of the weights of each node's domains, by node name, before it is normalised."""
    return {node.name: sum(found.get(domain, 0) for domain in node.labels.items()) for node in nodes}


def scores(pod: Pod, nodes: Iterable[Node], around: PodLister, *, hard_weight: int = 1) -> dict[str, int]:
    """Score of each node by preferred affinity of the pod and of existing pods, 0 to 100; empty if none has one."""
    found = preferred_weights(pod, around, hard_weight=hard_weight)
    return normalised(raw_scores(nodes, found)) if found else {}


def _likes_of(pod: Pod, hard_weight: int) -> Iterator[tuple[int, PodTerm]]:
    """Preferred terms of an existing pod, with their weights."""
    near, far = pod.template.pod_affinity, pod.template.pod_anti_affinity
    if near is not None:
        yield from near.preferred
        if hard_weight:
            yield from ((hard_weight, term) for term in near.required)
    if far is not None:
        yield from ((-weight, term) for weight, term in far.preferred)


def _like(found: dict[Domain, int], node: Node, term: PodTerm, weight: int) -> None:
    value = node.labels.get(term.topology_key)
    if value is not None:
        domain = (term.topology_key, value)
        found[domain] = found.get(domain, 0) + weight


def normalised(raw: Mapping[str, int]) -> dict[str, int]:
    """Raw scores scaled to 0 to 100 between the lowest and the highest; all 0 if they are equal."""
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    if highest == lowest:
        return dict.fromkeys(raw, 0)
    return {name: int(MAX_SCORE * ((score - lowest) / (highest - lowest))) for name, score in raw.items()}
