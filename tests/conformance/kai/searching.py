"""KAI's tables of what its actions are made of: order of jobs, scenarios of victims, their filters, likeness."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuconsole.model.resources import parse_quantity
from gpuconsole.scheduling.kai.actions.actions import feasible_nodes
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import KaiPodStatus, PodInfo, ResourceRequirements
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.division import KaiQueueQuota, QueueState
from gpuconsole.scheduling.kai.plugins.ordering import Elastic, Priority
from gpuconsole.scheduling.kai.plugins.proportion import Proportion
from gpuconsole.scheduling.kai.session import JobFilter, JobsByQueue, KaiSession
from gpuconsole.scheduling.kai.solving.solver import (
    AffinityFilter,
    FailedJobs,
    GrowingScenario,
    IdleGpusFilter,
    ScenarioNotExtended,
    can_match_greedily,
)
from tests.conformance.kai import values
from tests.conformance.tables import Case, Check, Table, compare

Document = Mapping[str, Any]


def feasible(table: Table, case: Case) -> Sequence[str]:
    nodes = [values.node(node) for node in case.input.get("nodes") or ()]
    got = [node.name for node in feasible_nodes(nodes, values.job(case.input["job"]))]
    return list(compare("nodes", sorted(got), sorted(case.want.get("expectedNodeNames") or ())))


# Likeness


def _like(pods: Sequence[Document]) -> PodGroupInfo:
    """A job of pods that differ in what they ask for only."""
    tasks = [
        PodInfo(
            f"test-{index}/test",
            job="test",
            request=_request(pod.get("resources") or {}),
            status=KaiPodStatus[(pod.get("status") or "Pending").upper()],
        )
        for index, pod in enumerate(pods)
    ]
    return PodGroupInfo("test", tasks=tasks)


def _request(amounts: Mapping[str, str]) -> ResourceRequirements:
    gpus = float(parse_quantity(amounts.get("nvidia.com/gpu", 0)))
    return ResourceRequirements(
        cpu=float(parse_quantity(amounts.get("cpu", 0)) * 1000),
        memory=float(parse_quantity(amounts.get("memory", 0))),
        scalars={"pods": 1},
        count=math.ceil(gpus),
        portion=min(gpus, 1),
    )


def _pods(described: Any) -> list[Document]:
    """One list of resources, several, or pods with a status each."""
    if isinstance(described, Mapping):
        return [{"resources": described}]
    return [pod if "resources" in pod or "status" in pod else {"resources": pod} for pod in described or ()]


def easier(table: Table, case: Case) -> Sequence[str]:
    failures = FailedJobs(enabled=True)
    failures.add(_like(_pods(case.input.get("representativeResources"))))
    got = not failures.has_failed_before(_like(_pods(case.input.get("jobResources"))))
    return list(compare("easier", got, case.want.get("result", False)))


def replaced(table: Table, case: Case) -> Sequence[str]:
    """The smaller of two failed jobs is kept: the one in question tells against itself only if it is."""
    failures = FailedJobs(enabled=True)
    failures.add(_like(_pods(case.input.get("representativeResources"))))
    job = _like(_pods(case.input.get("jobResources")))
    failures.add(job)
    return list(compare("kept", failures.smallest_equivalent(job) is job, case.want.get("result", False)))


# Filters


def greedy(table: Table, case: Case) -> Sequence[str]:
    args = case.input["args"]
    capacity = args.get("capacity") or {}
    got = can_match_greedily(
        args.get("requirements") or (), args.get("holders") or (), lambda holder: capacity.get(holder, 0)
    )
    return list(compare("matched", got, case.want.get("want", False)))


def _scenario(document: Document) -> GrowingScenario:
    """A scenario of the tasks that a dumped one has."""
    base = document["BaseScenario"]
    pending = [values.task(task) for task in base.get("pendingTasks") or ()]
    potential = [values.task(task) for task in base.get("potentialVictimsTasks") or ()]
    recorded = [values.job(job) for job in base.get("recordedVictimsJobs") or ()]
    session = KaiSession(jobs=_jobs([*potential, *(task for job in recorded for task in job.tasks())]))
    scenario = GrowingScenario(session, PodGroupInfo("preemptor", tasks=pending), recorded)
    for task in potential:
        scenario.add_victims([task])
    return scenario


def _jobs(tasks: Sequence[PodInfo]) -> list[PodGroupInfo]:
    by_job: dict[str, list[PodInfo]] = {}
    for task in tasks:
        by_job.setdefault(task.job, []).append(task)
    return [PodGroupInfo(uid, tasks=found) for uid, found in by_job.items()]


def _filter(fields: Document, pending: Sequence[str], nodes: int) -> IdleGpusFilter:
    """The filter as it was dumped, after the scenarios that it has seen."""
    found = IdleGpusFilter(fields.get("nodesNameToIdleGpus") or {}, pending, nodes)
    found.recorded |= {*(fields.get("recordedVictimsInCache") or {})}
    found.potential |= {*(fields.get("potentialVictimsInCache") or {})}
    return found


def idle_gpus(table: Table, case: Case) -> Sequence[str]:
    fields = case.input["fields"]
    scenario = _scenario(case.input["args"]["scenario"])
    found = _filter(fields, [*(fields.get("pendingTasksInState") or {})], len(scenario.pending))
    got, error = False, False
    try:
        got = found.may_succeed(scenario)
    except ScenarioNotExtended:
        error = True
    want = case.want.get("want") or {}
    return [
        *compare("could do", got, want.get("validScenario", False)),
        *compare("fails", error, want.get("wantErr", False)),
    ]


def absorbed(table: Table, case: Case) -> Sequence[str]:
    """Victims that are new are counted once; a scenario that is not the one before and more is refused."""
    fields, want, args = case.input["fields"], case.want.get("want") or {}, case.input["args"]
    first = args.get("isFirstScenario", False)
    scenario = _scenario(args["scenario"]) if args.get("scenario") else None
    pending = [*(fields.get("pendingTasksInState") or {})]
    if first and scenario is not None:
        pending += [task.uid for task in scenario.pending]
    found = _filter(fields, pending, len(fields.get("maxFreeGpuNodesSorted") or ()))
    error = ""
    try:
        if scenario is not None:
            found.count_new_victims(scenario, first)
    except ScenarioNotExtended as problem:
        error = str(problem)
    if want.get("wantErr") or error:
        return list(compare("error", error, want.get("expectedErrorData", "")))
    return [
        *compare("nodes", found.candidate_nodes, want.get("maxFreeGpuNodesSorted") or []),
        *compare("free", found.free, want.get("nodesNameToIdleGpus") or {}),
        *compare("recorded", found.recorded, {*(want.get("recordedVictimsInCache") or {})}),
        *compare("potential", found.potential, {*(want.get("potentialVictimsInCache") or {})}),
    ]


def freed_gpus(table: Table, case: Case) -> Sequence[str]:
    fields, victim = case.input["fields"], values.task(case.input["args"]["victimTask"])
    nodes = fields.get("maxFreeGpuNodesSorted") or ()
    found = _filter(fields, (), len(nodes))
    found.candidate_nodes = list(nodes)
    found.add_free_gpus(victim.node, victim.accepted_request.gpus + victim.accepted_request.dra_gpus)
    want = case.want.get("want") or {}
    least = found.candidate_nodes[-1] if found.candidate_nodes else ""
    return [
        *compare("nodes", found.candidate_nodes, want.get("maxFreeGpuNodesSorted") or []),
        *compare("least", least, want.get("minIdleGpusRelevant", "")),
    ]


def affinities(table: Table, case: Case) -> Sequence[str]:
    pending = [values.task(task) for task in case.input.get("pendingTasks") or ()]
    victims = [values.task(task) for task in case.input.get("victimTasks") or ()]
    nodes = {name: values.node(node) for name, node in (case.input.get("allNodes") or {}).items()}
    open_nodes = {name: nodes[name] for name in case.input.get("feasibleNodes") or {}}
    session = KaiSession(jobs=_jobs(victims), nodes=nodes.values())
    scenario = GrowingScenario(session, PodGroupInfo("preemptor", tasks=pending), ())
    found = AffinityFilter.for_scenario(scenario, session, open_nodes)
    for victim in victims:
        scenario.add_victims([victim])
    got = found is None or found.may_succeed(scenario)
    return list(compare("could do", got, case.want.get("wantFilterResult", False)))


# Scenarios


class _Case:
    """A scenario made as the table makes it, and then given more victims."""

    def __init__(self, case: Case) -> None:
        fields, args = case.input["fields"], case.input.get("args") or {}
        first = [_named(task) for task in fields.get("potentialVictimsTasks") or ()]
        more = [_named(task) for task in args.get("tasks") or ()]
        recorded = [_named_job(job) for job in fields.get("recordedVictimsJobs") or ()]
        session = KaiSession(jobs=_jobs([*first, *more, *(task for job in recorded for task in job.tasks())]))
        self.scenario = GrowingScenario(session, _named_job(fields.get("pendingTasksAsJob") or {}), recorded)
        for task in first:
            self.scenario.add_victims([task])
        self.scenario.add_victims(more)


def _named(document: Document) -> PodInfo:
    """Tasks of these tables have no uid of their own; their names tell them apart."""
    return values.task({**document, "UID": document.get("UID") or document.get("Name")})


def _named_job(document: Document) -> PodGroupInfo:
    return values.job(document, [_named(pod) for pod in values.tasks_of(document)])


def _names(tasks: Sequence[PodInfo]) -> list[str]:
    return sorted(task.name for task in tasks)


def victims_on(table: Table, case: Case) -> Sequence[str]:
    scenario = _Case(case).scenario
    got = [task for node in case.input["args"]["nodeNames"] for task in scenario.victims_on(node)]
    want = [_named(task) for task in case.want.get("want") or ()]
    return list(compare("victims", sorted(set(_names(got))), _names(want)))


def grown(table: Table, case: Case) -> Sequence[str]:
    scenario, want = _Case(case).scenario, case.want["expected"]
    # KAI's session in the test knows the jobs without their tasks: it compares how many groups there are.
    groups = {uid: len(jobs) for uid, jobs in scenario.groups.items()}
    wanted = {uid: len(jobs) for uid, jobs in (want.get("victimsJobsTaskGroups") or {}).items()}
    potential = [_named(task).name for task in want.get("potentialVictimsTasks") or ()]
    return [
        *compare("potential", [task.name for task in scenario.potential], potential),
        *compare("groups", groups, wanted),
    ]


def group_of(table: Table, case: Case) -> Sequence[str]:
    group = _Case(case).scenario.partial_job_of(_named(case.input["args"]["victimPodInfo"]))
    want = case.want.get("want")
    got = None if group is None else (group.uid, _names(list(group.tasks())))
    return list(compare("group", got, None if want is None else (want["UID"], _names(list(_named_job(want).tasks())))))


def latest(table: Table, case: Case) -> Sequence[str]:
    """The job of the victim that was added last; KAI's session in the test knows the tasks that were added last."""
    found = _Case(case).scenario.latest_victim_job
    want = case.want.get("want")
    return list(compare("latest", found and found.uid, want and want["UID"]))


