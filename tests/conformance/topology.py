"""cache_scheduler/TestFindTopologyAssignments: the places of a workload's pods in one topology."""

from collections.abc import Iterator, Mapping

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.quantity import format_quantity
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Gates
from gpuconsole.scheduling.kueue.requests import Place
from gpuconsole.scheduling.kueue.topology.demand import Demand
from gpuconsole.scheduling.kueue.topology.placement import find_places
from gpuconsole.scheduling.kueue.topology.sites import Sites
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare

_FLAVOR = "tas"


def check_places(table: Table, case: Case) -> Iterator[str]:
    """Every pod set's domains in order, or the exact reason."""
    given = case.input
    if given.get("workload") or any("previousAssignment" in pods for pods in given["podSets"]):
        raise NotModelled("replacement of nodes")
    if given.get("priorFlavorUsage") or given.get("aggregatedDomainUsages"):
        raise NotModelled("usage by other flavors, which a set-up of one flavor cannot have")
    config = KueueConfig(gates=case.gates)
    sites = _sites(given, config)
    demands = [_demand(listed) for listed in given["podSets"]]
    placed = find_places({_FLAVOR: demands}, sites, gates=Gates(config).layouts, empty=False)
    for demand, want in zip(demands, case.want["podSets"], strict=True):
        name = demand.pod_set.name
        reason = placed.reason if name in (placed.failed, *placed.beside) else ""
        yield from compare(f"reason of {name}", reason, want.get("wantReason", ""))
        if want.get("wantAssignment"):
            levels = sites.topologies[_FLAVOR].assignment_levels
            yield from compare(f"levels of {name}", list(levels), want["wantAssignment"].get("Levels"))
        yield from compare(f"places of {name}", placed.places.get(name), _domains(want.get("wantAssignment")))


def _sites(given: Document, config: KueueConfig) -> Sites:
    nodes = [thing for thing in world.decode_all(given["nodes"]) if isinstance(thing, Node)]
    pods = [thing for thing in world.decode_all(given.get("pods")) if isinstance(thing, Pod)]
    topology = Topology(name="default", levels=tuple(given["levels"]))
    flavor = ResourceFlavor(name=_FLAVOR, node_labels=given.get("nodeLabels") or {}, topology="default")
    state = world.state(config, [topology, *nodes, flavor, *pods], 0)
    sites = state.accounts.sites
    sites.add(
        Place(_FLAVOR, tuple(used["Values"]), used["Count"], used["SinglePodRequests"])
        for used in given.get("priorOwnUsage") or ()
    )
    return sites


def _demand(listed: Document) -> Demand:
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
    return Demand(pod_set, pod_set.count, listed.get("requests") or {}, request is None)


def _quantities(requests: Mapping[str, int]) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in requests.items()}


def _domains(assignment: Document | None) -> tuple[TopologyDomain, ...] | None:
    if assignment is None:
        return None
    return tuple(TopologyDomain(tuple(d["Values"]), d["Count"]) for d in assignment.get("Domains") or ())


CHECKS: dict[str, Check] = {
    "cache_scheduler/TestFindTopologyAssignments": lambda table, case: list(check_places(table, case)),
}
