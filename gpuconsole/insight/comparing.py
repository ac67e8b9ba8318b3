"""Comparison of two forks: outcomes of workloads, changed admission times, changed queues."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuconsole.insight.demand import admitted_since
from gpuconsole.insight.derived import memoized
from gpuconsole.insight.device_demand import amount_of, wanted_units
from gpuconsole.insight.future_events import LOSSES, FutureEvents, unit_of_lines
from gpuconsole.insight.pending import explain
from gpuconsole.insight.pods_by_node import pods_by_node
from gpuconsole.insight.preemptions import subject
from gpuconsole.insight.quota_node import NodeKind, QuotaNode
from gpuconsole.insight.reasons import PendingReason
from gpuconsole.insight.subjects import is_there
from gpuconsole.insight.unqueued_work import outermost, pods_of, unqueued_work
from gpuconsole.insight.whatif_answer import FEASIBLE, ClosedQueue, QueueChange, StartShift, WhatIfOutcome
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_units import WHOLE_GPU, in_one_unit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload


def outcome_of(
    key: str, tried: FutureEvents, snapshots: Sequence[Snapshot], without: FutureEvents, others: Sequence[Snapshot]
) -> WhatIfOutcome:
    """Outcome of one workload in the fork `tried`, from Snapshots of it and of the other fork, newest last."""
    final, other = snapshots[-1], others[-1]
    workload = next((s.workloads[key] for s in reversed(snapshots) if key in s.workloads), None)
    twin = unqueued_work(final).get(key) if workload is None else None
    admitted, before = _let_in(tried, final, key), _let_in(without, other, key)
    ran = admitted is not None and admitted < tried.begun
    placeless = any(key in (pod.workload, pod.job, pod.key) for pod in _without_nodes(final))
    bound = tried.placed.get(key) or list(_first_places(tried.lines, key))
    first = tried.admitted.get(key, [None])[0]
    answer = explain(final, key) if admitted is None or ran or placeless else None
    gpus, unit = amount_of(final, workload) if workload is not None else _amount(final, twin, bound)
    return WhatIfOutcome(
        workload=key,
        queue=first.queue if first is not None else answer.queue if answer is not None else twin.queue if twin else "",
        gpus=gpus,
        unit=unit,
        priority=workload.priority if workload is not None else max((line.priority for line in bound), default=0),
        admitted=admitted,
        started=None if placeless else admitted if ran else tried.started.get(key),
        flavors=tuple(part for part in first.flavor.split(",") if part) if first is not None else (),
        nodes=tuple(dict.fromkeys(line.node for line in bound)),
        code=answer.code if answer is not None else PendingReason.NOT_WAITING,
        why=answer.headline if answer is not None else FEASIBLE,
        text=answer.text if answer is not None else "",
        new=key not in without.asked and not any(is_there(key, one) for one in others),
        admitted_without=before,
    )


def subjects_with_pods(course: FutureEvents, final: Snapshot) -> set[str]:
    """Return the keys of the requested work, and of its pods where there is no Workload: there, the pods preempt."""
    bound = {line.pod for key in course.asked for line in course.placed.get(key, ())}
    waiting = {pod for key in course.asked if key not in final.workloads for pod in pods_of(final, key)}
    return course.asked | bound | waiting


def _first_places(lines: Iterable[HistoryEvent], key: str) -> Iterator[HistoryEvent]:
    """Yield the POD_BOUND lines of its pods at the first start, up to its first loss of a pod."""
    placed = False
    for line in lines:
        if line.what is HistoryEventKind.POD_BOUND and key in (line.workload, line.pod):
            placed = True
            yield line
        elif placed and line.what in LOSSES and subject(line) == key:
            return


def _amount(snapshot: Snapshot, twin: Workload | None, bound: Sequence[HistoryEvent]) -> tuple[int, str]:
    """Return amount and unit of a job without a Workload: the request, else what its pods hold (of shared GPUs)."""
    wanted = in_one_unit(wanted_units(snapshot, twin)) if twin is not None else (0, WHOLE_GPU.noun)
    return max(wanted, (sum(line.gpus for line in bound), unit_of_lines(bound)), key=lambda amount: amount[0])


def _let_in(course: FutureEvents, later: Snapshot, key: str) -> Time | None:
    """Return the time of admission in a fork, or before the fork if the workload is still admitted."""
    let_in = course.let_in(key)
    if key not in later.workloads:
        held = [
            pod.bound
            for pod in pods_by_node(later).of("").values()
            if pod.node and key in (pod.key, _owner(later, pod))
        ]
        return min([*held, *([let_in] if let_in is not None else [])], default=None)
    workload = later.workloads[key]
    return let_in or (admitted_since(workload) if workload.reserved else None)


def _owner(snapshot: Snapshot, pod: Pod) -> str:
    return outermost(snapshot.jobs.get, pod.job)


@memoized("pods")
def _without_nodes(snapshot: Snapshot) -> Sequence[Pod]:
    """Pods without a node."""
    return [pod for pod in pods_by_node(snapshot).waiting.values() if not pod.deleted and not pod.gates]


def shifts_of(
    without: FutureEvents, tried: FutureEvents, subjects: set[str], moments: Sequence[Snapshot]
) -> tuple[StartShift, ...]:
    """Return other workloads whose admission time differs between the forks, largest first.

    Workloads count if they held no quota at the fork, by their first admission; jobs without a Workload by the times at
    which their pods are bound. `moments` are the start of the forks and the ends of both.
    """
    now, *ends = moments
    shifts = [*_placed_elsewhen(without, tried, subjects, ends)]
    for key in sorted((without.admitted.keys() | tried.admitted.keys()) - subjects):
        known = now.workloads.get(key)
        if known is not None and known.reserved:
            continue
        before, after = without.first_admission(key), tried.first_admission(key)
        if before != after:
            line = (tried.admitted.get(key) or without.admitted[key])[0]
            shifts.append(
                StartShift(
                    workload=key, queue=line.queue, gpus=line.gpus, unit=line.unit, without=before, changed=after
                )
            )
    return tuple(sorted(shifts, key=lambda shift: (-shift.gpus, shift.workload)))


def _placed_elsewhen(
    without: FutureEvents, tried: FutureEvents, subjects: set[str], ends: Sequence[Snapshot]
) -> Iterator[StartShift]:
    """Yield jobs and lone pods without a Workload whose first bindings differ between the forks."""
    for key in sorted((without.placed.keys() | tried.placed.keys()) - subjects):
        before, after = (
            Counter((line.time, line.gpus) for line in one.placed.get(key, ())) for one in (without, tried)
        )
        before, after = before - after, after - before
        if before or after:
            yield StartShift(
                workload=key,
                queue=next((one.queue for end in ends if (one := unqueued_work(end).get(key)) is not None), ""),
                gpus=max(sum(gpus * times for (_, gpus), times in one.items()) for one in (before, after)),
                unit=unit_of_lines(line for one in (without, tried) for line in one.placed.get(key, ())),
                without=min(before)[0] if before else None,
                changed=min(after)[0] if after else None,
            )


def queue_changes(*states: Mapping[str, QuotaNode]) -> tuple[QueueChange, ...]:
    """Return the queues that differ between three states: now, baseline, changed."""
    changes = []
    for name in sorted(states[1].keys() | states[2].keys()):
        start, before, after = (state.get(name, _ABSENT) for state in states)
        if (before.gpus, before.share_percent) != (after.gpus, after.share_percent):
            changes.append(
                QueueChange(
                    queue=name,
                    unit=max(start, before, after, key=lambda node: node.gpus.potential).unit,
                    used_now=start.gpus.used,
                    used_without=before.gpus.used,
                    used=after.gpus.used,
                    nominal_now=start.gpus.nominal,
                    nominal=after.gpus.nominal,
                    borrowed_now=start.gpus.borrowed,
                    borrowed_without=before.gpus.borrowed,
                    borrowed=after.gpus.borrowed,
                    share_now=start.share_percent,
                    share_without=before.share_percent,
                    share=after.share_percent,
                )
            )
    return tuple(changes)


def closed_by(before: Mapping[str, QuotaNode], after: Mapping[str, QuotaNode]) -> tuple[ClosedQueue, ...]:
    """Return the queues that admit no workloads for a reason that does not exist in the baseline."""
    return tuple(
        ClosedQueue(queue=name, why=node.shut)
        for name, node in sorted(after.items())
        if node.shut not in ("", before.get(name, _ABSENT).shut)
    )


_ABSENT = QuotaNode(kind=NodeKind.CLUSTER_QUEUE, name="")


def quantile(spans: Sequence[Span], part: float) -> Span | None:
    """Interpolated quantile of sorted spans; None without spans."""
    if not spans:
        return None
    place = part * (len(spans) - 1)
    below = int(place)
    return round(spans[below] + (spans[min(below + 1, len(spans) - 1)] - spans[below]) * (place - below))


def fairness_of(queues: Mapping[str, QuotaNode]) -> float | None:
    """Jain's index over the shares of queues with used or requested quota; None if there are none."""
    shares = [queue.share_percent for queue in queues.values() if queue.gpus.used or queue.pending]
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None
