"""cache_scheduler/Test…: domains of a topology, their order, balanced placement, assignments merged and cut."""

from collections.abc import Iterator, Mapping, Sequence

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Gates
from gpuconsole.scheduling.kueue.pod_resources import TopologyUsage
from gpuconsole.scheduling.kueue.topology import layout
from gpuconsole.scheduling.kueue.topology.demand import NO_REQUEST, TasPodSetRequest, has_levels
from gpuconsole.scheduling.kueue.topology.domains import (
    Counts,
    PlacementShape,
    TopologyDomainTree,
    build_domains,
    sort_domains,
    sort_with_leader,
)
from gpuconsole.scheduling.kueue.topology.layout import NonTasPodUsage, TasUsage
from gpuconsole.scheduling.kueue.topology.tas_assignment import (
    TopologySearchInput,
    count_pods,
    find_stale_domain,
    merge_assignments,
    truncate_assignment,
)
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare

_FLAVOR = ResourceFlavor(name="tas", topology="default")
_COUNTS = {
    "podCount": "pods",
    "sliceCount": "slices",
    "podCountWithLeader": "pods_with_leader",
    "sliceCountWithLeader": "slices_with_leader",
    "leaderCount": "leaders",
    "affinityScore": "scores",
}


def _domains(
    levels: Sequence[str], leaves: Sequence[Sequence[str]], flavor: ResourceFlavor = _FLAVOR
) -> TopologyDomainTree:
    """A topology whose leaves are these, a node each."""
    nodes = [
        Node(name=values[-1], labels=dict(zip(levels, values, strict=True))) for values in map(tuple, leaves) if values
    ]
    return build_domains(Topology(name="default", levels=tuple(levels)), flavor, nodes)


def _from_nodes(levels: Sequence[str], documents: Sequence[Document], labels: Mapping[str, str]) -> TopologyDomainTree:
    nodes = [thing for thing in world.decode_all(documents) if isinstance(thing, Node)]
    flavor = ResourceFlavor(name="tas", topology="default", node_labels=labels)
    return build_domains(Topology(name="default", levels=tuple(levels)), flavor, nodes)


def _assigned(document: Document) -> tuple[TopologyDomain, ...]:
    return tuple(TopologyDomain(tuple(d["Values"]), d.get("Count", 0)) for d in document.get("Domains") or ())


class _Listed:
    """Domains as a case lists them, with their state."""

    def __init__(self, listed: Sequence[Document], levels: Sequence[str]) -> None:
        values = {d["id"]: tuple(d["levelValues"]) for d in listed}
        self.domains = _domains(levels, [v for v in values.values() if len(v) == len(levels)])
        self.number = {name: self.domains.values.index(v) for name, v in values.items()}
        self.name = {number: name for name, number in self.number.items()}
        self.counts = Counts(len(self.domains.values))

    def set(self, name: str, state: Document, fields: Sequence[str] = tuple(_COUNTS)) -> None:
        for field in fields:
            getattr(self.counts, _COUNTS[field])[self.number[name]] = state.get(field, 0)


def _with_states(listed: Sequence[Document], levels: Sequence[str], *, liking: bool = False) -> _Listed:
    """Preferences of pods are only counted behind their gate."""
    found = _Listed([one["domain"] for one in listed], levels)
    fields = [field for field in _COUNTS if liking or field != "affinityScore"]
    for one in listed:
        found.set(one["domain"]["id"], one.get("state") or {}, fields)
    return found


def check_order(table: Table, case: Case, *, leader: bool) -> Iterator[str]:
    given = case.input
    listed = _with_states(given["domains"], ["block"], liking=given["enableTASPreferredSchedulingAffinity"])
    sort = sort_with_leader if leader else sort_domains
    best_fit = not (given["unconstrained"] and KueueConfig(gates=case.gates).enabled("TASProfileMixed"))
    numbers = sort(listed.counts, listed.number.values(), best_fit=best_fit)
    yield from compare("order", [listed.name[n] for n in numbers], case.want["wantOrder"])


