"""webhooks_admission_…: what Volcano's webhooks refuse."""

from collections.abc import Iterable, Iterator, Mapping

from gpuconsole.model.apiserver.volcano import jobs, message_of
from gpuconsole.model.apiserver.volcano import jobs as flows
from gpuconsole.model.apiserver.volcano import queues_and_pod_groups as groups
from gpuconsole.model.apiserver.volcano import queues_and_pod_groups as hierarchy
from gpuconsole.model.apiserver.volcano.jobs import check_numa
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import Objection, order_of
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare
from tests.support.volcano_webhooks import queue_refusal

Queues = Mapping[str, Document]


def _queues(table: Table) -> Queues:
    """The queues that are there before the first case."""
    names = table.document.get("fixturesCreatedInAPI") or ()
    found = [table.fixtures[name] for name in names if name in table.fixtures]
    return {queue["metadata"]["name"]: queue for queue in found}


def _refused(objections: Iterable[Objection], case: Case) -> Iterator[str]:
    """Refused with a message that holds the expected text, or not at all."""
    message, expected = message_of(objections), case.want.get("ExpectErr", False)
    yield from compare("is refused", bool(message), expected)
    if expected:
        wanted = case.want.get("ret", "")
        yield from compare("holds the text", wanted if wanted in message else message, wanted)


def check_job(table: Table, case: Case) -> Iterator[str]:
    job = case.input["Job"]
    whole = case.gates.get("PodLevelResources", case.input.get("PodLevelResourcesEnabled", True))
    found = list(jobs.check_job(job, pod_resources=whole))
    yield from _refused([*found, *jobs.check_queue(job, _queues(table))], case)


def check_numa_policy(table: Table, case: Case) -> Iterator[str]:
    message, wanted = message_of(check_numa(case.input["taskSpec"], (), 0)), case.want["expect"]
    yield from compare("message", message if not wanted or wanted not in message else wanted, wanted)


def check_order(table: Table, case: Case) -> Iterator[str]:
    found = order_of(jobs.dependencies(case.input["job"]["spec"].get("tasks") or []))
    yield from compare("ordered", found is not None, case.want["isDag"])
    yield from compare("order", found or [], case.want.get("sortedTasks") or [])


def check_flow(table: Table, case: Case) -> Iterator[str]:
    yield from _refused(flows.check_job_flow(case.input["JobFlow"]), case)


def check_graph(table: Table, case: Case) -> Iterator[str]:
    graph = {name: list(dict.fromkeys(targets or ())) for name, targets in case.input["graph"].items()}
    failed = flows.missing_of(graph) is not None
    yield from compare("fails", failed, case.want["isErr"])
    if not failed:
        yield from compare("is ordered", order_of(graph) is not None, case.want["isDAG"])


def check_schedule(table: Table, case: Case) -> Iterator[str]:
    yield from _refused(flows.check_schedule(case.input["CronJob"]["spec"]), case)


def check_cron_name(table: Table, case: Case) -> Iterator[str]:
    message, wanted = message_of(flows.check_cron_name(case.input["input"])), case.want["expected"]
    yield from compare("message", wanted if wanted and wanted in message else message, wanted)


def check_hyper_node(table: Table, case: Case) -> Iterator[str]:
    yield from _refused(groups.check_hyper_node(case.input["HyperNode"]), case)


def check_group(table: Table, case: Case) -> Iterator[str]:
    queue, group = case.input.get("queue"), case.input["podGroup"]
    known = {queue["metadata"]["name"]: queue} if queue is not None and "metadata" in queue else {}
    found = [*groups.check_group_queue(group, known), *groups.check_group(group)]
    yield from compare("is refused", bool(found), case.want["expectError"])
    status = (case.variables.get("response") or {}).get("status")
    if status is not None and found:
        yield from compare("message", message_of(found), status["message"])


def check_pod(table: Table, case: Case) -> Iterator[str]:
    yield from _refused(groups.check_pod(case.input["Pod"]), case)


def _response(message: str) -> Document:
    if message:
        status = {"apiVersion": "v1", "kind": "Status", "message": message}
        return {"uid": "", "allowed": False, "status": status}
    return {"uid": "", "allowed": True}


def check_admission(table: Table, case: Case) -> Iterator[str]:
    """A queue is made or changed among those that are there."""
    request, known = case.input["AR"]["request"], _queues(table)
    operation, queue = request["operation"], request.get("object") or {}
    if operation == "DELETE":
        raise NotModelled("nothing deletes a queue")
    if operation in ("CREATE", "UPDATE"):
        message = queue_refusal(queue, request.get("oldObject"), known)
    else:
        listed = "`CREATE`, `UPDATE` or `DELETE`"
        message = f"invalid operation `{operation}`, expect operation to be {listed}"
    yield from compare("response", _response(message), case.want["reviewResponse"])


def _fails(texts: Iterable[str], case: Case) -> Iterator[str]:
    first = next(iter(texts), "")
    yield from compare("fails", bool(first), case.want["expectErr"])
    wanted = case.want.get("errSubstr") or ""
    if case.want["expectErr"]:
        yield from compare("text", wanted if wanted in first else first, wanted)


def check_ancestors(table: Table, case: Case) -> Iterator[str]:
    yield from _fails(hierarchy.ancestor_faults(case.input["child"], _queues(table)), case)


def check_children(table: Table, case: Case) -> Iterator[str]:
    children = case.input.get("children") or []
    yield from _fails(hierarchy.child_faults(case.input["parent"], children, _queues(table)), case)


def check_depth(table: Table, case: Case) -> Iterator[str]:
    fault = hierarchy.depth_fault(case.input["queue"], _queues(table), case.input["maxDepth"])
    yield from compare("fails", bool(fault), case.want["expectedError"])


def _check(function: object) -> Check:
    return lambda table, case: list(function(table, case))  # type: ignore[operator]


_TABLES = {
    "cronjobs_validate/TestValidateCronJobName": check_cron_name,
    "cronjobs_validate/TestValidateCronjobSpec": check_schedule,
    "hypernodes_validate/TestValidateHyperNode": check_hyper_node,
    "jobflows_validate/TestIsDAG": check_graph,
    "jobflows_validate/TestValidateJobFlowCreate": check_flow,
    "jobs_validate/TestTopoSort": check_order,
    "jobs_validate/TestValidateHierarchyCreate": check_job,
    "jobs_validate/TestValidateJobCreate": check_job,
    "jobs_validate/TestValidateTaskTopoPolicy": check_numa_policy,
    "podgroups_validate/TestValidatePodGroup": check_group,
    "pods_validate/TestValidatePod": check_pod,
    "queues_validate/TestAdmitHierarchicalQueues": check_admission,
    "queues_validate/TestAdmitQueues": check_admission,
    "queues_validate/TestValidateChildAgainstAncestorForCapability": check_ancestors,
    "queues_validate/TestValidateChildrenConstraintsForCapability": check_children,
    "queues_validate/TestValidateQueueDepthDynamic": check_depth,
}
CHECKS: dict[str, Check] = {f"volcano/webhooks_admission_{name}": _check(check) for name, check in _TABLES.items()}
