"""conformance plugin: protects critical pods, and those in kube-system, from eviction."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import PERMIT, Victims

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

CRITICAL = frozenset(("system-cluster-critical", "system-node-critical"))
SYSTEM_NAMESPACE = "kube-system"


class ConformancePlugin:
    """Volcano 1.15 plugins/conformance."""

    name: ClassVar[str] = "conformance"

    def __init__(self, arguments: VolcanoArguments) -> None:
        pass

    def on_session_open(self, session: "VolcanoSession") -> None:
        functions, name = session.functions, self.name
        functions.preemptable[name] = functions.reclaimable[name] = _dispensable
        functions.unified_evictable[name] = _dispensable

    def on_session_close(self, session: "VolcanoSession") -> None:
        pass


def _dispensable(_: object, candidates: list[TaskInfo]) -> Victims:
    return [
        task
        for task in candidates
        if task.pod.template.priority_class not in CRITICAL and task.namespace != SYSTEM_NAMESPACE
    ], PERMIT