def check_level_values(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    a, b = (tuple(given[name]["levelValues"]) for name in "ab")
    values = _domains(given["levels"], [a, b]).values
    yield from compare("sign", (values.index(a) > values.index(b)) - (values.index(a) < values.index(b)), _sign(case))


def _sign(case: Case) -> int:
    want = int(case.want["want"])
    return (want > 0) - (want < 0)


def _shape(count: int, leaders: int, size: int = 1, slice_level: int = 0) -> PlacementShape:
    return PlacementShape(count, leaders, 0, slice_level, size, {})


def check_smallest_set(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    listed = _with_states(given["domains"], ["block"])
    shape = _shape(given["workerCount"], given["leaderCount"])
    chosen = layout.smallest_set(listed.domains, listed.counts, list(listed.number.values()), shape, by_entropy=True)
    yield from compare("set", sorted(listed.name[n] for n in chosen), sorted(case.want["want"]))


def check_tie(table: Table, case: Case) -> Iterator[str]:
    """Of equal domains the first by all its values is taken."""
    domains, state = table.shared["domains"], table.shared["equalState"]
    listed = _with_states([{"domain": d, "state": state} for d in domains], ["block", "host"])
    chosen = layout.smallest_set(
        listed.domains,
        listed.counts,
        list(listed.number.values()),
        _shape(1, 0),
        by_entropy=case.input["prioritizeByEntropy"],
    )
    yield from compare("set", [listed.name[n] for n in chosen], [d["id"] for d in table.shared["got"]])


def check_placed_evenly(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    listed = _with_states(given["domains"], ["block"])
    size = given["sliceSize"]
    shape = _shape(given["sliceCount"] * size, given["leaderCount"], size)
    numbers = list(listed.number.values())
    chosen = layout.place_evenly(listed.domains, listed.counts, numbers, shape, given["threshold"])
    got = {listed.name[n]: {field: getattr(listed.counts, _COUNTS[field])[n] for field in _COUNTS} for n in chosen}
    want = case.want.get("want") or {}
    yield from compare("domains", got, {name: {f: state.get(f, 0) for f in _COUNTS} for name, state in want.items()})


def check_best(table: Table, case: Case) -> Iterator[str]:
    given, params = case.input, case.input["params"]
    listed = _Listed(given["domains"], ["block", "rack"])
    for one in given["domains"]:
        listed.set(one["id"], one)
    shape = PlacementShape(
        params["count"],
        params.get("leaderCount", 0),
        params.get("requestedLevelIdx", 0),
        params.get("sliceLevelIdx", 0),
        params["sliceSize"],
        {int(level): size for level, size in (params.get("sliceSizeAtLevel") or {}).items()},
    )
    found, _, threshold = layout.best_candidates(listed.domains, listed.counts, shape)
    yield from compare("threshold", threshold, case.want["wantThreshold"])
    yield from compare("domains", len(found), case.want["wantDomainsCount"])


def check_merge(table: Table, case: Case) -> Iterator[str]:
    levels = table.fixtures["levels"]
    domains = _from_nodes(levels, [_ready(node) for node in table.fixtures["nodes"]], {})
    want = case.want["want"]
    yield from compare("levels", list(domains.assignment_levels), want.get("Levels"))
    got = merge_assignments(domains, _assigned(case.input["a"]), _assigned(case.input["b"]))
    yield from compare("merged", got, _assigned(want))


def check_truncate(table: Table, case: Case) -> Iterator[str]:
    got = truncate_assignment(_assigned(case.input["assignment"]), case.input["newCount"])
    yield from compare("assignment", got, _assigned(case.want["want"]))


def check_pods(table: Table, case: Case) -> Iterator[str]:
    yield from compare("pods", count_pods(_assigned(case.input.get("assignment") or {})), case.want["want"])


def check_stale(table: Table, case: Case) -> Iterator[str]:
    tree = case.input["tree"]
    leaves = [leaf["domain"]["levelValues"] for leaf in tree["leaves"].values()]
    stale = find_stale_domain(_domains(tree["levelKeys"], leaves), _assigned(case.input["assignment"]))
    yield from compare("stale domain", stale, case.want["wantStaleDomain"])
    yield from compare("stale", bool(stale), case.want["wantStale"])


def check_usage(table: Table, case: Case) -> Iterator[str]:
    """What an assignment takes, on top of what was taken before."""
    given = case.input
    requests = (given.get("tasRequests") or {}).get("SinglePodRequests") or table.fixtures.get("singlePodRequests")
    assigned = _assigned(given["assignment"])
    domains = _domains([HOSTNAME], [[d.values[-1]] for d in assigned] or [["any"]])
    before: dict[tuple[str, ...], Mapping[str, int]] = {
        (name,): dict(used) for name, used in (given.get("assumedUsage") or {}).items()
    }
    ground = TopologySearchInput(domains, TasUsage({}), before, Gates(KueueConfig()).layouts, False)
    pod_set = world.decode_workload({"metadata": {"name": "any"}, "spec": {"podSets": [{"template": {}}]}}).pod_sets[0]
    ground.add_assignment(TasPodSetRequest(pod_set, count_pods(assigned), requests or {}, False), assigned)
    got = {values[-1]: dict(used) for values, used in ground.assumed.items()}
    yield from compare("usage", got, case.want.get("want") or {})


def check_levels(table: Table, case: Case) -> Iterator[str]:
    request = case.input.get("podSetTopologyRequest")
    pods = {"name": "main", "count": 1, "template": {}, **({"topologyRequest": request} if request else {})}
    pod_set = world.decode_workload({"metadata": {"name": "any"}, "spec": {"podSets": [pods]}}).pod_sets[0]
    got = has_levels(pod_set.topology or NO_REQUEST, _domains(table.fixtures["levels"], []))
    yield from compare("has the levels", got, case.want["want"])


def check_tree(table: Table, case: Case) -> Iterator[str]:
    """Every domain with its parent, its children and what its nodes offer."""
    domains = _from_nodes(case.input["levels"], case.input["nodes"], {})
    leaf_of = {number: leaf for leaf, number in enumerate(domains.leaf_domains)}

    def key(number: int) -> Document:
        values = domains.values[number]
        level = len(values) - 1
        name = domains.leaf_values(values)[-1] if number in leaf_of and domains.hostnames else ",".join(values)
        return {**({"Level": level} if level else {}), "ID": name}

    got = []
    for number, values in enumerate(domains.values):
        level = len(values) - 1
        node = domains.nodes[leaf_of[number]] if number in leaf_of else None
        parent = domains.values.index(values[:-1]) if level else None
        dump: dict[str, object] = {"LevelValues": list(values)}
        if parent is not None:
            dump["Parent"] = key(parent)
        if domains.children[number]:
            dump["Children"] = [key(child) for child in domains.children[number]]
        if not level:
            dump["Root"] = True
        if number in leaf_of:
            dump["Leaf"] = True
            dump["CPUCapacity"] = domains.free[leaf_of[number]].get("cpu", 0)
        if node is not None:
            dump["NodeName"] = node.name
        got.append((sorted(key(number).items(), key=str), dump))
    want = [(sorted(one["key"].items(), key=str), one["value"]) for one in case.want["want"]]
    yield from compare("tree", sorted(got, key=str), sorted(want, key=str))


def check_find(table: Table, case: Case) -> Iterator[str]:
    """Which nodes belong to a flavor: those with its labels and a label for every level."""
    given = case.input
    documents = [_ready(node) for node in table.fixtures["nc"]["nodes"].values()]
    levels = given.get("levels") or [HOSTNAME]
    if not given.get("levels"):
        documents = [_labelled(node, HOSTNAME, node["metadata"]["name"]) for node in documents]
    found = _from_nodes(levels, documents, given.get("nodeLabels") or {})
    want = sorted(node["metadata"]["name"] for node in case.want.get("wantNodes") or ())
    yield from compare("nodes", sorted(found.leaf_of), want)


def check_sync(table: Table, case: Case) -> Iterator[str]:
    """Nodes that are not ready, or cordoned, are left out; the last word about a node counts."""
    given = case.input
    nodes = {one["metadata"]["name"]: one for one in (*(given.get("prime") or ()), given["node"])}
    # A manifest without conditions means a node that is ready, an object of the API server does not.
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    documents = [{**silent, **_labelled(node, HOSTNAME, name)} for name, node in nodes.items()]
    found = _from_nodes([HOSTNAME], documents, {})
    yield from compare("nodes", sorted(found.leaf_of), sorted(case.want.get("wantSchedulableAndReady") or ()))


def _ready(node: Document) -> Document:
    return {**node, "status": {**(node.get("status") or {}), "conditions": [{"type": "Ready", "status": "True"}]}}


def _labelled(node: Document, label: str, value: str) -> Document:
    metadata = node["metadata"]
    return {**node, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), label: value}}}


