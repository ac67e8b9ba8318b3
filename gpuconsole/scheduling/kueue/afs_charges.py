"""Admission fair sharing: keeps the recent usage and entry penalties of each LocalQueue up to date.

A quota reservation adds an entry penalty, an admission turns it into consumption, and samples move the consumption
towards the usage of the admitted workloads (Kueue 0.19 scheduler.updateEntryPenalty,
workload_controller.reconcileAfsPenaltiesOnUpdate, localqueue_controller). Not used without admission fair sharing.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.queues import ClusterQueue, LocalQueue, StopPolicy
from gpuconsole.model.resources import add
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig
from gpuconsole.scheduling.kueue.pod_resources import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.state import KueueState
from gpuconsole.scheduling.kueue.workload_index import (
    BillionthAmounts,
    LocalQueueUsage,
    WorkloadRecord,
    multiply,
    sample_weight,
    to_billionths,
    with_converted_penalty,
    with_missed_samples,
    with_penalty,
    with_reported_usage,
    with_sample,
    without_penalty,
)

_BATCH_PERIOD = SECOND
"""Delay between an event of a workload and the sample of its LocalQueue (constants.UpdatesBatchPeriod)."""
INFINITE_USAGE = 1e300
"""Stands for infinite usage, which JSON cannot represent."""


def on_local_queue_changed(state: KueueState, key: str, queue: LocalQueue | None) -> None:
    """Update the usage records after a LocalQueue was created, changed or deleted (None)."""
    if queue is None:
        state.local_queue_usage.pop(key, None)
        state.samples.pop(key, None)
        state.charged = {workload: queue_key for workload, queue_key in state.charged.items() if queue_key != key}
        return
    _store(state, key, with_reported_usage(state.local_queue_usage.get(key), queue.consumed, state.now))
    schedule_sample(state, key)


def adds_penalty(config: KueueConfig, queue: ClusterQueue, workload: Workload) -> bool:
    """True if a reservation of this workload adds an entry penalty (shouldApplyEntryPenalty).

    In a second pass the workload has its reservation and its penalty already.
    """
    return config.orders_local_queues(queue) and not workload.reserved


def charge_penalty(state: KueueState, request: WorkloadRequest) -> None:
    """Charge the entry penalty for a workload that reserved quota; it lasts until the workload is admitted."""
    settings, rules = state.config.usage_based_fair_sharing, state.setup.queues[request.cluster_queue]
    if settings is None or not adds_penalty(state.config, rules.queue, request.workload):
        return
    asked = add(*(need.total for need in request.pod_sets))
    if state.config.ignore_undeclared:
        asked = {name: amount for name, amount in asked.items() if name in rules.group_of}
    rate = sample_weight(settings.usage_sampling_interval, settings.usage_half_life)
    add_penalty(state, request.workload, multiply(to_billionths(asked), rate))


def add_penalty(state: KueueState, workload: Workload, penalty: BillionthAmounts) -> None:
    """Record the entry penalty of a workload; it replaces an earlier one."""
    queue_key = workload.local_queue
    usage_record = state.local_queue_usage.get(queue_key) or LocalQueueUsage(updated=state.now)
    _store(state, queue_key, with_penalty(usage_record, workload.key, penalty))
    state.charged[workload.key] = queue_key


def drop_penalty(state: KueueState, workload: str) -> None:
    """Drop the entry penalty of a workload whose reservation ends without an admission."""
    queue_key = state.charged.pop(workload, None)
    if queue_key is not None and queue_key in state.local_queue_usage:
        _store(state, queue_key, without_penalty(state.local_queue_usage[queue_key], workload))


def on_workload_changed(state: KueueState, workload: Workload, before: WorkloadRecord | None) -> None:
    """Update usage and penalties after a workload changed; `before` is its previous record.

    The penalty is dropped when the workload moves to another LocalQueue, loses an assumed reservation, finishes, or is
    inactive without quota; an evicted workload keeps it.
    """
    settings = state.config.usage_based_fair_sharing
    assert settings is not None
    queue_key = workload.local_queue
    _apply_missed_samples(state, queue_key, settings)
    if workload.active and workload.admitted and not workload.finished and _was_not_admitted(before):
        _convert_penalty(state, workload, settings)
    moved = state.charged.get(workload.key, queue_key) != queue_key
    rolled_back = isinstance(before, Holding) and not before.workload.reserved and not workload.reserved
    if moved or rolled_back or workload.finished or not (workload.active or workload.reserved):
        drop_penalty(state, workload.key)
    schedule_sample(state, queue_key)


def schedule_sample(state: KueueState, queue_key: str) -> None:
    """Schedule a sample of a LocalQueue at the end of the batch period, unless one is due earlier."""
    if queue_key in state.local_queue_usage:
        due = state.now + _BATCH_PERIOD
        state.samples[queue_key] = min(due, state.samples.get(queue_key, due))


def sample_local_queue(state: KueueState, queue_key: str) -> Span | None:
    """Reconcile one LocalQueue as Kueue's controller does; returns the time to the next sample, None if it is not
    sampled.

    A sample is taken when the interval is over or a penalty is pending (Kueue 0.19 localqueue_controller: Reconcile).
    """
    settings, now = state.config.usage_based_fair_sharing, state.now
    assert settings is not None
    usage_record = state.local_queue_usage.get(queue_key)
    if usage_record is None or not _is_sampled(state, queue_key):
        return None
    left = usage_record.updated + settings.usage_sampling_interval - now
    if left > 0 and not usage_record.penalties:
        return left
    used = _admitted_usage(_holdings_of_local_queue(state, queue_key)).get(queue_key, {})
    _store(state, queue_key, with_sample(usage_record, used, now, settings.usage_half_life))
    return settings.usage_sampling_interval


def take_due_samples(state: KueueState) -> None:
    """Sample every LocalQueue that is due, and schedule its next sample.

    None is scheduled for LocalQueues without current or recent usage, or while no workload is pending or holds quota;
    `with_missed_samples` computes the missed samples on demand.
    """
    at_rest = not state.workload_index.has_pending and next(iter(state.workload_index.holders_by_queue), None) is None
    for queue_key in sorted(queue_key for queue_key, due in state.samples.items() if due <= state.now):
        del state.samples[queue_key]
        again, usage_record = sample_local_queue(state, queue_key), state.local_queue_usage.get(queue_key)
        if again is None or usage_record is None or at_rest:
            continue
        if (
            usage_record.penalties
            or any(usage_record.consumed.values())
            or _admitted_usage(_holdings_of_local_queue(state, queue_key)).get(queue_key)
        ):
            state.samples[queue_key] = state.now + again


class LocalQueueUsageReport(Struct, frozen=True):
    """The usage of a LocalQueue to show in its status (`consumed`, `sampled`: the time of the last sample).

    `usage` is the number by which admission fair sharing orders LocalQueues; None if its ClusterQueue does not.
    """

    local_queue: str
    consumed: BillionthAmounts
    sampled: Time
    usage: float | None


def take_usage_changes(state: KueueState) -> list[LocalQueueUsageReport]:
    """Return a report for each LocalQueue whose usage changed since the last call."""
    found = []
    for queue_key in state.charges_changed:
        usage_record, queue = state.local_queue_usage.get(queue_key), state.objects.local_queues.get(queue_key)
        if usage_record is not None and queue is not None:
            pool = state.objects.cluster_queues.get(queue.cluster_queue)
            turns = pool is not None and state.config.orders_local_queues(pool)
            usage = min(INFINITE_USAGE, state.recent_usage_of(queue_key)) if turns else None
            found.append(LocalQueueUsageReport(queue_key, usage_record.consumed, usage_record.updated, usage))
    state.charges_changed.clear()
    return found


def _store(state: KueueState, queue_key: str, usage_record: LocalQueueUsage) -> None:
    if state.local_queue_usage.get(queue_key) != usage_record:
        state.local_queue_usage[queue_key] = usage_record
        state.charges_changed[queue_key] = None


def _was_not_admitted(before: WorkloadRecord | None) -> bool:
    """True if the change is an admission; the status already has the cost of a workload first seen admitted."""
    return isinstance(before, WorkloadRequest | Workload) or (
        isinstance(before, Holding) and not before.workload.admitted
    )


def _convert_penalty(state: KueueState, workload: Workload, settings: AdmissionFairSharing) -> None:
    queue_key, admission = workload.local_queue, workload.admission
    queue = state.objects.cluster_queues.get(admission.cluster_queue) if admission is not None else None
    if queue is None or queue_key not in state.objects.local_queues or not state.config.orders_local_queues(queue):
        return
    usage_record = state.local_queue_usage.get(queue_key) or LocalQueueUsage(updated=state.now)
    used = _admitted_usage(_holdings_of_local_queue(state, queue_key)).get(queue_key, {})
    _store(
        state, queue_key, with_converted_penalty(usage_record, workload.key, used, state.now, settings.usage_half_life)
    )
    state.charged.pop(workload.key, None)


def _apply_missed_samples(state: KueueState, queue_key: str, settings: AdmissionFairSharing) -> None:
    """Apply the samples that were skipped while the LocalQueue had no usage."""
    usage_record = state.local_queue_usage.get(queue_key)
    if usage_record is not None and _is_sampled(state, queue_key):
        interval, half_life = settings.usage_sampling_interval, settings.usage_half_life
        _store(state, queue_key, with_missed_samples(usage_record, state.now, interval, half_life))


def _is_sampled(state: KueueState, queue_key: str) -> bool:
    """True if the LocalQueue is sampled: it is not stopped and its ClusterQueue is active."""
    queue = state.objects.local_queues.get(queue_key)
    rules = state.setup.queues.get(queue.cluster_queue) if queue is not None else None
    return queue is not None and queue.stop_policy == StopPolicy.NONE and rules is not None and rules.active


def _holdings_of_local_queue(state: KueueState, queue_key: str) -> Iterable[Holding]:
    queue = state.objects.local_queues.get(queue_key)
    return state.workload_index.holdings.get(queue.cluster_queue, {}).values() if queue is not None else ()


def _admitted_usage(holdings: Iterable[Holding]) -> dict[str, BillionthAmounts]:
    """LocalQueue → usage of its admitted workloads over all flavors (GetAdmittedUsage)."""
    used: dict[str, dict[str, int]] = {}
    for holding in holdings:
        workload = holding.workload
        if workload.admitted and workload.admission is not None:
            usages = (assignment.usage for assignment in workload.admission.pod_sets)
            queue_key = workload.local_queue
            used[queue_key] = add(used.get(queue_key, {}), *usages)
    return {queue_key: to_billionths(amounts) for queue_key, amounts in used.items()}


def restore(state: KueueState, usage_records: Mapping[str, LocalQueueUsage], samples: Mapping[str, Time]) -> None:
    """Restore the usage records and the times of the next samples, both by LocalQueue, of a saved session."""
    state.local_queue_usage = dict(usage_records)
    state.charged = {
        workload: queue_key for queue_key, usage_record in usage_records.items() for workload in usage_record.penalties
    }
    state.samples = dict(samples)
