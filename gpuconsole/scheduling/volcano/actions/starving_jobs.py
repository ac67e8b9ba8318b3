"""Order of preemptors: the queues in order, and the starving jobs of each."""

from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.session import VolcanoSession


def starving_by_queue(session: VolcanoSession) -> tuple[Heap[QueueInfo], dict[str, Heap[JobInfo]]]:
    """The queues with valid enqueued jobs, and the starving jobs of each, as heaps in queue and job order."""
    queues = Heap(session.queue_first)
    starving: dict[str, Heap[JobInfo]] = {}
    seen = set()
    for job in session.jobs.values():
        if job.is_pending or session.job_valid(job) is not None or job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if session.job_starving(job):
            starving.setdefault(job.queue, Heap(session.job_first)).push(job)
    return queues, starving
