"""Event messages of the job controller."""

from gpuconsole.model.job import Job
from gpuconsole.model.volcano import PodGroup
from gpuconsole.model.volcano_jobs import JobAction

SCHEDULED = "Scheduled"


def group_message(job: Job, group: PodGroup) -> str:
    """The message for a job's PodGroup by its latest true condition; empty if there is none or it is Scheduled."""
    holding = [condition for condition in group.conditions if condition.status]
    if not holding:
        return ""
    latest = max(holding, key=lambda condition: condition.since)
    if latest.type == SCHEDULED:
        return ""
    return f"PodGroup {job.namespace}:{job.name} {latest.type.lower()}, reason: {latest.message}"


def action_message(action: JobAction, delay: str = "") -> str:
    """The event message of an action on a job; `delay` is empty if it runs at once."""
    return f"Execute action {action} after {delay}" if delay else f"Start to execute action {action} "
