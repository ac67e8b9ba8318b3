"""Which pods a Workload or a job wants: names, templates and gangs. Reads the world, changes nothing."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodTemplate
from gpuconsole.model.jobs import pod_name
from gpuconsole.model.objects import TABLES
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Job, PodSet, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue.podset import flavored
from gpuconsole.sim.controllers.limits import defaulted_sets
from gpuconsole.sim.controllers.priorities import pod_priority
from gpuconsole.sim.world import World


def workload_pods(world: World, workload: Workload) -> tuple[Pod, ...]:
    """The pods of an admitted Workload: as many as it was given, bound to the flavors that it was given."""
    if workload.admission is None:
        return ()
    # A bare Workload's pods are named as if it were a job of that name.
    job = world.job(workload.owner) or Job(namespace=workload.namespace, name=workload.name)
    given = {assignment.name: assignment for assignment in workload.admission.pod_sets}
    flavors = world.state.table(TABLES[ResourceFlavor]).freeze()
    wanted = []
    for pod_set in workload.pod_sets:
        assignment = given.get(pod_set.name, PodSetAssignment(name=pod_set.name, count=pod_set.count))
        wanted.append((pod_set, assignment.count, flavored(pod_set.template, assignment, flavors)))
    return tuple(_pods(world, job, wanted, workload.owner, workload.key))


def job_pods(world: World, job: Job) -> tuple[Pod, ...]:
    """The pods of a job that no Workload stands for: a gang, for its work needs all of them, or `min_available`."""
    wanted = [(part, part.count, part.template) for part in defaulted_sets(world, job.namespace, job.pod_sets)]
    pods = _pods(world, job, wanted, job.key, "")
    return tuple(replace(pod, gang_size=job.min_available or pod.gang_size) if pod.gang else pod for pod in pods)


def _pods(
    world: World, job: Job, wanted: list[tuple[PodSet, int, PodTemplate]], owner: str, workload: str
) -> Iterator[Pod]:
    total = sum(count for _, count, _ in wanted)
    gang = _gang(workload, owner) if total > 1 else ""
    for pod_set, count, template in wanted:
        priority = pod_priority(world, template)
        for index in range(count):
            name = pod_name(job, pod_set.name, index)
            yield Pod(
                namespace=job.namespace,
                name=name,
                uid=world.uid("Pod", f"{job.namespace}/{name}"),
                created=world.now,
                labels=template.labels,
                template=template,
                priority=priority,
                job=owner,
                workload=workload,
                pod_set=pod_set.name,
                index=index,
                gang=gang,
                gang_size=total if gang else 0,
            )


def _gang(workload: str, owner: str) -> str:
    """A gang's name within its namespace. Jobs' names are only unique with their kinds."""
    kind, _, rest = owner.partition("/")
    return workload.partition("/")[2] or f"{kind}/{rest.partition('/')[2]}"