# Order


def queue_states(documents: Mapping[str, Document]) -> list[QueueState]:
    """Queues as a table has them: a queue that is somebody's parent has children, said or not."""
    return [
        QueueState(
            uid=document.get("UID") or uid,
            name=document.get("Name", ""),
            parent=document.get("ParentQueue", ""),
            children=tuple(document.get("ChildQueues") or ()),
            created=values.microseconds(document.get("CreationTimestamp")),
            priority=document.get("Priority", 0),
            gpu=_quota(document, "GPU"),
            cpu=_quota(document, "CPU"),
            memory=_quota(document, "Memory"),
        )
        for uid, document in documents.items()
    ]


def _quota(document: Document, name: str) -> KaiQueueQuota:
    found = (document.get("Resources") or {}).get(name) or {}
    return KaiQueueQuota(
        quota=found.get("Quota", 0),
        limit=found.get("Limit", 0),
        over_quota_weight=found.get("OverQuotaWeight", 0),
    )


def _ordered_job(uid: str, document: Document) -> PodGroupInfo:
    """A job of these tables: its pods stand in its index by status."""
    job = values.job({"UID": uid, **document}, ())
    if "PodSets" not in document:
        job.pod_sets.clear()
        job.pod_sets.update(PodGroupInfo(uid).pod_sets)
    for status, pods in (document.get("PodStatusIndex") or {}).items():
        for name, pod in pods.items():
            job.add_task(values.task({"UID": name, **pod, "Status": status, "SubGroupName": ""}))
    if document.get("Allocated"):
        job.allocated = values.amounts(document["Allocated"])
    return job


