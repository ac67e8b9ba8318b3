"""KAI's action tables: one session and one action, or rounds of all five with what they leave carried over."""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from gpuconsole.scheduling.kai.actions import ACTIONS
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.api.tasks import ACTIVE_USED, ALLOCATED, GpuRequestType, KaiPodStatus, PodInfo
from gpuconsole.scheduling.kai.messages import explain_errors
from gpuconsole.scheduling.kai.session import BoundTask, EvictedTask, KaiSession, PipelinedTask
from tests.conformance.kai.sessions import NOW, SECOND, STATUSES, Document, build
from tests.conformance.tables import Case, Check, Table, compare

ALL = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
GRACE = 60 * SECOND


def single(table: Table, case: Case) -> Sequence[str]:
    """One session, the table's actions, and what is expected of it."""
    grace = GRACE if table.document["area"] == "scheduler_actions_stalegangeviction" else 0
    session = build(case.input, case.document["effective"], grace)
    for action in table.document["actions"]:
        ACTIONS[action](session)
    return [*_bounds(case.input, session), *_expected(case.want, session)]


def rounds(table: Table, case: Case) -> Sequence[str]:
    """Rounds until the expectation must hold, then rounds in which it must not change."""
    state = dict(deepcopy(dict(case.input)))
    effective = case.document["effective"]
    found: list[str] = []
    plan = case.document.get("rounds") or {}
    session = None
    for _ in range(plan.get("roundsUntilMatch") or 2):
        session = _round(state, effective)
        found += _bounds(state, session)
    fresh = build(state, effective)
    for uid, job in fresh.jobs.items():
        job.errors = session.jobs[uid].errors if session is not None else []
    found += _expected(case.want, fresh)
    for number in range(plan.get("roundsAfterMatch") or 5):
        session = _round(state, effective)
        found += (f"round {number + 1} after: {line}" for line in _expected(case.want, session))
        found += _bounds(state, session)
    return found


def _round(state: dict[str, Any], effective: Document) -> KaiSession:
    session = build(state, effective)
    for action in ALL:
        ACTIONS[action](session)
    for job in state["Jobs"]:
        for index, document in enumerate(job["Tasks"]):
            _carry_over(job, document, session, f"{job['Name']}-{index}")
    for claim in (state.get("TestDRAObjects") or {}).get("ResourceClaims") or ():
        _keep_claim(claim, session)
    return session


def _carry_over(job: Document, document: dict[str, Any], session: KaiSession, uid: str) -> None:
    task = next(task for task in session.jobs[job["Name"]].tasks() if task.uid == uid)
    gone = task.status is KaiPodStatus.PIPELINED or (
        task.status is KaiPodStatus.RELEASING and not job.get("DeleteJobInTest")
    )
    if gone:
        document.update(NodeName="", State="Pending")
        return
    status = KaiPodStatus.RUNNING if task.status is KaiPodStatus.BINDING else task.status
    document.update(NodeName=task.node, State=status.name.capitalize(), GPUGroups=list(task.groups))


def _keep_claim(document: dict[str, Any], session: KaiSession) -> None:
    claim = session.claims.claims[f"{document.get('Namespace', '')}/{document['Name']}"]
    status: dict[str, Any] = {"reservedFor": [{"name": name} for name in claim.reserved]}
    if claim.devices is not None:
        results = [{"pool": d.pool, "driver": d.driver, "device": d.name} for d in claim.devices]
        status["allocation"] = {"devices": {"results": results}}
    if claim.devices is not None or claim.reserved:
        document["ClaimStatus"] = status


def _bounds(case: Document, session: KaiSession) -> Iterator[str]:
    """Binds, evictions and pipelined tasks are no more than the case allows."""
    if not case.get("Mocks"):
        return
    allowed = case["Mocks"].get("CacheRequirements") or {}
    made = Counter(type(decision) for decision in session.decisions)
    for kind, name in (
        (BoundTask, "NumberOfCacheBinds"),
        (EvictedTask, "NumberOfCacheEvictions"),
        (PipelinedTask, "NumberOfPipelineActions"),
    ):
        if made[kind] > allowed.get(name, 0):
            yield f"{name}: {made[kind]} > {allowed.get(name, 0)}"


def _expected(want: Document, session: KaiSession) -> Iterator[str]:
    for name, expected in (want.get("JobExpectedResults") or {}).items():
        yield from _job(name, expected, session)
    tasks = {task.uid: task for job in session.jobs.values() for task in job.tasks()}
    for name, expected in (want.get("TaskExpectedResults") or {}).items():
        if name in tasks:
            yield from _tasks(name, expected, session.jobs[tasks[name].job], [tasks[name]])
    for name, expected in (want.get("ExpectedNodesResources") or {}).items():
        node = session.nodes[name]
        yield from compare(f"{name} idle", node.idle.gpus, expected.get("IdleGPUs", 0))
        yield from compare(f"{name} releasing", node.releasing.gpus, expected.get("ReleasingGPUs", 0))
    yield from _groups(want, session, tasks)


