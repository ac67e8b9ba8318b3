"""The placement session: nodes, pods and priority classes go in, decisions about pods come out. Mutates.

What it decides it also assumes, so that the next decision counts with it; applying the changed objects afterwards
changes nothing more.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import assert_never

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod, PodTemplate, PriorityClass
from gpuconsole.model.decisions import Bind, EvictPod, Nominate, PlacementDecision, Unschedulable
from gpuconsole.model.objects import Object
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.kube import messages
from gpuconsole.scheduling.kube.board import Board
from gpuconsole.scheduling.kube.nodes import Reservation, Seat
from gpuconsole.scheduling.kube.placing import (
    Claim,
    Place,
    Step,
    awaits,
    claim,
    claim_gang,
    gang_refusal,
    place,
    place_gang,
    refusal,
    seat_of,
)
from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.queue import Gang, Line, Queue, Waiter
from gpuconsole.scheduling.kube.shapes import Shape, Shapes

NEVER = "Never"
DEFAULT = PlacementPolicy()


class Placement:
    """Nodes with free resources and GPU owners by index, and the pods that wait for them."""

    def __init__(self, policy: PlacementPolicy = DEFAULT) -> None:
        self.policy = policy
        self._board = Board(policy)
        self._queue = Queue(policy.gangs)
        self._shapes = Shapes()
        self._homes: dict[str, tuple[int, str]] = {}
        """Pod → number of its node and its gang."""
        self._groups: dict[str, PodGroup] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._freed = 0
        """Counts what may help a refused pod: room that was freed, nodes that changed."""
        self._stirred = False
        self._said: list[PlacementDecision] = []

    @property
    def has_pending(self) -> bool:
        """True if a pod waits that `schedule` would try: it is new, or something freed since it was refused."""
        return self._stirred and bool(self._queue.waiters)

    @property
    def torn_gangs(self) -> list[Gang]:
        """Gangs of which some pods have a node and others wait, by name (read by `deadlock`)."""
        return [self._queue.gangs[name] for name in sorted(self._queue.torn)]

    def fork(self) -> "Placement":
        """A session that starts equal and never touches this one."""
        twin = Placement(self.policy)
        twin._board = self._board.fork()
        twin._queue = self._queue.fork()
        twin._shapes = self._shapes
        twin._homes = self._homes.copy()
        twin._groups = self._groups.copy()
        twin._classes = self._classes.copy()
        twin._freed, twin._stirred = self._freed, self._stirred
        return twin

    def memory(self) -> tuple[str, ...]:
        """What applying all objects to a new session would not bring back: keys of pods that need not be tried."""
        return self._queue.refused(self._freed)

    def recall(self, memory: tuple[str, ...]) -> None:
        """Take back what `memory` gave, after all objects were applied."""
        self._queue.recall(frozenset(memory), self._freed)
        self._stirred = any(True for _ in self._queue.untried(self._freed))

    def apply(self, thing: Object, now: Time) -> None:
        """An object appeared or changed. Kinds that placement does not look at are ignored."""
        match thing:
            case Node():
                self._describe(thing.name, thing)
            case Pod():
                self._apply_pod(thing, now)
            case PriorityClass():
                self._classes[thing.name] = thing
            case PodGroup():
                self._groups[thing.key] = thing
            case _:
                pass

    def delete(self, table: str, key: str, now: Time) -> None:
        """An object is gone; `table` as in `objects.TABLES`."""
        match table:
            case "nodes":
                self._describe(key, None)
            case "pods":
                self._release(key)
                self._withdraw(key)
            case "priority_classes":
                self._classes.pop(key, None)
            case "pod_groups":
                self._groups.pop(key, None)
            case _:
                pass

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Try every pod that could be tried, in queue order; binds, evictions and nominations are assumed."""
        self._stirred = False
        self._said = []
        heap = [(unit.order, unit) for unit in self._queue.untried(self._freed)]
        heapify(heap)
        while heap:
            _, unit = heappop(heap)
            match unit:
                case Line():
                    again = self._try_line(unit, now)
                case Gang():
                    again = self._try_gang(unit, now)
                case _:
                    assert_never(unit)
            if again and unit.waiting:
                heappush(heap, (unit.order, unit))
        return self._said

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the GPUs that nobody owns, by node."""
        return {state.name: state.free_gpus for state in self._board.nodes if state.node is not None}

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, all at once."""
        priority_class = self._classes.get(template.priority_class)
        priority = template.priority or (priority_class.value if priority_class else 0)
        return self._board.outlook(self._shapes.of(template), priority).slots

    def fitting(self, shape: Shape, priority: int) -> int:
        """How many pods of this shape and priority would fit now."""
        return self._board.outlook(shape, priority).slots

    def _describe(self, name: str, node: Node | None) -> None:
        if self._board.describe(name, node):
            self._stir()

    def _stir(self) -> None:
        self._freed += 1
        self._stirred = True

    def _apply_pod(self, pod: Pod, now: Time) -> None:
        if pod.done:
            self._release(pod.key)
            self._withdraw(pod.key)
        elif pod.node:
            self._withdraw(pod.key)
            self._settle(pod, now)
        else:
            self._release(pod.key)
            if pod.deleted or pod.gates:
                self._withdraw(pod.key)
            else:
                self._await(self._waiter(pod))

    def _settle(self, pod: Pod, now: Time) -> None:
        """The pod sits on a node."""
        number, shape = self._board.number(pod.node), self._shapes.of(pod.template)
        gang = self._gang_name(pod)
        old = self._seat(pod.key)
        if old is not None and self._homes[pod.key][0] != number:
            self._release(pod.key)
            old = None
        since = pod.bound or pod.started or pod.created
        if old is None or (old.gpus, old.shape, old.priority, old.since) != (pod.gpus, shape, pod.priority, since):
            if old is not None:
                self._board.unseat(number, pod.key)
            self._board.seat(number, Seat(pod.key, shape, pod.priority, since, pod.gpus))
            self._homes[pod.key] = (number, gang)
        if gang and not pod.deleted:
            self._queue.seat(gang, pod.key, size=self._gang_size(pod), job=pod.job, gpus=shape.gpus)
        if pod.deleted:
            self._leave(pod.key)

    def _seat(self, key: str) -> Seat | None:
        home = self._homes.get(key)
        return None if home is None else self._board.nodes[home[0]].seats[key]

    def _release(self, key: str) -> None:
        """The pod holds its node no longer."""
        home = self._homes.pop(key, None)
        if home is not None:
            self._board.unseat(home[0], key)
            self._queue.unseat(home[1], key)
            self._stir()

    def _leave(self, key: str) -> None:
        number, gang = self._homes[key]
        if not self._board.nodes[number].seats[key].leaving:
            self._board.leave(number, key)
            self._queue.unseat(gang, key)

    def _waiter(self, pod: Pod) -> Waiter:
        template = pod.template
        priority_class = self._classes.get(template.priority_class)
        policy = template.preemption_policy or (priority_class.preemption_policy if priority_class else "")
        return Waiter(
            pod=pod.key,
            created=pod.created,
            shape=self._shapes.of(template),
            priority=pod.priority,
            never=policy == NEVER,
            gang=self._gang_name(pod),
            size=self._gang_size(pod),
            job=pod.job,
            nominated=pod.nominated_node,
            message=pod.message,
        )

    def _gang_name(self, pod: Pod) -> str:
        return f"{pod.namespace}/{pod.gang}" if pod.gang else ""

    def _gang_size(self, pod: Pod) -> int:
        group = self._groups.get(f"{pod.namespace}/{pod.gang}")
        return pod.gang_size or (group.min_member if group else 0)

    def _await(self, waiter: Waiter) -> None:
        """Queue the pod, and move its reservation to the node that it is nominated to."""
        old = self._queue.waiters.get(waiter.pod)
        if old is None or (old.nominated, old.shape, old.priority) != (waiter.nominated, waiter.shape, waiter.priority):
            self._unreserve(old)
            self._reserve(waiter)
        if self._queue.add(waiter):
            self._stirred = True

    def _withdraw(self, key: str) -> None:
        """The pod waits no longer."""
        self._unreserve(self._queue.drop(key))

    def _reserve(self, waiter: Waiter) -> None:
        if waiter.nominated:
            reservation = Reservation(waiter.pod, waiter.shape, waiter.priority)
            self._board.reserve(self._board.number(waiter.nominated), reservation)

    def _unreserve(self, waiter: Waiter | None) -> None:
        if waiter is not None and waiter.nominated:
            self._board.unreserve(self._board.number(waiter.nominated), waiter.pod)
            self._stir()

    def _try_line(self, line: Line, now: Time) -> bool:
        """Try the first pod of the line; True if the next one is to be tried."""
        waiter = self._queue.waiters[line.order[2]]
        with self._without_reservations((waiter,)):
            step: Step | None = place(self._board, waiter)
            waits = step is None and awaits(self._board, waiter)
            if step is None and not waits:
                step = claim(self._board, waiter)
        if step is not None:
            self._carry_out(step, now)
            return True
        line.refused_at = self._freed
        if not waits:
            self._nominate(waiter, "")
            outlook = self._board.outlook(waiter.shape, waiter.priority)
            self._refuse(line, refusal(self._board, outlook, never=waiter.never))
        return False

    def _try_gang(self, gang: Gang, now: Time) -> bool:
        """Try the gang; True if some of its pods are left to be tried."""
        gang.refused_at = self._freed
        if len(gang.waiters) < gang.needed:
            pods = len(gang.waiters) + len(gang.seated)
            self._refuse(gang, messages.gang_incomplete(gang.name, pods, gang.size), gang.name)
            return False
        waiters = tuple(gang.waiters.values())
        with self._without_reservations(waiters):
            steps = place_gang(self._board, gang, now)
            waits = steps is None and any(awaits(self._board, waiter) for waiter in waiters)
            if steps is None and not waits:
                steps = claim_gang(self._board, gang)
        for step in steps or ():
            self._carry_out(step, now)
        if steps is None and not waits:
            for waiter in waiters:
                self._nominate(waiter, "")
            self._refuse(gang, gang_refusal(self._board, gang), gang.name)
        return any(isinstance(step, Place) for step in steps or ())

    @contextmanager
    def _without_reservations(self, waiters: Sequence[Waiter]) -> Iterator[None]:
        """A pod's own reservation does not stand in its way."""
        with self._board.trial():
            for waiter in waiters:
                if waiter.nominated:
                    self._board.unreserve(self._board.number(waiter.nominated), waiter.pod)
            yield

    def _carry_out(self, step: Step, now: Time) -> None:
        match step:
            case Place(waiter, number):
                self._bind(waiter, number, now)
            case Claim(waiter, number, victims):
                self._evict(waiter, number, victims)
            case _:
                assert_never(step)

    def _bind(self, waiter: Waiter, number: int, now: Time) -> None:
        self._withdraw(waiter.pod)
        seat = self._board.seat(number, seat_of(waiter, now))
        self._homes[waiter.pod] = (number, waiter.gang)
        if waiter.gang:
            self._queue.seat(waiter.gang, waiter.pod, size=waiter.size, job=waiter.job, gpus=waiter.shape.gpus)
        self._said.append(Bind(waiter.pod, self._board.nodes[number].name, seat.gpus))

    def _evict(self, waiter: Waiter, number: int, victims: Sequence[Seat]) -> None:
        node = self._board.nodes[number].name
        for seat in victims:
            self._leave(seat.pod)
            self._said.append(EvictPod(seat.pod, waiter.pod, node, messages.PREEMPTED))
        self._nominate(waiter, node)

    def _nominate(self, waiter: Waiter, node: str) -> None:
        """Move the pod's nomination to this node; no name takes it back."""
        if waiter.nominated == node:
            return
        self._unreserve(waiter)
        waiter = replace(waiter, nominated=node)
        self._reserve(waiter)
        self._queue.nominate(waiter, self._freed)
        self._said.append(Nominate(waiter.pod, node))

    def _refuse(self, unit: Line | Gang, message: str, gang: str = "") -> None:
        """Tell the unit's pods why they wait; those that know already are not told again."""
        if unit.said == message:
            return
        unit.said = message
        for pod in unit.pods:
            waiter = self._queue.waiters[pod]
            if waiter.message != message:
                self._queue.replace(replace(waiter, message=message))
                self._said.append(Unschedulable(pod, message, gang))
