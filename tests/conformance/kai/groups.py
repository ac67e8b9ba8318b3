"""KAI's tables of pod groups and queues as objects: sub-groups, preemptibility, and what is said of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver.kai_webhooks import check_gpu_request, check_pod_group
from gpuconsole.model.cluster import PriorityClass
from gpuconsole.model.kai import KaiPodGroup, KaiQueue
from gpuconsole.model.manifests import decode_object
from gpuconsole.scheduling.kai import cluster_info
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.cluster_info import InvalidSubGroups, parse_sub_groups, queues_of
from gpuconsole.scheduling.kai.fair_share.division import QueueState
from tests.conformance.kai import values
from tests.conformance.kai.searching import queue_states
from tests.conformance.tables import Case, Check, NotModelled, Table, compare

Document = Mapping[str, Any]


def sub_groups(table: Table, case: Case) -> Sequence[str]:
    found = [one.text for one in check_pod_group({"spec": {"subGroups": case.input.get("subGroups") or []}})]
    want = (case.want.get("wantErr") or {}).get("$error")
    return list(compare("refusal", found, [want] if want else []))


def preemptibility(table: Table, case: Case) -> Sequence[str]:
    got = cluster_info.is_preemptible(case.input.get("preemptibility") or "", case.input.get("priority", 0))
    return list(compare("preemptible", got, case.want["expectedResult"] == "preemptible"))


def group_of(document: Document) -> KaiPodGroup:
    metadata = {"name": "unnamed", **(document.get("metadata") or {})}
    found = decode_object({**document, "apiVersion": "scheduling.run.ai/v2alpha2", "metadata": metadata})
    assert isinstance(found, KaiPodGroup)
    return found


def by_class(table: Table, case: Case) -> Sequence[str]:
    args = case.input["args"]
    classes: dict[str, PriorityClass] = {}
    for document in args.get("inClusterPriorityClasses") or ():
        found = decode_object({**document, "apiVersion": "scheduling.k8s.io/v1"})
        assert isinstance(found, PriorityClass)
        classes[found.name] = found
    group = group_of(args["podGroup"])
    got = cluster_info.is_preemptible(group.preemptibility, cluster_info.group_priority(group, classes))
    return list(compare("preemptible", got, case.want.get("want", False)))


def gpu_request(table: Table, case: Case) -> Sequence[str]:
    sharing = case.input.get("GPUSharingEnabled", True)
    found = [one.text for one in check_gpu_request(case.input["pod"], sharing=sharing)]
    want = (case.want.get("error") or {}).get("$error")
    return list(compare("refusal", found, [want] if want else []))


# Trees


def _shape(group: SubGroup) -> object:
    """A tree as data, its children by name."""
    return (
        group.name,
        group.constraint,
        sorted((pod_set.name, pod_set.minimum, pod_set.constraint) for pod_set in group.pod_sets),
        sorted((_shape(child) for child in group.groups), key=str),
    )


def _wanted(document: Document) -> SubGroup:
    group = SubGroup(document.get("Name", ""), values.constraint(document.get("TopologyConstraint")))
    for child in document.get("Groups") or ():
        group.add(_wanted(child))
    for child in document.get("PodSets") or ():
        constraint = values.constraint(child.get("TopologyConstraint"))
        group.add(PodSetInfo(child.get("Name", ""), child.get("MinMember", 0), constraint))
    return group


def tree(table: Table, case: Case) -> Sequence[str]:
    try:
        got = parse_sub_groups(group_of(case.input["podGroup"]))
    except InvalidSubGroups as problem:
        wanted = case.want.get("wantErr", "")
        return [] if wanted and wanted in str(problem) else [f"error: got {problem}, want {wanted}"]
    if case.want.get("wantErr"):
        return [f"no error, want {case.want['wantErr']}"]
    return list(compare("tree", _shape(got), _shape(_wanted(case.want.get("want") or {}))))


def _pod_set(document: Document) -> PodSetInfo:
    pod_set = PodSetInfo(document.get("name", "test"), document.get("minAvailable", 0))
    for uid, pod in (document.get("podInfos") or {}).items():
        pod_set.add_task(values.task({"UID": uid, **pod}))
    return pod_set


def of_pod_set(read: Callable[[PodSetInfo], object]) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        calls = case.document.get("calls") or ()
        made = {"minAvailable": 1, **calls[0]["args"]["recv"]} if calls else {"minAvailable": 1}
        pod_set = PodSetInfo("test", case.input.get("minAvailable", made["minAvailable"]))
        for pod in case.input.get("pods") or ():
            pod_set.add_task(values.task(pod))
        got = read(pod_set)
        return list(compare("pod set", got, case.want.get("expected", type(got)())))

    return check


def _assigned(call: Document) -> Iterator[str]:
    pod_set = _pod_set(call["args"]["recv"])
    pod_set.add_task(values.task(call["args"]["ti"]))
    want = _pod_set(call["after"]["recv"])
    yield from compare(
        "pods",
        {uid: task.status.name for uid, task in pod_set.tasks.items()},
        {uid: task.status.name for uid, task in want.tasks.items()},
    )
    for name, got in (
        ("numActiveAllocatedTasks", pod_set.active_allocated_tasks),
        ("numActiveUsedTasks", pod_set.active_used_tasks),
        ("numAliveTasks", pod_set.alive_tasks),
    ):
        yield from compare(name, got, call["after"]["recv"].get(name, 0))


def _counted(read: Callable[[PodSetInfo], int]) -> Callable[[Document], Iterator[str]]:
    def check(call: Document) -> Iterator[str]:
        yield from compare("count", read(_pod_set(call["args"]["recv"])), call["results"][0])

    return check


def _of_one(pod_set: PodSetInfo) -> PodGroupInfo:
    """A job of the pod set alone."""
    root = SubGroup()
    root.add(pod_set)
    return PodGroupInfo("job", root=root)


CALLS: Mapping[str, Callable[[Document], Iterator[str]]] = {
    "PodSet.AssignTask": _assigned,
    "PodSet.GetNumAliveTasks": _counted(lambda pod_set: pod_set.alive_tasks),
    "PodSet.GetNumActiveAllocatedTasks": _counted(lambda pod_set: pod_set.active_allocated_tasks),
    "PodSet.GetNumActiveUsedTasks": _counted(lambda pod_set: pod_set.active_used_tasks),
    "PodSet.GetNumGatedTasks": _counted(lambda pod_set: pod_set.gated_tasks),
    "PodSet.GetNumPendingTasks": _counted(lambda pod_set: len(_of_one(pod_set).pending_tasks)),
}


def replay(table: Table, case: Case) -> Sequence[str]:
    calls = [call for call in case.document.get("calls") or () if call["fn"] in CALLS]
    if not calls:
        raise NotModelled("nothing that is modelled was called")
    return [line for call in calls for line in CALLS[call["fn"]](call)]


# Queues


def queue(table: Table, case: Case) -> Sequence[str]:
    document = {**case.input["queue"], "apiVersion": "scheduling.run.ai/v2"}
    found = decode_object(document)
    assert isinstance(found, KaiQueue)
    above = {found.parent: KaiQueue(name=found.parent)} if found.parent else {}
    states = queues_of({**above, found.name: found}, found.name, {})
    (got,) = (state for state in states if state.uid == found.name)
    (want,) = queue_states({found.name: case.want["expected"]})
    spans = {
        field: round(case.want["expected"][name]["$seconds"] * 1_000_000)
        for name, field in (("PreemptMinRuntime", "preempt_min_runtime"), ("ReclaimMinRuntime", "reclaim_min_runtime"))
        if name in case.want["expected"]
    }
    return [
        *compare("queue", _facts(got), _facts(want)),
        *compare("spans", [getattr(got, field) for field in spans], list(spans.values())),
    ]


def _facts(state: QueueState) -> object:
    return (state.uid, state.name, state.parent, state.children, state.priority, state.gpu, state.cpu, state.memory)


_S = "kai/scheduler_api_podgroup_info_subgroup_info"
CHECKS: dict[str, Check] = {
    "kai/apis_scheduling_v2alpha2/TestValidateSubGroups": sub_groups,
    "kai/admission_webhook_v1alpha2_gpusharing/TestValidate": gpu_request,
    "kai/binder_plugins_gpusharing_gpu-request/TestValidateGpuRequests": gpu_request,
    "kai/common_podgroup/TestCalculatePreemptibility": preemptibility,
    "kai/podgroupcontroller_utilities_pod-group/TestIsPreemptible": by_class,
    f"{_S}/TestFromPodGroup_FullTree": tree,
    f"{_S}/TestGetNumActiveAllocatedTasks": of_pod_set(lambda pod_set: pod_set.active_allocated_tasks),
    f"{_S}/TestIsElastic": of_pod_set(lambda pod_set: pod_set.is_elastic),
    f"{_S}/TestIsGangSatisfied": of_pod_set(lambda pod_set: pod_set.is_satisfied),
    f"{_S}/TestIsReadyForScheduling": of_pod_set(lambda pod_set: pod_set.is_ready),
    f"{_S}/podset_plain_calls": replay,
    "kai/scheduler_api_queue_info/TestNewQueueInfo": queue,
}
