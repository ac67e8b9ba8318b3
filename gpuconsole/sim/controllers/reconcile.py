"""Looks at one crew and does what its counts call for: begin to work, make missing pods again, let go."""

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.cooperative import Steps
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.job_rules import MemberRules
from gpuconsole.model.volcano_jobs import VolcanoPhase
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.controller.pods_ready import PODS_READY
from gpuconsole.scheduling.kueue.recorder_events import queued_since
from gpuconsole.sim.controllers import (
    checks,
    endings,
    evicting,
    families,
    jobphases,
    node_health,
    pods,
    quotas,
    standing,
    work,
)
from gpuconsole.sim.controllers.making import children
from gpuconsole.sim.controllers.solo import reconciling as solo
from gpuconsole.sim.controllers.specs import job_pods, workload_pods
from gpuconsole.sim.controllers.volcano import acting, members
from gpuconsole.sim.crews import Crew
from gpuconsole.sim.kernel import Release
from gpuconsole.sim.world import World

_FIRST_BACKOFF = 10 * SECOND
_LONGEST_BACKOFF = 6 * MINUTE


def settle(world: World) -> Steps[None]:
    """Look at suspect nodes, checks that may be answered and every crew that changed, until none is left."""
    while (
        world.dirty or world.unchecked or world.suspects or world.families or world.changes or world.requests
        or world.parents or world.uncounted
    ):  # fmt: skip
        if world.changes or world.requests:
            acting.proceed(world)
            continue
        if world.suspects:
            name = next(iter(world.suspects))
            del world.suspects[name]
            node_health.look(world, name)
            continue
        if world.unchecked:
            key = next(iter(world.unchecked))
            del world.unchecked[key]
            checks.look(world, key)
            continue
        if world.families:
            key = next(iter(world.families))
            del world.families[key]
            families.look(world, key)
            continue
        if world.parents:
            key = next(iter(world.parents))
            del world.parents[key]
            children.look(world, key)
            continue
        if not world.dirty:
            quotas.recount(world)
            continue
        key = next(iter(world.dirty))
        del world.dirty[key]
        crew = world.crews.get(key)
        if crew is not None:
            _reconcile(world, crew)
            yield


def backoff(failures: int) -> Span:
    """How long a job waits before it makes a failed pod again (Kubernetes' Job controller: 10 s, doubled, to 6 min)."""
    return min(_LONGEST_BACKOFF, _FIRST_BACKOFF << min(failures - 1, 10))


def _reconcile(world: World, crew: Crew) -> None:
    workload = world.workload(crew.workload) if crew.workload else None
    job = world.job(crew.job) if crew.job else None
    if _orphaned(crew, workload, job):
        if not crew.present:
            pods.disband(world, crew)
    elif job is not None and job.volcano is not None and workload is None:
        _look_at_volcano(world, crew, job)
    elif workload is not None and workload.is_true("Evicted"):
        if not crew.present:
            pods.disband(world, crew)
        evicting.release_when_stopped(world, crew, workload)
    elif _is_halted(workload, job):
        if not crew.present:
            pods.disband(world, crew)
    elif crew.solo and job is not None:
        solo.look(world, crew, workload, job)
    elif crew.missing and crew.refused_since is None and _replaced(world, job):
        pass
    elif crew.missing and crew.refused_since is None and job is not None and _recreates(job) and crew.present:
        pods.remove(world, pods.pods_of(world, crew), "GroupRecreated")
    elif job is not None and job.failures > job.backoff_limit and not job.endless:
        _give_up(world, crew)
    elif crew.missing and world.now >= crew.hold:
        _make_again(world, crew, workload, job)
    elif crew.start is None and crew.started >= crew.need and not crew.leaving:
        _begin(world, crew, workload)
    elif workload is not None and crew.start is not None and crew.started >= crew.need:
        _all_ready(world, workload)


def released(world: World, timer: Release) -> None:
    """The job of a workload that was evicted then is no longer active."""
    workload = world.workload(timer.workload)
    if workload is None or not evicting.is_released_by(workload, timer):
        return
    if not _replaced(world, world.job(workload.owner) if workload.owner else None):
        evicting.release(world, workload.key)


def _is_halted(workload: Workload | None, job: Job | None) -> bool:
    """True for a job that wants no pods now: it is suspended, or its Workload was put on hold."""
    if workload is None:
        return job is not None and job.suspended and job.volcano is None
    return not workload.reserved


def _replaced(world: World, job: Job | None) -> bool:
    """A replica of a Deployment that is lost goes, with its Workload: another pod takes its place."""
    if job is None or not children.is_replica(job):
        return False
    children.delete(world, job)
    return True


def _recreates(job: Job) -> bool:
    """True for a group of a leader and its workers that is made again as a whole."""
    return isinstance(job.rules, MemberRules) and job.rules.recreate


def _look_at_volcano(world: World, crew: Crew, job: Job) -> None:
    """Volcano's controller makes and deletes the pods; their work goes on while enough of them run."""
    crew = members.recount(world, job, crew)
    if crew.start is None and crew.started >= crew.need and job.volcano_status.phase is VolcanoPhase.RUNNING:
        _begin(world, crew, None)


def _all_ready(world: World, workload: Workload) -> None:
    """The pods that a growing job added run, too."""
    if not workload.is_true(PODS_READY):
        world.put(standing.ready(workload, world.now))


def _orphaned(crew: Crew, workload: Workload | None, job: Job | None) -> bool:
    """Its owner is gone or done. A lone pod that is missing has nobody to make it again."""
    if crew.workload:
        return workload is None or workload.finished
    if crew.job:
        return job is None or job.ended
    return bool(crew.missing)


def _give_up(world: World, crew: Crew) -> None:
    if crew.present:
        pods.remove(world, pods.pods_of(world, crew), "BackoffLimitExceeded")
        crew = world.crews[crew.key]
    if not crew.present:
        endings.give_up(world, crew)


def _make_again(world: World, crew: Crew, workload: Workload | None, job: Job | None) -> None:
    wanted: tuple[Pod, ...] = ()
    if workload is not None:
        wanted = workload_pods(world, workload)
    elif job is not None:
        wanted = job_pods(world, job)
    due = []
    for key, pod in zip(crew.pods, wanted, strict=False):
        old = world.pod(key)
        if old is None or (old.done and not (crew.ended and old.phase is PodPhase.SUCCEEDED)):
            if old is not None:
                world.drop(Pod, key)
            due.append(replace(pod, name=key.partition("/")[2]))
    refused = pods.create(world, crew.key, due)
    # Pods that nobody wants any more (a shrunken job) are not missed either.
    missing = crew.missing - len(due) + refused if due else 0
    world.crew(replace(world.crews[crew.key], missing=missing, told=False))


def _begin(world: World, crew: Crew, workload: Workload | None) -> None:
    work.begin(world, crew)
    waited = 0
    if workload is not None:
        waited = world.now - queued_since(workload)
        world.put(standing.ready(workload, world.now))
    jobphases.mark(world, crew.job, JobPhase.RUNNING)
    members = pods.pods_of(world, crew)
    world.tell(
        HistoryEventKind.STARTED,
        workload=crew.workload or crew.job or members[0].key,
        queue=workload.cluster_queue if workload is not None else "",
        node=members[0].node if len(members) == 1 else "",
        **world.devices.held(members),
        # A job of which nobody wants a pod (replicas: 0) has begun, too.
        priority=workload.priority if workload is not None else next((pod.priority for pod in members), 0),
        waited=waited,
    )