def _wanted(options: Document) -> JobFilter:
    return JobFilter(
        ready=options.get("FilterUnready", False),
        pending=options.get("FilterNonPending", False),
        preemptible=options.get("FilterNonPreemptible", False),
        with_allocated=options.get("FilterNonActiveAllocated", False),
        victims=options.get("VictimQueue", False),
        depth=options.get("MaxJobsQueueDepth", -1),
    )


def _session(jobs: Sequence[PodGroupInfo], queues: Mapping[str, Document]) -> KaiSession:
    session = KaiSession(jobs=jobs, queues=queue_states(queues))
    for plugin in (Priority, Elastic):
        plugin(KaiPluginArguments()).open(session)
    return session


def _order(line: JobsByQueue, want: Sequence[str]) -> Sequence[str]:
    return list(compare("order", [line.pop().name for _ in want if line], list(want)))


def pushed(table: Table, case: Case) -> Sequence[str]:
    fields = case.input["fields"]
    jobs = [_ordered_job(uid, document) for uid, document in (fields.get("InsertedJob") or {}).items()]
    line = JobsByQueue(_session(jobs, fields["Queues"]), _wanted(fields["options"]), jobs)
    if case.input.get("args"):
        line.push(_ordered_job("pushed", case.input["args"]["job"]))
    else:
        line.push(line.pop())
    return _order(line, [job["Name"] for job in case.want["expected"]["expectedJobsList"]])


