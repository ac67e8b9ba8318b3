"""Comparison of engines under the same load: waits, starts, utilization, evictions and GPU-hours."""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.index.gpu_time import GpuTime
from gpuconsole.insight.index.unqueued_work import outermost
from gpuconsole.insight.whatif.futures import LOSSES
from gpuconsole.model.clock import HOUR, Span, Time, quantile
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import Applied, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import CronRules, Job
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation

PARTS = 200
"""Number of equal steps in which a run advances; events are read after each, so that they do not pile up."""


class JobCourse(Struct, frozen=True, kw_only=True):
    """The outcome of one job under one engine; None for what did not happen before the horizon."""

    started: Time | None = None
    """First start: of all its pods, or of the first one if the pods are independent."""
    finished: Time | None = None
    evictions: int = 0
    """Number of evictions of the job or of its pods."""
    gpu_hours: float = 0.0
    """GPU-hours held by its pods."""


class ComparedJob(Struct, frozen=True, kw_only=True):
    """One job under each of the engines, in their order."""

    job: str
    queue: str
    """ClusterQueue, else the namespace of work that names no LocalQueue."""
    gpus: int
    submitted: Time
    courses: tuple[JobCourse, ...]


class EngineTotals(Struct, frozen=True, kw_only=True):
    """Totals of a load under one engine. Waits are from submission to the first start, of the jobs that started."""

    engine: str
    started: int
    finished: int
    wait_median: Span | None
    wait_p95: Span | None
    wait_longest: Span | None
    gpu_hours: float
    """GPU-hours held by pods."""
    capacity_hours: float
    """GPU-hours of the nodes that were ready."""
    preemptions: int
    """Evictions for another workload or pod."""
    evictions: int
    lost_gpu_hours: float
    lost_cost: float
    """USD."""

    @property
    def utilization(self) -> float | None:
        """Fraction of the GPU-hours that pods held; None without GPUs."""
        return self.gpu_hours / self.capacity_hours if self.capacity_hours else None


class ComparedQueue(Struct, frozen=True, kw_only=True):
    """Totals of a queue's jobs under each of the engines, in their order."""

    queue: str
    jobs: int
    started: tuple[int, ...]
    wait_median: tuple[Span | None, ...]
    gpu_hours: tuple[float, ...]


class EngineComparison(Struct, frozen=True, kw_only=True):
    """The same jobs from the same moment under several engines, the given one first."""

    time: Time
    horizon: Time
    seed: int
    engines: tuple[EngineTotals, ...]
    queues: tuple[ComparedQueue, ...]
    jobs: tuple[ComparedJob, ...]
    """In order of submission."""


class _Run(Struct, kw_only=True):
    """State of the load under one engine. Mutated while it runs."""

    engine: str
    gpu_time: GpuTime
    jobs: dict[str, Job] = field(default_factory=dict)
    first: dict[str, Time] = field(default_factory=dict)
    """Job → time of its submission."""
    queues: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    """Workload or pod → its job."""
    pods: dict[str, tuple[str, float, Time]] = field(default_factory=dict)
    """Pod that holds GPUs → its job, how many, since when."""
    courses: dict[str, JobCourse] = field(default_factory=dict)
    losses: set[tuple[Time, str]] = field(default_factory=set)
    preempted: set[tuple[Time, str]] = field(default_factory=set)
    lost_gpu_hours: float = 0.0
    lost_cost: float = 0.0


def compare_engines(runs: Sequence[tuple[str, Simulation]], horizon: Span) -> EngineComparison:
    """Run simulations of one load under several engines for `horizon`, and compare the outcomes of its jobs.

    The simulations (with the names of their engines) start at the same moment, and are advanced by this function.
    """
    start, seed = runs[0][1].now, runs[0][1].seed
    done = [_run(name, simulation, start + horizon) for name, simulation in runs]
    jobs = _jobs(done)
    return EngineComparison(
        time=start,
        horizon=start + horizon,
        seed=seed,
        engines=tuple(_totals(run, jobs, place) for place, run in enumerate(done)),
        queues=_queues(jobs),
        jobs=jobs,
    )