def _job(name: str, expected: Document, session: KaiSession) -> Iterator[str]:
    job = session.jobs[name]
    yield from _tasks(name, expected, job, list(job.tasks()))
    text = expected.get("ExpectedErrorMessage")
    if text:
        yield from compare(f"{name} errors", explain_errors(job.errors), text)


def _tasks(name: str, expected: Document, job: PodGroupInfo, tasks: list[PodInfo]) -> Iterator[str]:
    status = STATUSES[expected["Status"]]
    for task in tasks:
        yield from compare(f"{task.uid} status", task.status.name, status.name)
        if expected.get("NodeName"):
            yield from compare(f"{task.uid} node", task.node, expected["NodeName"])
    yield from compare(f"{name} GPUs", sum(task.request.gpus for task in tasks), expected.get("GPUsRequired", 0))
    for field, got in (
        ("GPUsAccepted", sum(task.accepted_request.gpus for task in tasks)),
        ("MilliCpuRequired", sum(task.request.cpu for task in tasks)),
        ("MemoryRequired", sum(task.request.memory for task in tasks)),
    ):
        if expected.get(field):
            yield from compare(f"{name} {field}", got, expected[field])
    if status in ALLOCATED:
        older = expected.get("LastStartTimestampOlderThan")
        if job.started is None:
            yield f"{name} never started"
        elif older is not None and NOW - job.started < round(older["$seconds"] * SECOND):
            yield f"{name} started too late"


def _groups(want: Document, session: KaiSession, tasks: dict[str, PodInfo]) -> Iterator[str]:
    """Tasks on one node whose GPUs are those that are expected: equal names mean equal GPUs."""
    known: dict[tuple[str, str], str] = {}
    expectations = [
        (task, expected)
        for name, expected in (want.get("JobExpectedResults") or {}).items()
        for task in session.jobs[name].tasks()
    ]
    expectations += [(tasks[n], e) for n, e in (want.get("TaskExpectedResults") or {}).items() if n in tasks]
    for task, expected in expectations:
        names = tuple(expected.get("GPUGroups") or ())
        if expected.get("DontValidateGPUGroup") or task.status not in ACTIVE_USED or task.groups != names:
            continue
        if task.received_type is GpuRequestType.FRACTION:
            for label, group in zip(names, task.groups, strict=True):
                if known.setdefault((task.node, label), group) != group:
                    yield f"{task.uid} is on {group}, not on {known[(task.node, label)]}"


_SINGLE = {
    "allocate": (
        "TestHandleAllocation",
        "TestHandleElasticAllocation",
        "TestHandleFractionalGPUAllocation",
        "TestHandleGangAllocation",
        "TestHandleMIGAllocation",
        "TestHandleMemoryGPUAllocation",
        "TestHandleSubGroupsAllocation",
        "TestHandleTopologyAllocation",
        "TestInterpodAffinityPredicate",
    ),
    "consolidation": ("TestConsolidation", "TestHandleConsolidationGpuMemory", "TestSubGroupsConsolidation"),
    "preempt": (
        "TestHandleGangPreempt",
        "TestHandlePreempt",
        "TestHandlePreemptElastic",
        "TestHandlePreemptGpuMemory",
        "TestHandlePreemptSubGroups",
        "TestHandleScatteredNodesForGangPreempt",
        "TestMIGPreempt",
    ),
    "reclaim": (
        "TestHandleDepartmentsReclaim",
        "TestHandleElasticReclaim",
        "TestHandleGangReclaim",
        "TestHandleReclaim",
        "TestHandleReclaimGpuMemory",
        "TestHandleReclaimSubGroups",
        "TestMIGReclaim",
    ),
    "stalegangeviction": ("TestStaleGangEviction",),
}
_ROUNDS = {
    "allocate": (
        "TestAllocateFractionalGpuIntegrationTest",
        "TestAllocateIntegrationTest",
        "TestAllocateTopologyIntegrationTest",
        "TestDRAAllocation",
        "TestHandleMIGAllocation",
    ),
    "consolidation": (
        "TestConsolidateFractionalIntegrationTest",
        "TestConsolidateGangIntegrationTest",
        "TestConsolidateIntegrationTest",
    ),
    "consolidation_and_reclaim": ("TestConsolidateAndReclaimIntegrationTest",),
    "deletion_tests": ("TestDeletionIntegrationTest",),
    "preempt": (
        "TestMIGPreempt",
        "TestPreemptFractionalIntegrationTest",
        "TestPreemptGangIntegrationTest",
        "TestPreemptIntegrationTest",
    ),
    "reclaim": (
        "TestMIGReclaim",
        "TestReclaimFractionalIntegrationTest",
        "TestReclaimGpuDRAIntegrationTest",
        "TestReclaimIntegrationTest",
    ),
    "stalegangeviction": ("TestStaleGangEvictionIntegrationTest",),
}
CHECKS: dict[str, Check] = {
    **{f"kai/scheduler_actions_{area}/{test}": single for area, tests in _SINGLE.items() for test in tests},
    **{
        f"kai/scheduler_actions_integration_tests_{area}/{test}": rounds
        for area, tests in _ROUNDS.items()
        for test in tests
    },
}
