"""KAI's tables of what a session works on: statuses, tasks, jobs, nodes, errors, shared GPUs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.resources import parse_quantity
from gpuconsole.scheduling.kai import cluster_info, messages
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup, tasks_to_allocate, tasks_to_evict
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import (
    ALIVE,
    ALLOCATED,
    PODS,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
    mig_profile,
)
from gpuconsole.scheduling.kai.job_placement import choose_gpus
from gpuconsole.scheduling.kai.messages import (
    JobError,
    TaskErrors,
    explain_errors,
    insufficient_resources_error,
    summarise_errors,
)
from gpuconsole.scheduling.kai.messages import node_misfit as misfit_of
from gpuconsole.scheduling.kai.plugins.predicates import claims_refusal, gpu_type_mismatch
from gpuconsole.scheduling.kai.plugins.topology import TopologyDomainInfo, domain_misfit
from gpuconsole.scheduling.kai.session import KaiSession
from tests.conformance.kai import values
from tests.conformance.kai.sessions import build
from tests.conformance.kai.values import STATUSES
from tests.conformance.tables import Case, Check, NotModelled, Table, compare

Document = Mapping[str, Any]


def equal(got: Callable[[Document], object], field: str = "expected") -> Check:
    """What is got from the input equals a field of the expectation; an absent one is zero."""

    def check(table: Table, case: Case) -> Sequence[str]:
        found = got(case.input)
        zero: object = type(found)() if isinstance(found, (bool, int, float, str, list)) else None
        return list(compare(field, found, case.want.get(field, zero)))

    return check


# Errors


def job_error(document: Document) -> JobError:
    base = document.get("JobFitErrorBase") or document
    return JobError(
        reason=base.get("reason", ""),
        messages=tuple(base.get("messages") or ()),
        details=tuple(base.get("detailedMessages") or ()),
        sub_group=base.get("subGroupName", ""),
        domain=document.get("nodesGroupName", ""),
    )


def _errors(document: Document) -> list[JobError]:
    return [job_error(error) for error in document.get("fitErrors") or ()]


def _task_errors(document: Document) -> str:
    return TaskErrors(document["fields"].get("err", "")).message


def insufficient(table: Table, case: Case) -> Sequence[str]:
    args, want = case.input["args"], case.want["want"]
    if args.get("suffix"):
        raise NotModelled("pod overhead is part of the request")
    error = insufficient_resources_error(
        values.request(args.get("resourceRequested")),
        values.amounts(args.get("usedResource")),
        values.amounts(args.get("capacityResource")),
        args.get("capacityGpuMemory", 0),
        args.get("gangSchedulingJob", False),
    )
    text = ". \n".join(error.reasons)
    pod, node = f"{args.get('namespace', '')}/{args.get('name', '')}", args.get("nodeName", "")
    wanted = want.get("$error", "")
    got = f"Pod {pod} cannot be scheduled on node {node}. reasons: {text}"
    return list(compare("text", got, wanted))


def too_little(table: Table, case: Case) -> Sequence[str]:
    args = case.input["args"]
    domain = TopologyDomainInfo(args["domainID"], "rack")
    domain.free = values.amounts(args.get("availableResource"))
    error = domain_misfit(domain, values.amounts(args.get("resourceRequested")), 1, args.get("subGroupName", ""))
    if error is None:
        return ["it fits"]
    want = job_error(case.want["want"])
    return [
        *compare("messages", error.messages, want.messages),
        *compare("details", error.details, want.details),
        *compare("where", (error.domain, error.sub_group, error.reason), (want.domain, want.sub_group, want.reason)),
    ]


def said_of_queue(table: Table, case: Case) -> Sequence[str]:
    """The texts of limits and quotas, from the variables of the test."""
    told = {local["name"]: local["value"] for local in case.document.get("locals") or ()}
    if "message" not in told:
        raise NotModelled("the text is not told")
    name, resource, used = told["queueName"], told["resourceName"], told["used"]
    if "maxAllowed" in told:
        got = messages.over_limit_message(name, resource, told["maxAllowed"], used, told["requested"])
    else:
        asked = told["requiredResources"].get({"CPU": "MilliCPU", "GPU": "GPU", "Memory": "Memory"}[resource], 0)
        got = messages.over_quota_message(name, resource, told["deserved"], used, asked)
    return list(compare("message", got, told["message"]))


def fit_error(table: Table, case: Case) -> Sequence[str]:
    """An error with its message alone is told in full by that message."""
    args, want = case.input["args"], case.want["want"]
    got = job_error(
        {
            "reason": args.get("reason", ""),
            "messages": args.get("messages") or [args["message"]],
            "detailedMessages": args.get("detailedReasons") or args.get("detailedMessages") or [],
            "subGroupName": args.get("subGroupName", ""),
            "nodesGroupName": args.get("nodesGroupName", ""),
        }
    )
    wanted = job_error(want)
    return list(
        compare(
            "error",
            (got.reason, got.messages, got.detail, got.domain),
            (wanted.reason, wanted.messages, wanted.detail, wanted.domain),
        )
    )


def mig_name(table: Table, case: Case) -> Sequence[str]:
    found: list[str] = []
    for call in case.document["calls"]:
        gpus, memory, error = call["results"]
        want = None if error else (gpus, memory)
        found += compare("profile", mig_profile(call["args"]["migResourceName"]), want)
    return found


def refused_claims(table: Table, case: Case) -> Sequence[str]:
    """What the plugin says of the first task of the case."""
    if not case.input.get("enabled"):
        raise NotModelled("a cluster without the feature")
    session = build(case.input["topology"], {"queues": [], "predicatesPluginLoaded": False})
    job = next(iter(session.jobs.values()))
    return list(compare("refusal", claims_refusal(session, next(job.tasks()), job) or "", case.want.get("err", "")))


# Jobs


def _job(document: Document) -> PodGroupInfo:
    return values.job(document["job"])


def _ready(document: Document) -> bool:
    job = _job(document)
    if "minAvailable" in document:
        for pod_set in job.pod_sets.values():
            pod_set.minimum = document["minAvailable"]
    return job.is_ready


def evicted(table: Table, case: Case) -> Sequence[str]:
    job = _job(case.input)
    tasks, more = tasks_to_evict(job, _by_name, _by_uid)
    want = (case.input.get("numExpectTasks", 0), case.want.get("expectedHasMoreTasks", False))
    return list(compare("tasks", (len(tasks), more), want))


def _by_name(one: PodSetInfo, other: PodSetInfo) -> bool:
    return one.name < other.name


def _by_uid(one: PodInfo, other: PodInfo) -> bool:
    return one.uid < other.uid


def chosen(table: Table, case: Case) -> Sequence[str]:
    root = SubGroup()
    minima = case.input.get("minAvailMap") or {}
    groups = case.input.get("subGroupTasks") or {}
    for name in groups:
        root.add(PodSetInfo(name, minima.get(name, 1)))
    tasks = [values.task(pod) for pods in groups.values() for pod in pods or ()]
    got = tasks_to_allocate(PodGroupInfo("job", root=root, tasks=tasks), _by_name, _by_uid, True)
    return [
        *compare("number", len(got), case.want.get("wantNumTasks", 0)),
        *compare("tasks", sorted(task.name for task in got), sorted(case.want.get("wantTasks") or ())),
    ]


def _statuses(document: Document) -> list[PodInfo]:
    tasks = [PodInfo(f"t{n}", status=STATUSES[status]) for n, status in enumerate(document.get("taskStatuses") or ())]
    for task in tasks:
        # The tests evict by a trial.
        task.is_virtual_status = task.status is KaiPodStatus.RELEASING
    return tasks


def _allocatable(document: Document) -> int:
    return sum(task.should_allocate(document.get("isRealAllocation", False)) for task in _statuses(document))


def _next(document: Document) -> int:
    root = SubGroup()
    root.add(PodSetInfo("default", document.get("minAvailable", 0)))
    job = PodGroupInfo("job", root=root, tasks=_statuses(document))
    # KAI counts what the gang lacks; we take as many of those that wait.
    return len(tasks_to_allocate(job, _by_name, _by_uid, document.get("isRealAllocation", False)))


def _first_by_priority(table: Table, case: Case) -> Sequence[str]:
    raise NotModelled("the order is a function of the test")


def _allocated(document: Document) -> int:
    """The table's pods run on no node, which ours never do."""
    args, seat = document["args"], {"nodeName": "node"}
    pods = args.get("pods") or ()
    said = [*(args.get("overridingStatus") or ()), *("" for _ in pods)]
    return sum(
        _read({**pod, "spec": {**pod["spec"], **(seat if pod["status"]["phase"] != "Pending" else {})}}, status).status
        in ALLOCATED
        for pod, status in zip(pods, said, strict=False)
    )


