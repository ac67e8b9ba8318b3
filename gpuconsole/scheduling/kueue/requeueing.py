"""When an evicted workload may be tried again: its requeue state, which only ever moves forward.

Kueue 0.19 pkg/workload/workload.go (SetRequeueState, UpdateRequeueState), pkg/util/wait (Backoff). Kueue adds up to a
ten-thousandth by chance; here a backoff is exact.
"""

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.workloads import RequeueState, Workload
from gpuconsole.scheduling.kueue.checks import retry_at
from gpuconsole.scheduling.kueue.config import RequeuingStrategy

_FACTOR = 2


def backoff(first: Span, most: Span, attempt: int, factor: int = _FACTOR) -> Span:
    """How long to wait after an attempt, counted from 1: the first span, then `factor` times the last, up to `most`.

    The first span is never cut.
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
    """Keep the workload from being tried before a moment; a later one that is set already stands.

    With `count` it is one more retry. Returns the same object if nothing changes.
    """
    state = workload.requeue
    at = moment if state.at is None or state.at < moment else state.at
    changed = RequeueState(state.count + 1 if count else state.count, at)
    return workload if changed == state else replace(workload, requeue=changed)


def count_retry(workload: Workload, strategy: RequeuingStrategy, now: Time) -> Workload:
    """Note that pods were not ready in time: one more retry, after a backoff that grows with their number."""
    base, most = strategy.backoff_base_seconds * SECOND, strategy.backoff_max_seconds * SECOND
    return wait_until(workload, now + backoff(base, most, workload.requeue.count + 1), count=True)


def awaited(workload: Workload, now: Time) -> Time | None:
    """The moment for which its checks make the workload wait longer than it does already (NeedsRequeueAtUpdate)."""
    moment = retry_at(workload)
    if moment is None or moment <= now:
        return None
    return moment if workload.requeue.at is None or workload.requeue.at < moment else None
