"""Next time at which KAI's decisions change without an event."""

from collections.abc import Iterator

from gpuconsole.model.clock import Span, Time
from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.plugins.minruntime import path_to
from gpuconsole.scheduling.kai.session import KaiSession


def next_change(session: KaiSession) -> Time | None:
    """The next end of a stale gang's grace period or, with pending jobs, of a queue's minimum runtime, if any."""
    waiting = any(job.pending for job in session.jobs.values())
    moments = (moment for job in session.jobs.values() for moment in _moments(session, job, waiting))
    return min((moment for moment in moments if moment > session.now), default=None)


def _moments(session: KaiSession, job: PodGroupInfo, waiting: bool) -> Iterator[Time]:
    grace = session.parameters.staleness_grace
    if job.stale_since is not None and grace >= 0:
        yield job.stale_since + grace
    if waiting and job.started is not None:
        for span in _protections(session, job):
            yield job.started + span


def _protections(session: KaiSession, job: PodGroupInfo) -> Iterator[Span]:
    """The minimum runtimes of the job's queue and of those above it."""
    queue = session.queues.get(job.queue)
    for above in path_to(session.queues, queue) if queue is not None else ():
        for span in (above.preempt_min_runtime, above.reclaim_min_runtime):
            if span is not None:
                yield span
