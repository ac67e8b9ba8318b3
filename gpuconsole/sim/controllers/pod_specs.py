"""Pods of Workloads and jobs: their names, templates and gangs, and the removal of scheduling gates.

Reads the world and changes nothing but gates: `ungate` removes the gates of pods that have a topology assignment
(Kueue: topology ungater).
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.jobs import pod_name
from gpuconsole.model.jobs.batch import next_pieces
from gpuconsole.model.jobs.ray import GROUP_NAMES
from gpuconsole.model.jobs.services_and_pod_groups import WORKER, WORKER_INDEX
from gpuconsole.model.kai import NODE_POOL_LABEL
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.volcano import RayGroup
from gpuconsole.model.workloads import PodSetAssignment, Workload
from gpuconsole.scheduling.kai.config import QUEUE_LABEL
from gpuconsole.scheduling.kube.pod_groups import POD_GROUP_LABELS
from gpuconsole.scheduling.kueue.config import DEFAULT, KueueConfig
from gpuconsole.scheduling.kueue.podset import (
    TOPOLOGY_GATE,
    UNCONSTRAINED,
    Additions,
    Conflict,
    additions_by_pod_set,
    apply_additions,
)
from gpuconsole.scheduling.kueue.topology.layout import placed_by_topology
from gpuconsole.scheduling.kueue.topology.node_failures import Places, is_gated, ungate_pods
from gpuconsole.scheduling.volcano.api.task import GROUP_NAME, TASK_SPEC
from gpuconsole.scheduling.volcano.jobs.pods import pod_of
from gpuconsole.scheduling.volcano.jobs.states import tasks_of
from gpuconsole.sim.controllers.admission_plugins import pod_priority, pod_sets_with_defaults
from gpuconsole.sim.world import World


def ungate(world: World, workload: Workload) -> None:
    """Ungate the pods of a workload that have an assignment now."""
    group = world.groups.get(workload.key)
    present = [pod for pod in map(world.pod, group.pods if group is not None else ()) if pod is not None]
    for before, after in zip(present, ungated_pods(workload, present), strict=True):
        if before is not after:
            world.put(after)


def ungated_pods(workload: Workload, pods: Sequence[Pod]) -> list[Pod]:
    """The pods, where those with a topology assignment now are ungated and select the nodes of their domain."""
    domains = _domains_by_index(workload, pods)
    return [_with_domain(pod, domains) if pod.key in domains else pod for pod in pods]


def gated_pod(pod: Pod, pod_set: PodSet) -> Pod:
    """A new gated pod that waits for its assignment, with its index where the pod set has an index label.

    Its index is its rank; pods of several jobs in one pod set count from 0 in each, a leader's workers from 1.
    """
    annotations, labels, request = pod.annotations, dict(pod.labels), pod_set.topology
    if not placed_by_topology(pod):
        annotations = {**annotations, UNCONSTRAINED: "true"}
    if request is not None and request.index_label:
        size = pod_set.count
        if request.subgroup_index_label and request.subgroup_count:
            size = max(1, size // request.subgroup_count)
            labels[request.subgroup_index_label] = str(pod.index // size)
        first = int(request.index_label == WORKER_INDEX and pod_set.name == WORKER)
        labels[request.index_label] = str(pod.index % size + first)
    return replace(pod, gates=(TOPOLOGY_GATE,), annotations=annotations, labels=labels)


def _domains_by_index(workload: Workload, pods: Iterable[Pod]) -> Places:
    """The domain of each pod index; an invalid index offset keeps all pods gated."""
    pods = list(pods)
    if not any(map(is_gated, pods)):
        return {}
    try:
        return ungate_pods(workload, pods)
    except ValueError:
        return {}


def _with_domain(pod: Pod, domains: Places) -> Pod:
    template = pod.template
    bound = replace(
        template,
        node_selector={**template.node_selector, **domains[pod.key]},
        scheduling_gates=tuple(gate for gate in template.scheduling_gates if gate != TOPOLOGY_GATE),
    )
    return replace(pod, template=bound, gates=tuple(gate for gate in pod.gates if gate != TOPOLOGY_GATE))


MOST_PODS = 1_000_000
"""Maximum simulated pods of one workload; the API has no limit."""


def pods_for(world: World, job: Job, workload: Workload | None, pieces: Sequence[int] | None = None) -> tuple[Pod, ...]:
    """The pods of a job, from its Workload if it has one; for a batch/v1 Job those of these pieces of work."""
    return job_pods(world, job, pieces) if workload is None else workload_pods(world, workload, pieces)


def workload_pods(world: World, workload: Workload, pieces: Sequence[int] | None = None) -> tuple[Pod, ...]:
    """The pods of an admitted Workload; none if `started_pods` raises Conflict."""
    try:
        return started_pods(world, workload, pieces)
    except Conflict:
        return ()


def started_pods(world: World, workload: Workload, pieces: Sequence[int] | None = None) -> tuple[Pod, ...]:
    """The pods of an admitted Workload: the admitted number, with its flavors and topology domains.

    A batch/v1 Job gets those of these `pieces` of its work, or of the first ones. Raises Conflict if flavors,
    checks and the job's own templates contradict each other, or if there are too many.
    """
    if workload.admission is None:
        return ()
    total = sum(assignment.count for assignment in workload.admission.pod_sets)
    if total > MOST_PODS:
        raise Conflict(f"{total} pods are more than can be simulated; the most are {MOST_PODS}")
    # A bare Workload's pods are named as if it were a job of that name.
    job = world.job(workload.owner) or Job(namespace=workload.namespace, name=workload.name)
    given = {part.name: (assignment, added) for part, assignment, added in _pod_additions(world, workload)}
    elastic = _kueue_config(world).enabled("ElasticJobsViaWorkloadSlices")
    group = world.groups.get(workload.key)
    wanted = []
    waiting = set()
    for pod_set in workload.pod_sets:
        assignment, added = given.get(pod_set.name, (PodSetAssignment(count=pod_set.count), Additions()))
        template = apply_additions(pod_set.template, added, elastic=elastic)
        wanted.append((pod_set, template, _pod_indexes(job, assignment.count, pieces)))
        if assignment.topology:
            waiting.add(pod_set.name)
    pods = list(_new_pods(world, job, wanted, workload.owner, workload.key))
    if not waiting:
        return tuple(pods)
    sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    fresh = [gated_pod(pod, sets[pod.pod_set]) if pod.pod_set in waiting else pod for pod in pods]
    if job.solo:
        others = [pod for key in (group.pods if group is not None else ()) if (pod := world.pod(key)) is not None]
        going = [pod for pod in others if not (pod.done or pod.deleted)]
        return tuple(ungated_pods(workload, [*going, *fresh])[len(going) :])
    for index, key in enumerate(group.pods[: len(fresh)] if group is not None else ()):
        old = world.pod(key)
        if old is not None and not old.done and not old.deleted:
            fresh[index] = old
    return tuple(ungated_pods(workload, fresh))


def _kueue_config(world: World) -> KueueConfig:
    return world.policy.kueue or DEFAULT


def _pod_additions(world: World, workload: Workload) -> Iterator[tuple[PodSet, PodSetAssignment, Additions]]:
    """What flavors and checks add to the pods; a deleted flavor adds nothing."""
    admission = workload.admission
    assigned = admission.pod_sets if admission is not None else ()
    names = {name for assignment in assigned for name in assignment.flavors.values()}
    flavors = {name: world.state.get(ResourceFlavor, name) or ResourceFlavor(name=name) for name in names}
    return additions_by_pod_set(workload, flavors, _kueue_config(world))


def _pod_indexes(job: Job, count: int, pieces: Sequence[int] | None) -> Sequence[int]:
    """The pod indexes of a pod set: all of them, or those of a Job's next pieces of work."""
    if not (job.solo and isinstance(job.rules, BatchRules)):
        return range(count)
    return next_pieces(job, job.rules, count, ()) if pieces is None else pieces