def _to_allocate(document: Document) -> bool:
    task = PodInfo("t", status=STATUSES[document.get("status") or "Pending"])
    task.is_virtual_status = document.get("isVirtualStatus", False)
    return task.should_allocate(document.get("isRealAllocation", False))


# Nodes


def _seated(document: Document, name: str = "node1") -> KaiNodeInfo:
    node = KaiNodeInfo(Node(name=name), _amounts(document.get("allocatable") or {}))
    for pod in document.get("tasks") or ():
        node.add_task(values.task({**pod, "UID": pod.get("UID") or pod.get("Name")}))
    return node


def _amounts(quantities: Mapping[str, str]) -> ResourceAmounts:
    def read(name: str) -> float:
        return float(parse_quantity(quantities.get(name, 0)))

    plain = ("cpu", "memory", "nvidia.com/gpu")
    scalars = {name: int(read(name)) for name in quantities if name not in plain}
    return ResourceAmounts(read("cpu") * 1000, read("memory"), read("nvidia.com/gpu"), scalars)


def sum_of_gpus(count: Callable[[KaiNodeInfo], float], memory: Callable[[KaiNodeInfo], int]) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        node = _seated(case.input)
        want = case.want.get("expectedGPUs", 0)
        return [
            *([] if abs(count(node) - want) < 1e-6 else [f"GPUs: got {count(node)}, want {want}"]),
            *compare("memory", memory(node), case.want.get("expectedMemory", 0)),
        ]

    return check


