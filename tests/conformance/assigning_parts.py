"""scheduler_flavorassigner: single questions about an assignment, its flavors, and what it asks of topologies."""

from collections.abc import Iterator, Mapping, Sequence

from gpuconsole.model.cluster import Namespace
from gpuconsole.model.workloads import TopologyDomain
from gpuconsole.scheduling.kueue.assignment import Assignment, FlavorAssignment, PodSetResult
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.flavor_assigner import FlavorAssigner, NominatedFlavors
from gpuconsole.scheduling.kueue.pod_resources import TopologyUsage, WorkloadRequest
from gpuconsole.scheduling.kueue.slices import ReplacedPodSet
from gpuconsole.scheduling.kueue.topology.demand import demands_of
from tests.conformance import world
from tests.conformance.assigning import NAMES, assign, count_usage, given_to, stub
from tests.conformance.preemption import MODES
from tests.conformance.tables import Case, Check, Document, Table, compare

_TOPOLOGY = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology"}
_FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
_QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue"}
_HOST = "kubernetes.io/hostname"


def check_allowed(table: Table, case: Case) -> Iterator[str]:
    """TestAssignFlavorsWithAllowedFlavors: a variant keeps to its flavors."""
    fixtures = table.fixtures
    config = KueueConfig(gates=case.gates)
    flavors = list(fixtures["resourceFlavors"].values())
    assignment, _ = assign(config, flavors, [fixtures["cq"]], {}, case.variables["wl"], {})
    yield from compare("wantRepMode", NAMES[assignment.mode], case.want["wantRepMode"])
    chosen = assignment.pod_sets[0].choices.get("cpu")
    if case.want["wantRepMode"] == "Fit":
        yield from compare("wantFlavor", chosen.flavor if chosen is not None else "", case.want["wantFlavor"])


def check_group_flavors(table: Table, case: Case) -> Iterator[str]:
    """TestAssignFlavors_LeaderWorkerSetTASFlavor: flavors of pod sets that are placed together."""
    given, fixtures = case.input, table.fixtures
    nodes = {**table.shared, **case.variables}["nodes"]
    things = [*fixtures["topologies"], *nodes, *fixtures["resourceFlavors"].values()]
    workload = {"spec": {"podSets": given["wlPods"]}}
    assignment, _ = assign(KueueConfig(gates=case.gates), things, [given["clusterQueue"]], {}, workload, {})
    failures = {result.pod_set.name: result.failure for result in assignment.pod_sets if result.failure}
    wanted = {name: error["$error"] for name, error in (case.want.get("wantPodSetErrors") or {}).items()}
    yield from compare("wantPodSetErrors", failures, wanted)
    got = {result.pod_set.name: _chosen(result) for result in assignment.pod_sets}
    listed = {
        name: {resource: {"Mode": "NoFit", "TriedFlavorIdx": 0, **flavor} for resource, flavor in flavors.items()}
        for name, flavors in (case.want.get("wantPodSetFlavors") or {}).items()
    }
    yield from compare("wantPodSetFlavors", got, listed)


def _chosen(result: PodSetResult) -> dict[str, Document]:
    return {
        resource: {"Name": choice.flavor, "Mode": NAMES[choice.mode], "TriedFlavorIdx": choice.tried}
        for resource, choice in result.choices.items()
    }


def check_cause(table: Table, case: Case) -> Iterator[str]:
    """TestIsNoFitDueToCapacityAndLimits: why no flavor fits, in one word, and why each of them does not."""
    given = case.input
    queue = given.get("cq") or table.fixtures["cq"]
    flavors = given.get("resourceFlavors") or table.fixtures["resourceFlavors"]
    annotations = {}
    if given.get("allowedFlavors"):
        annotations["kueue.x-k8s.io/workload-allowed-resource-flavors"] = ",".join(given["allowedFlavors"])
    workload = {"metadata": {"name": "wl", "annotations": annotations}, "spec": {"podSets": [given["podSet"]]}}
    usage = {queue["metadata"]["name"]: given.get("cqUsage") or {}, **(given.get("siblingCQUsage") or {})}
    assignment, context = assign(
        KueueConfig(gates=case.gates),
        [*(given.get("topologies") or ()), *flavors.values()],
        [queue, *(given.get("siblingCQs") or ())],
        usage,
        workload,
        given.get("simulationResult") or {},
        given_to(given.get("replaceWl")),
    )
    groups = context.setup.queues[queue["metadata"]["name"]].groups
    yield from compare(
        "wantNoFitReason", assignment.granular_reason(groups).value, case.want.get("wantNoFitReason", "")
    )
    wanted = case.want.get("wantFlavorAttempts") or {}
    for result in assignment.pod_sets:
        for attempt in result.flavor_attempts():
            if attempt.flavor in wanted:
                yield from compare(
                    f"attempt at {attempt.flavor}", attempt.granular_reason.value, wanted[attempt.flavor]
                )


