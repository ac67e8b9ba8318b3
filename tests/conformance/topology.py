"""cache_scheduler/TestFindTopologyAssignments…: the places of a workload's pods in one topology."""

from collections.abc import Iterator, Mapping

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.workloads import TopologyDomain, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Gates
from gpuconsole.scheduling.kueue.pod_resources import TopologyUsage, WorkloadRequest
from gpuconsole.scheduling.kueue.topology.demand import NodeReplacement, TasPodSetRequest, node_replacement
from gpuconsole.scheduling.kueue.topology.layout import TasUsage
from gpuconsole.scheduling.kueue.topology.tas_assignment import TopologyPlacements, find_topology_placements
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare

_FLAVOR = "tas"
_SIBLING = "sibling"
"""Another flavor of the same nodes."""
_LEVELS = ("cloud.com/topology-block", "cloud.com/topology-rack", "kubernetes.io/hostname")


def check_places(table: Table, case: Case) -> Iterator[str]:
    """Every pod set's domains in order, or the exact reason."""
    given = case.input
    for variant in case.variants or ({},):
        config = KueueConfig(gates={**case.gates, **variant})
        sites = _sites(given, config)
        workload = world.decode_workload(given["workload"]) if given.get("workload") else None
        demands = [_demand(listed, workload, config) for listed in given["podSets"]]
        placed = _find(demands, sites, config)
        for demand, want in zip(demands, case.want["podSets"], strict=True):
            yield from _compare(demand.pod_set.name, placed, sites, want)


def check_replacement(table: Table, case: Case) -> Iterator[str]:
    """One pod set of a workload with one node to replace."""
    given = case.input
    config = KueueConfig(gates=case.gates)
    sites = _sites({**given, "levels": given.get("levels") or _LEVELS}, config)
    admission = {
        "clusterQueue": "test-cq",
        "podSetAssignments": [
            {"name": "main", "count": given["admissionCount"], "topologyAssignment": given["existingTA"]}
        ],
    }
    status = {"admission": admission, "unhealthyNodes": [{"name": given["unhealthyNode"]}]}
    workload = world.decode_workload({"metadata": {"name": "test-wl"}, "status": status})
    listed = {"topologyRequest": given["topologyRequest"], "count": given["count"], "requests": {"cpu": 1000}}
    placed = _find([_demand(listed, workload, config)], sites, config)
    yield from _compare("main", placed, sites, case.want)


def _find(demands: list[TasPodSetRequest], sites: TasUsage, config: KueueConfig) -> TopologyPlacements:
    return find_topology_placements({_FLAVOR: demands}, sites, gates=Gates(config).layouts, empty=False)


def _compare(name: str, placed: TopologyPlacements, sites: TasUsage, want: Document) -> Iterator[str]:
    reason = placed.reason if name in (placed.failed, *placed.failed_together) else ""
    yield from compare(f"reason of {name}", reason, want.get("wantReason", ""))
    if want.get("wantAssignment"):
        levels = sites.topologies[_FLAVOR].assignment_levels
        yield from compare(f"levels of {name}", list(levels), want["wantAssignment"].get("Levels"))
    yield from compare(f"places of {name}", placed.places.get(name), _domains(want.get("wantAssignment")))


def _sites(given: Document, config: KueueConfig) -> TasUsage:
    """The topology with what stands in it. Where flavors see each other, only the others' usage is in the cache."""
    nodes = [thing for thing in world.decode_all(given["nodes"]) if isinstance(thing, Node)]
    pods = [thing for thing in world.decode_all(given.get("pods")) if isinstance(thing, Pod)]
    topology = Topology(name="default", levels=tuple(given["levels"]))
    labels = given.get("nodeLabels") or {}
    flavors = [ResourceFlavor(name=name, node_labels=labels, topology="default") for name in (_FLAVOR, _SIBLING)]
    state = world.state(config, [topology, *nodes, *flavors, *pods], 0)
    seen = Gates(config).layouts.overlapping and state.setup.topologies[_FLAVOR].hostnames
    state.snapshot.topology_usage.add_usage(
        _place(_SIBLING if seen else _FLAVOR, used)
        for used in given.get("priorFlavorUsage" if seen else "priorOwnUsage") or ()
    )
    state.snapshot.topology_usage.add_usage(
        TopologyUsage(
            _SIBLING, tuple(domain.split(",")), 1, {name: amount for name, amount in used.items() if name != "pods"}
        )
        for domain, used in (given.get("aggregatedDomainUsages") or {}).items()
        if seen
    )
    return state.snapshot.for_cycle(overlapping=seen).topology_usage


def _place(flavor: str, used: Document) -> TopologyUsage:
    return TopologyUsage(flavor, tuple(used["Values"]), used["Count"], used["SinglePodRequests"])


def _demand(listed: Document, workload: Workload | None, config: KueueConfig) -> TasPodSetRequest:
    """What a pod set asks for; requests are integers, CPU in milli."""
    affinity = {"nodeAffinity": listed["nodeAffinity"]} if listed.get("nodeAffinity") else None
    spec = {
        "nodeSelector": listed.get("nodeSelector") or {},
        "tolerations": listed.get("tolerations") or [],
        "containers": [{"name": "c", "resources": {"requests": _quantities(listed.get("requests") or {})}}],
        **({"affinity": affinity} if affinity else {}),
    }
    request = listed.get("topologyRequest")
    if request is not None and listed.get("podSetGroupName"):
        request = {**request, "podSetGroupName": listed["podSetGroupName"]}
    document = {
        "name": listed.get("podSetName") or "main",
        "count": listed["count"],
        "template": {"spec": spec},
        **({"topologyRequest": request} if request is not None else {}),
    }
    pod_set = world.decode_workload({"metadata": {"name": "any"}, "spec": {"podSets": [document]}}).pod_sets[0]
    return TasPodSetRequest(
        pod_set,
        pod_set.count,
        listed.get("requests") or {},
        request is None,
        _replacing(pod_set.name, workload, config),
        _assigned(listed.get("previousAssignment")),
    )


def _replacing(pod_set: str, workload: Workload | None, config: KueueConfig) -> NodeReplacement | None:
    if workload is None or workload.admission is None:
        return None
    existing = next(one.topology for one in workload.admission.pod_sets if one.name == pod_set)
    return node_replacement(WorkloadRequest(workload, 0, "", config).as_admitted(config), existing)


def _assigned(document: Document | None) -> tuple[TopologyDomain, ...] | None:
    """A TopologyAssignment of the API."""
    if document is None:
        return None
    assignment = {"name": "main", "topologyAssignment": document}
    return world.admission({"clusterQueue": "any", "podSetAssignments": [assignment]}).pod_sets[0].topology


def _quantities(requests: Mapping[str, int]) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in requests.items()}


def _domains(assignment: Document | None) -> tuple[TopologyDomain, ...] | None:
    if assignment is None:
        return None
    return tuple(TopologyDomain(tuple(d["Values"]), d["Count"]) for d in assignment.get("Domains") or ())


CHECKS: dict[str, Check] = {
    "cache_scheduler/TestFindTopologyAssignments": lambda table, case: list(check_places(table, case)),
    "cache_scheduler/TestFindTopologyAssignmentsMultiLayerReplacement": lambda table, case: list(
        check_replacement(table, case)
    ),
}