def fits_free(table: Table, case: Case) -> Sequence[str]:
    node, args = values.node(case.input["fields"]), case.input["args"]
    node.idle = values.amounts(args["nodeNonAllocatedResources"])
    node.releasing = ResourceAmounts()
    return list(
        compare("fits", node.is_allocatable_or_pipelinable(values.task(args["task"])), case.want.get("want", False))
    )


def _pod(
    name: str, requests: Mapping[str, str], annotations: Mapping[str, str] | None = None, node: str = ""
) -> PodInfo:
    """A pod as the API server has it, read by what reads pods for the engine."""
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": "Running" if node else "Pending"},
    }
    pod = decode_object(document)
    assert isinstance(pod, Pod)
    return cluster_info.task_of(pod, "kai-scheduler")


def fits(idle_only: bool) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        if case.input.get("podOverhead"):
            raise NotModelled("pod overhead is part of the request")
        described = decode_object({"apiVersion": "v1", **case.input["node"]})
        assert isinstance(described, Node)
        node = cluster_info.node_of(described)
        for number, requests in enumerate(case.input.get("podsResources") or ()):
            node.add_task(_pod(f"running-{number}", requests, node=node.name))
        task = _pod("new", case.input.get("podResourcesToAllocate") or {}, case.input.get("podAnnotations"))
        got = node.is_allocatable(task) if idle_only else node.is_allocatable_or_pipelinable(task)
        error = misfit_of(task, node, False)
        said = "" if error is None or got else " ".join(error.details)
        return [
            *compare("fits", got, case.want.get("expected", False)),
            *(
                f"{text} is not in {said}"
                for text in case.want.get("expectedMessageContains") or ()
                if text not in said
            ),
        ]

    return check


def _read(pod: Document, status: str = "") -> PodInfo:
    """A pod of a table, read by what reads pods for the engine; its own pod counts are no request."""
    metadata = {"name": "unnamed", **(pod.get("metadata") or {})}
    found = decode_object({**pod, "apiVersion": "v1", "metadata": metadata})
    assert isinstance(found, Pod)
    task = cluster_info.task_of(found, "kai-scheduler")
    if status:
        task.status = STATUSES[status]
    return task


