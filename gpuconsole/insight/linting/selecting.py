"""Lint rule for node selectors that no flavor offers: Kueue ignores them, and the pods stay unschedulable."""

from collections.abc import Iterator, Mapping, Sequence

from gpuconsole.insight.linting.facts import LintFacts, Work
from gpuconsole.insight.linting.findings import LintFinding, LintLevel
from gpuconsole.model.labels import HOSTNAME, Requirement
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.queues import ClusterQueue, ResourceFlavor

ON_EVERY_NODE = (
    HOSTNAME,
    *("kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os"),
    *("topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"),
    *("failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type",
)
"""Labels that kubelets and clouds give nodes (kubernetes.io/docs/reference/labels-annotations-taints)."""


def unoffered(facts: LintFacts, work: Work, queue: ClusterQueue) -> Iterator[LintFinding]:
    """Find node labels that pods select and that neither a flavor of their queue nor a known Node has.

    Kueue compares only keys that are among the flavors' nodeLabels (flavorassigner flavorSelector), and admits the
    work anyway. A flavor without nodeLabels may represent any node.
    """
    if facts.all_nodes:
        return
    for pod_set in work.pod_sets:
        flavors = _flavors(facts, queue, pod_set.template.requests)
        known = {*ON_EVERY_NODE, *(level for flavor in flavors for level in _levels(facts, flavor))}
        missing = [] if not any(f.node_labels for f in flavors) else _missing(pod_set.template, flavors, known)
        if missing:
            labels = " and ".join(missing)
            yield LintFinding(
                code="selector-without-flavor",
                level=LintLevel.WARNING,
                object=work.object,
                path=work.template_path,
                problem=f"no flavor of ClusterQueue {queue.name} offers nodes with {labels}: Kueue admits"
                f" the pods of {pod_set.name} anyway, and they stay unschedulable without such a node",
                evidence={"flavors": ", ".join(_shown(flavor) for flavor in flavors)},
                fix="correct nodeSelector or node affinity, or add the label to the nodeLabels of a flavor",
            )


def _flavors(facts: LintFacts, queue: ClusterQueue, requests: Mapping[str, int]) -> list[ResourceFlavor]:
    """Return the flavors that pods with these requests may be assigned."""
    groups = [group for group in queue.resource_groups if not requests.keys().isdisjoint(group.covered_resources)]
    names = dict.fromkeys(flavor.name for group in groups for flavor in group.flavors)
    found = (facts.snapshot.flavors.get(name) for name in names)
    return [flavor for flavor in found if flavor is not None]


def _levels(facts: LintFacts, flavor: ResourceFlavor) -> Sequence[str]:
    topology = facts.snapshot.topologies.get(flavor.topology) if flavor.topology else None
    return () if topology is None else topology.levels


def _missing(template: PodTemplate, flavors: Sequence[ResourceFlavor], known: set[str]) -> list[str]:
    """Return selected labels that no flavor has: the nodeSelector's, and the first affinity term's if none matches."""

    def offers(requirement: Requirement) -> bool:
        return requirement.key in known or any(requirement.matches(flavor.node_labels) for flavor in flavors)

    selected = (Requirement(key, "In", (value,)) for key, value in sorted(template.node_selector.items()))
    missing = [_text(requirement) for requirement in selected if not offers(requirement)]
    terms = [[_text(one) for one in term.expressions if not offers(one)] for term in template.affinity or ()]
    return [*missing, *(terms[0] if terms and all(terms) else ())]


def _text(requirement: Requirement) -> str:
    values = requirement.values
    match requirement.operator:
        case "In" if len(values) == 1:
            return f"{requirement.key}={values[0]}"
        case "Exists" | "DoesNotExist":
            return f"{requirement.key} {requirement.operator}"
    return f"{requirement.key} {requirement.operator} ({', '.join(values)})"


def _shown(flavor: ResourceFlavor) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(flavor.node_labels.items()))
    return f"{flavor.name} ({labels or 'no nodeLabels'})"
