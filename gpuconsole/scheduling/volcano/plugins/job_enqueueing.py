"""Plugins that decide when a job is enqueued: overcommit, resourcequota and sla.

overcommit enqueues jobs for slightly more than the cluster's capacity, so that their pods exist early. resourcequota
enqueues a job only if its namespace's ResourceQuotas have capacity for it. sla enqueues a job that reaches its maximum
waiting time, and reserves resources for it.
"""

from typing import ClassVar

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.resources import Resources, add, exceeding, format_quantity
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import reserves_min_resources, unallocated_min_resources
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import SLA_WAITING_TIME
from gpuconsole.scheduling.volcano.config import VolcanoArguments, parse_duration
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import ABSTAIN, PERMIT, REJECT

OVERCOMMIT_FACTOR = 1.2
"""The default overcommit-factor, also used instead of a value below 1."""


class OvercommitPlugin(VolcanoPlugin):
    """overcommit plugin: enqueues jobs for slightly more than the cluster's capacity (Volcano 1.15)."""

    name: ClassVar[str] = "overcommit"

    def __init__(self, arguments: VolcanoArguments) -> None:
        factor = arguments.number("overcommit-factor", OVERCOMMIT_FACTOR)
        self.factor = OVERCOMMIT_FACTOR if factor < 1.0 else factor
        self.idle = Resource()
        """The cluster's capacity times the factor, less what is used."""
        self.inqueue = Resource()
        """The minResources of enqueued jobs, and the part of those of running jobs that they have not used yet."""

    def on_session_open(self, session: VolcanoSession) -> None:
        used = Resource.sum(node.used for node in session.node_list)
        self.idle = session.total.copy().multiply(self.factor).sub(used)
        for job in session.jobs.values():
            if job.phase == "Inqueue" and job.pod_group is not None and job.pod_group.min_resources is not None:
                self.inqueue.add(job.without_gated(job.min_resources()))
            elif reserves_min_resources(job):
                self.inqueue.add(job.without_gated(unallocated_min_resources(job)))

        def enqueueable(job: JobInfo) -> int:
            if job.pod_group is None or job.pod_group.min_resources is None:
                return PERMIT
            asked = job.min_resources()
            lacking = self.inqueue.copy().add(asked).exceeded_requested_names(self.idle, asked)
            if not lacking:
                return PERMIT
            session.events.append((job, overused_message("resource in cluster is overused", "overused", lacking)))
            return REJECT

        session.functions.job_enqueueable[self.name] = enqueueable
        session.functions.job_enqueued[self.name] = self._enqueued

    def _enqueued(self, job: JobInfo) -> None:
        if job.pod_group is not None and job.pod_group.min_resources is not None:
            self.inqueue.add(job.without_gated(job.min_resources()))


def overused_message(message: str, what: str, names: list[str]) -> str:
    """The refusal `message` with the names of the lacking resources, each after `what` (FormatResourceNames)."""
    return f"{message}: {', '.join(f'{what} {name}' for name in names)}" if names else message


class ResourcequotaPlugin(VolcanoPlugin):
    """resourcequota plugin: enqueues jobs only within their namespace's ResourceQuotas (Volcano 1.15).

    Jobs that it permitted earlier in the session count as used.
    """

    name: ClassVar[str] = "resourcequota"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self._pending: dict[str, Resources] = {}

    def on_session_open(self, session: VolcanoSession) -> None:
        def enqueueable(job: JobInfo) -> int:
            asked = job.pod_group.min_resources if job.pod_group is not None else None
            if asked is None or job.namespace not in session.quotas:
                return PERMIT
            pending = self._pending.get(job.namespace, {})
            for quota in session.quotas[job.namespace]:
                counted = _select_names(asked, quota.hard)
                over = exceeding(_select_names(add(pending, quota.used, counted), counted), quota.hard)
                if over:
                    parts = (
                        _select_names(counted, over),
                        _select_names(quota.used, over),
                        _select_names(quota.hard, over),
                    )
                    requested, used, limited = map(_format_amounts, parts)
                    message = f"resource quota insufficient, requested: {requested}, used: {used}, limited: {limited}"
                    session.events.append((job, message))
                    return REJECT
            self._pending[job.namespace] = add(pending, asked)
            return PERMIT

        session.functions.job_enqueueable[self.name] = enqueueable


def _select_names(amounts: Resources, names: Resources | list[str]) -> Resources:
    return {name: value for name, value in amounts.items() if name in names}


def _format_amounts(amounts: Resources) -> str:
    return ", ".join(f"{name}: {format_quantity(name, value)}" for name, value in sorted(amounts.items()))


class SlaPlugin(VolcanoPlugin):
    """sla plugin: enqueues a job that reaches its maximum waiting time, and reserves resources (Volcano 1.15).

    The waiting time is that of the job's PodGroup, else that of the plugin's arguments.
    """

    name: ClassVar[str] = "sla"

    def __init__(self, arguments: VolcanoArguments) -> None:
        span = parse_duration(arguments.text(SLA_WAITING_TIME, "")) or 0
        self.waiting_time: Span | None = span if span > 0 else None

    def on_session_open(self, session: VolcanoSession) -> None:
        def overdue(job: JobInfo) -> int:
            deadline = self._deadline(job)
            return PERMIT if deadline is not None and session.now >= deadline else ABSTAIN

        deadlines = (self._deadline(job) for job in session.jobs.values() if not job.is_ready())
        session.wake_ups += [deadline for deadline in deadlines if deadline is not None and deadline > session.now]
        session.functions.job_order[self.name] = self._compare_deadlines
        session.functions.job_enqueueable[self.name] = overdue
        # A job that counts as pipelined keeps its reservations, so that its gang becomes complete in time.
        session.functions.job_pipelined[self.name] = overdue

    def _deadline(self, job: JobInfo) -> Time | None:
        waits = self.waiting_time if job.waiting_time is None else job.waiting_time
        return None if waits is None else job.created + waits

    def _compare_deadlines(self, left: JobInfo, right: JobInfo) -> int:
        """The earliest deadline first; a job without one last."""
        mine, theirs = self._deadline(left), self._deadline(right)
        if mine is None or theirs is None:
            return (mine is None) - (theirs is None)
        return (mine > theirs) - (mine < theirs)