def request_of_pod(table: Table, case: Case) -> Sequence[str]:
    task = _read(case.input.get("pod") or case.input["fields"]["Pod"])
    want = case.want.get("expectedResource")
    whole = want is not None
    expected = values.request(want if whole else case.want["expected"]["Resreq"])
    sort = case.want.get("expected", {}).get("ResourceRequestType") or task.gpu_request_type.value
    got = task.request
    scalars = {name: n for name, n in got.scalars.items() if name != PODS}
    gpus = (got.count, got.portion, got.gpu_memory, dict(got.mig))
    return [
        *compare("GPUs", gpus, (expected.count, expected.portion, expected.gpu_memory, dict(expected.mig))),
        *(compare("plain", (got.cpu, got.memory, scalars), _plain(expected)) if whole else ()),
        *compare("sort", task.gpu_request_type.value, sort),
    ]


def _plain(request: ResourceRequirements) -> object:
    return (request.cpu, request.memory, dict(request.scalars))


def comes_and_goes(table: Table, case: Case) -> Sequence[str]:
    """The node's books with the pods on it, and when they, or some of them, are gone again, the last one first."""
    described = decode_object({"apiVersion": "v1", **case.input["node"]})
    assert isinstance(described, Node)
    node = cluster_info.node_of(described)
    tasks = []
    for one in case.input.get("podsInfoMetadata") or [{"pod": pod} for pod in case.input.get("pods") or ()]:
        task = _read(one["pod"], one.get("status", ""))
        task.groups = tuple(one.get("gpuGroups") or ())
        node.add_task(task)
        tasks.append(task)
    if "expected" in case.want:
        for pod in case.input.get("rmPods") or ():
            node.remove_task(_read(pod).uid)
        return list(_books(node, case.want["expected"]))
    found = list(_books(node, case.want["addedPodsNodeInfo"]))
    for task in reversed(tasks):
        node.remove_task(task.uid)
    return [*found, *(f"gone: {line}" for line in _books(node, case.want["removedPodsNodeInfo"]))]


def _books(node: KaiNodeInfo, want: Document) -> Iterator[str]:
    for name, got in (("Idle", node.idle), ("Used", node.used), ("Releasing", node.releasing)):
        wanted = values.amounts(want.get(name))
        yield from compare(name, (got.cpu, got.memory, got.gpus), (wanted.cpu, wanted.memory, wanted.gpus))
        yield from compare(f"{name} of others", got.scalars, wanted.scalars)
    sharing = want.get("GpuSharingNodeInfo") or {}
    for name, ledger in (
        ("UsedSharedGPUsMemory", node.shared.used),
        ("ReleasingSharedGPUsMemory", node.shared.releasing),
        ("AllocatedSharedGPUsMemory", node.shared.allocated),
    ):
        kept = {gpu: memory for gpu, memory in ledger.items() if memory}
        yield from compare(name, kept, {gpu: memory for gpu, memory in (sharing.get(name) or {}).items() if memory})


def sort_of_gpus(table: Table, case: Case) -> Sequence[str]:
    node = case.input.get("node") or case.input.get("nodeInfo")
    task = case.input.get("task") or case.input.get("podInfo")
    if node is None or task is None:
        raise NotModelled("the case tells no node or task")
    return list(
        compare("refusal", gpu_type_mismatch(values.task(task), values.node(node)), case.want.get("errorMsg", ""))
    )


def shared(table: Table, case: Case) -> Sequence[str]:
    args, want = case.input["args"], case.want["want"]
    session = KaiSession()
    got = choose_gpus(
        args.get("fittingGPUsOnNode") or (),
        values.node(args["node"]),
        values.task(args.get("pod") or args["task"]),
        session.new_gpu_group,
        only_pipeline=args.get("isPipelineOnly", False),
    )
    if got is None:
        return list(compare("number", 0, want.get("groupLength", 0)))
    return [
        *compare("number", len(got.groups), want.get("groupLength", 0)),
        *compare("releasing", got.releasing, want.get("isReleasing", False)),
        *(
            f"{one} is not among {got.groups}"
            for one in want.get("expectedGroupsInList") or ()
            if one not in got.groups
        ),
    ]


