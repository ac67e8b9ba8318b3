"""controllers_job…: the life of a Volcano Job, its policies, its pods and its PodGroup."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, parse_span
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.resources import amount
from gpuconsole.model.volcano import JobAction, JobEvent, PodGroup, VolcanoPhase, VolcanoStatus
from gpuconsole.scheduling.volcano.api.task import TASK_SPEC, TaskInfo
from gpuconsole.scheduling.volcano.jobs import pod_group as groups
from gpuconsole.scheduling.volcano.jobs.job_plugins import UnknownPlugin, apply_plugins
from gpuconsole.scheduling.volcano.jobs.pods import (
    SyncResult,
    VolumeClaimMissing,
    is_task_ready,
    plan_kill,
    plan_sync,
    pod_of,
    with_claims,
    with_condition,
)
from gpuconsole.scheduling.volcano.jobs.states import (
    JOB_NAME,
    JOB_VERSION,
    PARTITION,
    ActionPlan,
    ControllerCall,
    JobRequest,
    PodTarget,
    PolicyAction,
    TargetType,
    choose_action,
    event_of_change,
    index_of_pod,
    is_outdated,
    keep_status,
    plan_action,
    pod_name,
    pod_names,
    request_of,
    request_of_command,
    request_of_group,
    request_of_job,
    spec_of,
    task_index,
    task_replicas,
    tasks_of,
)
from tests.conformance.tables import Case, Check, Document, NotModelled, Table, compare
from tests.conformance.volcano import objects
from tests.conformance.volcano.job_objects import job, pod, pods_of

_NOW = 0


def _job_of(info: Document) -> Job:
    document = info.get("Job")
    if document is None:
        raise NotModelled("a JobInfo without a Job")
    return job(document)


class _After(Struct, frozen=True):
    """The world after an action."""

    status: VolcanoStatus
    pods: tuple[Pod, ...]
    created: tuple[Pod, ...] = ()


def _carry_out(one: Job, pods: list[Pod], chosen: ActionPlan, group_phase: str = "") -> _After:
    if chosen.call is ControllerCall.SYNC:
        synced: SyncResult = plan_sync(one, pods, group_phase, _NOW, chosen.update)
        left = tuple(p for p in pods if p not in synced.delete)
        return _After(synced.status, (*left, *synced.create), synced.create)
    killing = plan_kill(one, pods, chosen, _NOW)
    if killing is None:
        return _After(one.volcano_status, tuple(pods))
    return _After(killing.status, tuple(p for p in pods if p not in killing.delete))


def check_state(table: Table, case: Case) -> Iterator[str]:
    """A job in its phase meets an action: the phase and the retries afterwards, and what the API shows of it."""
    info = case.input["JobInfo"]
    one, pods = _job_of(info), pods_of(info)
    after = _carry_out(one, pods, plan_action(one, JobAction(case.input["Action"]), _target(case.input.get("target"))))
    yield from compare("phase", after.status.phase.value, case.derived["phaseAfter"])
    if "retryCountAfter" in case.derived:
        yield from compare("retries", after.status.retry_count, case.derived["retryCountAfter"])
    shown = case.observed.get("apiJobStatus")
    if shown is not None:
        yield from _compare_status(after.status, shown)


def _compare_status(status: VolcanoStatus, shown: Document) -> Iterator[str]:
    want = job({"status": shown}).volcano_status
    names = ("phase", "version", "retry_count", "pending", "running", "succeeded", "failed", "terminating")
    for name in names:
        yield from compare(f"status.{name}", getattr(status, name), getattr(want, name))
    conditions = [entry["status"] for entry in shown.get("conditions") or ()]
    yield from compare("conditions", [phase.value for phase, _ in status.conditions], conditions)


def _target(document: Document | None) -> PodTarget | None:
    if document is None:
        return None
    return PodTarget(
        TargetType(document["Type"]),
        document.get("TaskName", ""),
        document.get("PodName", ""),
        document.get("PartitionName", ""),
    )


def check_machine(table: Table, case: Case) -> Iterator[str]:
    given, want = case.input, case.want
    status = {**given["currentStatus"], "state": {"phase": given["phase"]}}
    one = job({"spec": given["jobSpec"], "status": status})
    chosen = plan_action(one, JobAction(given["action"]), _target(given.get("target")))
    yield from compare("call", chosen.call.value, want["call"])
    retained = sorted(phase.value for phase in chosen.retain)
    yield from compare("retained", retained, want.get("podRetainPhases") or [])
    yield from compare("target", chosen.target, _target(want.get("target")))
    yield from compare("leaves the status", chosen.update is keep_status, want.get("updateStatus") == "none")
    after = chosen.update(one, one.volcano_status)
    yield from compare("phase", after.phase.value, want["phaseAfter"])
    yield from compare("phase changed", after is not one.volcano_status, want.get("phaseChanged", False))
    yield from compare("retries", after.retry_count, want["retryCountAfter"])


def _request(document: Document, key: str) -> JobRequest:
    action, event = document.get("Action"), document.get("Event")
    return JobRequest(
        job=key,
        job_uid=document.get("JobUid", ""),
        task=document.get("TaskName", ""),
        pod=document.get("PodName", ""),
        event=JobEvent(event) if event else None,
        exit_code=document.get("ExitCode", 0),
        action=JobAction(action) if action else None,
        version=document.get("JobVersion", 0),
    )


def check_generated_policies(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    tasks = [
        {"name": name, "policies": (given.get("taskPolicies") or {}).get(name) or []} for name in ("task0", "task1")
    ]
    one = job(
        {
            "metadata": {"name": "job1", "namespace": "test", "uid": "uid-1"},
            "spec": {"policies": given.get("jobPolicies") or [], "tasks": tasks},
            "status": {"version": given["jobVersion"]},
        }
    )
    got = choose_action(one, _request(given["request"], one.key))
    want = PolicyAction(JobAction(case.want["action"]), round(case.want["delaySeconds"] * SECOND))
    yield from compare("reaction", got, want)


def check_policies(table: Table, case: Case) -> Iterator[str]:
    one = job(case.input["Job"])
    got = choose_action(one, _request(case.input["Request"], one.key))
    yield from compare("action", got.action.value, case.want["ReturnVal"])
    shown = case.variables.get("action") or {}
    yield from compare("delay", got.delay, parse_span(shown["delay"]) if shown.get("delay") else 0)


def check_sync(table: Table, case: Case) -> Iterator[str]:
    """How many pods there are afterwards, or the error that was expected."""
    given = case.input
    one, pods = _with_these(job(given["Job"]), given.get("Plugins")), pods_of(given["JobInfo"])
    phase = ((given.get("PodGroup") or {}).get("status") or {}).get("phase", "")
    after = _carry_out(one, pods, ActionPlan(ControllerCall.SYNC), phase)
    yield from compare("pods", len(after.pods), given.get("TotalNumPods", case.want.get("TotalNumPods")))
    shown = case.observed.get("podsInAPI")
    if shown is not None:
        yield from compare("names", sorted(p.name for p in after.pods), sorted(shown))


def check_kill(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    one, pods = _with_these(job(given["Job"]), given.get("Plugins")), pods_of(given["JobInfo"])
    retain = frozenset(PodPhase(phase) for phase in given.get("PodRetainPhase") or ())
    target = _target(given.get("Target"))
    call = ControllerCall.KILL if target is None else ControllerCall.KILL_TARGET
    after = _carry_out(one, pods, ActionPlan(call, retain, target))
    left = {p.name for p in after.pods}
    for name, there in (case.want.get("ExpectedPods") or {}).items():
        yield from compare(f"pod {name} is there", name in left, there)
    if "podsInAPI" in case.observed:
        yield from compare("pods", sorted(left), sorted(case.observed["podsInAPI"]))
    if "apiJobStatus" in case.observed:
        yield from _compare_status(after.status, case.observed["apiJobStatus"])


def _with_these(one: Job, plugins: Iterable[str] | None) -> Job:
    return replace(one, volcano=replace(spec_of(one), plugins=dict.fromkeys(plugins or (), ())))


def check_conditions(table: Table, case: Case) -> Iterator[str]:
    before = tuple((VolcanoPhase(c.get("status", "")), 0) for c in case.input.get("Conditions") or ())
    after = with_condition(before, VolcanoPhase(case.input["NewCondition"].get("status", "")), _NOW)
    yield from compare("conditions", len(after), case.want["ExpectedLen"])
    yield from compare("last", after[-1][0].value, case.want["ExpectedPhase"])
    result = [entry.get("status", "") for entry in case.variables.get("result") or ()]
    yield from compare("phases", [phase.value for phase, _ in after], result)


def _amounts(document: Mapping[str, str] | None) -> dict[str, int]:
    return {name: amount(name, text) for name, text in (document or {}).items()}


def _ranked(documents: list[Document], least: list[int | None]) -> list[groups.TaskWithPriority]:
    tasks = [
        {**{key: value for key, value in document.items() if key != "priority"}, "minAvailable": own}
        for document, own in zip(documents, least, strict=True)
    ]
    one = job({"spec": {"tasks": tasks}})
    ranks = [document.get("priority", 0) for document in documents]
    return [groups.TaskWithPriority(task, rank) for task, rank in zip(tasks_of(one), ranks, strict=True)]


def check_least_pods(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    documents = given["TasksPriority"]
    listed = [*(given.get("TasksMinAvailable") or ()), *[None] * len(documents)]
    least = [
        document.get("replicas", 0) if own is None else own for document, own in zip(documents, listed, strict=False)
    ]
    ranked = _ranked(documents, least)
    minimum = given["JobMinMember"] or sum(entry.task.min_available for entry in ranked)
    yield from compare("needs", groups.usage_of_minimum(ranked, minimum), _amounts(case.want.get("ExpectValue")))


def check_min_resources(table: Table, case: Case) -> Iterator[str]:
    given, document = case.input, table.fixtures["job"]
    tasks = [
        {**task, "minAvailable": own}
        for task, own in zip(document["spec"]["tasks"], given["TasksMinAvailable"], strict=True)
    ]
    one = job({**document, "spec": {**document["spec"], "tasks": tasks, "minAvailable": given["JobMinMember"]}})
    minimum = given["JobMinMember"] or sum(task.min_available for task in tasks_of(one))
    one = replace(one, volcano=replace(spec_of(one), min_available=minimum))
    yield from compare("needs", groups.min_resources(one, {}), _amounts(case.want.get("ExpectValue")))


def check_priority(table: Table, case: Case) -> Iterator[str]:
    ranked = _ranked([{**entry, "name": str(n)} for n, entry in enumerate(case.input["TasksPriority"])], [None] * 3)
    first, second = ranked[case.input["Task1Index"]], ranked[case.input["Task2Index"]]
    got = groups.sort_by_priority([second, first])[0] is first
    yield from compare("comes first", got, case.want["ReturnVal"])


def _group(document: Document) -> PodGroup:
    return replace(objects.pod_group(document), created=0, uid="")


def check_group(table: Table, case: Case) -> Iterator[str]:
    made = groups.group_of(job(case.input["Job"]), {})
    yield from compare("least of tasks", dict(made.min_task_member), case.want.get("ExpectMinTaskMember") or {})
    if "pg" in case.variables:
        yield from compare("PodGroup", made, _group(case.variables["pg"]))


def check_group_update(table: Table, case: Case) -> Iterator[str]:
    after = groups.updated_group(_group(case.input["PodGroup"]), job(case.input["Job"]), {})
    yield from compare("least of tasks", dict(after.min_task_member), case.want.get("ExpectMinTaskMember") or {})
    if "pg" in case.variables:
        yield from compare("PodGroup", after, _group(case.variables["pg"]))


def check_sub_group(table: Table, case: Case) -> Iterator[str]:
    (task,) = tasks_of(job({"spec": {"tasks": [case.input["TaskSpec"]]}}))
    got = groups.sub_group(task)
    yield from compare("size", got.size, case.want.get("ExpectedSubGroupSize"))
    yield from compare("least", got.least, case.want.get("ExpectedMinSubGroups"))
    shown = case.variables.get("result")
    if shown is not None:
        (want,) = _group({"spec": {"subGroupPolicy": [shown]}}).sub_groups
        yield from compare("policy", got, want)
    yield from compare("selector", got.selector, LabelSelector(match_labels={TASK_SPEC: task.name}))


def check_partition(table: Table, case: Case) -> Iterator[str]:
    size, index = case.input["partitionSize"], case.input["index"]
    document = (case.variables.get("job") or {}).get("metadata") or {"name": "test-job"}
    spec = {"tasks": [{"name": "test-task", "partitionPolicy": {"partitionSize": size}}]}
    one = job({"metadata": document, "spec": spec})
    made = pod_of(one, tasks_of(one)[0], index)
    yield from compare("partition", made.labels[PARTITION], case.want["expectedPart"])
    if "expectedTask" in case.want:
        yield from compare("task", made.annotations[TASK_SPEC], case.want["expectedTask"])
    shown = (case.variables.get("pod") or {}).get("metadata")
    if shown is not None:
        want_labels = {"volcano.sh/job-namespace": one.namespace, **shown["labels"]}
        if not document.get("namespace"):
            want_labels["volcano.sh/job-namespace"] = one.namespace
        yield from compare("labels", dict(made.labels), want_labels)
        yield from compare("annotations", dict(made.annotations), shown["annotations"])
        yield from compare("name", made.name, shown["name"])


def check_ready(table: Table, case: Case) -> Iterator[str]:
    one = job(case.input["Job"])
    pods = {p.name: p for p in map(pod, case.input.get("Pods") or ())}
    yield from compare("is up", is_task_ready(one, case.input["Task"], pods), case.want["ExpectedReady"])


def check_pod_name(table: Table, case: Case) -> Iterator[str]:
    given = case.input
    got = pod_name(given["JobName"], given["TaskName"], given["Index"])
    yield from compare("name", got, given.get("ReturnVal", case.want.get("ReturnVal")))


def _with_plugins(case: Case) -> tuple[Job, str | None]:
    one = _with_these(job(case.input["Job"]), case.input["Plugins"])
    wanted = case.input.get("RetVal") or case.want.get("RetVal") or {}
    return one, wanted.get("$error")


def check_pod_plugins(table: Table, case: Case) -> Iterator[str]:
    one, want = _with_plugins(case)
    got = None
    try:
        apply_plugins(one, pod(case.input["Pod"]))
    except UnknownPlugin as problem:
        got = str(problem)
    yield from compare("error", got, want)


def check_pod_change(table: Table, case: Case) -> Iterator[str]:
    """A pod that changes is a request to the controller, with what it is by then."""
    given, notes = case.input, case.input["Annotation"]
    one = job(given["Job"])
    old, new = (_noted(pod(given[name]), notes) for name in ("oldPod", "newPod"))
    event = event_of_change(old, new, one, [new])
    known = request_of(new, one, event) is not None
    wanted = case.want["ExpectedValue"]
    yield from compare("phase", (new if known else old).phase.value, wanted)


def _noted(one: Pod, notes: Mapping[str, str]) -> Pod:
    return replace(one, annotations={**one.annotations, **notes})


def check_pod_added(table: Table, case: Case) -> Iterator[str]:
    """Pods that say whose they are come to the controller's attention; those with the same name once."""
    one = job(case.input["Job"])
    pods = [_noted(pod(document), case.input["Annotation"]) for document in case.input["pods"]]
    seen = {p.name for p in pods if _is_of(p, one) and request_of(p, one, JobEvent.POD_PENDING) is not None}
    yield from compare("pods", len(seen), case.want["ExpectedValue"])


