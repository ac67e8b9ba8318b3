"""Applies a change of a workload: queues it, counts its quota, releases its quota, or removes it.

Kueue 0.19 pkg/cache/queue/manager.go, pkg/cache/scheduler/cache.go and the workload controller's event handlers.

A workload that holds quota but needs a topology assignment later, or lost a node, gets a second pass: after a
ProvisioningRequest has provisioned the nodes, or after the failure. Failed attempts are repeated with growing delays;
the quota stays reserved (`schedule_second_pass`, `take_due_second_passes`; second_pass_queue.go,
workload.NeedsSecondPass).
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import Refuse
from gpuconsole.model.resources import EMPTY
from gpuconsole.model.workloads import Admission, Workload
from gpuconsole.scheduling.kueue import afs_charges
from gpuconsole.scheduling.kueue.admissibility import queue_inadmissible_reason
from gpuconsole.scheduling.kueue.conditions import EVICTED, INADMISSIBLE, QUOTA_RESERVED, REQUEUED, needs_second_pass
from gpuconsole.scheduling.kueue.dra.charges import NO_CHARGES, ChargeRefusal, Charges, device_charges, needs_devices
from gpuconsole.scheduling.kueue.pod_resources import (
    Holding,
    TopologyUsage,
    WorkloadRequest,
    admitted_usage,
    effective_priority,
    priority_changed,
    queue_timestamp,
    reserved_at,
)
from gpuconsole.scheduling.kueue.state import KueueState, SecondPass

_MAX_SECOND_PASS_DELAY = 30 * SECOND


def second_pass_delay(round: int) -> Span:
    """Return the delay before the `round`-th attempt: 1 s, doubled each time, at most 30 s."""
    return min(_MAX_SECOND_PASS_DELAY, SECOND << min(round - 1, 5))


def schedule_second_pass(state: KueueState, number: int, workload: Workload, round: int = 0) -> bool:
    """Schedule a second pass for a workload if it needs one; True if none was scheduled before.

    `round` is the number of attempts made. After an attempt a workload that needs no other is dropped; before the first
    it stays scheduled, and `take_due_second_passes` leaves it out, so that its delay does not start again
    (QueueSecondPassIfNeeded).
    """
    if not needs_second_pass(workload):
        if round:
            state.second_passes.pop(number, None)
        return False
    if number in state.second_passes:
        return False
    state.second_passes[number] = SecondPass(state.now + second_pass_delay(round + 1), round + 1)
    return True


def has_second_pass_due(state: KueueState) -> bool:
    """True if any second pass is due."""
    return any(waits.at <= state.now for waits in state.second_passes.values())


def take_due_second_passes(state: KueueState) -> list[tuple[Holding, int]]:
    """Take out the workloads whose second pass is due, sorted by key, each with the number of its attempt."""
    due = [(number, waits.round) for number, waits in state.second_passes.items() if waits.at <= state.now]
    found = []
    for number, round in due:
        del state.second_passes[number]
        holding = state.workload_index.records[number]
        if not isinstance(holding, Holding) or holding.cluster_queue not in state.setup.queues:
            continue
        if needs_second_pass(holding.workload):
            found.append((holding, round))
    return sorted(found, key=lambda pair: pair[0].key)


def apply_workload(state: KueueState, workload: Workload) -> None:
    """Queue a workload or count its quota, as its conditions require."""
    before = state.workload_index.get(workload.key) if state.charging else None
    _apply_workload(state, workload)
    if state.charging:
        afs_charges.on_workload_changed(state, workload, before)


def _apply_workload(state: KueueState, workload: Workload) -> None:
    if workload.finished or not workload.active:
        remove_workload(state, workload.key)
        if state.workload_index.contains(workload.key):
            state.mark_tree_of_workload_due(workload)
        return
    number = state.workload_index.id_of(workload.key)
    state.evictions_in_flight.discard(number)
    if workload.reserved and workload.admission is not None:
        _record_quota(state, number, workload)
        schedule_second_pass(state, number, workload)
    else:
        _set_backoff(state, number, workload)


def remove_workload(state: KueueState, key: str) -> None:
    """Remove a workload that finished, stopped or was deleted, and note that its tree is to be requeued."""
    if state.workload_index.get(key) is not None:
        number = state.workload_index.id_of(key)
        _drop_quota(state, number)
        state.evictions_in_flight.discard(number)
        state.second_passes.pop(number, None)
        state.workload_index.records[number] = None


def assume_admission(state: KueueState, request: WorkloadRequest, admission: Admission) -> None:
    """Count an admission that was just decided; applying the admitted workload confirms it."""
    old = state.workload_index.records[request.id]
    if isinstance(old, Holding):
        state.snapshot.remove_holding(old)
    _remove_from_queue(state, request)
    if state.charging:
        afs_charges.charge_penalty(state, request)
    holding = _holding(state, request.id, replace(request.workload, admission=admission))
    state.record_holding(holding)


def _record_quota(state: KueueState, number: int, workload: Workload) -> None:
    """Count the workload's admission as used, also if it holds quota already."""
    old = state.workload_index.records[number]
    queue = workload.admission.cluster_queue if workload.admission is not None else ""
    if queue not in state.setup.queues or _has_variants(state, workload, queue):
        _drop_quota(state, number)
        state.workload_index.records[number] = workload
        return
    new = _holding(state, number, workload)
    if isinstance(old, Holding) and old.cluster_queue == new.cluster_queue:
        state.bump_generation(new.cluster_queue)
        if _released_quota(old, new) or priority_changed(old.workload, workload, state.config):
            state.mark_tree_of_workload_due(workload)
        state.snapshot.remove_holding(old)
    elif isinstance(old, WorkloadRequest):
        _remove_from_queue(state, old)
    else:
        _drop_quota(state, number)
    state.record_holding(new)


