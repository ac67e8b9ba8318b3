"""cdp plugin: protects pods that started recently from eviction (cooldown protection)."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.scheduling.volcano.api.spans import span_of
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.functions import PERMIT, Victims
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

COOLDOWN_TIME = "volcano.sh/cooldown-time"


class CdpPlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/cdp."""

    name: ClassVar[str] = "cdp"

    def on_session_open(self, session: "VolcanoSession") -> None:
        def unprotected(_: TaskInfo, candidates: list[TaskInfo]) -> Victims:
            return [task for task in candidates if not _protected(task.pod, session.now)], PERMIT

        session.functions.preemptable[self.name] = session.functions.reclaimable[self.name] = unprotected


def cooldown(pod: Pod) -> Span | None:
    """How long the pod is protected after it was bound, by its label or else its annotation; None if not at all."""
    text = pod.labels.get(COOLDOWN_TIME, pod.annotations.get(COOLDOWN_TIME))
    return None if text is None else span_of(text)


def _protected(pod: Pod, now: int) -> bool:
    span = cooldown(pod)
    return span is not None and pod.phase is PodPhase.RUNNING and (pod.bound or pod.started) + span > now
