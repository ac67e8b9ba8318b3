"""Tests which nodes pods may run on and which they prefer (Kueue 0.19 TASFlavorSnapshot, node match)."""

from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import Taint
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.kueue.topology.demand import TasPodSetRequest
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def unsuitable(node: Node, demand: TasPodSetRequest, domains: TopologyDomainTree) -> str:
    """Return why no pod of the request may run on this node; empty if one may."""
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


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