def enqueue(state: KueueState, request: WorkloadRequest, *, from_local_queue: bool = False) -> None:
    """Queue a workload; before its backoff ends it is inadmissible, unless a change of its LocalQueue brought
    it back.
    """
    state.workload_index.records[request.id] = request
    queue = state.workload_index.queue(request.cluster_queue)
    if from_local_queue:
        queue.push_from_local_queue(request)
    elif backoff_ended(request.workload, state.now):
        state.backoffs.pop(request.id, None)
        queue.push(request)
    else:
        if request.workload.requeue.at is not None:
            state.backoffs[request.id] = request.workload.requeue.at
        queue.mark_inadmissible(request)


def queue_workload(
    state: KueueState, number: int, workload: Workload, cluster_queue: str, *, from_local_queue: bool = False
) -> None:
    """Queue a workload if it has a ClusterQueue and its devices can be charged."""
    request = _charged_request(state, number, workload, cluster_queue) if cluster_queue else None
    if request is None:
        state.workload_index.records[number] = workload
    else:
        enqueue(state, request, from_local_queue=from_local_queue)


def _charged_request(state: KueueState, number: int, workload: Workload, cluster_queue: str) -> WorkloadRequest | None:
    """Return the request of a pending workload; None, with a refusal noted, if its devices cannot be charged."""
    if not needs_devices(workload, state.setup.devices, state.config):
        return request_of(state, workload, number, cluster_queue)
    found = device_charges(workload, state.setup.devices, state.config)
    if not isinstance(found, ChargeRefusal):
        return request_of(state, workload, number, cluster_queue, found)
    reason = "Misconfigured" if state.config.has_granular_reasons else INADMISSIBLE
    condition = workload.condition(QUOTA_RESERVED)
    if condition is None or condition.status or (condition.reason, condition.message) != (reason, found.message):
        state.rejected_claims[number] = Refuse(workload.key, found.message, reason, requeued=found.requeued_message)
    return None