def check_strangers(table: Table, case: Case) -> Iterator[str]:
    strangers = NonTasPodUsage()
    for pod in world.decode_all(case.input.get("initialPods")):
        assert isinstance(pod, Pod)
        strangers.add_pod(pod)
    for key in case.input.get("podsDelete") or ():
        strangers.remove_pod(key)
    yield from compare("usage", strangers.used, case.want.get("wantNodeUsage") or {})


def check_remaining(table: Table, case: Case) -> Iterator[str]:
    """What fits before, while and after something stands in a domain."""
    shared = table.shared
    config = KueueConfig(gates=case.gates)
    topology = Topology(name="default", levels=("hostname",))
    state = world.state(config, [topology, *world.decode_all([shared["nodeObj"]]), _FLAVOR], 0)
    sites = state.snapshot.topology_usage
    asked = [
        TopologyUsage("tas", tuple(u["Values"]), u["Count"], u["SinglePodRequests"]) for u in shared["flavorUsage"]
    ]
    taken = [TopologyUsage("tas", (shared["domainID"],), 1, shared["usage"])]
    fits = [sites.fits(asked)]
    for sign in (1, -1):
        sites.add_usage(taken, sign)
        fits.append(sites.fits(asked))
    yield from compare("fits before, while, after", fits, [True, False, True])


