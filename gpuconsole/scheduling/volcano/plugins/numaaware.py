"""numa-aware plugin: aligns the exclusive CPUs of guaranteed pods by the topology policy of the node's kubelet."""

from typing import TYPE_CHECKING, ClassVar

from gpuconsole.model.resources import CPU
from gpuconsole.model.volcano import Numatopology
from gpuconsole.scheduling.volcano.api.fit_errors import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.labels import NUMA_POLICY
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.qos import Qos, qos_of
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.arguments import VolcanoArguments
from gpuconsole.scheduling.volcano.functions import EventHandler
from gpuconsole.scheduling.volcano.plugin import VolcanoPlugin
from gpuconsole.scheduling.volcano.plugins.numa_cpus import assign, hints
from gpuconsole.scheduling.volcano.plugins.numa_hints import decide

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession

MAX_SCORE = 100
NONE = ("", "none")


class NumaAwarePlugin(VolcanoPlugin):
    """Volcano 1.15 plugins/numaaware. Free CPUs are those of the node's Numatopology, less those that this session
    assigns.

    A policy in a pod's annotations must be that of the node.
    """

    name: ClassVar[str] = "numa-aware"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("weight", 1)
        self._planned: dict[tuple[str, str], frozenset[int]] = {}
        """CPUs that a task would get, by (task's uid, node)."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        self._numa = session.numa
        self._free = {name: frozenset(topology.cpus.keys() & topology.free) for name, topology in session.numa.items()}
        session.functions.predicates[self.name] = self._predicate
        session.functions.batch_node_order[self.name] = self._scores
        session.functions.handlers.append(EventHandler(self._allocated, self._deallocated))

    def _predicate(self, task: TaskInfo, node: NodeInfo) -> FitError | None:
        topology = self._numa.get(node.name)
        if qos_of(task.pod.template) is not Qos.GUARANTEED:
            return None
        asked = task.pod.annotations.get(NUMA_POLICY, "")
        reason = _unfit(asked, topology)
        if asked not in NONE and reason:
            return FitError.saying(PredicateCode.ERROR, reason)
        if topology is None or topology.cpu_policy != "static" or topology.topology_policy in NONE:
            return None
        return self._plan(task, node.name, topology)

    def _plan(self, task: TaskInfo, node: str, topology: Numatopology) -> FitError | None:
        """Find CPUs for each container in turn."""
        free, given = self._free[node], frozenset[int]()
        numa = {place.numa for place in topology.cpus.values()}
        for container in task.pod.template.containers:
            wishes = hints(container, topology, free)
            best, admitted = decide(topology.topology_policy, numa, [{} if wishes is None else {CPU: wishes}])
            if not admitted:
                reason = f"container {container.name} cannot be assigned by numa"
                return FitError.saying(PredicateCode.UNRESOLVABLE, reason, plugin=self.name)
            taken = assign(container, topology, free, best)
            free, given = free - taken, given | taken
        self._planned[task.uid, node] = given
        return None

    def _scores(self, task: TaskInfo, nodes: list[NodeInfo]) -> dict[str, float]:
        """Higher for fewer NUMA nodes with the task's CPUs; only for tasks that name a policy."""
        if task.pod.annotations.get(NUMA_POLICY, "") in NONE or not any(
            (task.uid, n.name) in self._planned for n in nodes
        ):
            return {}
        spread = {node.name: self._spread(task.uid, node.name) for node in nodes}
        most = max(spread.values())
        return {
            name: float((MAX_SCORE - (MAX_SCORE * count // most if most else 0)) * self.weight)
            for name, count in spread.items()
        }

    def _spread(self, uid: str, node: str) -> int:
        return len({self._numa[node].cpus[cpu].numa for cpu in self._planned.get((uid, node), ())})

    def _allocated(self, task: TaskInfo) -> None:
        if task.node_name in self._free:
            self._free[task.node_name] -= self._planned.get((task.uid, task.node_name), frozenset())

    def _deallocated(self, task: TaskInfo) -> None:
        if task.node_name in self._free:
            self._free[task.node_name] |= self._planned.get((task.uid, task.node_name), frozenset())


def _unfit(asked: str, topology: Numatopology | None) -> str:
    """Why a node cannot satisfy the policy that a pod names; empty if it can."""
    if topology is None:
        return "numa info is empty"
    if topology.cpu_policy != "static":
        return "cpu manager policy isn't static"
    if topology.topology_policy != asked:
        return f"task topology policy[{asked}] is different with node[{topology.topology_policy}]"
    return "" if topology.free else "cpu allocatable map is empty"
