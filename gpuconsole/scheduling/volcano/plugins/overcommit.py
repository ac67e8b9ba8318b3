"""overcommit plugin: enqueues jobs for slightly more than the cluster's capacity, so that their pods exist early."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import PERMIT, REJECT
from gpuconsole.scheduling.volcano.plugins.inqueue_resources import reserved, runs_with_room

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

FACTOR = 1.2
"""The default overcommit-factor, also used instead of a value below 1."""


class OvercommitPlugin:
    """Volcano 1.15 plugins/overcommit."""

    name: ClassVar[str] = "overcommit"

    def __init__(self, arguments: VolcanoArguments) -> None:
        factor = arguments.number("overcommit-factor", FACTOR)
        self.factor = FACTOR if factor < 1.0 else factor
        self.idle = Resource()
        """The cluster's capacity times the factor, less what is used."""
        self.inqueue = Resource()
        """The minResources of enqueued jobs, and the part of those of running jobs that they have not used yet."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        used = Resource()
        for node in session.node_list:
            used.add(node.used)
        self.idle = session.total.clone().multiply(self.factor).sub(used)
        for job in session.jobs.values():
            if job.phase == "Inqueue" and job.pod_group is not None and job.pod_group.min_resources is not None:
                self.inqueue.add(job.without_gated(job.min_resources()))
            elif runs_with_room(job):
                self.inqueue.add(job.without_gated(reserved(job)))

        def enqueueable(job: JobInfo) -> int:
            if job.pod_group is None or job.pod_group.min_resources is None:
                return PERMIT
            asked = job.min_resources()
            lacking = self.inqueue.clone().add(asked).exceeding_where_requested(self.idle, asked)
            if not lacking:
                return PERMIT
            session.events.append((job, overused("resource in cluster is overused", "overused", lacking)))
            return REJECT

        session.functions.job_enqueueable[self.name] = enqueueable
        session.functions.job_enqueued[self.name] = self._enqueued

    def on_session_close(self, session: "VolcanoSession") -> None:
        pass

    def _enqueued(self, job: JobInfo) -> None:
        if job.pod_group is not None and job.pod_group.min_resources is not None:
            self.inqueue.add(job.without_gated(job.min_resources()))


def overused(message: str, what: str, names: list[str]) -> str:
    """The message of a refusal, with the resources that are lacking (FormatResourceNames)."""
    return f"{message}: {', '.join(f'{what} {name}' for name in names)}" if names else message
