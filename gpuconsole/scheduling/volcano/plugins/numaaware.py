"""numa-aware plugin: aligns the exclusive CPUs of guaranteed pods by the topology policy of the node's kubelet.

The kubelet's static policy assigns the CPUs and gives NUMA hints, and its topologymanager chooses among the hints by
the topology policy; both are repeated here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cmp_to_key
from itertools import combinations, product
from typing import ClassVar

from msgspec import Struct

from gpuconsole.model.pod_template import Container
from gpuconsole.model.resources import CPU
from gpuconsole.model.volcano import Numatopology
from gpuconsole.scheduling.volcano.api.job import FitError, PredicateCode
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import NUMA_POLICY, Qos, TaskInfo, qos_of
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.session import VolcanoPlugin, VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import EventHandler


class TopologyHint(Struct, frozen=True):
    """A set of NUMA nodes that can satisfy a request; `nodes` is a bit mask, None for any nodes."""

    nodes: int | None = None
    preferred: bool = False


ProviderHints = Mapping[str, Sequence[TopologyHint] | None]
"""One provider's hints by resource; None means no preference, an empty list that no NUMA nodes suffice."""


def merge_hints(policy: str, numa: Iterable[int], providers: Iterable[ProviderHints]) -> tuple[TopologyHint, bool]:
    """Merge the providers' hints by the topology policy; returns the best, and whether the container is admitted."""
    if policy not in ("best-effort", "restricted", "single-numa-node"):
        return TopologyHint(), True
    hints_by_request = list(_hints_by_request(providers))
    if policy == "single-numa-node":
        hints_by_request = [[hint for hint in listed if _is_single_node(hint)] for listed in hints_by_request]
    best_hint = best_combination(numa, hints_by_request)
    return best_hint, policy == "best-effort" or best_hint.preferred


def _hints_by_request(providers: Iterable[ProviderHints]) -> Iterable[Sequence[TopologyHint]]:
    for hints in providers:
        if not hints:
            yield [TopologyHint(None, True)]
        for _, listed in sorted(hints.items()):
            yield [TopologyHint(None, True)] if listed is None else listed or [TopologyHint(None, False)]


def _is_single_node(hint: TopologyHint) -> bool:
    return hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)


def best_combination(numa: Iterable[int], hints_by_request: Sequence[Sequence[TopologyHint]]) -> TopologyHint:
    """The best combination of one hint per request: preferred before others, then the fewest NUMA nodes.

    If no combination has common nodes, the hint has all nodes and is not preferred.
    """
    every = sum(1 << number for number in numa)
    best_hint = TopologyHint(every, False)
    for choice in product(*hints_by_request):
        nodes, preferred = every, True
        for hint in choice:
            nodes &= every if hint.nodes is None else hint.nodes
            preferred = preferred and hint.preferred
        found = TopologyHint(nodes, preferred)
        if nodes and (found.preferred, _narrowness_key(nodes)) > (
            best_hint.preferred,
            _narrowness_key(best_hint.nodes or 0),
        ):
            best_hint = found
    return best_hint


def _narrowness_key(nodes: int) -> tuple[int, int]:
    """Greater for fewer nodes, and among equals for lower numbers (bitmask.IsNarrowerThan)."""
    return -nodes.bit_count(), -nodes


def exclusive_cpus(container: Container) -> int:
    """How many exclusive CPUs the container gets: its request if that is a whole number, else 0."""
    amount = container.effective.get(CPU, 0)
    return 0 if amount % 1000 else amount // 1000


def cpu_hints(container: Container, topology: Numatopology, free: Set[int]) -> list[TopologyHint] | None:
    """Sets of NUMA nodes with enough free CPUs; preferred are those of the fewest nodes that have enough CPUs at all.

    None if the container gets no exclusive CPUs.
    """
    wanted = exclusive_cpus(container)
    if not wanted:
        return None
    available = free - reserved_cpus(topology)
    numa = sorted({place.numa for place in topology.cpus.values()})
    least, found = len(numa), []
    for size in range(1, len(numa) + 1):
        for chosen in combinations(numa, size):
            inside = {cpu for cpu, place in topology.cpus.items() if place.numa in chosen}
            if len(inside) >= wanted:
                least = min(least, size)
            if len(inside & available) >= wanted:
                found.append(sum(1 << number for number in chosen))
    return [TopologyHint(nodes, nodes.bit_count() == least) for nodes in found]