def _placed(context: Context, listed: Mapping[str, Sequence[Document]]) -> None:
    """Count pods of others that stand in the topologies."""
    context.snapshot.topology_usage.add_usage(
        TopologyUsage(flavor, tuple(used["Values"]), used["Count"], used["SinglePodRequests"])
        for flavor, domains in listed.items()
        for used in domains
    )


def _two_flavors(nominal: str, spare: str, fungibility: Document) -> list[Document]:
    """What these tables' Go code builds: two flavors with a topology and a node of 4 CPU each, and a sibling queue."""
    things: list[Document] = []
    for number, word in (("1", "one"), ("2", "two")):
        spec = {"nodeLabels": {"flavor": word}, "topologyName": f"topology-{number}"}
        node = f"node-{number}"
        things += [
            {**_TOPOLOGY, "metadata": {"name": f"topology-{number}"}, "spec": {"levels": [{"nodeLabel": _HOST}]}},
            {**_FLAVOR, "metadata": {"name": f"flavor-{number}"}, "spec": spec},
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node, "labels": {"flavor": word, _HOST: node}},
                "status": {
                    "allocatable": {"cpu": "4", "pods": "32"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        ]
    return [*things, _two_quotas("cq", nominal, {"flavorFungibility": fungibility}), _two_quotas("sibling", spare, {})]


def _two_quotas(name: str, nominal: str, more: Document) -> Document:
    flavors = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": nominal}]} for flavor in ("flavor-1", "flavor-2")
    ]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    spec = {"cohortName": "cohort", "namespaceSelector": {}, "resourceGroups": groups, **more}
    return {**_QUEUE, "metadata": {"name": name}, "spec": spec}


class _Scan:
    """A workload whose flavors are looked for in the two flavors' ClusterQueue. Mutates."""

    def __init__(self, case: Case, things: list[Document], cpu: str) -> None:
        config = KueueConfig(gates=case.gates)
        self.context = world.state(config, [Namespace(name="default"), *world.decode_all(things)], 0).context()
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        pods = {
            "name": "main",
            "count": 1,
            "template": {"spec": {"containers": [container]}},
            "topologyRequest": {"required": _HOST},
        }
        document = {"metadata": {"name": "wl", "namespace": "default"}, "spec": {"podSets": [pods]}}
        self.request = WorkloadRequest(world.decode_workload(document), 0, "cq", config)

    def use(self, quota: Mapping[str, int], places: Mapping[str, Sequence[Document]]) -> None:
        count_usage(self.context, {"cq": quota})
        _placed(self.context, places)

    def look(self, simulated: Mapping[str, Document], nominated: NominatedFlavors | None = None) -> Assignment:
        rules = self.context.setup.queues["cq"]
        return FlavorAssigner(self.context, rules, self.request, None, nominated, oracle=stub(simulated)).assign()


def check_scan(table: Table, case: Case) -> Iterator[str]:
    """TestFlavorScanRecordsLastTriedFlavorIdx: where the next search will go on."""
    given = case.input
    things = _two_flavors(given["nominalPerFlavor"], given["cohortSpare"], given.get("fungibility") or {})
    scan = _Scan(case, things, given["request"])
    scan.use(given.get("clusterQueueUsage") or {}, given.get("nodeUsage") or {})
    assignment = scan.look(given.get("simulationResult") or {})
    yield from compare("wantMode", NAMES[assignment.mode], case.want.get("wantMode", "NoFit"))
    result = assignment.pod_sets[0]
    yield from compare("wantTriedFlavorIdx", result.choices["cpu"].tried, case.want["wantTriedFlavorIdx"])
    yield from compare("wantPlan", bool(result.topology), case.want["wantPlan"])