def check_pod_deleted(table: Table, case: Case) -> Iterator[str]:
    one, notes = job(case.input["Job"]), case.input["Annotation"]
    pods = [_noted(pod(document), notes) for document in case.input["availablePods"]]
    gone = _noted(pod(case.input["deletePod"]), notes)
    known = _is_of(gone, one) and request_of(gone, one, JobEvent.POD_EVICTED) is not None
    left = [p for p in pods if not (known and p.name == gone.name)]
    yield from compare("pods", len(left), case.want["ExpectedValue"])


def _is_of(one: Pod, owner: Job) -> bool:
    return one.annotations.get(JOB_NAME) == owner.name and JOB_VERSION in one.annotations


def check_job_added(table: Table, case: Case) -> Iterator[str]:
    asked = request_of_job(job(case.input["job"]))
    yield from compare("requests", int(asked is not None), case.want["ExpectValue"])


def check_group_changed(table: Table, case: Case) -> Iterator[str]:
    old, new = (_group(case.input[name]) for name in ("oldPodGroup", "newPodGroup"))
    asked = request_of_group(f"VolcanoJob/{new.key}", new, old)
    yield from compare("requests", int(asked is not None), case.want["ExpectValue"])


def check_command(table: Table, case: Case) -> Iterator[str]:
    """Only an object of kind Command is one."""
    command = case.input["command"]
    is_one = isinstance(command, Mapping) and command.get("kind") == "Command"
    asked = request_of_command("VolcanoJob/test/any", JobAction(command.get("action") or "SyncJob")) if is_one else None
    yield from compare("requests", int(asked is not None), case.want["ExpectValue"])


