"""Jobs on a schedule: CronJobs of batch/v1 and of Volcano, RayCronJobs, ScheduledSparkApplications."""

from typing import Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from gpuconsole.model.apiserver.volcano.jobs import check_cron_job
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import CRON_JOB, fits, report
from gpuconsole.model.clock import SECOND, Time, parse_cron
from gpuconsole.model.documents.reader import INT32, Reader, shown
from gpuconsole.model.job import Concurrency, CronRules, Job, JobPhase
from gpuconsole.model.jobs.applications import spark_pods
from gpuconsole.model.jobs.batch import backoff_limit, batch_rules, job_pods
from gpuconsole.model.jobs.common import job, max_execution, positive_span
from gpuconsole.model.jobs.ray import ray_job_pods
from gpuconsole.model.jobs.volcano import job_parts
from gpuconsole.model.jobs.workloads import CHECKPOINT, DURATION, PRIORITY_CLASS, QUEUE
from gpuconsole.model.pod_template import PodSet

LONGEST_NAME = 52
"""Most characters of a CronJob's name; those of its Jobs have eleven more."""
RAY_CRON_JOB = "ray.io/cronjob-name"
"""Label of the RayJobs that a RayCronJob creates."""
SCHEDULED_SPARK = "sparkoperator.k8s.io/scheduled-app-name"
"""Label of the SparkApplications that a ScheduledSparkApplication creates."""
_SUFFIX = "-29460000"
"""Example for the end of its jobs' names: the scheduled time in minutes."""
_REPORTED_BY_READER = ("bad-schedule", "bad-time-zone")
"""Codes of errors that reading the schedule reports in more detail."""
NEVER = "0 0 31 2 *"
"""Schedule in place of an invalid one: there is no 31 February."""
_FIELDS = (
    *("concurrencyPolicy", "failedJobsHistoryLimit", "jobTemplate", "schedule", "startingDeadlineSeconds"),
    *("successfulJobsHistoryLimit", "suspend", "timeZone"),
)


def cron_job(reader: Reader, now: Time) -> Job:
    """Read a CronJob: its pods and queue are those of the Jobs that it creates."""
    spec = reader.mapping("spec")
    spec.only(*_FIELDS)
    template = spec.mapping("jobTemplate")
    template.only("metadata", "spec")
    labels, notes = template.down("metadata", "labels"), template.down("metadata", "annotations")
    inner = template.mapping("spec")
    pods = job_pods(inner, notes)
    rules = replace(
        _when(reader, spec),
        queue=labels.text(QUEUE),
        priority_class=labels.text(PRIORITY_CLASS),
        labels=template.mapping("metadata").labels("labels"),
        annotations=template.mapping("metadata").labels("annotations"),
        max_execution_time=max_execution(labels),
        batch=batch_rules(inner, pods, notes),
    )
    found = _cron(reader, now, "CronJob", (pods,), rules, backoff_limit=backoff_limit(inner), **_times(notes))
    if len(found.name) > LONGEST_NAME:
        problem = f"must be no more than {LONGEST_NAME} characters"
        reader.report.refused(reader.at("metadata", "name"), problem, "shorten it", "too-long")
    return found


def volcano_cron_job(reader: Reader, now: Time) -> Job:
    """Read Volcano's CronJob, which creates Volcano Jobs (Volcano 1.15 controllers/cronjob)."""
    spec = reader.mapping("spec")
    spec.only(*_FIELDS)
    template = spec.mapping("jobTemplate")
    template.only("metadata", "spec")
    notes = template.down("metadata", "annotations")
    tasks, volcano = job_parts(template, f"{reader.mapping('metadata').text('name')}{_SUFFIX}")
    rules = replace(
        _when(reader, spec),
        makes="VolcanoJob",
        labels=template.mapping("metadata").labels("labels"),
        annotations=template.mapping("metadata").labels("annotations"),
        volcano=volcano,
    )
    if fits(reader.value, CRON_JOB):
        own = (objection for objection in check_cron_job(reader.value) if objection.code not in _REPORTED_BY_READER)
        report(reader.report, reader.path, own)
    more: dict[str, Any] = {"backoff_limit": volcano.max_retry, **_times(notes)}
    return _cron(reader, now, "VolcanoCronJob", tasks, rules, **more)