def assign_cpus(
    container: Container, topology: Numatopology, free: Set[int], best_hint: TopologyHint
) -> frozenset[int]:
    """The CPUs that the container gets: in the hinted NUMA nodes first, then elsewhere; none if there are too few."""
    wanted, available = exclusive_cpus(container), free - reserved_cpus(topology)
    taken: frozenset[int] = frozenset()
    if best_hint.nodes is not None:
        aligned = {cpu for cpu in available if best_hint.nodes >> topology.cpus[cpu].numa & 1}
        taken = take_by_topology(topology, aligned, min(wanted, len(aligned))) or frozenset()
    rest = take_by_topology(topology, available - taken, wanted - len(taken))
    return frozenset() if rest is None else taken | rest


def reserved_cpus(topology: Numatopology) -> frozenset[int]:
    """CPUs that are reserved for the node, rounded up to whole ones."""
    return take_by_topology(topology, set(topology.cpus), -(-topology.reserved_cpu // 1000)) or frozenset()


def take_by_topology(topology: Numatopology, available: Set[int], count: int) -> frozenset[int] | None:
    """`count` CPUs: whole sockets, then whole cores, then threads of cores that are in use; None if there are too few.

    takeByTopology of Volcano's cpumanager, which takes a socket or core as free if its number is also that of a free
    CPU.
    """
    if count > len(available):
        return None
    taken: set[int] = set()
    places = topology.cpus
    per_socket = len(places) // max(1, len({place.socket for place in places.values()}))
    per_core = len(places) // max(1, len({(place.socket, place.core) for place in places.values()}))

    def fill(groups: Iterable[set[int]], size: int) -> None:
        for group in groups:
            if count - len(taken) < max(1, size):
                return
            taken.update(group - taken)

    def left() -> set[int]:
        return set(available) - taken

    fill(_free_sockets(topology, left()), per_socket)
    fill(_free_cores(topology, left()), per_core)
    while len(taken) < count:
        fill(_free_threads(topology, left(), taken), 1)
    return frozenset(taken)


def _free_sockets(topology: Numatopology, free: set[int]) -> list[set[int]]:
    numbers = {topology.cpus[cpu].socket for cpu in free} & free
    return [{cpu for cpu in free if topology.cpus[cpu].socket == number} for number in sorted(numbers)]


def _free_cores(topology: Numatopology, free: set[int]) -> list[set[int]]:
    by_socket: dict[int, set[int]] = {}
    for cpu in free:
        by_socket.setdefault(topology.cpus[cpu].socket, set()).add(topology.cpus[cpu].core)
    whole = {socket: sorted(cores & free) for socket, cores in by_socket.items()}
    order = sorted(whole, key=lambda socket: (len(whole[socket]), socket))
    return [{cpu for cpu in free if topology.cpus[cpu].core == core} for socket in order for core in whole[socket]]


def _free_threads(topology: Numatopology, free: set[int], taken: set[int]) -> list[set[int]]:
    """Single CPUs: on sockets with CPUs that are taken, then of fuller sockets and cores."""
    cores = sorted({topology.cpus[cpu].core for cpu in free})

    socket_of = {topology.cpus[cpu].core: topology.cpus[cpu].socket for cpu in sorted(topology.cpus, reverse=True)}
    near = Counter(topology.cpus[cpu].socket for cpu in taken)
    room = Counter(topology.cpus[cpu].socket for cpu in free)
    threads = Counter(topology.cpus[cpu].core for cpu in free)

    def before(left: int, right: int) -> bool:
        ours, theirs = socket_of[left], socket_of[right]
        # One of these is enough, as upstream.
        closer = near[ours] > near[theirs] or room[ours] < room[theirs]
        return closer or threads[left] < threads[right] or ours < theirs or left < right

    def order(left: int, right: int) -> int:
        return -1 if before(left, right) else int(before(right, left))

    cores.sort(key=cmp_to_key(order))
    return [{cpu} for core in cores for cpu in sorted(free) if topology.cpus[cpu].core == core]


MAX_SCORE = 100
NO_CPUS = ("", "none")


class NumaAwarePlugin(VolcanoPlugin):
    """numa-aware plugin: aligns exclusive CPUs of guaranteed pods to NUMA nodes (Volcano 1.15).

    Free CPUs are those of the node's Numatopology, less those that this session assigns. A policy in a pod's
    annotations must be that of the node.
    """

    name: ClassVar[str] = "numa-aware"

    def __init__(self, arguments: VolcanoArguments) -> None:
        self.weight = arguments.integer("weight", 1)
        self._planned: dict[tuple[str, str], frozenset[int]] = {}
        """CPUs that a task would get, by (task's uid, node)."""

    def on_session_open(self, session: VolcanoSession) -> None:
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
        reason = _policy_refusal(asked, topology)
        if asked not in NO_CPUS and reason:
            return FitError.from_reasons(PredicateCode.ERROR, reason)
        if topology is None or topology.cpu_policy != "static" or topology.topology_policy in NO_CPUS:
            return None
        return self._plan_cpus(task, node.name, topology)

    def _plan_cpus(self, task: TaskInfo, node: str, topology: Numatopology) -> FitError | None:
        """Find CPUs for each container in turn."""
        free, given = self._free[node], frozenset[int]()
        numa = {place.numa for place in topology.cpus.values()}
        for container in task.pod.template.containers:
            hints_by_request = cpu_hints(container, topology, free)
            best_hint, admitted = merge_hints(
                topology.topology_policy, numa, [{} if hints_by_request is None else {CPU: hints_by_request}]
            )
            if not admitted:
                reason = f"container {container.name} cannot be assigned by numa"
                return FitError.from_reasons(PredicateCode.UNRESOLVABLE, reason, plugin=self.name)
            taken = assign_cpus(container, topology, free, best_hint)
            free, given = free - taken, given | taken
        self._planned[task.uid, node] = given
        return None

    def _scores(self, task: TaskInfo, nodes: list[NodeInfo]) -> dict[str, float]:
        """Higher for fewer NUMA nodes with the task's CPUs; only for tasks that name a policy."""
        if task.pod.annotations.get(NUMA_POLICY, "") in NO_CPUS or not any(
            (task.uid, n.name) in self._planned for n in nodes
        ):
            return {}
        spread = {node.name: self._count_numa_nodes(task.uid, node.name) for node in nodes}
        most = max(spread.values())
        return {
            name: float((MAX_SCORE - (MAX_SCORE * count // most if most else 0)) * self.weight)
            for name, count in spread.items()
        }

    def _count_numa_nodes(self, uid: str, node: str) -> int:
        return len({self._numa[node].cpus[cpu].numa for cpu in self._planned.get((uid, node), ())})

    def _allocated(self, task: TaskInfo) -> None:
        if task.node_name in self._free:
            self._free[task.node_name] -= self._planned.get((task.uid, task.node_name), frozenset())

    def _deallocated(self, task: TaskInfo) -> None:
        if task.node_name in self._free:
            self._free[task.node_name] |= self._planned.get((task.uid, task.node_name), frozenset())


def _policy_refusal(asked: str, topology: Numatopology | None) -> str:
    """Why a node cannot satisfy the policy that a pod names; empty if it can."""
    if topology is None:
        return "numa info is empty"
    if topology.cpu_policy != "static":
        return "cpu manager policy isn't static"
    if topology.topology_policy != asked:
        return f"task topology policy[{asked}] is different with node[{topology.topology_policy}]"
    return "" if topology.free else "cpu allocatable map is empty"
