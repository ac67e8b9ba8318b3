"""Manifests of ResourceFlavor, Topology and AdmissionCheck."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.names import labels
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.selectors import taints, tolerations
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor, Topology


def resource_flavor(reader: Reader, now: Time) -> ResourceFlavor:
    """Read a ResourceFlavor."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    return ResourceFlavor(
        name=meta.name,
        uid=meta.uid,
        node_labels=labels(spec, "nodeLabels"),
        node_taints=taints(spec, "nodeTaints"),
        tolerations=tolerations(spec, "tolerations"),
        topology=spec.text("topologyName"),
    )


def topology(reader: Reader, now: Time) -> Topology:
    """Read a Topology; its levels are in order from highest to lowest."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    levels = tuple(place.text("nodeLabel") for place in spec.items("levels"))
    if not levels:
        spec.report.warning(spec.at("levels"), "it has no levels", "name at least one node label", "required")
    return Topology(name=meta.name, levels=levels)


def admission_check(reader: Reader, now: Time) -> AdmissionCheck:
    """Read an AdmissionCheck; without a status it counts as active."""
    meta = metadata(reader, now, namespaced=False)
    spec, parameters = reader.mapping("spec"), reader.down("spec", "parameters")
    active = True
    for condition in reader.mapping("status").items("conditions"):
        if condition.text("type") == "Active":
            active = condition.text("status") == "True"
    return AdmissionCheck(
        name=meta.name,
        controller=spec.text("controllerName"),
        parameters="/".join(filter(None, (parameters.text(key) for key in ("apiGroup", "kind", "name")))),
        active=active,
    )
