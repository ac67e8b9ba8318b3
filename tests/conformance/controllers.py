"""controller_tas/Test…: pods let go to their places, nodes that fail under workloads, pods that no topology placed."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import Time, parse_span
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.podset import TOPOLOGY_GATE
from gpuconsole.scheduling.kueue.topology.domains import node_changes
from gpuconsole.scheduling.kueue.topology.layout import NonTasPodUsage, is_non_tas_pod, placed_by_topology
from gpuconsole.scheduling.kueue.topology.node_failures import (
    NodeFailureActions,
    NodeFailureInputs,
    assigned_pods,
    examine_node,
    examine_workload,
    ungate_pods,
)
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare


def _pods(documents: Sequence[Document]) -> list[Pod]:
    return [pod for pod in world.decode_all(documents) if isinstance(pod, Pod)]


def check_ungating(table: Table, case: Case) -> Iterator[str]:
    """All pods afterwards: their gates, their node selectors, how many go to each domain."""
    given = case.input
    if given.get("expectUIDs"):
        raise NotModelled("writes that were not observed yet")
    workload = world.decode_workload(given["workloads"][0])
    pods = sorted(_pods(given["pods"]), key=lambda pod: pod.key)
    want_error = (case.want.get("wantErr") or {}).get("$error")
    places: Mapping[str, Mapping[str, str]] = {}
    try:
        places = ungate_pods(workload, pods)
        yield from compare("error", None, want_error)
    except ValueError:
        yield from compare("error", "failed to parse offset annotation", want_error)
    after = [_let_go(pod, places[pod.key]) if pod.key in places else pod for pod in pods]
    wanted = sorted(_pods(case.want["wantPods"]), key=lambda pod: pod.key)
    if given["nodeSelectorAssertMode"] == "CountsOnly":
        yield from compare("pods", [_without_selector(p) for p in after], [_without_selector(p) for p in wanted])
    else:
        yield from compare("pods", after, wanted)
    counts: dict[str, int] = {}
    for pod in after:
        if TOPOLOGY_GATE not in pod.gates and not pod.done:
            text = str(sorted(pod.template.node_selector.items()))
            counts[text] = counts.get(text, 0) + 1
    want = {
        str(sorted((one.get("NodeSelector") or {}).items())): one["Count"] for one in case.want.get("wantCounts") or ()
    }
    yield from compare("pods by domain", counts, want)


def _let_go(pod: Pod, labels: Mapping[str, str]) -> Pod:
    gates = tuple(gate for gate in pod.gates if gate != TOPOLOGY_GATE)
    selector = {**pod.template.node_selector, **labels}
    return replace(pod, gates=gates, template=replace(pod.template, node_selector=selector, scheduling_gates=gates))


def _without_selector(pod: Pod) -> Pod:
    return replace(pod, template=replace(pod.template, node_selector={}))


class _Api:
    """The API server's objects of a case, on which one controller works. Mutates."""

    def __init__(self, documents: Sequence[Document], config: KueueConfig) -> None:
        self.config = config
        things = world.decode_all([d for d in documents if d["kind"] != "Node"])
        self.nodes = {d["metadata"]["name"]: _node(d) for d in documents if d["kind"] == "Node"}
        self.workloads = {thing.key: thing for thing in things if isinstance(thing, Workload)}
        self.pods = {thing.key: thing for thing in things if isinstance(thing, Pod)}
        self.flavors = {thing.name: thing for thing in things if isinstance(thing, ResourceFlavor)}
        self.failed: list[str] = []

    @property
    def known(self) -> NodeFailureInputs:
        return NodeFailureInputs(self.workloads, list(self.pods.values()), self.flavors, self.config)

    def write(self, verdict: NodeFailureActions, now: Time) -> None:
        for workload in verdict.changed:
            self.workloads[workload.key] = workload
        for key, message in verdict.evicted.items():
            self.workloads[key] = conditions.mark_evicted(self.workloads[key], conditions.NODE_FAILURES, message, now)
        for pod in verdict.pods_to_fail:
            self.failed.append(pod.name)
            self.pods[pod.key] = replace(pod, phase=PodPhase.FAILED)


def _node(document: Document) -> Node:
    """A node of the API server; one without the condition Ready does not say that it is ready."""
    node = world.decode(document)
    assert isinstance(node, Node)
    listed = (document.get("status") or {}).get("conditions") or ()
    silent = not any(condition["type"] == "Ready" for condition in listed)
    return replace(node, ready=False, not_ready_since=None) if silent else node