def request_of(
    state: KueueState, workload: Workload, number: int, cluster_queue: str, devices: Charges = NO_CHARGES
) -> WorkloadRequest:
    """Return the request of a workload, with the defaults of its namespace."""
    setup = state.setup
    limits = setup.limits_of(workload.namespace)
    return WorkloadRequest(workload, number, cluster_queue, state.config, limits, devices, setup.overheads)


def recompute_request(state: KueueState, old: WorkloadRequest) -> None:
    """Recompute the request of an unchanged pending workload; a changed request makes it admissible again.

    A workload whose devices cannot be charged any more leaves its queue.
    """
    new = _charged_request(state, old.id, old.workload, old.cluster_queue)
    if new is None:
        _reject_devices(state, old, old.workload)
    elif new.scheduling_hash != old.scheduling_hash:
        _replace(state, old, new)


def _reject_devices(state: KueueState, old: WorkloadRequest, workload: Workload) -> None:
    """Remove a queued workload whose devices can no longer be charged."""
    _remove_from_queue(state, old)
    state.workload_index.records[old.id] = workload


def backoff_ended(workload: Workload, now: Time) -> bool:
    """False while the workload waits for the end of its backoff, or to be requeued after an eviction."""
    requeued = workload.condition(REQUEUED)
    if requeued is not None and not requeued.status:
        return False
    return workload.requeue.at is None or now >= workload.requeue.at


def cluster_queue_for(state: KueueState, workload: Workload) -> str:
    """Return the ClusterQueue of a workload without quota; empty if none takes it."""
    if queue_inadmissible_reason(state.setup, workload, state.config) is not None:
        return ""
    target = state.setup.cluster_queue_of(workload.local_queue)
    return "" if target and _has_variants(state, workload, target) else target


def _has_variants(state: KueueState, workload: Workload, cluster_queue: str) -> bool:
    """True if its variants are queued and hold quota in its place (concurrent admission)."""
    if not state.gates.concurrent_admission or workload.parent:
        return False
    return state.setup.queues[cluster_queue].queue.concurrent_admission is not None


def _set_backoff(state: KueueState, number: int, workload: Workload) -> None:
    old = state.workload_index.records[number]
    target = cluster_queue_for(state, workload)
    if needs_devices(workload, state.setup.devices, state.config):
        workload = _without_requeued_condition(workload)
    if isinstance(old, WorkloadRequest) and old.cluster_queue == target:
        _update(state, old, workload)
        return
    if isinstance(old, WorkloadRequest):
        _remove_from_queue(state, old)
    else:
        _drop_quota(state, number)
    if isinstance(old, Holding) and _backs_off(workload, state.now):
        state.workload_index.records[number] = workload
        return
    queue_workload(state, number, workload, target)


def _backs_off(workload: Workload, now: Time) -> bool:
    """True if a workload that lost its quota is queued only when its backoff ends."""
    return workload.requeue.at is not None and workload.requeue.at > now


def _without_requeued_condition(workload: Workload) -> Workload:
    """Drop the Requeued=False condition of a workload with devices to charge."""
    requeued = workload.condition(REQUEUED)
    if requeued is None or requeued.status:
        return workload
    return replace(workload, conditions=tuple(c for c in workload.conditions if c is not requeued))


def _update(state: KueueState, old: WorkloadRequest, workload: Workload) -> None:
    """Update a pending workload; an inadmissible one is requeued only for a change that could matter."""
    if old.id in state.in_flight:
        state.workload_index.records[old.id] = _charged_request(state, old.id, workload, old.cluster_queue) or workload
        return
    if is_same_for_scheduling(old.workload, workload):
        state.workload_index.records[old.id] = new = old.with_workload(workload)
        state.workload_index.queue(old.cluster_queue).update_in_place(new)
        if not state.gates.preserve_scan_progress:
            state.progress.pop(old.id, None)
        return
    wanted = _charged_request(state, old.id, workload, old.cluster_queue)
    if wanted is None:
        _reject_devices(state, old, workload)
    else:
        _replace(state, old, wanted)


