"""CPU assignment to containers with exclusive CPUs: NUMA hints, and which CPUs are taken (kubelet's static policy)."""

from collections import Counter
from collections.abc import Iterable, Set
from functools import cmp_to_key
from itertools import combinations

from gpuconsole.model.pod_template import Container
from gpuconsole.model.resources import CPU
from gpuconsole.model.volcano import Numatopology
from gpuconsole.scheduling.volcano.plugins.numa_hints import Hint


def whole_cpus(container: Container) -> int:
    """How many exclusive CPUs the container gets: its request if that is a whole number, else 0."""
    amount = container.effective.get(CPU, 0)
    return 0 if amount % 1000 else amount // 1000


def hints(container: Container, topology: Numatopology, free: Set[int]) -> list[Hint] | None:
    """Sets of NUMA nodes with enough free CPUs; preferred are those of the fewest nodes that have enough CPUs at all.

    None if the container gets no exclusive CPUs.
    """
    wanted = whole_cpus(container)
    if not wanted:
        return None
    available = free - reserved(topology)
    numa = sorted({place.numa for place in topology.cpus.values()})
    least, found = len(numa), []
    for size in range(1, len(numa) + 1):
        for chosen in combinations(numa, size):
            inside = {cpu for cpu, place in topology.cpus.items() if place.numa in chosen}
            if len(inside) >= wanted:
                least = min(least, size)
            if len(inside & available) >= wanted:
                found.append(sum(1 << number for number in chosen))
    return [Hint(nodes, nodes.bit_count() == least) for nodes in found]


def assign(container: Container, topology: Numatopology, free: Set[int], best: Hint) -> frozenset[int]:
    """The CPUs that the container gets: in the hinted NUMA nodes first, then elsewhere; none if there are too few."""
    wanted, available = whole_cpus(container), free - reserved(topology)
    taken: frozenset[int] = frozenset()
    if best.nodes is not None:
        aligned = {cpu for cpu in available if best.nodes >> topology.cpus[cpu].numa & 1}
        taken = take(topology, aligned, min(wanted, len(aligned))) or frozenset()
    rest = take(topology, available - taken, wanted - len(taken))
    return frozenset() if rest is None else taken | rest


def reserved(topology: Numatopology) -> frozenset[int]:
    """CPUs that are reserved for the node, rounded up to whole ones."""
    return take(topology, set(topology.cpus), -(-topology.reserved_cpu // 1000)) or frozenset()


def take(topology: Numatopology, available: Set[int], count: int) -> frozenset[int] | None:
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

    fill(_sockets(topology, left()), per_socket)
    fill(_cores(topology, left()), per_core)
    while len(taken) < count:
        fill(_threads(topology, left(), taken), 1)
    return frozenset(taken)


def _sockets(topology: Numatopology, free: set[int]) -> list[set[int]]:
    numbers = {topology.cpus[cpu].socket for cpu in free} & free
    return [{cpu for cpu in free if topology.cpus[cpu].socket == number} for number in sorted(numbers)]


def _cores(topology: Numatopology, free: set[int]) -> list[set[int]]:
    by_socket: dict[int, set[int]] = {}
    for cpu in free:
        by_socket.setdefault(topology.cpus[cpu].socket, set()).add(topology.cpus[cpu].core)
    whole = {socket: sorted(cores & free) for socket, cores in by_socket.items()}
    order = sorted(whole, key=lambda socket: (len(whole[socket]), socket))
    return [{cpu for cpu in free if topology.cpus[cpu].core == core} for socket in order for core in whole[socket]]


def _threads(topology: Numatopology, free: set[int], taken: set[int]) -> list[set[int]]:
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