_TRY_ALL = {
    "whenCanBorrow": "TryNextFlavor",
    "whenCanPreempt": "TryNextFlavor",
    "preference": "PreemptionOverBorrowing",
}
_TAKEN = {"flavor-1": [{"Values": ["node-1"], "Count": 1, "SinglePodRequests": {"cpu": 2000}}]}


def check_repeated_scan(table: Table, case: Case) -> Iterator[str]:
    """TestRecomputeRecordsLastTriedFlavorIdx: the same after a second search within the cycle."""
    given = case.input
    scan = _Scan(case, _two_flavors("10", "0", _TRY_ALL), "3")
    first = scan.look({})
    yield from compare("nomination", NAMES[first.mode], "Fit")
    yield from compare("its place", bool(first.pod_sets[0].topology), True)
    yield from compare("its flavor", first.pod_sets[0].choices["cpu"].tried, 0)
    scan.use(given.get("quotaUsageAtRecompute") or {}, _TAKEN)
    again = scan.look(given.get("simulationResult") or {}, first.nominated_flavors())
    yield from compare("wantRecomputedIdx", again.pod_sets[0].choices["cpu"].tried, case.want["wantRecomputedIdx"])
    yield from compare("mode", NAMES[again.mode], "Preempt")


def check_borrowing(table: Table, case: Case) -> Iterator[str]:
    """TestAssignment_RequiresBorrowing."""
    assignment = Assignment()
    assignment.borrowing_height = case.input["borrowing"]
    yield from compare("want", assignment.is_borrowing, case.want["want"])


class _Built:
    """An assignment as a case lists it, in a ClusterQueue whose flavors with a topology are named. Mutates."""

    def __init__(
        self,
        case: Case,
        pod_sets: Sequence[Document],
        workload: Document,
        placing: Sequence[str],
        replaced: Sequence[ReplacedPodSet] = (),
    ) -> None:
        config = KueueConfig(gates=case.gates)
        listed = sorted({f["Name"] for pods in pod_sets for f in (pods.get("Flavors") or {}).values()} | {*placing})
        resources = sorted({resource for pods in pod_sets for resource in pods.get("Flavors") or {}}) or ["cpu"]
        things = [_queue_of(listed, resources), *_flavors_of(listed, placing)]
        self.context = world.state(config, world.decode_all(things), 0).context()
        self.rules = self.context.setup.queues["q"]
        document = {**workload, "metadata": {"name": "any", **(workload.get("metadata") or {})}}
        self.request = WorkloadRequest(world.decode_workload(document), 0, "q", config)
        self.assignment = Assignment(replaced)
        for pods, needs in zip(pod_sets, self.request.pod_sets, strict=True):
            # A slice is never admitted in part: its counts are the workload's, whatever the assignment says.
            count = needs.count if replaced else pods.get("Count", 0)
            self.assignment.append(self._result(pods, PodSetResult(needs.pod_set, count, needs.requests_for(count))))

    def _result(self, listed: Document, result: PodSetResult) -> PodSetResult:
        for resource, flavor in (listed.get("Flavors") or {}).items():
            column = self.context.setup.tree.numbers[flavor["Name"], resource]
            result.choices[resource] = FlavorAssignment(flavor["Name"], column, MODES[flavor.get("Mode", "NoFit")], 0)
        domains = (listed.get("TopologyAssignment") or {}).get("Domains") or ()
        result.topology = tuple(TopologyDomain(tuple(d["Values"]), d["Count"]) for d in domains)
        return result


