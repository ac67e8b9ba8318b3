"""What Kueue's quotas are given out of: flavors, topologies, and the checks before an admission."""

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import HOSTNAME
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.names import KIND, LABEL, LEVEL, LONGEST_KEY, LONGEST_LABEL, PATH, labels, name
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.documents.selectors import taints, tolerations
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor, Topology

MOST_MARKS = 8
"""Labels, taints and tolerations of a flavor."""
MOST_LEVELS = 16


def resource_flavor(reader: Reader, now: Time) -> ResourceFlavor:
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "nodeLabels", "nodeTaints", "tolerations", "topologyName")
    node_labels = labels(spec, "nodeLabels")
    flavor = ResourceFlavor(
        name=meta.name,
        uid=meta.uid,
        node_labels=node_labels,
        node_taints=taints(spec, "nodeTaints"),
        tolerations=tolerations(spec, "tolerations"),
        topology=name(spec, "topologyName"),
    )
    marks = {"nodeLabels": node_labels, "nodeTaints": flavor.node_taints, "tolerations": flavor.tolerations}
    for key, entries in marks.items():
        if len(entries) > MOST_MARKS:
            problem = f"it has {len(entries)} entries, {MOST_MARKS} are allowed"
            spec.report.refused(spec.at(key), problem, "drop some", "too-many")
    if flavor.topology and not node_labels:
        problem = "at least one nodeLabel is required when topology is set"
        spec.report.refused(spec.at("topologyName"), problem, "add a nodeLabel of the nodes", "required")
    return flavor


def topology(reader: Reader, now: Time) -> Topology:
    """Levels, highest first; the host name may only be the lowest."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "levels")
    places = spec.items("levels", MOST_LEVELS)
    levels = tuple(name(place, "nodeLabel", LEVEL, limit=LONGEST_KEY, required=True) for place in places)
    if not levels:
        complain = spec.report.refused if "spec" in reader else spec.report.warning
        complain(spec.at("levels"), "levels is empty", "name at least one node label", "required")
    for position, level in enumerate(levels):
        if level in levels[:position]:
            spec.report.refused(spec.at("levels", position), f"{level} must be unique", "drop one", "duplicate")
        if level == HOSTNAME and position < len(levels) - 1:
            spec.report.refused(
                spec.at("levels", position),
                f"the {HOSTNAME} label can only be used at the lowest level of topology",
                "move it to the end",
                "level-order",
            )
    return Topology(name=meta.name, levels=levels)


def admission_check(reader: Reader, now: Time) -> AdmissionCheck:
    """An admission check; without a status its controller is taken as active."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "controllerName", "parameters", "retryDelayMinutes")
    if "spec" in reader:
        name(spec, "controllerName", PATH, required=True)
    active = True
    for condition in reader.mapping("status").items("conditions"):
        if condition.text("type") == "Active":
            active = condition.text("status") == "True"
    return AdmissionCheck(
        name=meta.name, controller=spec.text("controllerName"), parameters="/".join(_parameters(spec)), active=active
    )


def _parameters(spec: Reader) -> list[str]:
    if "parameters" not in spec:
        return []
    place = spec.mapping("parameters")
    return [
        name(place, "apiGroup", required=True),
        name(place, "kind", KIND, limit=LONGEST_LABEL, required=True),
        name(place, "name", LABEL, limit=LONGEST_LABEL, required=True),
    ]
