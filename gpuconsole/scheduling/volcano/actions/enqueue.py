"""enqueue action: lets a job's pods be scheduled if its queue and the cluster may have capacity for its
minResources.
"""

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.session import VolcanoSession


def enqueue(session: VolcanoSession) -> None:
    """Try one pending job at a time, from the first queue in queue order, until none is left."""
    jobs: dict[str, Heap[JobInfo]] = {}
    queues = Heap(session.queue_first)
    seen = set()
    for job in session.jobs.values():
        if job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if job.is_pending:
            jobs.setdefault(job.queue, Heap(session.job_first)).push(job)
    while queues:
        queue = queues.pop()
        if not jobs.get(queue.uid):
            continue
        job = jobs[queue.uid].pop()
        group = job.pod_group
        if group is None or group.min_resources is None or session.job_enqueueable(job):
            session.job_enqueued(job)
            job.phase = "Inqueue"
        queues.push(queue)