def _run(name: str, simulation: Simulation, until: Time) -> _Run:
    start = simulation.now
    # The events of the first moment are still queued: no GPU was held before.
    run = _Run(engine=name, gpu_time=GpuTime.of_nothing(start))
    for part in range(PARTS + 1):
        simulation.advance(start + (until - start) * part // PARTS)
        for event in simulation.drain():
            run.gpu_time.note(event)
            _note(run, event)
    run.gpu_time.count(until)
    for key in list(run.pods):
        _let_go(run, key, until)
    snapshot = simulation.snapshot()
    local_queues = {local_queue.key: local_queue.cluster_queue for local_queue in snapshot.local_queues.all()}
    for key, job in run.jobs.items():
        run.queues[key] = local_queues.get(f"{job.namespace}/{job.queue}", "") or job.namespace
    return run


def _note(run: _Run, event: Event) -> None:
    match event:
        case Applied(time=time, object=Job() as job):
            run.jobs[job.key] = job
            run.first.setdefault(job.key, time)
        case Applied(object=Workload() as workload):
            run.owners[workload.key] = workload.owner or _bare(workload)
            if not workload.owner:
                # Under other engines the work is a job with this key.
                run.jobs[_bare(workload)] = _as_job(workload)
                run.first.setdefault(_bare(workload), event.time)
        case Applied(time=time, object=Pod() as pod):
            run.owners[pod.key] = pod.job or run.owners.get(pod.workload, "")
            _hold(run, pod, time)
        case HistoryEvent():
            _tell(run, event)
        case _:
            if event.table == "pods":
                _let_go(run, event.key, event.time)


def _bare(workload: Workload) -> str:
    return f"Workload/{workload.key}"


def _as_job(workload: Workload) -> Job:
    return Job(
        kind="Workload",
        namespace=workload.namespace,
        name=workload.name,
        created=workload.created,
        queue=workload.queue,
        pod_sets=workload.pod_sets,
    )


def _hold(run: _Run, pod: Pod, time: Time) -> None:
    gpus = run.gpu_time.gpus(pod)
    holds = gpus > 0
    if holds and pod.key not in run.pods:
        run.pods[pod.key] = (_root(run, pod.key), gpus, time)
    elif not holds:
        _let_go(run, pod.key, time)


def _let_go(run: _Run, pod: str, time: Time) -> None:
    job, count, since = run.pods.pop(pod, ("", 0, time))
    if job:
        course = _course(run, job)
        run.courses[job] = replace(course, gpu_hours=course.gpu_hours + count * (time - since) / HOUR)


def _tell(run: _Run, line: HistoryEvent) -> None:
    root = _root(run, line.workload or line.pod)
    course = _course(run, root)
    moment = line.time, root or line.workload or line.pod
    match line.what:
        case HistoryEventKind.STARTED if course.started is None:
            run.courses[root] = replace(course, started=line.time)
        case HistoryEventKind.FINISHED:
            run.courses[root] = replace(course, finished=line.time)
        case HistoryEventKind.PREEMPTED:
            run.preempted.add(moment)
        case _ if line.what in LOSSES:
            if moment not in run.losses:
                run.losses.add(moment)
                run.courses[root] = replace(course, evictions=course.evictions + 1)
            if line.by or line.reason == "Preempted":
                run.preempted.add(moment)
            run.lost_gpu_hours += line.lost_gpu_seconds / 3600
            run.lost_cost += line.cost


def _course(run: _Run, job: str) -> JobCourse:
    return run.courses.get(job) or JobCourse()


def _root(run: _Run, key: str) -> str:
    """Return the outermost job that a workload, a pod or a job is part of; empty for a lone pod."""
    owner = key if key in run.jobs else run.owners.get(key, "")
    return outermost(run.jobs.get, owner) if owner else ""


def _jobs(runs: Sequence[_Run]) -> tuple[ComparedJob, ...]:
    """List the top-level jobs of all engines, by their first submission."""
    found: dict[str, ComparedJob] = {}
    for run in runs:
        for key, job in run.jobs.items():
            if key in found or outermost(run.jobs.get, key) != key or isinstance(job.rules, CronRules):
                continue
            found[key] = ComparedJob(
                job=key,
                queue=run.queues.get(key, job.namespace),
                gpus=run.gpu_time.requested(job),
                submitted=run.first[key],
                courses=tuple(_course(other, key) for other in runs),
            )
    return tuple(sorted(found.values(), key=lambda job: (job.submitted, job.job)))


def _waits(jobs: Sequence[ComparedJob], place: int) -> list[Span]:
    spans = ((job.courses[place].started, job.submitted) for job in jobs)
    return sorted(started - submitted for started, submitted in spans if started is not None)


def _totals(run: _Run, jobs: Sequence[ComparedJob], place: int) -> EngineTotals:
    waits = _waits(jobs, place)
    return EngineTotals(
        engine=run.engine,
        started=len(waits),
        finished=sum(job.courses[place].finished is not None for job in jobs),
        wait_median=quantile(waits, 0.5),
        wait_p95=quantile(waits, 0.95),
        wait_longest=waits[-1] if waits else None,
        gpu_hours=run.gpu_time.used_hours,
        capacity_hours=run.gpu_time.total_hours,
        preemptions=len(run.preempted),
        evictions=len(run.losses),
        lost_gpu_hours=run.lost_gpu_hours,
        lost_cost=run.lost_cost,
    )


def _queues(jobs: Sequence[ComparedJob]) -> tuple[ComparedQueue, ...]:
    by_queue: dict[str, list[ComparedJob]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    return tuple(_queue(name, members) for name, members in sorted(by_queue.items()))


def _queue(name: str, jobs: Sequence[ComparedJob]) -> ComparedQueue:
    places = range(len(jobs[0].courses))
    waits = [_waits(jobs, place) for place in places]
    return ComparedQueue(
        queue=name,
        jobs=len(jobs),
        started=tuple(map(len, waits)),
        wait_median=tuple(quantile(spans, 0.5) for spans in waits),
        gpu_hours=tuple(sum(job.courses[place].gpu_hours for job in jobs) for place in places),
    )
