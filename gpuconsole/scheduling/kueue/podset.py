"""What an admission writes into the pods of a job: where its flavors are, and what they ask to be tolerated."""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import PodSetAssignment


def flavored(template: PodTemplate, assignment: PodSetAssignment, flavors: Mapping[str, ResourceFlavor]) -> PodTemplate:
    """The template with the labels and tolerations of its flavors (Kueue pkg/podset: FromAssignment, Merge).

    Flavors that do not exist add nothing.
    """
    selector, tolerations = dict(template.node_selector), list(template.tolerations)
    for name in dict.fromkeys(assignment.flavors.values()):
        flavor = flavors.get(name)
        if flavor is not None:
            selector.update(flavor.node_labels)
            tolerations.extend(t for t in flavor.tolerations if t not in tolerations)
    if len(selector) == len(template.node_selector) and len(tolerations) == len(template.tolerations):
        return template
    return replace(template, node_selector=selector, tolerations=tuple(tolerations))