def check_pod_killed(table: Table, case: Case) -> Iterator[str]:
    """One pod is deleted, and no other."""
    one = job(case.input["Job"])
    pods = [pod(document, name, "task1") for name, document in case.input["Pods"].items()]
    name = case.input["DeletePod"]["metadata"]["name"]
    after = _carry_out(
        one, pods, ActionPlan(ControllerCall.KILL_TARGET, target=PodTarget(TargetType.POD, "task1", name))
    )
    yield from compare("pods", [p.name for p in after.pods], [p.name for p in pods if p.name != name])


def check_outdated(table: Table, case: Case) -> Iterator[str]:
    yield from compare("out of sync", is_outdated(pod(case.input["pod"])), case.want["expected"])


def check_order(table: Table, case: Case) -> Iterator[str]:
    first, second = (
        replace(pod(case.input[side]["Pod"]), uid=case.input[side].get("UID", "")) for side in ("lv", "rv")
    )
    yield from compare("comes first", TaskInfo(first).precedes(TaskInfo(second)), case.want["expect"])


def check_pod_names(table: Table, case: Case) -> Iterator[str]:
    got = pod_names(job(case.input["Job"]), case.input["TaskName"])
    yield from compare("names", got, case.want.get("Expect") or [])


def check_index_of_pod(table: Table, case: Case) -> Iterator[str]:
    try:
        got: int | None = index_of_pod(pod(case.input["pod"]))
    except ValueError:
        got = None
    failed = case.want.get("expectErr", False)
    yield from compare("fails", got is None, failed)
    if not failed:
        yield from compare("index", got, case.want["expected"])


