"""Host names under which pods of a job reach each other."""

from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.tasks import JobTask, pod_name


def host(job: Job, task: JobTask, index: int) -> str:
    """A pod's DNS name: the template's hostname or the pod's name, then the template's subdomain or the job's name."""
    name = task.template.hostname or pod_name(job.name, task.name, index)
    return f"{name}.{task.template.subdomain or job.name}"


def hosts(job: Job, task: JobTask) -> list[str]:
    """The DNS names of a task's pods; at most one if the template sets the hostname."""
    count = min(task.replicas, 1) if task.template.hostname else task.replicas
    return [host(job, task, index) for index in range(count)]
