"""What a session's LocalQueues are charged with, kept up with what happens to their workloads.

A reservation costs an entry penalty, an admission turns it into consumption, and samples let consumption follow what
the admitted workloads use (Kueue 0.19 scheduler.updateEntryPenalty, workload_controller.reconcileAfsPenaltiesOnUpdate,
localqueue_controller). Without admission fair sharing nothing here is called.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.queues import ClusterQueue, LocalQueue, StopPolicy
from gpuconsole.model.resources import add
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import afs
from gpuconsole.scheduling.kueue.afs import Ledger
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig
from gpuconsole.scheduling.kueue.requests import Holding, Request
from gpuconsole.scheduling.kueue.roster import Record
from gpuconsole.scheduling.kueue.rules import QueueRules
from gpuconsole.scheduling.kueue.state import State

_GATHERING = SECOND
"""For how long events of workloads are gathered before a LocalQueue is looked at (constants.UpdatesBatchPeriod)."""
MOST = 1e300
"""Stands for infinite usage, which JSON cannot tell."""


def usage_in(state: State, rules: QueueRules) -> Callable[[str], float] | None:
    """What each LocalQueue of a ClusterQueue used lately, where they take turns; each is worked out once."""
    return cache(state.used_lately) if state.charging and state.config.takes_turns(rules.queue) else None


def introduce(state: State, key: str, queue: LocalQueue | None) -> None:
    """A LocalQueue appeared, changed or went (None)."""
    if queue is None:
        state.ledgers.pop(key, None)
        state.samples.pop(key, None)
        state.charged = {workload: door for workload, door in state.charged.items() if door != key}
        return
    _store(state, key, afs.seeded(state.ledgers.get(key), queue.consumed, state.now))
    look_later(state, key)


def charges(config: KueueConfig, queue: ClusterQueue, workload: Workload) -> bool:
    """True if a reservation costs a penalty: the first one, where LocalQueues take turns (shouldApplyEntryPenalty).

    A second pass finds the workload reserved and charged already.
    """
    return config.takes_turns(queue) and not workload.reserved


def charge(state: State, request: Request) -> None:
    """A workload got its quota: until it is admitted, its LocalQueue pays a penalty for it."""
    settings, rules = state.config.usage_based, state.setup.queues[request.cluster_queue]
    if settings is None or not charges(state.config, rules.queue, request.workload):
        return
    asked = add(*(need.total for need in request.pod_sets))
    if state.config.ignore_undeclared:
        asked = {name: amount for name, amount in asked.items() if name in rules.group_of}
    rate = afs.alpha(settings.usage_sampling_interval, settings.usage_half_life)
    penalise(state, request.workload, afs.times(afs.fine(asked), rate))


def penalise(state: State, workload: Workload, penalty: afs.Fine) -> None:
    """Write a penalty down; a workload has one at most."""
    door = workload.local_queue
    ledger = state.ledgers.get(door) or Ledger(updated=state.now)
    _store(state, door, afs.with_penalty(ledger, workload.key, penalty))
    state.charged[workload.key] = door


def forget(state: State, workload: str) -> None:
    """Drop a workload's penalty: it will not be admitted any more on what it was charged for."""
    door = state.charged.pop(workload, None)
    if door is not None and door in state.ledgers:
        _store(state, door, afs.without_penalty(state.ledgers[door], workload))


def follow(state: State, workload: Workload, before: Record | None) -> None:
    """A workload changed, and is counted as it is now; `before` is what was known of it.

    An evicted workload that may come back keeps its penalty, and so does one that was stopped but holds its quota.
    """
    settings = state.config.usage_based
    assert settings is not None
    door = workload.local_queue
    _catch_up(state, door, settings)
    if workload.active and workload.admitted and not workload.finished and _was_not_admitted(before):
        _settle(state, workload, settings)
    moved = state.charged.get(workload.key, door) != door
    rolled_back = isinstance(before, Holding) and not before.workload.reserved and not workload.reserved
    if moved or rolled_back or workload.finished or not (workload.active or workload.reserved):
        forget(state, workload.key)
    look_later(state, door)


def look_later(state: State, door: str) -> None:
    """Something happened to a workload of a LocalQueue: its controller looks at it when events have been gathered."""
    if door in state.ledgers:
        due = state.now + _GATHERING
        state.samples[door] = min(due, state.samples.get(door, due))


def look(state: State, door: str) -> Span | None:
    """One look of Kueue's controller at a LocalQueue: how long until the next one; None where nothing calls for it.

    A sample is taken when the interval is over, or a penalty is open (Kueue 0.19 localqueue_controller: Reconcile).
    """
    settings, now = state.config.usage_based, state.now
    assert settings is not None
    ledger = state.ledgers.get(door)
    if ledger is None or not _sampled(state, door):
        return None
    left = ledger.updated + settings.usage_sampling_interval - now
    if left > 0 and not ledger.penalties:
        return left
    used = _admitted_usage(_holdings_of(state, door)).get(door, {})
    _store(state, door, afs.sampled(ledger, used, now, settings.usage_half_life))
    return settings.usage_sampling_interval