def check_task_replicas(table: Table, case: Case) -> Iterator[str]:
    got = task_replicas(job(case.input["job"]), case.input["taskName"])
    yield from compare("replicas", got, case.want["expected"])


def check_task_index(table: Table, case: Case) -> Iterator[str]:
    yield from compare("index", task_index(job(case.input["Job"]), case.input["TaskName"]), case.want["Expect"])


def _check(function: object) -> Check:
    return lambda table, case: list(function(table, case))  # type: ignore[operator]


_STATES = ("Aborted", "Aborting", "Completing", "Finished", "Pending", "Restarting", "Running", "Terminating")


def check_claims(table: Table, case: Case) -> Iterator[str]:
    """TestCreateJobIOIfNotExistFunc: no claim is there; what the job is told that names one."""
    wanted = case.input.get("ExpextVal") or {}
    try:
        with_claims(job(case.input["Job"]), lambda key: False, lambda number: f"claim-{number}")
        told = None
    except VolumeClaimMissing as problem:
        told = str(problem)
    yield from compare("error", told, wanted.get("$error"))


def check_made_claim(table: Table, case: Case) -> Iterator[str]:
    """TestCreatePVCFunc: one claim is made as the job asks, without an error."""
    document, asked = case.input["Job"], case.input["VolumeClaim"]
    asking = {**document, "spec": {"volumes": [{"mountPath": "/", "volumeClaim": asked}]}}
    _, made = with_claims(job(asking), lambda key: False, lambda number: "claim")
    wanted = [(document["metadata"]["namespace"], "claim", asked.get("volumeName", ""))]
    yield from compare("claims", [(one.namespace, one.name, one.volume) for one in made], wanted)


