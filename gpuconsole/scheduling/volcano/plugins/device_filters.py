"""DynamicResources in Volcano's predicates: claims are allocated with the node of the first pod that uses them."""

from typing import TYPE_CHECKING

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.devices import allocator as claims
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.volcano.api.fit_errors import PredicateCode, PredicateStatus
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.plugins.node_filters import NodeFilter, Prepares, Reserves

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

FILTER_TIMEOUT = 10
TIMEOUT_ARGUMENT = "dynamicresources.filterTimeoutSeconds"


def filter_timeout(arguments: VolcanoArguments) -> int:
    """Seconds that the search for devices may take on a node, not simulated; a negative value is replaced by the
    default.
    """
    given = arguments.integer(TIMEOUT_ARGUMENT, FILTER_TIMEOUT)
    return given if given >= 0 else FILTER_TIMEOUT


class DynamicResourcesFilter(NodeFilter, Prepares, Reserves):
    """kube-scheduler's DynamicResources filter for DRA claims."""

    name, far = "DynamicResources", True

    def __init__(self, session: "VolcanoSession") -> None:
        super().__init__(session)
        self._stock = session.stock
        self._granted = session.granted
        self._nodes = session.placed.nodes

    def concerns(self, task: TaskInfo) -> bool:
        return bool(task.pod.template.resource_claims)

    def prepare(self, task: TaskInfo, shape: PodClass) -> str:
        return claims.trouble(task.pod, self._stock)

    def refuse(self, task: TaskInfo, shape: PodClass, node: Node) -> PredicateStatus | None:
        lacking = claims.trouble(task.pod, self._stock)
        if lacking:
            return self.final(lacking)
        found = claims.grant(task.pod, node, self._stock)
        if not found.reason:
            return None
        return (
            PredicateStatus(PredicateCode.ERROR, found.reason, self.name) if found.broken else self.final(found.reason)
        )

    def reserve(self, task: TaskInfo) -> None:
        node = self._nodes.get(task.node_name)
        if node is None or not self.concerns(task) or claims.trouble(task.pod, self._stock):
            return
        found = claims.grant(task.pod, node, self._stock)
        if not found.reason:
            self._granted[task.key] = found
            self._stock.hold(task.key, found.allocations, found.shared)

    def release(self, task: TaskInfo) -> None:
        if self._granted.pop(task.key, None) is not None:
            self._stock.release(task.key)