_A = "kai/scheduler_api"
CHECKS: dict[str, Check] = {
    f"{_A}/unschedule_info__UnscheduledInfo": said_of_queue,
    f"{_A}_common_info/TestNewJobFitError": fit_error,
    f"{_A}_common_info/TestNewJobFitErrorWithQueueContext": fit_error,
    f"{_A}_common_info/TestNewTopologyFitError": fit_error,
    f"{_A}_common_info_resources/mig_plain_calls": mig_name,
    f"{_A}_node_info/RunAddRemovePodsTests": comes_and_goes,
    f"{_A}_node_info/TestAddRemovePods": comes_and_goes,
    f"{_A}_pod_info/TestGetPodResourceRequest": request_of_pod,
    f"{_A}_pod_info/TestGetPodResourceWithoutInitContainers": request_of_pod,
    f"{_A}_pod_info/TestPodInfo_updatePodAdditionalFields": request_of_pod,
    f"{_A}_node_info/Test_isMigResource": equal(lambda case: bool(mig_profile(case["rName"])), "want"),
    "kai/scheduler_plugins_dynamicresources/TestDynamicResourceAllocationPreFilter": refused_claims,
    f"{_A}_common_info/TestFitErrors_Error": equal(_task_errors, "want"),
    f"{_A}_common_info/TestJobFitErrorsToDetailedMessage": equal(lambda case: explain_errors(_errors(case)), "want"),
    f"{_A}_common_info/TestJobFitErrorsToMessage": equal(lambda case: summarise_errors(_errors(case)), "want"),
    f"{_A}_common_info/TestTopologyFitError_DetailedMessage": equal(lambda case: job_error(case["err"]).detail, "want"),
    f"{_A}_common_info/TestNewFitErrorInsufficientResource": insufficient,
    f"{_A}_common_info/TestNewTopologyInsufficientResourcesError": too_little,
    f"{_A}_pod_status/TestIsAliveStatus": equal(lambda case: STATUSES[case["status"]] in ALIVE),
    f"{_A}_pod_info/TestPodInfo_ShouldAllocate": equal(_to_allocate),
    f"{_A}_podgroup_info/TestPodGroupInfo_GetNumAliveTasks": equal(lambda case: _job(case).alive_tasks),
    f"{_A}_podgroup_info/TestPodGroupInfo_GetNumPendingTasks": equal(lambda case: len(_job(case).pending_tasks)),
    f"{_A}_podgroup_info/TestPodGroupInfo_IsReadyForScheduling": equal(_ready),
    f"{_A}_podgroup_info/TestPodGroupInfo_IsStale": equal(lambda case: _job(case).is_stale),
    f"{_A}_podgroup_info/TestGetTasksToEvict_Table": evicted,
    f"{_A}_podgroup_info/Test_GetTasksToAllocate": chosen,
    f"{_A}_podgroup_info/Test_getNumAllocatableTasks": equal(_allocatable, "want"),
    f"{_A}_podgroup_info/Test_getNumTasksToAllocate": equal(_next, "want"),
    f"{_A}_podgroup_info/Test_getNumOfAllocatedTasks": equal(_allocated, "want"),
    f"{_A}_node_info/TestNodeInfo_GetSumOfIdleGPUs": sum_of_gpus(KaiNodeInfo.idle_gpus, KaiNodeInfo.idle_gpu_memory),
    f"{_A}_node_info/TestNodeInfo_GetSumOfReleasingGPUs": sum_of_gpus(
        KaiNodeInfo.releasing_gpus, KaiNodeInfo.releasing_gpu_memory
    ),
    f"{_A}_node_info/TestNodeInfo_isTaskAllocatableOnNonAllocatedResources": fits_free,
    f"{_A}_node_info/TestPredicateByNodeResourcesType_DRA": sort_of_gpus,
    f"{_A}_node_info/TestIsTaskAllocatable": fits(True),
    f"{_A}_node_info/TestIsTaskAllocatable_Mig": fits(True),
    f"{_A}_node_info/TestIsTaskAllocatableOnReleasingOrIdle": fits(False),
    "kai/scheduler_gpu_sharing/Test_getNodePreferableGpuForSharing": shared,
}
