"""batch/v1 CronJob: when it makes a Job, and which."""

from zoneinfo import ZoneInfo

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.cron import parse_cron
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.job_rules import Concurrency, CronRules
from gpuconsole.model.jobs.batch import job_pods
from gpuconsole.model.jobs.batch_rules import backoff_limit, batch_rules
from gpuconsole.model.jobs.common import job, max_execution, positive_span
from gpuconsole.model.jobs.labels import CHECKPOINT, DURATION, PRIORITY_CLASS, QUEUE

LONGEST_NAME = 52
"""Its Jobs have eleven characters more."""
NEVER = "0 0 31 2 *"
_FIELDS = (
    *("concurrencyPolicy", "failedJobsHistoryLimit", "jobTemplate", "schedule", "startingDeadlineSeconds"),
    *("successfulJobsHistoryLimit", "suspend", "timeZone"),
)


def cron_job(reader: Reader, now: Time) -> Job:
    """A CronJob: its pods are those of the Jobs that it makes; the queue is the one that these name."""
    spec = reader.mapping("spec")
    spec.only(*_FIELDS)
    template = spec.mapping("jobTemplate")
    template.only("metadata", "spec")
    labels, notes = template.down("metadata", "labels"), template.down("metadata", "annotations")
    inner = template.mapping("spec")
    pods = job_pods(inner, notes)
    suspended = spec.flag("suspend")
    deadline = spec.optional("startingDeadlineSeconds", low=0)
    rules = CronRules(
        schedule=_schedule(spec),
        time_zone=_zone(spec),
        concurrency=spec.choice("concurrencyPolicy", Concurrency.ALLOW),
        starting_deadline=None if deadline is None else deadline * SECOND,
        keep_succeeded=spec.number("successfulJobsHistoryLimit", 3, low=0),
        keep_failed=spec.number("failedJobsHistoryLimit", 1, low=0),
        queue=labels.text(QUEUE),
        priority_class=labels.text(PRIORITY_CLASS),
        labels=template.mapping("metadata").labels("labels"),
        annotations=template.mapping("metadata").labels("annotations"),
        max_execution_time=max_execution(labels),
        batch=batch_rules(inner, pods, notes),
        last=reader.mapping("status").moment("lastScheduleTime"),
    )
    found = job(
        reader,
        now,
        "CronJob",
        (pods,),
        queue="",
        rules=rules,
        suspended=suspended,
        backoff_limit=backoff_limit(inner),
        phase=JobPhase.SUSPENDED if suspended else JobPhase.PENDING,
        **_times(notes),
    )
    if len(found.name) > LONGEST_NAME:
        problem = f"must be no more than {LONGEST_NAME} characters"
        reader.report.refused(reader.at("metadata", "name"), problem, "shorten it", "too-long")
    return found


def _times(notes: Reader) -> dict[str, int]:
    """How long its Jobs take, where their own annotations say so."""
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
