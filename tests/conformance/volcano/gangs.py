"""volcano/scheduler_api: tasks, jobs, sub-jobs, and why tasks do not fit."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gpuconsole.scheduling.volcano.api.job import (
    FitError,
    FitErrors,
    JobInfo,
    PredicateCode,
    PredicateStatus,
    SubJobInfo,
    match_label_values,
    sub_job_id,
)
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.resource import ZERO
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus, request_of
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano.objects import node, pod, pod_group, resource, status, sub_group, task, tasks, topology

Document = Mapping[str, Any]


def seen(thing: TaskInfo) -> dict[str, object]:
    """A task as far as the tables show it."""
    return {
        "uid": thing.uid,
        "job": thing.job,
        "key": thing.key,
        "role": thing.role,
        "node": thing.node_name,
        "status": thing.status,
        "priority": thing.priority,
        "preemptable": thing.preemptable,
        "best effort": thing.best_effort,
        "gated": thing.gated,
        "zone": thing.revocable_zone,
        "request": thing.request,
        "init": thing.init_request,
    }


def seen_all(things: Mapping[str, TaskInfo]) -> dict[str, object]:
    return {uid: seen(thing) for uid, thing in things.items()}


def wanted_all(documents: Mapping[str, Document] | None) -> dict[str, object]:
    return {uid: seen(task(document)) for uid, document in (documents or {}).items()}


def _index(documents: Mapping[str, Any] | None) -> dict[TaskStatus, list[str]]:
    return {status(name): sorted(uids) for name, uids in (documents or {}).items()}


def _indexed(thing: JobInfo | SubJobInfo) -> dict[TaskStatus, list[str]]:
    return {name: sorted(uids) for name, uids in thing.task_status_index.items()}


def _tasks_of_job(table: Table, case: Case) -> Sequence[str]:
    job = JobInfo(case.input["uid"])
    for added in tasks(case.input["pods"]):
        job.add_task(added)
    for removed in tasks(case.input.get("rmPods")):
        job.delete_task(removed)
    wanted = case.want["expected"]
    return [
        *compare("tasks", seen_all(job.tasks), wanted_all(wanted.get("Tasks"))),
        *compare("by status", _indexed(job), _index(wanted.get("TaskStatusIndex"))),
        *compare("allocated", job.allocated, resource(wanted.get("Allocated"))),
        *compare("request", job.total_request, resource(wanted.get("TotalRequest"))),
        *compare("sub-job of task", job.task_to_sub_job, wanted.get("TaskToSubJob") or {}),
        *compare("sub-jobs", sorted(job.sub_jobs), sorted(wanted.get("SubJobs") or {})),
        *(
            difference
            for uid, listed in (wanted.get("SubJobs") or {}).items()
            for difference in _sub_job(job.sub_jobs[uid], listed)
        ),
    ]


def _sub_job(got: SubJobInfo, wanted: Document) -> list[str]:
    fields = {"GID": got.gid, "UID": got.uid, "Job": got.job}
    numbers = {"MinAvailable": got.min_available, "Priority": got.priority, "MatchIndex": got.match_index}
    return [
        *compare("names", fields, {name: wanted.get(name, "") for name in fields}),
        *compare("numbers", numbers, {name: wanted.get(name, 0) for name in numbers}),
        *compare("topology", got.network_topology, topology(wanted.get("NetworkTopology"))),
        *compare("tasks of sub-job", seen_all(got.tasks), wanted_all(wanted.get("Tasks"))),
        *compare("sub-job by status", _indexed(got), _index(wanted.get("TaskStatusIndex"))),
    ]


def _new_sub_job(table: Table, case: Case) -> Sequence[str]:
    asked = case.input["args"]
    policy = sub_group(asked.get("policy"))
    names = (asked.get("gid", ""), asked.get("uid", ""), asked.get("job", ""))
    return _sub_job(SubJobInfo(*names, policy, tuple(asked.get("matchValues") or ())), case.want["want"])


def _job_info(table: Table, case: Case) -> Sequence[str]:
    job = JobInfo(case.input["jobUID"], [task(document) for document in case.input["tasks"]])
    job.min_available = case.input["jobMinAvailable"]
    got = (job.pending_best_effort_num, job.is_ready(), job.is_pipelined(), job.is_starving())
    names = (
        "expectedPendingBestEffortTaskNum",
        "expectedIsReady",
        "expectedIsPipelined",
        "expectedIsStarving",
    )
    return [*compare("gang", got, tuple(case.want[name] for name in names))]


def _sub_job_with_tasks(case: Case) -> SubJobInfo:
    listed = case.input["sji"]
    sub_job = SubJobInfo("g", "s", "j", sub_group({"subGroupSize": listed.get("MinAvailable", 0)}))
    for name, uids in (listed.get("TaskStatusIndex") or {}).items():
        for uid in uids:
            # The index holds tasks of its own where the table says more of them than their names.
            member = task({"UID": uid, "Name": uid, "Status": name, **_listed(listed, uids, uid)})
            sub_job.add(member)
    return sub_job


def _listed(listed: Document, uids: Any, uid: str) -> Document:
    known = uids[uid] if isinstance(uids, Mapping) else (listed.get("Tasks") or {}).get(uid, {})
    return {key: value for key, value in known.items() if key in ("BestEffort", "Resreq", "InitResreq", "Priority")}


def _ready(table: Table, case: Case) -> Sequence[str]:
    return [*compare("ready", _sub_job_with_tasks(case).is_ready(), case.want["expected"])]


def _pipelined(table: Table, case: Case) -> Sequence[str]:
    return [*compare("pipelined", _sub_job_with_tasks(case).is_pipelined(), case.want["expected"])]


def _hard(table: Table, case: Case) -> Sequence[str]:
    sub_job = SubJobInfo("g", "s", "j", sub_group(case.input.get("fields")))
    wanted = case.want["expectedTier"] if case.want["expectedHard"] else None
    return [*compare("tier", sub_job.hard_tier, wanted)]


def _soft(table: Table, case: Case) -> Sequence[str]:
    sub_job = SubJobInfo("g", "s", "j", sub_group(case.input.get("fields")))
    return [*compare("soft", sub_job.is_soft, case.want["expectedHard"])]


def _converted(table: Table, case: Case) -> Sequence[str]:
    sub_job = SubJobInfo("g", "s", "j", sub_group({"networkTopology": case.input["networkTopology"]}))
    sub_job.convert_to_hard(case.input["maxTier"])
    assert sub_job.network_topology is not None
    got = (sub_job.network_topology.mode, sub_job.network_topology.highest_tier)
    return [*compare("topology", got, (case.want["wantMode"], case.want["wantTier"]))]


def _job_hard(table: Table, case: Case) -> Sequence[str]:
    job = JobInfo("j")
    group = case.input["jobInfo"].get("PodGroup")
    if group is not None:
        job.set_pod_group(pod_group(group))
    # Upstream's test reads the tier of a soft topology too, which nothing else does.
    tier = job.network_topology.highest_tier or 0 if job.network_topology is not None else 0
    got = (job.hard_tier is not None, tier)
    return [*compare("hard", got, (case.want["expectedHasHard"], case.want["expectedTier"]))]


def _values(table: Table, case: Case) -> Sequence[str]:
    got = match_label_values(sub_group({"name": "p", **case.input["policy"]}), pod(case.input["pod"]))
    return [*compare("values", list(got), case.want.get("expected") or [])]


def _id(table: Table, case: Case) -> Sequence[str]:
    asked = case.input["args"]
    got = sub_job_id(asked.get("job", ""), asked.get("policy", ""), asked.get("matchValues") or ())
    return [*compare("id", got, case.want["want"])]


def _min_members(table: Table, case: Case) -> Sequence[str]:
    job = JobInfo("test-job")
    for name in ("minTaskMemberInitial", "minTaskMemberChanged"):
        job.set_min_members(replace(pod_group({}), min_task_member=case.input.get(name) or {}))
    wanted = (case.want.get("expectedTaskMinAvailable") or {}, case.want["expectedTaskMinAvailableTotal"])
    return [*compare("members", (job.task_min_available, job.task_min_available_total), wanted)]


def _elastic(table: Table, case: Case) -> Sequence[str]:
    job = JobInfo("job", tasks(case.input["pods"]))
    job.set_pod_group(pod_group(case.input["podgroup"]))
    got, wanted = job.elastic_resources(), resource(case.want["want"])
    return [*compare("elastic", got.less_equal(wanted, ZERO) and wanted.less_equal(got, ZERO), True)]


def _request(table: Table, case: Case) -> Sequence[str]:
    return [*compare("request", request_of(pod(case.input["pod"])), resource(case.want["expectedResource"]))]


def _reason(table: Table, case: Case) -> Sequence[str]:
    """As the test does it: pods with a node are allocated in the session, then all is taken back."""
    job = JobInfo(case.input["jobid"])
    for added in tasks(case.input["pods"]):
        job.add_task(added)
    job.set_pod_group(pod_group(case.variables["pg"]))
    for member in [*job.tasks.values()]:
        if member.node_name:
            job.update_status(member, TaskStatus.ALLOCATED)
        member.save_transaction()
        job.update_status(member, TaskStatus.PENDING)
    job.fit_error = case.input.get("origin") or ""
    for uid, listed in (case.input.get("nodefes") or {}).items():
        errors = FitErrors()
        for name, error in listed["nodes"].items():
            errors.set_error(
                name, FitError(tuple(PredicateStatus(PredicateCode.ERROR, line["Reason"]) for line in error["Status"]))
            )
        job.node_fit_errors[uid] = errors
    message = job.fit_message
    job.fit_error = message
    got = {uid: job.task_reason(uid)[1] for uid in job.tasks}
    return [*compare("reasons", {**got, "pg": message}, case.want["expected"])]


def _fit_error(table: Table, case: Case) -> Sequence[str]:
    wanted = case.want["wantErr"]
    statuses = tuple(
        PredicateStatus(PredicateCode(line["Code"]), line.get("Reason", "")) for line in wanted.get("Status") or ()
    )
    who, where = case.input["task"], case.input["node"]
    got = FitError.from_reasons(PredicateCode.ERROR, *(case.input.get("reason") or ()))
    if case.input.get("status"):
        got = FitError(
            tuple(PredicateStatus(PredicateCode(line["Code"]), line.get("Reason", "")) for line in case.input["status"])
        )
    got = replace(got, task=f"{who['Namespace']}/{who['Name']}", node=where["Name"])
    named = FitError(statuses, f"{wanted['taskNamespace']}/{wanted['taskName']}", wanted["NodeName"])
    return [*compare("error", got, named), *compare("text", got.text, case.want["errStr"])]


def _fit_errors(table: Table, case: Case) -> Sequence[str]:
    errors = FitErrors(case.input["fitStr"], case.input["hyperNode"])
    where = case.input["node"]
    if case.input.get("err"):
        errors.set_error(where, FitError.from_reasons(PredicateCode.ERROR, case.input["err"]["$error"]))
    if case.input.get("fiterr"):
        listed = case.input["fiterr"].get("Status") or ()
        errors.set_error(
            where,
            FitError(tuple(PredicateStatus(PredicateCode(line["Code"]), line.get("Reason", "")) for line in listed)),
        )
    unresolvable = [*compare("nodes", errors.unresolvable_nodes(), set(case.input.get("filterNodes") or ()))]
    return [*unresolvable, *compare("text", str(errors), case.want["want"])]


def _node(table: Table, case: Case) -> Sequence[str]:
    info = NodeInfo(node(case.input["node"]))
    refused = [info.add_task(added) for added in tasks(case.input["pods"])]
    for removed in tasks(case.input.get("rmPods")):
        info.remove_task(removed)
    if case.input.get("updated"):
        info.set_node(node(case.input["updated"]))
    wanted = case.want["expected"]
    return [
        *compare("refused", any(refused), case.want.get("expectedFailure", False)),
        *compare("idle", info.idle, resource(wanted.get("Idle"))),
        *compare("used", info.used, resource(wanted.get("Used"))),
        *compare("releasing", info.releasing, resource(wanted.get("Releasing"))),
        *compare("pipelined", info.pipelined, resource(wanted.get("Pipelined"))),
        *compare("allocatable", info.allocatable, resource(wanted.get("Allocatable"))),
        *compare("capacity", info.capacity, resource(wanted.get("Capacity"))),
        *compare("tasks", seen_all(info.tasks), wanted_all(wanted.get("Tasks"))),
        *compare("ready", info.node is not None, (wanted.get("State") or {}).get("Phase") == "Ready"),
    ]


_A = "volcano/scheduler_api/"

CHECKS: dict[str, Check] = {
    _A + "TestAddTaskInfo": _tasks_of_job,
    _A + "TestDeleteTaskInfo": _tasks_of_job,
    _A + "TestJobInfo": _job_info,
    _A + "TestNewSubJobInfo": _new_sub_job,
    _A + "TestSubJobInfo_IsReady": _ready,
    _A + "TestSubJobInfo_IsPipelined": _pipelined,
    _A + "TestSubJobInfo_IsHardTopologyMode": _hard,
    _A + "TestSubJobInfo_IsSoftTopologyMode": _soft,
    _A + "TestSubJobInfo_getPodSubJobID": _id,
    _A + "TestGetSubJobMatchValues_Basic": _values,
    _A + "TestGetSubJobMatchValues_Boundary": _values,
    _A + "TestGetSubJobMatchValues_Error": _values,
    _A + "TestConvertToHardTopology": _converted,
    _A + "TestHasTopologyHardConstrain": _job_hard,
    _A + "TestParseMinMemberInfoChanged": _min_members,
    _A + "TestGetElasticResources": _elastic,
    _A + "TestGetPodResourceRequest": _request,
    _A + "TestTaskSchedulingReason": _reason,
    _A + "TestFitError": _fit_error,
    _A + "TestFitErrors": _fit_errors,
    _A + "TestNodeInfo_AddPod": _node,
    _A + "TestNodeInfo_RemovePod": _node,
    _A + "TestNodeInfo_SetNode": _node,
}
