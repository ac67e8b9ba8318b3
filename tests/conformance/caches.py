"""cache_scheduler: whether queues can admit, who depends on what, and what is used of their quotas."""

from collections.abc import Iterable, Iterator
from typing import Any

from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, quota_tree
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue
from gpuconsole.model.resources import amount
from gpuconsole.model.state import ClusterState
from gpuconsole.scheduling.kueue.cluster_queue_status import ActiveCondition, queues_using_check, queues_using_flavor
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import KueueSession
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare


def _told(things: Iterable[Object], name: str) -> ActiveCondition:
    return world.session(KueueConfig(), things, 0).active_condition(name)


def _going(document: Document, going: bool) -> Document:
    """A ClusterQueue whose deletion was asked for."""
    if not going:
        return document
    return {**document, "metadata": {**document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def check_readiness(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueReadiness: the Active condition; a check without one is not active."""
    given, want = case.input, case.want
    name = given["clusterQueueName"]
    queues = [_going(q, given["terminate"] and q["metadata"]["name"] == name) for q in given.get("clusterQueues") or ()]
    checks = [_with_status(check) for check in given.get("admissionChecks") or ()]
    things = world.decode_all([*queues, *(given.get("resourceFlavors") or ()), *checks])
    got = _told(things, name)
    yield from compare(
        "readiness", got, ActiveCondition(want["wantStatus"] == "True", want["wantReason"], want["wantMessage"])
    )
    yield from compare("wantActive", got.active, want["wantActive"])
    yield from compare("wantTerminating", got.reason == "Terminating", want["wantTerminating"])


def _with_status(check: Document) -> Document:
    return (
        check if check.get("status") else {**check, "status": {"conditions": [{"type": "Active", "status": "False"}]}}
    )


def check_readiness_with_topology(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueReadinessWithTAS."""
    given, known = case.input, {**table.shared, **case.variables}
    documents = [known["rf"], known["mkAC"], known["acWithPR"], given["cq"]]
    if not given["skipTopology"]:
        documents.append(known["topology"])
    if given.get("updatedCq"):
        documents.append(given["updatedCq"])
    got = _told(world.decode_all(documents), given["cq"]["metadata"]["name"])
    yield from compare("reason", (got.reason, got.message), (case.want["wantReason"], case.want["wantMessage"]))


def _status(ready: ActiveCondition) -> str:
    return "active" if ready.active else "terminating" if ready.reason == "Terminating" else "pending"


def check_with_checks(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueUpdateWithAdmissionCheck: the checks appear after the queue."""
    given, want = case.input, case.want
    queue = world.decode(_going(given["cq"], given["cqStatus"] == "terminating"))
    checks = [
        AdmissionCheck(name=name, controller=check.get("Controller", ""), active=check.get("Active", False))
        for name, check in (given.get("admissionChecks") or {}).items()
    ]
    got = _told([queue, *checks], queue.key)
    yield from compare("status", _status(got), want["wantStatus"])
    yield from compare("reason", (got.reason, got.message), (want["wantReason"], want["wantMessage"]))


def check_with_flavors(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueUpdateWithFlavors: the flavors appear after the queue."""
    queue = world.decode(_going(table.fixtures["cq"], case.input["curStatus"] == "terminating"))
    flavors = world.decode_all((case.input.get("flavors") or {}).values())
    yield from compare("status", _status(_told([queue, *flavors], queue.key)), case.want["wantStatus"])


def check_update(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueUpdate: searches for flavors start anew when the quotas changed, and only then."""
    session = world.session(KueueConfig(), world.decode_all([*table.fixtures["resourceFlavors"], case.input["cq"]]), 0)
    session.apply(world.decode(case.input["newcq"]), 0)
    got = session._apply_noted_changes.generations[case.input["cq"]["metadata"]["name"]]
    yield from compare("generation", got, case.want["wantLastAssignmentGeneration"])


def check_users_of_flavor(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueuesUsingFlavor; the test asks for x86."""
    queues = [thing for thing in world.decode_all(case.input["clusterQueues"]) if isinstance(thing, ClusterQueue)]
    wanted = sorted(case.want.get("wantInUseClusterQueueNames") or [])
    yield from compare(
        "queues", sorted(queues_using_flavor(queues, table.fixtures["x86Rf"]["metadata"]["name"])), wanted
    )


def check_users_of_check(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueuesUsingAdmissionChecks."""
    queues = [thing for thing in world.decode_all(case.input["clusterQueues"]) if isinstance(thing, ClusterQueue)]
    wanted = sorted(case.want.get("wantInUseClusterQueueNames") or [])
    yield from compare("queues", sorted(queues_using_check(queues, case.input["check"])), wanted)


def _tree(documents: Iterable[Document], things: Iterable[Object] = ()) -> dict[str, QuotaNode]:
    """The ClusterQueues of a cluster as the queues screen shows them."""
    state = ClusterState(0)
    for thing in [*world.decode_all(documents), *things]:
        state.apply(Applied(0, thing))
    found: dict[str, QuotaNode] = {}
    waiting = list(quota_tree(state.freeze()))
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if node.kind is NodeKind.CLUSTER_QUEUE:
            found[node.name] = node
    return found


def check_usage(table: Table, case: Case) -> Iterator[str]:
    """TestClusterQueueUsage: what is reserved and what is admitted, by flavor and resource."""
    given, want = case.input, case.want
    workloads = [world.decode_workload(w) for w in given.get("workloads") or ()]
    node = _tree([given["clusterQueue"]], workloads)[given["clusterQueue"]["metadata"]["name"]]
    reserved = {(use.flavor, use.resource): (use.used, use.borrowed) for use in node.flavors}
    # What admitted workloads borrow is told of their own usage.
    in_cohort = bool(given["clusterQueue"]["spec"].get("cohortName"))
    admitted = {
        (use.flavor, use.resource): (use.admitted, max(0, use.admitted - use.nominal) if in_cohort else 0)
        for use in node.flavors
    }
    yield from compare("reserved", reserved, _uses(want.get("wantReservedResources")))
    yield from compare("admitted", admitted, _uses(want.get("wantUsedResources")))
    counts = want.get("wantReservingWorkloads", 0), want.get("wantAdmittedWorkloads", 0)
    yield from compare("workloads", (node.reserved, node.running), counts)


def _uses(listed: Any) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (flavor["name"], r["name"]): (amount(r["name"], r.get("total", "0")), amount(r["name"], r.get("borrowed", "0")))
        for flavor in listed or ()
        for r in flavor.get("resources") or ()
    }


def check_local_usage(table: Table, case: Case) -> Iterator[str]:
    """TestLocalQueueUsage: a LocalQueue that uses nothing of a flavor has 0 of it."""
    door = table.fixtures["localQueue"]
    queues = [case.input["cq"]] if case.input.get("cq") else []
    workloads = [world.decode_workload(w) for w in case.input.get("wls") or ()]
    nodes = [child for node in _tree([*queues, door], workloads).values() for child in node.children]
    key = f"{door['metadata']['namespace']}/{door['metadata']['name']}"
    got = {(use.flavor, use.resource): use.used for node in nodes if node.name == key for use in node.flavors}
    wanted = {pair: total for pair, (total, _) in _uses(case.want.get("wantUsage")).items()}
    yield from compare("usage", {pair: got.get(pair, 0) for pair in {**wanted, **got}}, wanted)


def check_local_queue(table: Table, case: Case) -> Iterator[str]:
    """TestGetCacheLQ: a LocalQueue is found below its ClusterQueue."""
    metadata = case.input["getLq"]["metadata"]
    node = _tree([table.fixtures["cq"], table.fixtures["lq"]]).get(case.input["getCQReference"])
    keys = [child.name for child in node.children] if node is not None else []
    key = f"{metadata['namespace']}/{metadata['name']}"
    problem = "cluster queue not found" if node is None else "" if key in keys else "queue not found"
    yield from compare("wantErr", problem, (case.want.get("wantErr") or {}).get("$error", ""))
    wanted = (case.want.get("wantLq") or {}).get("key", "")
    yield from compare("wantLq", key if key in keys else "", wanted)


def check_added(table: Table, case: Case) -> Iterator[str]:
    """TestIsAddedCheckWorkload: a workload is known to hold quota in its ClusterQueue, or not."""
    session = KueueSession(KueueConfig())
    for name, queue in case.input["clusterQueues"].items():
        session.apply(ClusterQueue(name=name), 0)
        for held in (queue.get("Workloads") or {}).values():
            session.apply(world.decode_workload(_admitted(held["Obj"], name)), 0)
    asked = world.decode_workload(case.input["workload"]["Obj"])
    holdings = session._apply_noted_changes.workload_index.holdings.get(
        case.input["workload"].get("ClusterQueue", ""), {}
    )
    got = any(holding.key == asked.key for holding in holdings.values())
    yield from compare("expected", got, case.want["expected"])


def _admitted(document: Document, queue: str) -> Document:
    status = {
        "admission": {"clusterQueue": queue, "podSetAssignments": []},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}],
    }
    return {**document, "status": status}


_TABLES = {
    "TestClusterQueueReadiness": check_readiness,
    "TestClusterQueueReadinessWithTAS": check_readiness_with_topology,
    "TestClusterQueueUpdate": check_update,
    "TestClusterQueueUpdateWithAdmissionCheck": check_with_checks,
    "TestClusterQueueUpdateWithFlavors": check_with_flavors,
    "TestClusterQueuesUsingFlavor": check_users_of_flavor,
    "TestClusterQueuesUsingAdmissionChecks": check_users_of_check,
    "TestClusterQueueUsage": check_usage,
    "TestLocalQueueUsage": check_local_usage,
    "TestGetCacheLQ": check_local_queue,
    "TestIsAddedCheckWorkload": check_added,
}


def _listed(check: Any) -> Check:
    return lambda table, case: list(check(table, case))


CHECKS: dict[str, Check] = {f"cache_scheduler/{name}": _listed(check) for name, check in _TABLES.items()}