def ray_cron_job(reader: Reader, now: Time) -> Job:
    """Read KubeRay's RayCronJob, whose RayJobs do not get its labels (raycronjob_controller constructRayJob)."""
    spec = reader.mapping("spec")
    spec.only("jobTemplate", "schedule", "suspend", "timeZone")
    template = spec.mapping("jobTemplate")
    rules = replace(
        _when(reader, spec),
        makes="RayJob",
        labels={RAY_CRON_JOB: reader.mapping("metadata").text("name")},
        # KubeRay deletes none of them.
        keep_succeeded=INT32,
        keep_failed=INT32,
    )
    limit = template.number("backoffLimit", 0, low=0)
    notes = reader.down("metadata", "annotations")
    return _cron(reader, now, "RayCronJob", ray_job_pods(template), rules, backoff_limit=limit, **_times(notes))


def scheduled_spark_application(reader: Reader, now: Time) -> Job:
    """Read the Spark operator's ScheduledSparkApplication, whose applications get its labels
    (createSparkApplication).
    """
    spec, meta = reader.mapping("spec"), reader.mapping("metadata")
    spec.only(
        *("concurrencyPolicy", "failedRunHistoryLimit", "schedule", "successfulRunHistoryLimit", "suspend", "template"),
        "timeZone",
    )
    labels, notes = meta.mapping("labels"), meta.mapping("annotations")
    rules = replace(
        _when(reader, spec),
        makes="SparkApplication",
        queue=labels.text(QUEUE),
        priority_class=labels.text(PRIORITY_CLASS),
        labels={SCHEDULED_SPARK: meta.text("name"), **meta.labels("labels")},
        max_execution_time=max_execution(labels),
        keep_succeeded=spec.number("successfulRunHistoryLimit", 1, low=0),
        keep_failed=spec.number("failedRunHistoryLimit", 1, low=0),
        last=reader.mapping("status").moment("lastRun"),
    )
    pods = spark_pods(spec.mapping("template"), queued=QUEUE in labels)
    return _cron(reader, now, "ScheduledSparkApplication", pods, rules, **_times(notes))


def _when(reader: Reader, spec: Reader) -> CronRules:
    """Read the schedule and the concurrency policy."""
    deadline = spec.optional("startingDeadlineSeconds", low=0)
    return CronRules(
        schedule=_schedule(spec),
        time_zone=_zone(spec),
        concurrency=spec.choice("concurrencyPolicy", Concurrency.ALLOW),
        starting_deadline=None if deadline is None else deadline * SECOND,
        keep_succeeded=spec.number("successfulJobsHistoryLimit", 3, low=0),
        keep_failed=spec.number("failedJobsHistoryLimit", 1, low=0),
        last=reader.mapping("status").moment("lastScheduleTime"),
    )


def _cron(reader: Reader, now: Time, kind: str, pod_sets: tuple[PodSet, ...], rules: CronRules, **own: Any) -> Job:
    suspended = reader.mapping("spec").flag("suspend")
    state = JobPhase.SUSPENDED if suspended else JobPhase.PENDING
    return job(reader, now, kind, pod_sets, queue="", rules=rules, suspended=suspended, phase=state, **own)


def _times(notes: Reader) -> dict[str, int]:
    """Return the durations of its jobs by the annotations."""
    read = {"duration": positive_span(notes, DURATION), "checkpoint_interval": positive_span(notes, CHECKPOINT)}
    return {name: span for name, span in read.items() if span is not None}


def _schedule(spec: Reader) -> str:
    text = spec.required("schedule")
    try:
        if text:
            parse_cron(text)
            return text
    except ValueError as problem:
        spec.report.error(spec.at("schedule"), str(problem), "write it as 0 3 * * 1-5", "bad-schedule")
    return NEVER


def _zone(spec: Reader) -> str:
    text = spec.text("timeZone")
    try:
        ZoneInfo(text or "UTC")
        return text
    except (ValueError, OSError, KeyError):
        problem = f"unknown time zone {shown(text)}"
        spec.report.error(spec.at("timeZone"), problem, "write it as Europe/Berlin, or leave it out", "bad-time-zone")
        return ""
