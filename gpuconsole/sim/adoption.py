"""Taking over a cluster that exists already: which pods belong together, what runs since when, what is missing."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.job import Job
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.controller.pods_ready import PODS_READY
from gpuconsole.sim.controllers import active_checks, creating, jobs, standing, watching, work, workloads
from gpuconsole.sim.controllers.making import cron
from gpuconsole.sim.controllers.priorities import pod_priority
from gpuconsole.sim.controllers.solo import running
from gpuconsole.sim.controllers.specs import job_pods, workload_pods
from gpuconsole.sim.controllers.volcano import acting
from gpuconsole.sim.crews import Crew, crew_key
from gpuconsole.sim.kernel import PodsGone, Release
from gpuconsole.sim.world import World


def begin_with(world: World, objects: Iterable[Object]) -> None:
    """Create the objects of a new cluster; those that have a life behind them already keep it."""
    order = {kind: place for place, kind in enumerate(TABLES)}
    everything = sorted(objects, key=lambda thing: order[type(thing)])
    known = _owners(everything)
    for thing in everything:
        if not isinstance(thing, (Job, Workload, Pod)):
            world.put(thing)
    active_checks.refresh(world)
    for queue in list(world.state.table("local_queues").all()):
        jobs.ensure_namespace(world, queue.namespace)
    fresh = []
    for thing in everything:
        if isinstance(thing, (Job, Workload, Pod)):
            if _lived(thing) or thing.key in known:
                world.put(thing)
            else:
                fresh.append(thing)
    take_over(world)
    for thing in fresh:
        creating.create(world, thing)


def restore(world: World, objects: Iterable[Object]) -> None:
    """Put objects in place without a word in the outbox."""
    for thing in objects:
        world.state.apply(Applied(world.now, thing))
        world.introduce(thing)
    take_over(world)


def take_over(world: World) -> None:
    """Give every group of pods its crew and its timers, and make what is missing."""
    _complete_pods(world)
    grouped: dict[str, list[Pod]] = {}
    for pod in world.state.table("pods").all():
        grouped.setdefault(crew_key(pod), []).append(pod)
    for key, members in grouped.items():
        _adopt(world, key, members)
    for workload in list(world.state.table("workloads").all()):
        _continue_workload(world, workload)
    owned = {workload.owner for workload in world.state.table("workloads").all()}
    for job in list(world.state.table("jobs").all()):
        _continue_job(world, job, owned)


def _complete_pods(world: World) -> None:
    """Fill in what nobody said of pods: Workload, priority, GPUs, MIG instances.

    One that has a node, but no start, starts now.
    """
    owned = {workload.owner: workload.key for workload in world.state.table("workloads").all() if workload.owner}
    for pod in list(world.state.table("pods").all()):
        deployment = _deployment_of(pod)
        if deployment and world.job(deployment) is not None:
            pod = replace(pod, job=deployment)
            world.put(pod)
        workload = pod.workload if world.workload(pod.workload) is not None else owned.get(pod.job, "")
        priority = pod.priority or pod_priority(world, pod.template)
        indices = pod.gpus or world.placement.gpus_of(pod.key)
        slices = pod.slices or world.placement.slices_of(pod.key)
        full = replace(pod, workload=workload, priority=priority, gpus=indices, slices=slices)
        if pod.node and not pod.done and not pod.started:
            full = replace(full, started=world.now, phase=PodPhase.RUNNING)
        if full != pod:
            world.put(full)


def _deployment_of(pod: Pod) -> str:
    """The Deployment whose ReplicaSet made a pod: the ReplicaSet's name is its own with a hash."""
    kind, _, rest = pod.job.partition("/")
    return f"Deployment/{rest.rpartition('-')[0]}" if kind == "ReplicaSet" else ""


def _owners(objects: Iterable[Object]) -> set[str]:
    """Jobs that a Workload or pods in the input belong to already."""
    keys: set[str] = set()
    for thing in objects:
        match thing:
            case Workload(owner=owner) if owner:
                keys.add(owner)
            case Pod(job=job) if job:
                keys.add(job)
            case _:
                pass
    return keys


def _lived(thing: Job | Workload | Pod) -> bool:
    match thing:
        case Job():
            return thing.ended
        case Workload():
            return bool(thing.conditions)
        case Pod():
            return bool(thing.node or thing.done or thing.workload or thing.job)


