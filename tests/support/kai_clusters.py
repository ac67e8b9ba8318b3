"""Small clusters for KAI: nodes with GPUs, queues below one root, jobs of equal tasks."""

from collections.abc import Mapping, Sequence

from gpuconsole.model.clock import MINUTE, Time
from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kai.actions import ACTIONS
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, single_pod_set_tree
from gpuconsole.scheduling.kai.api.nodes import GPU_MEMORY_LABEL, KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import (
    ACTIVE_USED,
    ALLOCATED,
    PODS,
    GpuRequestType,
    KaiPodStatus,
    PodInfo,
    ResourceAmounts,
    ResourceRequirements,
)
from gpuconsole.scheduling.kai.config import KaiConfiguration, SchedulerFlags
from gpuconsole.scheduling.kai.fair_share.division import KaiQueueQuota, QueueState
from gpuconsole.scheduling.kai.session import BoundTask, EvictedTask, KaiSession, PipelinedTask
from gpuconsole.scheduling.kai.store import open_plugins

NOW: Time = 1000 * MINUTE
FREE = KaiQueueQuota(quota=-1, over_quota_weight=1, limit=-1)


def node(name: str, gpus: int, labels: Mapping[str, str] | None = None) -> KaiNodeInfo:
    described = Node(name=name, labels={GPU_MEMORY_LABEL: "100", **(labels or {})})
    return KaiNodeInfo(described, ResourceAmounts(64_000, 512e9, gpus, {PODS: 110}))


def queue(name: str, quota: float = 0, *, weight: float = 1, limit: float = -1, **rest: object) -> QueueState:
    gpu = KaiQueueQuota(quota=quota, over_quota_weight=weight, limit=limit)
    return QueueState(uid=name, name=name, parent="root", gpu=gpu, cpu=FREE, memory=FREE, **rest)  # type: ignore[arg-type]


def request(gpus: float) -> tuple[ResourceRequirements, GpuRequestType]:
    if 0 < gpus < 1:
        return ResourceRequirements(
            cpu=1000, memory=1e9, scalars={PODS: 1}, count=1, portion=gpus
        ), GpuRequestType.FRACTION
    return ResourceRequirements(
        cpu=1000, memory=1e9, scalars={PODS: 1}, count=int(gpus), portion=min(gpus, 1)
    ), GpuRequestType.REGULAR


def job(
    name: str,
    gpus: float,
    seats: Sequence[str],
    *,
    queue: str = "a",
    least: int | None = None,
    age: int = 0,
    groups: Sequence[str] = (),
    priority: int = 50,
    started: Time | None = NOW - MINUTE,
    stale_since: Time | None = None,
) -> PodGroupInfo:
    """A job with one task a seat; an empty seat is a task that waits. All of them are needed, unless `least` says."""
    need, sort = request(gpus)
    tasks = [
        PodInfo(
            f"{name}-{index}",
            job=name,
            request=need,
            sort=sort,
            status=KaiPodStatus.RUNNING if seat else KaiPodStatus.PENDING,
            node=seat,
            groups=(groups[index],) if seat and groups else (),
        )
        for index, seat in enumerate(seats)
    ]
    return PodGroupInfo(
        name,
        queue=queue,
        priority=priority,
        preemptible=priority < 100,
        created=NOW - age * MINUTE,
        started=started if any(task.status in ALLOCATED for task in tasks) else None,
        stale_since=stale_since,
        root=single_pod_set_tree(len(seats) if least is None else least),
        tasks=tasks,
    )


def session(
    nodes: Sequence[KaiNodeInfo],
    queues: Sequence[QueueState],
    jobs: Sequence[PodGroupInfo],
    *,
    parameters: SchedulerFlags = SchedulerFlags(max_consolidation_victims=-1),  # noqa: B008
    configuration: KaiConfiguration = KaiConfiguration(),  # noqa: B008
    **rest: object,
) -> KaiSession:
    """A session with its plugins opened; the queues are below one that has no bounds."""
    root = QueueState(
        uid="root",
        name="root",
        children=tuple(sorted(found.uid for found in queues)),
        gpu=FREE,
        cpu=FREE,
        memory=FREE,
    )
    by_name = {found.name: found for found in nodes}
    for found in jobs:
        for task in found.tasks():
            if task.status in ACTIVE_USED:
                by_name[task.node].add_task(task)
    made = KaiSession(
        jobs=jobs,
        nodes=nodes,
        queues=[root, *queues],
        now=NOW,
        parameters=parameters,
        configuration=configuration,
        **rest,  # type: ignore[arg-type]
    )
    open_plugins(made)
    return made


def after(made: KaiSession, *actions: str) -> list[tuple[str, str, str]]:
    """Take the actions; what was decided, in order: what, which task, and its node where it has one from now on."""
    for action in actions:
        ACTIONS[action](made)
    words = {BoundTask: "bind", EvictedTask: "evict", PipelinedTask: "wait"}
    return [
        (words[type(decision)], decision.task.uid, "" if isinstance(decision, EvictedTask) else decision.task.node)
        for decision in made.decisions
    ]
