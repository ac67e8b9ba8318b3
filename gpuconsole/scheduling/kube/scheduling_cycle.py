"""Scheduling pass: tries every eligible pending pod in queue order and decides about it. Mutates.

Decisions are assumed at once, so that later decisions take them into account.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from typing import assert_never

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Bind, EvictPod, Nominate, PlacementDecision, Unschedulable
from gpuconsole.scheduling.kube import messages
from gpuconsole.scheduling.kube.backoff_queue import gang_key
from gpuconsole.scheduling.kube.pending import PendingPod, PodBatch, PodGang
from gpuconsole.scheduling.kube.placement_plans import (
    Binding,
    NodeNomination,
    Step,
    awaits,
    claim,
    claim_gang,
    gang_refusal,
    place,
    place_gang,
    refusal,
)
from gpuconsole.scheduling.kube.placement_state import PlacementState
from gpuconsole.scheduling.kube.placements import GroupTree, place_tree, placement_refusal


class SchedulingPass:
    """One pass over the queue. Mutates the placement state."""

    def __init__(self, ledger: PlacementState, now: Time) -> None:
        self._ledger, self._now = ledger, now
        self._board, self._queue = ledger.board, ledger.queue
        self._said: list[PlacementDecision] = []

    def run(self) -> list[PlacementDecision]:
        """Try every eligible pod; binds, evictions and nominations are assumed."""
        self._ledger.stirred = False
        self._board.means.open()
        self._board.measure(waiter.shape for waiter in self._queue.waiters.values())
        delays = self._ledger.delays
        turns = ((delays.turn(unit, self._now), unit) for unit in self._queue.untried(self._ledger.freed))
        numbers = count()
        heap = [(turn, next(numbers), unit) for turn, unit in turns if turn is not None]
        heapify(heap)
        while heap:
            _, _, unit = heappop(heap)
            if not unit.waiting:
                # A preemption removed the nomination of this batch's only pod, which is now in another batch, perhaps
                # with the same turn.
                continue
            match unit:
                case PodBatch():
                    again = self._try_line(unit)
                case PodGang():
                    again = self._try_gang(unit)
                case _:
                    assert_never(unit)
            turn = delays.turn(unit, self._now) if again and unit.waiting else None
            if turn is not None:
                heappush(heap, (turn, next(numbers), unit))
        return self._said

    def _try_line(self, line: PodBatch) -> bool:
        """Try the first pod of the batch; True if the next one should be tried."""
        waiter = self._queue.waiters[self._ledger.delays.first(line, self._now)]
        with self._without_reservations((waiter,)):
            step: Step | None = place(self._board, waiter)
            waits = step is None and awaits(self._board, waiter)
            if step is None and not waits:
                step = claim(self._board, waiter)
        if step is not None:
            self._carry_out(step)
            return True
        line.refused_at = self._ledger.freed
        self._ledger.delays.refuse_line(line, self._now)
        if not waits:
            self._nominate(waiter, "")
            self._refuse(line, refusal(self._board, waiter))
        return False

    def _try_gang(self, gang: PodGang) -> bool:
        """Try the gang; True if some of its pods were bound, so that the others may be tried."""
        gang.refused_at = self._ledger.freed
        if len(gang.waiters) < gang.needed:
            pods = len(gang.waiters) + len(gang.seated)
            self._refuse(gang, messages.gang_incomplete(gang.name, pods, gang.size), gang.name)
            return False
        obstacle = self._ledger.obstacle(gang)
        if obstacle:
            self._refuse(gang, obstacle, gang.name)
            return False
        tree = self._ledger.tree_of(gang)
        if tree.is_constrained:
            return self._try_placements(gang, tree)
        waiters = tuple(gang.waiters.values())
        with self._without_reservations(waiters):
            steps = place_gang(self._board, gang, self._now)
            waits = steps is None and any(awaits(self._board, waiter) for waiter in waiters)
            if steps is None and not waits:
                steps = claim_gang(self._board, gang)
        for step in steps or ():
            self._carry_out(step)
        if not any(isinstance(step, Binding) for step in steps or ()):
            self._ledger.delays.refuse(gang_key(gang.name), self._now)
        if steps is None and not waits:
            for waiter in waiters:
                self._nominate(waiter, "")
            self._refuse(gang, gang_refusal(self._board, gang), gang.name)
        return any(isinstance(step, Binding) for step in steps or ())

    def _try_placements(self, gang: PodGang, tree: GroupTree) -> bool:
        """Try the gang's group hierarchy in the domains of its topology keys, without preemption."""
        steps = place_tree(self._board, tree, self._now) or ()
        for step in steps:
            self._carry_out(step)
        if any(step.waiter.gang == gang.name for step in steps):
            return True
        self._ledger.delays.refuse(gang_key(gang.name), self._now)
        self._refuse(gang, placement_refusal(self._board, tree, gang, self._now), gang.name)
        return False

    @contextmanager
    def _without_reservations(self, waiters: Sequence[PendingPod]) -> Iterator[None]:
        """Run a trial in which these pods have no reservations."""
        with self._board.trial():
            for waiter in waiters:
                if waiter.nominated:
                    self._board.unreserve(self._board.number(waiter.nominated), waiter.pod)
            yield

    def _carry_out(self, step: Step) -> None:
        match step:
            case Binding(waiter, number):
                self._bind(waiter, number)
            case NodeNomination():
                self._evict(step)
            case _:
                assert_never(step)

    def _bind(self, waiter: PendingPod, number: int) -> None:
        given = self._board.promise(waiter.who, number)
        seat = self._ledger.seat(waiter, number, self._now)
        name = self._board.nodes[number].name
        self._said.append(Bind(waiter.pod, name, seat.gpus, seat.slices, given.volumes, given.devices))

    def _evict(self, claim: NodeNomination) -> None:
        node = self._board.nodes[claim.number].name
        for seat in claim.victims:
            self._ledger.leave(seat.pod)
            self._said.append(EvictPod(seat.pod, claim.waiter.pod, node, messages.PREEMPTED))
        for held in self._board.nodes[claim.number].reserved:
            # Pods of lower priority lose their nomination to this node (getLowerPriorityNominatedPods).
            other = self._queue.waiters.get(held.pod)
            if other is not None and held.priority < claim.waiter.priority and not self._queue.in_gang(other):
                self._nominate(other, "")
        self._nominate(claim.waiter, node)
        if not self._queue.in_gang(claim.waiter):
            self._ledger.delays.refuse(claim.waiter.pod, self._now)

    def _nominate(self, waiter: PendingPod, node: str) -> None:
        if waiter.nominated != node:
            self._ledger.nominate(waiter, node)
            self._said.append(Nominate(waiter.pod, node))

    def _refuse(self, unit: PodBatch | PodGang, message: str, gang: str = "") -> None:
        """Report why the pods are pending, unless the message is unchanged."""
        if unit.said == message:
            return
        unit.said = message
        for pod in unit.pods:
            waiter = self._queue.waiters[pod]
            if waiter.message != message:
                self._queue.replace(replace(waiter, message=message))
                self._said.append(Unschedulable(pod, message, gang))
