"""Small clusters for Volcano's tests: pods, PodGroups, queues and nodes, and a session on them."""

from collections.abc import Iterable, Mapping

from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.cluster import Node, Pod, PodPhase
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY, PODS
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeDomains
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.task import GROUP_NAME, TASK_SPEC, TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, VolcanoPluginOption
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import ClusterInfo, VolcanoSession

GIB = 1024**3
NOON: Time = 12 * HOUR
NOTHING: Mapping[str, str] = {}


def node(
    name: str, *, labels: Mapping[str, str] = NOTHING, amounts: Mapping[str, int] | None = None, **facts: object
) -> Node:
    """A node with 8 cores, 32 GiB, 8 GPUs and room for 20 pods, unless told otherwise."""
    most = {CPU: 8000, MEMORY: 32 * GIB, GPU: 8, PODS: 20, **(amounts or {})}
    return Node(name=name, labels=labels, allocatable=most, capacity=most, **facts)  # type: ignore[arg-type]


def pod(
    name: str,
    *,
    group: str = "job",
    role: str = "",
    on: str = "",
    labels: Mapping[str, str] = NOTHING,
    annotations: Mapping[str, str] = NOTHING,
    requests: Mapping[str, int] | None = None,
    template: PodTemplate | None = None,
    **facts: object,
) -> Pod:
    """A pod of a PodGroup that wants a core and a GPU; it runs where it is said to be."""
    asked = {CPU: 1000, GPU: 1} if requests is None else requests
    marks = {**({GROUP_NAME: group} if group else {}), **({TASK_SPEC: role} if role else {}), **annotations}
    made: dict[str, object] = {
        "name": name,
        "uid": name,
        "labels": labels,
        "annotations": marks,
        "template": template or PodTemplate(containers=(Container(requests=asked),)),
        "node": on,
        "phase": PodPhase.RUNNING if on else PodPhase.PENDING,
        **facts,
    }
    return Pod(**made)  # type: ignore[arg-type]


def task(name: str, **facts: object) -> TaskInfo:
    return TaskInfo(pod(name, **facts))  # type: ignore[arg-type]


def job(tasks: Iterable[TaskInfo] = (), **facts: object) -> JobInfo:
    """A job of one PodGroup that is let in already."""
    given: dict[str, object] = {"name": "job", "queue": "team", "phase": "Inqueue", **facts}
    result = JobInfo(f"default/{given['name']}", tasks)
    result.set_pod_group(PodGroup(**given))  # type: ignore[arg-type]
    return result


def queue(name: str = "team", **facts: object) -> QueueInfo:
    return QueueInfo(VolcanoQueue(name=name, **facts))  # type: ignore[arg-type]


def cluster(
    nodes: Iterable[Node], jobs: Iterable[JobInfo] = (), *, queues: Iterable[QueueInfo] = (), now: Time = NOON
) -> ClusterInfo:
    """A cluster whose nodes hold the tasks that say so."""
    infos = {one.name: NodeInfo(one) for one in nodes}
    listed = list(jobs)
    for one in (member for owner in listed for member in owner.tasks.values()):
        if one.node_name in infos:
            assert infos[one.node_name].add_task(one) == ""
    return ClusterInfo(
        jobs={one.uid: one for one in listed},
        nodes=infos,
        queues={one.uid: one for one in (*queues, queue())},
        now=now,
    )


def session(
    plugin: str,
    nodes: Iterable[Node],
    jobs: Iterable[JobInfo] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    queues: Iterable[QueueInfo] = (),
    domains: HyperNodeDomains | None = None,
    now: Time = NOON,
) -> VolcanoSession:
    """A session with one plugin that does all it can."""
    made = cluster(nodes, jobs, queues=queues, now=now)
    if domains is not None:
        made.domains = domains
    option = VolcanoPluginOption(name=plugin, arguments=VolcanoArguments(arguments))
    return VolcanoSession(VolcanoConfiguration(tiers=((option,),)), made, plugins=PLUGINS)
