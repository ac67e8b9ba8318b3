"""CronJobs: a Job at each scheduled time (Kubernetes' CronJob controller; the Spark operator's for its kind)."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, Time
from gpuconsole.model.cron import parse_cron
from gpuconsole.model.job import Concurrency, CronRules, Job, JobPhase
from gpuconsole.model.jobs import applications as spark
from gpuconsole.sim.kernel import CronDue
from gpuconsole.sim.world import World

_SPARK = "SparkApplication"
MOST_MISSED = 10_000
"""Maximum missed times to consider; a schedule that missed more continues from now."""


def arm_cron(world: World, job: Job) -> None:
    """Set the timer for a CronJob's next run."""
    if isinstance(job.rules, CronRules) and not job.suspended:
        due = parse_cron(job.rules.schedule).next_in(world.now, job.rules.time_zone)
        if due is not None:
            world.kernel.at(due, CronDue(job.key, job.uid))


def latest_run(job: Job, rules: CronRules, now: Time) -> Time | None:
    """The latest scheduled time that has passed without a Job; None if there is none."""
    since = job.created if rules.last is None else rules.last
    if rules.starting_deadline is not None:
        since = max(since, now - rules.starting_deadline - 1)
    schedule, found = parse_cron(rules.schedule), None
    for _ in range(MOST_MISSED):
        due = schedule.next_in(since, rules.time_zone)
        if due is None or due > now:
            return found
        found = since = due
    return now // MINUTE * MINUTE


def skips_missed_runs(rules: CronRules) -> bool:
    """True if runs that are due while an earlier one is active are skipped, not started after it."""
    return rules.makes == _SPARK


def _name(parent: Job, rules: CronRules, scheduled: Time) -> str:
    """Name of a run's Job: with the minute of its time, for Spark applications with the nanosecond."""
    return f"{parent.name}-{scheduled * 1000 if rules.makes == _SPARK else scheduled // MINUTE}"


def job_for_run(parent: Job, rules: CronRules, scheduled: Time, *, uid: str, now: Time) -> Job:
    """The Job of one scheduled time."""
    return Job(
        kind=rules.makes,
        namespace=parent.namespace,
        name=_name(parent, rules, scheduled),
        uid=uid,
        created=now,
        owner=parent.key,
        labels=rules.labels,
        annotations=rules.annotations,
        queue=rules.queue,
        workload_priority_class=rules.priority_class,
        pod_sets=parent.pod_sets,
        rules=rules.batch if rules.makes == "Job" else spark.RULES if rules.makes == _SPARK else None,
        min_available=None if rules.volcano is None else rules.volcano.min_available,
        volcano=rules.volcano,
        duration=parent.duration,
        checkpoint_interval=parent.checkpoint_interval,
        max_execution_time=rules.max_execution_time,
        backoff_limit=parent.backoff_limit,
    )


def surplus_runs(rules: CronRules, children: Sequence[Job]) -> list[Job]:
    """Finished Jobs beyond the history limit, the oldest first."""
    gone = []
    for phase, kept in ((JobPhase.SUCCEEDED, rules.keep_succeeded), (JobPhase.FAILED, rules.keep_failed)):
        ended = sorted((job for job in children if job.phase is phase), key=lambda job: (job.started, job.key))
        gone += ended[: max(0, len(ended) - kept)]
    return gone


def is_run_held_back(rules: CronRules, active: Sequence[Job]) -> bool:
    """True if an active Job forbids the next one (concurrencyPolicy Forbid)."""
    return rules.concurrency is Concurrency.FORBID and bool(active)


def replaced_runs(rules: CronRules, active: Sequence[Job]) -> Sequence[Job]:
    """Active Jobs that the next one replaces (concurrencyPolicy Replace)."""
    return active if rules.concurrency is Concurrency.REPLACE else ()


def with_skipped_run(job: Job, rules: CronRules, scheduled: Time) -> Job:
    """The CronJob after a scheduled time that never gets a Job."""
    return replace(job, rules=replace(rules, last=scheduled))


def with_created_run(job: Job, rules: CronRules, scheduled: Time) -> Job:
    """The CronJob after it created the Job of this time."""
    return replace(job, rules=replace(rules, last=scheduled), phase=JobPhase.RUNNING)
