"""What placement knows: nodes, pods that have a place, pods that wait, and whom room is reserved for. Mutates."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PodTemplate, PriorityClass
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube.board import Board
from gpuconsole.scheduling.kube.nodes import Reservation, Seat
from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.queue import Queue
from gpuconsole.scheduling.kube.shapes import Shapes
from gpuconsole.scheduling.kube.units import Waiter

NEVER = "Never"


class Ledger:
    """The board of nodes and the queue of pods, kept in step with each other and with the objects."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self.board = Board(policy)
        self.queue = Queue(policy.gangs)
        self.shapes = Shapes()
        self.groups: dict[str, PodGroup] = {}
        self.classes: dict[str, PriorityClass] = {}
        self.freed = 0
        """Counts what may help a refused pod: room that was freed, nodes that changed."""
        self.stirred = False
        """A pod came, or something freed, since the last pass began."""
        self._homes: dict[str, tuple[int, str]] = {}
        """Pod → number of its node, and its gang."""

    def fork(self, policy: PlacementPolicy) -> "Ledger":
        """A ledger that starts equal and never touches this one."""
        twin = Ledger(policy)
        twin.board = self.board.fork()
        twin.queue = self.queue.fork()
        twin.shapes = self.shapes
        twin.groups, twin.classes = self.groups.copy(), self.classes.copy()
        twin.freed, twin.stirred = self.freed, self.stirred
        twin._homes = self._homes.copy()
        return twin

    def describe(self, name: str, node: Node | None) -> None:
        """A node appeared, changed or went."""
        if self.board.describe(name, node):
            self.stir()

    def stir(self) -> None:
        """Something happened that may help a pod that was refused."""
        self.freed += 1
        self.stirred = True

    def take_in(self, pod: Pod) -> None:
        """A pod appeared or changed: it has a place, waits for one, or needs none."""
        if pod.node and not pod.done:
            self.withdraw(pod.key)
            self._settle(pod)
            return
        self._release(pod.key)
        if pod.done or pod.deleted or pod.gates:
            self.withdraw(pod.key)
        else:
            self._await(self.waiter(pod))

    def forget(self, key: str) -> None:
        """A pod is gone."""
        self._release(key)
        self.withdraw(key)

    def seat(self, waiter: Waiter, number: int, now: Time) -> Seat:
        """A pod that waited gets a place; the seat names its GPUs."""
        self.withdraw(waiter.pod)
        seat = self.board.seat(number, Seat(waiter.pod, waiter.shape, waiter.priority, now))
        self._homes[waiter.pod] = (number, waiter.gang)
        if waiter.gang:
            self.queue.seat(waiter.gang, waiter.pod, size=waiter.size, job=waiter.job, gpus=waiter.shape.gpus)
        return seat

    def seat_of(self, key: str) -> Seat | None:
        """The pod's place on its node, if it has one."""
        home = self._homes.get(key)
        return None if home is None else self.board.nodes[home[0]].seats[key]

    def number_of(self, key: str) -> int:
        """The number of the node that the pod sits on. Raises KeyError if it sits on none."""
        return self._homes[key][0]

    def leave(self, key: str) -> None:
        """A pod is on its way out of its place."""
        number, gang = self._homes[key]
        if not self.board.nodes[number].seats[key].leaving:
            self.board.leave(number, key)
            self.queue.unseat(gang, key)

    def withdraw(self, key: str) -> None:
        """A pod waits no longer."""
        self._unreserve(self.queue.drop(key))

    def nominate(self, waiter: Waiter, node: str) -> None:
        """Move a pod's nomination to this node; no name takes it back."""
        self._unreserve(waiter)
        waiter = replace(waiter, nominated=node)
        self._reserve(waiter)
        self.queue.nominate(waiter, self.freed)

    def priority(self, template: PodTemplate) -> int:
        """The priority that a pod of this template would have."""
        named = self.classes.get(template.priority_class)
        return template.priority or (named.value if named is not None else 0)

    def _settle(self, pod: Pod) -> None:
        """The pod sits on a node, perhaps on another one than before."""
        number, shape = self.board.number(pod.node), self.shapes.of(pod.template)
        if self._homes.get(pod.key, (number, ""))[0] != number:
            self._release(pod.key)
        gang, since = _gang(pod), pod.bound or pod.started or pod.created
        old = self.board.nodes[number].seats.get(pod.key)
        now = (pod.gpus, pod.slices, shape, pod.priority, since)
        if old is None or (old.gpus, old.slices, old.shape, old.priority, old.since) != now:
            if old is not None:
                self.board.unseat(number, pod.key)
            self.board.seat(number, Seat(pod.key, shape, pod.priority, since, pod.gpus, slices=pod.slices))
            self._homes[pod.key] = (number, gang)
        if gang and not pod.deleted:
            self.queue.seat(gang, pod.key, size=self._size(pod), job=pod.job, gpus=shape.gpus)
        if pod.deleted:
            self.leave(pod.key)

    def _release(self, key: str) -> None:
        """The pod holds its node no longer."""
        home = self._homes.pop(key, None)
        if home is not None:
            self.board.unseat(home[0], key)
            self.queue.unseat(home[1], key)
            self.stir()

    def _await(self, waiter: Waiter) -> None:
        """Queue the pod, and move its reservation to the node that it is nominated to."""
        old = self.queue.waiters.get(waiter.pod)
        if old is None or (old.nominated, old.shape, old.priority) != (waiter.nominated, waiter.shape, waiter.priority):
            self._unreserve(old)
            self._reserve(waiter)
        if self.queue.add(waiter):
            self.stirred = True

    def waiter(self, pod: Pod) -> Waiter:
        """The pod as it stands in the queue."""
        template = pod.template
        named = self.classes.get(template.priority_class)
        return Waiter(
            pod=pod.key,
            created=pod.created,
            shape=self.shapes.of(template),
            priority=pod.priority,
            never=(template.preemption_policy or (named.preemption_policy if named is not None else "")) == NEVER,
            gang=_gang(pod),
            size=self._size(pod),
            job=pod.job,
            nominated=pod.nominated_node,
            message=pod.message,
        )

    def _size(self, pod: Pod) -> int:
        group = self.groups.get(_gang(pod))
        return pod.gang_size or (group.min_member if group is not None else 0)

    def _reserve(self, waiter: Waiter) -> None:
        if waiter.nominated:
            reservation = Reservation(waiter.pod, waiter.shape, waiter.priority)
            self.board.reserve(self.board.number(waiter.nominated), reservation)

    def _unreserve(self, waiter: Waiter | None) -> None:
        if waiter is not None and waiter.nominated:
            self.board.unreserve(self.board.number(waiter.nominated), waiter.pod)
            self.stir()


def _gang(pod: Pod) -> str:
    """`namespace/gang`, which is also the key of its PodGroup."""
    return f"{pod.namespace}/{pod.gang}" if pod.gang else ""
