"""Cluster snapshot for a session, built from objects: tasks, jobs, nodes, queues and hyper nodes."""

from collections.abc import Callable, Iterable, Mapping

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.devices import ResourceClaim
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.status import TaskStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.claims import set_claims
from gpuconsole.scheduling.volcano.session import ClusterInfo

DONE = frozenset((TaskStatus.SUCCEEDED, TaskStatus.FAILED))
NO_CLAIMS: Mapping[str, ResourceClaim] = {}
NO_PRIORITIES: Mapping[str, int] = {}


def gather(
    *,
    nodes: Iterable[NodeInfo],
    pods: Iterable[Pod],
    groups: Iterable[PodGroup],
    queues: Iterable[VolcanoQueue],
    priorities: Mapping[str, int] = NO_PRIORITIES,
    default_priority: int = 0,
    claims: Mapping[str, ResourceClaim] = NO_CLAIMS,
    task_of: Callable[[Pod], TaskInfo] = TaskInfo,
    now: Time = 0,
) -> ClusterInfo:
    """Build the snapshot for a session; `priorities` maps priority classes to their values.

    Nodes are copied without tasks and get those of `pods`. A pod belongs to the job of its PodGroup; without one it
    only uses resources of its node. Jobs whose queue does not exist are left out.
    """
    cluster = ClusterInfo(now=now)
    cluster.nodes = {node.name: node.fresh() for node in nodes}
    cluster.queues = {queue.name: QueueInfo(queue) for queue in queues}
    jobs: dict[str, JobInfo] = {}
    for group in groups:
        job = jobs[group.key] = JobInfo(group.key)
        job.set_pod_group(group)
        job.priority = priorities.get(group.priority_class, default_priority)
    cluster.jobs = jobs = {uid: job for uid, job in jobs.items() if job.queue in cluster.queues}
    for pod in sorted(pods, key=lambda pod: pod.key):
        task = task_of(pod)
        if pod.template.resource_claims and claims:
            set_claims(task, claims)
        node = cluster.nodes.get(task.node_name)
        if node is not None and task.status not in DONE:
            node.add_task(task)
        if task.job in jobs:
            jobs[task.job].add_task(task)
    return cluster