_JOB = {
    "TestCreateJobIOIfNotExistFunc": check_claims,
    "TestCreatePVCFunc": check_made_claim,
    **{f"Test{state}State_Execute": check_state for state in _STATES},
    "TestAddCommandFunc": check_command,
    "TestAddPodFunc": check_pod_added,
    "TestAppendJobCondition": check_conditions,
    "TestApplyPolicies": check_policies,
    "TestCalcPGMinResources": check_min_resources,
    "TestCreatePodGroupIfNotExistFunc": check_group,
    "TestCreatePodWithPartitionPolicy": check_partition,
    "TestDeleteJobPod": check_pod_killed,
    "TestDeletePodFunc": check_pod_deleted,
    "TestGetSubGroupPolicy": check_sub_group,
    "TestIsDependsOnPodsReady": check_ready,
    "TestJobAddFunc": check_job_added,
    "TestKillJobFunc": check_kill,
    "TestMakePodName": check_pod_name,
    "TestPartitionPolicyEdgeCases": check_partition,
    "TestPluginOnPodCreate": check_pod_plugins,
    "TestPodsToKill": check_kill,
    "TestSyncJobFunc": check_sync,
    "TestTaskPriority_CalcPGMin": check_least_pods,
    "TestTasksPriority_Less": check_priority,
    "TestUpdatePodFunc": check_pod_change,
    "TestUpdatePodGroupFunc": check_group_changed,
    "TestUpdatePodGroupIfJobUpdateFunc": check_group_update,
}
_HELPERS = {
    "TestCompareTask": check_order,
    "TestGetPodsNameUnderTaskFunc": check_pod_names,
    "TestGetTaskIndexOfPod": check_index_of_pod,
    "TestGetTaskReplicasUnderJob": check_task_replicas,
    "TestGetTasklndexUnderJobFunc": check_task_index,
    "TestIsOutOfSyncPod": check_outdated,
}
CHECKS: dict[str, Check] = {
    **{f"volcano/controllers_job/{name}": _check(check) for name, check in _JOB.items()},
    **{f"volcano/controllers_job_helpers/{name}": _check(check) for name, check in _HELPERS.items()},
    "volcano/controllers_job_generated/ApplyPolicies": _check(check_generated_policies),
    "volcano/controllers_job_generated/StateMachine": _check(check_machine),
}