def nested(table: Table, case: Case) -> Sequence[str]:
    jobs = [_ordered_job(uid, document) for uid, document in (case.input.get("jobs") or {}).items()]
    line = JobsByQueue(_session(jobs, case.input["queues"]), JobFilter(ready=True, pending=True), jobs)
    for document in case.input.get("pushJobs") or ():
        line.push(_ordered_job(document.get("UID", "pushed"), document))
    return _order(line, case.want.get("expectedJobOrder") or ())


def victims_first(table: Table, case: Case) -> Sequence[str]:
    jobs = [_ordered_job(uid, document) for uid, document in case.input["initJobs"].items()]
    session = _session(jobs, case.input["queues"])
    Proportion(KaiPluginArguments()).open(session)
    return _order(JobsByQueue(session, _wanted(case.input["options"]), jobs), case.want["expectedJobNames"])


_A = "kai/scheduler_actions"
_I = f"{_A}_common_solvers_accumulated_scenario_filters_idle_gpus"
_L = f"{_A}_common/minimal_job_comparison__MinimalJobComparison"
CHECKS: dict[str, Check] = {
    f"{_A}_common/TestFeasibleNodes": feasible,
    **{f"{_L}_L{line}": easier for line in (148, 206, 295)},
    f"{_L}_L343": replaced,
    f"{_I}/Test_greedyMatchRequirements": greedy,
    f"{_I}/TestAccumulatedIdleGpus_Filter": idle_gpus,
    f"{_I}/TestAccumulatedIdleGpus_updateWithVictim": freed_gpus,
    f"{_I}/TestAccumulatedIdleGpus_updateStateWithScenario": absorbed,
    f"{_A}_common_solvers_accumulated_scenario_filters_node_affinities/TestNodeAffinitiesFilter_Filter": affinities,
    f"{_A}_common_solvers_scenario/TestPodByNodeScenario_VictimsTasksFromNodes": victims_on,
    f"{_A}_common_solvers_scenario/TestPodSimpleScenario_AddPotentialVictimsTasks": grown,
    f"{_A}_common_solvers_scenario/TestPodSimpleScenario_GetVictimJobRepresentativeById": group_of,
    f"{_A}_common_solvers_scenario/TestPodSimpleScenario_LatestPotentialVictim": latest,
    f"{_A}_utils/TestJobsOrderByQueues_PushJob": pushed,
    f"{_A}_utils/TestJobsOrderByQueues_RequeueJob": pushed,
    f"{_A}_utils/TestNLevelQueueHierarchy": nested,
    f"{_A}_utils/TestVictimQueue_PopNextJob": victims_first,
}