def _queue_of(flavors: Sequence[str], resources: Sequence[str]) -> Document:
    quotas = [{"name": resource, "nominalQuota": "0"} for resource in resources]
    groups = [{"coveredResources": resources, "flavors": [{"name": f, "resources": quotas} for f in flavors]}]
    return {**_QUEUE, "metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}


def _flavors_of(flavors: Sequence[str], placing: Sequence[str]) -> Iterator[Document]:
    yield {**_TOPOLOGY, "metadata": {"name": "hosts"}, "spec": {"levels": [{"nodeLabel": _HOST}]}}
    for name in flavors:
        spec = {"nodeLabels": {"any": "any"}, "topologyName": "hosts"} if name in placing else {}
        yield {**_FLAVOR, "metadata": {"name": name}, "spec": spec}


def check_places(table: Table, case: Case) -> Iterator[str]:
    """TestAssignment_ComputeTASNetUsage: what the pods will use of topologies beyond what they have."""
    given = case.input
    workload = given["wl"]["Obj"]
    built = _Built(case, given["assignment"]["PodSets"], workload, sorted(given["cq"]["TASFlavors"]))
    held = world.admission(given["prevAdmission"]) if given.get("prevAdmission") else None
    got: dict[str, list[Document]] = {}
    for place in built.assignment.topology_usage(built.context.setup.topologies, held):
        used = {"Values": list(place.values), "SinglePodRequests": dict(place.per_pod), "Count": place.count}
        got.setdefault(place.flavor, []).append(used)
    yield from compare("want", got, case.want.get("want") or {})


def check_uses(table: Table, case: Case) -> Iterator[str]:
    """TestAssignment_TotalRequestsFor: what a search for victims has to make room for."""
    fields = case.input["fields"]
    replaced = given_to(fields.get("replaceWorkloadSlice"))
    built = _Built(case, fields["PodSets"], case.input["args"]["wl"]["Obj"], (), replaced)
    columns = built.context.setup.tree.columns
    got = {"/".join(columns[column]): amount for column, amount in built.assignment.preemption_usage}
    yield from compare("want", got, case.want["want"])


def check_demands(table: Table, case: Case) -> Iterator[str]:
    """TestWorkloadsTopologyRequests_*: what an assignment asks of topologies, or why it cannot be placed."""
    given = case.input
    known = (given.get("cq") or {"TASFlavors": {"tas": {}}})["TASFlavors"]
    placing = [name if flavor is not None else f"not {name}" for name, flavor in known.items()]
    pod_sets = given.get("podSets") or given["assignment"]["PodSets"]
    workload = given["workload"]["Obj"] if "workload" in given else {"spec": {"podSets": given["wlPodSets"]}}
    built = _Built(case, pod_sets, workload, placing)
    context = built.context
    elastic = context.gates.layouts.elastic
    found = demands_of(built.assignment, built.rules, built.request, context.setup.topologies, elastic=elastic)
    asked = sorted(demand.pod_set.name for demands in found.values() for demand in demands)
    results = built.assignment.pod_sets
    if "podSets" in given:
        yield from compare("wantTASPodSets", asked, sorted(case.want.get("wantTASPodSets") or ()))
        yield from compare("failures", [r.failure for r in results if r.failure and not r.count], [])
        return
    error = (case.want.get("wantErr") or {}).get("$error", "")
    yield from compare("wantErr", results[0].failure, error)
    yield from compare("mode", NAMES[built.assignment.mode], "NoFit" if error else "Fit")
    yield from compare("asked", bool(asked), not error)


CHECKS: dict[str, Check] = {
    f"scheduler_flavorassigner/{name}": lambda table, case, check=check: list(check(table, case))  # type: ignore[misc]
    for name, check in {
        "TestAssignFlavorsWithAllowedFlavors": check_allowed,
        "TestAssignFlavors_LeaderWorkerSetTASFlavor": check_group_flavors,
        "TestIsNoFitDueToCapacityAndLimits": check_cause,
        "TestFlavorScanRecordsLastTriedFlavorIdx": check_scan,
        "TestRecomputeRecordsLastTriedFlavorIdx": check_repeated_scan,
        "TestAssignment_RequiresBorrowing": check_borrowing,
        "TestAssignment_ComputeTASNetUsage": check_places,
        "TestAssignment_TotalRequestsFor": check_uses,
        "TestWorkloadsTopologyRequests_ErrorBranches": check_demands,
        "TestWorkloadsTopologyRequests_ElasticJobsValidation": check_demands,
        "TestWorkloadsTopologyRequests_ZeroCountPodSetSkipped": check_demands,
    }.items()
}