def _adopt(world: World, key: str, members: list[Pod]) -> None:
    """Count what is there, and set the timers of what is under way."""
    first = members[0]
    crew = Crew(key=key, workload=first.workload, job=first.job, pods=tuple(pod.key for pod in members))
    if work.ended(world, crew):
        return
    job = world.job(first.job) if first.job else None
    if job is not None and job.solo:
        _adopt_each(world, crew, members)
        return
    names, absent = _names(_wanted(world, crew), members)
    crew = replace(
        crew,
        pods=tuple(names),
        need=len(names),
        running=sum(1 for pod in members if pod.node and not pod.deleted and not pod.done),
        leaving=sum(1 for pod in members if pod.node and pod.deleted and not pod.done),
        missing=absent + sum(1 for pod in members if pod.done),
    )
    for pod in members:
        if pod.deleted:
            due = max(world.now, pod.deleted + pod.template.grace_period)
            world.kernel.at(due, PodsGone(((pod.key, pod.uid),)))
    world.crew(crew)
    if crew.running >= crew.need:
        work.resume(world, crew, max(pod.started for pod in members))


def _adopt_each(world: World, crew: Crew, members: list[Pod]) -> None:
    """Pods that work each for itself: those that have ended are nobody's concern any more."""
    there = [pod for pod in members if not pod.done]
    at_work = [pod for pod in there if pod.node and not pod.deleted]
    world.crew(
        replace(
            crew,
            solo=True,
            pods=tuple(pod.key for pod in there),
            running=len(at_work),
            leaving=sum(bool(pod.node and pod.deleted) for pod in there),
            start=min((pod.started for pod in at_work), default=None),
        )
    )
    for pod in there:
        if pod.deleted:
            due = max(world.now, pod.deleted + pod.template.grace_period)
            world.kernel.at(due, PodsGone(((pod.key, pod.uid),)))
    for pod in at_work:
        running.begin(world, pod)


def _names(wanted: Sequence[Pod], members: Sequence[Pod]) -> tuple[list[str], int]:
    """Keys of a crew's pods in the order in which they are wanted, and how many of them do not exist.

    A pod is known by its pod set and index. One that nobody wants by these (a live cluster does not say the index)
    stands for one that is not there, of its own pod set if it says which.
    """
    known = {(pod.pod_set, pod.index): pod.key for pod in members}
    named = [known.get((pod.pod_set, pod.index)) for pod in wanted]
    taken = set(named)
    others: dict[str, list[str]] = {}
    for pod in reversed(members):
        if pod.key not in taken:
            others.setdefault(pod.pod_set, []).append(pod.key)
    names, absent = [], 0
    for pod, key in zip(wanted, named, strict=True):
        stand_ins = others.get(pod.pod_set) or others.get("")
        if key is None and stand_ins:
            key = stand_ins.pop()
        absent += key is None
        names.append(key or pod.key)
    return [*names, *(key for rest in others.values() for key in reversed(rest))], absent


def _wanted(world: World, crew: Crew) -> tuple[Pod, ...]:
    workload = world.workload(crew.workload) if crew.workload else None
    if workload is not None:
        return workload_pods(world, workload)
    job = world.job(crew.job) if crew.job else None
    return job_pods(world, job) if job is not None else ()


def _continue_workload(world: World, workload: Workload) -> None:
    if workload.finished:
        return
    if workload.reserved:
        if workload.admitted and workload.condition(PODS_READY) is None:
            # Nothing is known of its pods: they have as long as after a failure.
            workload = standing.not_ready(standing.ready(workload, world.now), world.now)
            world.put(workload)
        watching.watch(world, workload)
        if workload.key not in world.crews:
            if workload.is_true("Evicted"):
                world.kernel.at(world.now, Release(workload.key, _evicted_at(workload)))
            elif workload.admitted:
                workloads.make_pods(world, workload)
    else:
        standing.check(world, workload)


def _evicted_at(workload: Workload) -> Time:
    evicted = workload.condition("Evicted")
    return evicted.since if evicted is not None else 0


def _continue_job(world: World, job: Job, owned: set[str]) -> None:
    if job.volcano is not None and not job.ended and job.key not in owned:
        acting.start(world, job)
        return
    if job.ended or job.key in owned or job.key in world.crews:
        return
    if jobs.makes_jobs(world, job):
        world.parents[job.key] = None
        cron.arm(world, job)
        return
    if jobs.managed(world, job):
        jobs.stand_for(world, job)
    elif not job.suspended:
        jobs.start_unmanaged(world, job)