def _replace(state: KueueState, old: WorkloadRequest, new: WorkloadRequest) -> None:
    queue = state.workload_index.queue(old.cluster_queue)
    if queue.is_inadmissible(old.id):
        enqueue(state, new)
    else:
        state.workload_index.records[old.id] = new
        queue.push(new)


def is_same_for_scheduling(old: Workload, new: Workload) -> bool:
    """True if nothing changed that could make an inadmissible workload admissible."""
    return (
        (old.pod_sets is new.pod_sets or old.pod_sets == new.pod_sets)
        and (old.priority, old.priority_class, old.queue, old.created, old.uid)
        == (new.priority, new.priority_class, new.queue, new.created, new.uid)
        and (old.annotations is new.annotations or old.annotations == new.annotations)
        and old.max_execution_time == new.max_execution_time
        and old.reclaimable == new.reclaimable
        and (old.gated, len(old.preemption_gates)) == (new.gated, len(new.preemption_gates))
        and old.condition(EVICTED) == new.condition(EVICTED)
        and old.condition(REQUEUED) == new.condition(REQUEUED)
    )


def _holding(state: KueueState, number: int, workload: Workload) -> Holding:
    admission = workload.admission
    assert admission is not None
    used = [(flavor, resource, n) for flavor, resource, n in admitted_usage(workload, state.config) if flavor]
    unknown = [(f, r) for f, r, _ in used if (f, r) not in state.setup.tree.numbers]
    if unknown:
        state.compile_config(dict.fromkeys(unknown))
    uses: dict[int, int] = {}
    for flavor, resource, amount in used:
        column = state.setup.tree.numbers[flavor, resource]
        uses[column] = uses.get(column, 0) + amount
    priority = effective_priority(workload, state.config)
    since = reserved_at(workload, state.now)
    evicted = workload.reserved and workload.is_true(EVICTED)
    return Holding(
        workload=workload,
        id=number,
        cluster_queue=admission.cluster_queue,
        priority=priority,
        timestamp=queue_timestamp(workload, state.config),
        evicted=evicted,
        rank=(not evicted, priority, -since, workload.uid),
        usage=tuple(uses.items()),
        columns=frozenset(uses),
        topology_usage=tuple(_places(state, workload, admission)) if state.setup.topologies else (),
    )


def _places(state: KueueState, workload: Workload, admission: Admission) -> Iterator[TopologyUsage]:
    """Yield the topology usage of an admission."""
    templates = {pod_set.name: pod_set.template for pod_set in workload.pod_sets}
    for assignment in admission.pod_sets:
        for flavor in set(assignment.flavors.values()) & state.setup.topologies.keys():
            for domain in assignment.topology:
                per_pod = templates[assignment.name].requests if assignment.name in templates else EMPTY
                yield TopologyUsage(flavor, domain.values, domain.count, per_pod)


def _released_quota(old: Holding, new: Holding) -> bool:
    after = dict(new.usage)
    return any(after.get(column, 0) < amount for column, amount in old.usage)


def _remove_from_queue(state: KueueState, request: WorkloadRequest) -> None:
    state.in_flight.discard(request.id)
    state.workload_index.queue(request.cluster_queue).remove(request.id)
    state.progress.pop(request.id, None)
    state.backoffs.pop(request.id, None)


def _drop_quota(state: KueueState, number: int) -> None:
    """Remove a workload from its queue or its quota, and note that its tree is to be requeued."""
    match state.workload_index.records[number]:
        case WorkloadRequest() as old:
            _remove_from_queue(state, old)
            state.mark_tree_of_workload_due(old.workload)
        case Holding() as old:
            state.snapshot.remove_holding(old)
            state.workload_index.drop_holding(old)
            state.nomination_cache.invalidate(state.setup.tree, old.cluster_queue)
            state.mark_holdings_changed(old.cluster_queue)
            state.bump_generation(old.cluster_queue)
            state.mark_tree_of_workload_due(old.workload)