def _check(function: object) -> Check:
    return lambda table, case: list(function(table, case))  # type: ignore[operator]


CHECKS: dict[str, Check] = {
    "cache_scheduler/TestSortedDomains": lambda table, case: list(check_order(table, case, leader=False)),
    "cache_scheduler/TestSortedDomainsWithLeader": lambda table, case: list(check_order(table, case, leader=True)),
    "cache_scheduler/TestCompareDomainLevelValues": _check(check_level_values),
    "cache_scheduler/TestSelectOptimalDomainSetToFit": _check(check_smallest_set),
    "cache_scheduler/TestSelectOptimalDomainSetToFitStableTieBreak": _check(check_tie),
    "cache_scheduler/TestPlaceSlicesOnDomainsBalanced": _check(check_placed_evenly),
    "cache_scheduler/TestFindBestDomainsForBalancedPlacement": _check(check_best),
    "cache_scheduler/TestMergeTopologyAssignments": _check(check_merge),
    "cache_scheduler/TestTruncateAssignment": _check(check_truncate),
    "cache_scheduler/TestCountPodsInAssignment": _check(check_pods),
    "cache_scheduler/TestIsTopologyAssignmentStale": _check(check_stale),
    "cache_scheduler/TestComputeAssumedUsageFromAssignment": _check(check_usage),
    "cache_scheduler/TestAddAssumedUsage": _check(check_usage),
    "cache_scheduler/TestHasLevel": _check(check_levels),
    "cache_scheduler/TestNewTopologyTree": _check(check_tree),
    "cache_scheduler/TestNodesCacheFind": _check(check_find),
    "cache_scheduler/TestNodesCacheSync": _check(check_sync),
    "cache_scheduler/TestNonTasUsageCacheIncrementalUpdates": _check(check_strangers),
    "cache_scheduler/TestTASCachingRemainingResourcesFeatureGate": _check(check_remaining),
}
