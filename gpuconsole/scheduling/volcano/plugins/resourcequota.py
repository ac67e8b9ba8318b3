"""resourcequota plugin: enqueues a job only if its namespace's ResourceQuotas have capacity for it."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.resources import Resources, add, exceeding, format_quantity
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import PERMIT, REJECT
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class ResourcequotaPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/resourcequota. Jobs that it permitted earlier in the session count as used."""

    name: ClassVar[str] = "resourcequota"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self._pending: dict[str, Resources] = {}

    def on_session_open(self, session: "VolcanoSession") -> None:
        def enqueueable(job: JobInfo) -> int:
            asked = job.pod_group.min_resources if job.pod_group is not None else None
            if asked is None or job.namespace not in session.quotas:
                return PERMIT
            pending = self._pending.get(job.namespace, {})
            for quota in session.quotas[job.namespace]:
                counted = _only(asked, quota.hard)
                over = exceeding(_only(add(pending, quota.used, counted), counted), quota.hard)
                if over:
                    parts = (_only(counted, over), _only(quota.used, over), _only(quota.hard, over))
                    requested, used, limited = map(_written, parts)
                    message = f"resource quota insufficient, requested: {requested}, used: {used}, limited: {limited}"
                    session.events.append((job, message))
                    return REJECT
            self._pending[job.namespace] = add(pending, asked)
            return PERMIT

        session.functions.job_enqueueable[self.name] = enqueueable


def _only(amounts: Resources, names: Resources | list[str]) -> Resources:
    return {name: value for name, value in amounts.items() if name in names}


def _written(amounts: Resources) -> str:
    return ", ".join(f"{name}: {format_quantity(name, value)}" for name, value in sorted(amounts.items()))