def sample(state: State) -> None:
    """Look at every LocalQueue that is due, and set when it is looked at again.

    One that uses nothing, and did not lately, is left alone, and so are all while nobody waits or runs: what their
    samples would come to is worked out when somebody asks (`afs.caught_up`).
    """
    at_rest = not state.roster.anybody_waits and next(iter(state.roster.holders), None) is None
    for door in sorted(door for door, due in state.samples.items() if due <= state.now):
        del state.samples[door]
        again, ledger = look(state, door), state.ledgers.get(door)
        if again is None or ledger is None or at_rest:
            continue
        if ledger.penalties or any(ledger.consumed.values()) or _admitted_usage(_holdings_of(state, door)).get(door):
            state.samples[door] = state.now + again


class UsedLately(Struct, frozen=True):
    """What a LocalQueue is charged with: its status, and the number by which it takes turns, if it does."""

    local_queue: str
    consumed: afs.Fine
    sampled: Time
    usage: float | None


def take_changed(state: State) -> list[UsedLately]:
    """What changed since this was asked for last, by LocalQueue."""
    found = []
    for door in state.recharged:
        ledger, queue = state.ledgers.get(door), state.objects.local_queues.get(door)
        if ledger is not None and queue is not None:
            pool = state.objects.cluster_queues.get(queue.cluster_queue)
            turns = pool is not None and state.config.takes_turns(pool)
            usage = min(MOST, state.used_lately(door)) if turns else None
            found.append(UsedLately(door, ledger.consumed, ledger.updated, usage))
    state.recharged.clear()
    return found


def _store(state: State, door: str, ledger: Ledger) -> None:
    if state.ledgers.get(door) != ledger:
        state.ledgers[door] = ledger
        state.recharged[door] = None


def _was_not_admitted(before: Record | None) -> bool:
    """A workload that is seen for the first time was admitted in other times: what it cost is in the status."""
    return isinstance(before, Request | Workload) or (isinstance(before, Holding) and not before.workload.admitted)


def _settle(state: State, workload: Workload, settings: AdmissionFairSharing) -> None:
    door, admission = workload.local_queue, workload.admission
    queue = state.objects.cluster_queues.get(admission.cluster_queue) if admission is not None else None
    if queue is None or door not in state.objects.local_queues or not state.config.takes_turns(queue):
        return
    ledger = state.ledgers.get(door) or Ledger(updated=state.now)
    used = _admitted_usage(_holdings_of(state, door)).get(door, {})
    _store(state, door, afs.settled(ledger, workload.key, used, state.now, settings.usage_half_life))
    state.charged.pop(workload.key, None)


def _catch_up(state: State, door: str, settings: AdmissionFairSharing) -> None:
    """Take the samples that were left out while nobody used anything."""
    ledger = state.ledgers.get(door)
    if ledger is not None and _sampled(state, door):
        interval, half_life = settings.usage_sampling_interval, settings.usage_half_life
        _store(state, door, afs.caught_up(ledger, state.now, interval, half_life))


def _sampled(state: State, door: str) -> bool:
    """A LocalQueue that cannot take workloads is not looked at until it can again."""
    queue = state.objects.local_queues.get(door)
    rules = state.setup.queues.get(queue.cluster_queue) if queue is not None else None
    return queue is not None and queue.stop_policy == StopPolicy.NONE and rules is not None and rules.active


def _holdings_of(state: State, door: str) -> Iterable[Holding]:
    queue = state.objects.local_queues.get(door)
    return state.roster.holdings.get(queue.cluster_queue, {}).values() if queue is not None else ()


def _admitted_usage(holdings: Iterable[Holding]) -> dict[str, afs.Fine]:
    """LocalQueue → what its admitted workloads use, of all flavors together (GetAdmittedUsage)."""
    used: dict[str, dict[str, int]] = {}
    for holding in holdings:
        workload = holding.workload
        if workload.admitted and workload.admission is not None:
            usages = (assignment.usage for assignment in workload.admission.pod_sets)
            door = workload.local_queue
            used[door] = add(used.get(door, {}), *usages)
    return {door: afs.fine(amounts) for door, amounts in used.items()}


def recall(state: State, ledgers: Mapping[str, Ledger], samples: Mapping[str, Time]) -> None:
    """Take in what a saved session was charged with, and when its LocalQueues are looked at."""
    state.ledgers = dict(ledgers)
    state.charged = {workload: door for door, ledger in ledgers.items() for workload in ledger.penalties}
    state.samples = dict(samples)
