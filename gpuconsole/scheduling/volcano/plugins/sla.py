"""sla plugin: a job that reaches its maximum waiting time is enqueued, and resources are reserved for it."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.clock import Span, Time
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.labels import SLA_WAITING_TIME
from gpuconsole.scheduling.volcano.api.spans import span_of
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import ABSTAIN, PERMIT
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class SlaPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/sla. The waiting time is that of the job's PodGroup, else that of the plugin's arguments."""

    name: ClassVar[str] = "sla"

    def __init__(self, arguments: VolcanoArguments) -> None:
        span = span_of(arguments.text(SLA_WAITING_TIME, "")) or 0
        self.waiting_time: Span | None = span if span > 0 else None

    def on_session_open(self, session: "VolcanoSession") -> None:
        def overdue(job: JobInfo) -> int:
            deadline = self._deadline(job)
            return PERMIT if deadline is not None and session.now >= deadline else ABSTAIN

        deadlines = (self._deadline(job) for job in session.jobs.values() if not job.is_ready())
        session.wakes += [deadline for deadline in deadlines if deadline is not None and deadline > session.now]
        session.functions.job_order[self.name] = self._order
        session.functions.job_enqueueable[self.name] = overdue
        # A job that counts as pipelined keeps its reservations, so that its gang becomes complete in time.
        session.functions.job_pipelined[self.name] = overdue

    def _deadline(self, job: JobInfo) -> Time | None:
        waits = self.waiting_time if job.waiting_time is None else job.waiting_time
        return None if waits is None else job.created + waits

    def _order(self, left: JobInfo, right: JobInfo) -> int:
        """The earliest deadline first; a job without one last."""
        mine, theirs = self._deadline(left), self._deadline(right)
        if mine is None or theirs is None:
            return (mine is None) - (theirs is None)
        return (mine > theirs) - (mine < theirs)
