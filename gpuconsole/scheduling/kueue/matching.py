"""Matches pods to a flavor: their tolerations to its taints, their node selector and affinity to its labels.

Kueue 0.19 flavorassigner.checkFlavorForPodSets.
"""

from collections.abc import Mapping

from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.scheduling.kueue import messages

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def mismatch(template: PodTemplate, flavor: ResourceFlavor) -> str:
    """Return why pods of this template cannot use the flavor; empty if they can."""
    for taint in flavor.node_taints:
        if taint.effect in _KEEPS_AWAY and not any(
            toleration.tolerates(taint) for toleration in (*template.tolerations, *flavor.tolerations)
        ):
            return messages.untolerated(taint, flavor.name)
    if flavor.node_labels and not matches_labels(template, flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def matches_labels(template: PodTemplate, labels: Mapping[str, str]) -> bool:
    """True if the node selector and the required affinity match, looking only at keys that the labels have.

    The terms of an affinity are alternatives: one without any of these keys always matches.
    """
    if any(key in labels and labels[key] != value for key, value in template.node_selector.items()):
        return False
    if template.affinity is None:
        return True
    terms = [[e for e in term.expressions if e.key in labels] for term in template.affinity]
    if not all(terms):
        return True
    return not terms or any(all(expression.matches(labels) for expression in term) for term in terms)