def check_failure(table: Table, case: Case) -> Iterator[str]:
    """The workload afterwards, when the controller looks again, and which pods it fails."""
    given, fixtures = case.input, table.fixtures
    now = world.clock(fixtures["testStartTime"])
    api = _Api([fixtures["baseResourceFlavor"], *given["initObjs"]], KueueConfig(gates=case.gates))
    again = 0
    for request in given["reconcileRequests"]:
        name = request["NamespacedName"].partition("/")[2]
        verdict = examine_node(name, api.nodes.get(name), api.known, now)
        api.write(verdict, now)
        again = verdict.reconcile_after
    workload = api.workloads[fixtures["wlKey"]]
    if not given["ignoreUnhealthyNodes"]:
        wanted = [node["name"] for node in case.want.get("wantUnhealthyNodes") or ()]
        yield from compare("unhealthy nodes", list(workload.unhealthy_nodes), wanted)
    yield from compare("looks again after", again, _span(case.want.get("wantRequeue", "0s")))
    evicted, want = workload.condition("Evicted"), case.want.get("wantEvictedCond")
    got = None if evicted is None else (evicted.status, evicted.reason, evicted.message)
    expected = None if want is None else (want["status"] == "True", want["reason"], want.get("message", ""))
    yield from compare("Evicted", got, expected)
    missing = [name for name in case.want.get("wantPatchedPods") or () if name not in api.failed]
    yield from compare("pods that were not failed", missing, [])


def _span(text: str) -> int:
    return 0 if text == "0s" else parse_span(text)


def check_status(table: Table, case: Case) -> Iterator[str]:
    given, fixtures = case.input, table.fixtures
    api = _Api(given["initObjs"], KueueConfig(gates=case.gates))
    workload, node = api.workloads.get(fixtures["wlKey"]), _node(given["node"])
    pods = assigned_pods(given["nodeName"], api.known.pods).get(fixtures["wlKey"], [])
    judged = examine_workload(node, workload, api.known, pods) if workload is not None else None
    yield from compare("status", int(judged is not None and judged.unhealthy), case.want["wantStatus"])
    failed = [pod.name for pod in judged.pods_to_fail] if judged is not None else []
    yield from compare("pods that fail", failed, case.want.get("wantDeleted") or [])


def check_change(table: Table, case: Case) -> Iterator[str]:
    old, new = (world.decode(case.input[name]) for name in ("oldNode", "newNode"))
    assert isinstance(old, Node)
    assert isinstance(new, Node)
    yield from compare("change", int(node_changes(old, new)), case.want["wantChanged"])


def check_is_placed(table: Table, case: Case) -> Iterator[str]:
    yield from compare("is placed by topology", placed_by_topology(_pod(case.input["pod"])), case.want["want"])


def check_stranger(table: Table, case: Case) -> Iterator[str]:
    pod = case.input.get("pod")
    yield from compare("takes room", pod is not None and is_non_tas_pod(_pod(pod)), case.want["want"])


def check_leaving(table: Table, case: Case) -> Iterator[str]:
    """Whether it matters that a pod is deleted; one that ended may have been missed while it ran."""
    pod = _pod(case.input["pod"])
    strangers = NonTasPodUsage()
    strangers.add_pod(replace(pod, phase=PodPhase.RUNNING))
    yield from compare("matters", bool(strangers.remove_pod(pod.key)), case.want["want"])


def check_moving(table: Table, case: Case) -> Iterator[str]:
    strangers = NonTasPodUsage()
    strangers.add_pod(_pod(case.input["oldPod"]))
    yield from compare("matters", bool(strangers.add_pod(_pod(case.input["newPod"]))), case.want["want"])


def _pod(document: Document) -> Pod:
    pod = world.decode(document)
    assert isinstance(pod, Pod)
    return pod


def _check(function: object) -> Check:
    return lambda table, case: list(function(table, case))  # type: ignore[operator]


CHECKS: dict[str, Check] = {
    "controller_tas/TestReconcile": _check(check_ungating),
    "controller_tas/TestNodeFailureReconciler": _check(check_failure),
    "controller_tas/TestGetWorkloadStatus": _check(check_status),
    "controller_tas/TestNodeHandler_Update": _check(check_change),
    "controller_tas/TestIsTAS": _check(check_is_placed),
    "controller_tas/TestBelongsToNonTASCache": _check(check_stranger),
    "controller_tas/TestNonTasUsageReconcilerCreate": _check(check_stranger),
    "controller_tas/TestNonTasUsageReconcilerDelete": _check(check_leaving),
    "controller_tas/TestNonTasUsageReconcilerUpdatePredicate": _check(check_moving),
}
