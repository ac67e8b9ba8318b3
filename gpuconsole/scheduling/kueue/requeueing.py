"""The requeue state of evicted workloads: the number of retries, and the time before which they are not retried.

The time never moves back. Kueue 0.19 pkg/workload/workload.go (SetRequeueState, UpdateRequeueState), pkg/util/wait
(Backoff). Kueue adds a random jitter of up to 0.01%; here a backoff is exact.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.workloads import RequeueState, Workload
from gpuconsole.scheduling.kueue.checks import retry_at
from gpuconsole.scheduling.kueue.config import RequeuingStrategy

_FACTOR = 2


def backoff(first: Span, most: Span, attempt: int, factor: int = _FACTOR) -> Span:
    """Return the backoff after an attempt, counted from 1: `first`, then `factor` times the previous one, at most
    `most`.

    `first` itself may exceed `most`. The backoff before any attempt is 0.
    """
    if attempt <= 1:
        return first if attempt == 1 else 0
    span = first
    for _ in range(attempt - 1):
        if span >= most:
            break
        span *= factor
    return min(span, most)


def wait_until(workload: Workload, moment: Time, *, count: bool = False) -> Workload:
    """Set the time before which the workload is not retried; a later time that is already set stays.

    With `count` it is one more retry. Returns the same object if nothing changes.
    """
    state = workload.requeue
    at = moment if state.at is None or state.at < moment else state.at
    changed = RequeueState(state.count + 1 if count else state.count, at)
    return workload if changed == state else replace(workload, requeue=changed)


def count_retry(workload: Workload, strategy: RequeuingStrategy, now: Time) -> Workload:
    """Count a PodsReady timeout: one more retry, after a backoff that grows with their number."""
    base, most = strategy.backoff_base_seconds * SECOND, strategy.backoff_max_seconds * SECOND
    return wait_until(workload, now + backoff(base, most, workload.requeue.count + 1), count=True)


def awaited(workload: Workload, now: Time) -> Time | None:
    """Return the time until which checks in state Retry delay the workload, if it is later than its present one
    (NeedsRequeueAtUpdate).
    """
    moment = retry_at(workload)
    if moment is None or moment <= now:
        return None
    return moment if workload.requeue.at is None or workload.requeue.at < moment else None