def job_pods(world: World, job: Job, pieces: Sequence[int] | None = None) -> tuple[Pod, ...]:
    """The pods of a job without a Workload: a gang of all of them, or of `min_available`."""
    if job.volcano is not None:
        return tuple(pod_of(job, task, index) for task in tasks_of(job) for index in range(task.replicas))
    parts = pod_sets_with_defaults(world, job.namespace, job.pod_sets)
    wanted = [(part, part.template, _pod_indexes(job, part.count, pieces)) for part in parts]
    pods = _new_pods(world, job, wanted, job.key, "")
    return tuple(replace(pod, gang_size=job.min_available or pod.gang_size) if pod.gang else pod for pod in pods)


def in_ray_group(template: PodTemplate, group: RayGroup, name: str, pod_set: str) -> PodTemplate:
    """Add to a template the labels or annotations by which its pods join a PodGroup that KubeRay creates."""
    if not group.for_volcano:
        return replace(template, labels={**template.labels, POD_GROUP_LABELS[0]: name})
    notes = {GROUP_NAME: name, TASK_SPEC: GROUP_NAMES.get(pod_set, pod_set)}
    return replace(template, annotations={**template.annotations, **notes})


def _new_pods(
    world: World, job: Job, wanted: list[tuple[PodSet, PodTemplate, Sequence[int]]], owner: str, workload: str
) -> Iterator[Pod]:
    total = sum(len(indexes) for _, _, indexes in wanted)
    gang = _gang_name(workload, owner) if total > 1 and not job.solo else ""
    size = total if gang else 0
    if job.ray_group is not None:
        # Its PodGroup says how many start together.
        gang, size = job.ray_group.name_for(job.name), job.ray_group.min_member
    # KAI's pod grouper takes queue and shard from the labels of the top owner first.
    kai = {key: job.labels[key] for key in (QUEUE_LABEL, NODE_POOL_LABEL) if key in job.labels}
    for pod_set, template, indexes in wanted:
        priority = pod_priority(world, pod_set.template)
        if job.ray_group is not None:
            template = in_ray_group(template, job.ray_group, gang, pod_set.name)
        for index in indexes:
            name = pod_name(job, pod_set.name, index)
            yield Pod(
                namespace=job.namespace,
                name=name,
                uid=world.uid("Pod", f"{job.namespace}/{name}"),
                created=world.now,
                labels={**template.labels, **kai} if kai else template.labels,
                annotations=template.annotations,
                template=template,
                priority=priority,
                job=owner,
                workload=workload,
                pod_set=pod_set.name,
                index=index,
                gang=gang,
                gang_size=size,
            )


def _gang_name(workload: str, owner: str) -> str:
    """A gang's name within its namespace. Jobs' names are unique only per kind."""
    kind, _, rest = owner.partition("/")
    return workload.partition("/")[2] or f"{kind}/{rest.partition('/')[2]}"
