"""Event messages of the job controller."""

from gpuconsole.model.job import Job
from gpuconsole.model.volcano import PodGroup
from gpuconsole.model.volcano_jobs import JobAction

SCHEDULED = "Scheduled"


def group_message(job: Job, group: PodGroup) -> str:
    """Why a job's PodGroup does not run, by its latest condition that holds; nothing if it was scheduled since."""
    holding = [condition for condition in group.conditions if condition.status]
    if not holding:
        return ""
    latest = max(holding, key=lambda condition: condition.since)
    if latest.type == SCHEDULED:
        return ""
    return f"PodGroup {job.namespace}:{job.name} {latest.type.lower()}, reason: {latest.message}"


def action_message(action: JobAction, delay: str = "") -> str:
    """The event message of an action on a job."""
    return f"Execute action {action} after {delay}" if delay else f"Start to execute action {action} "
