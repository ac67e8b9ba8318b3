"""Everything that is admitted or runs and may be evicted, whoever queued it, and what an eviction now would lose."""

from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.cost import Loss, loss_if_evicted, priced
from gpuconsole.insight.device_demand import device_counter, held_units, pod_units
from gpuconsole.insight.stand_ins import outermost, stand_ins
from gpuconsole.insight.unsaved import unsaved
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_units import WHOLE_GPU, Units, added, in_one_unit
from gpuconsole.model.events import What
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, Workload, phase


class Runner(Struct, frozen=True, kw_only=True):
    """One that is admitted, or runs without anybody's admission."""

    key: str
    """As it stands in a list of work: of its Workload, else of its job, else of the pod itself."""
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    borrowed: int | None
    """None where its ClusterQueue is not there: nobody knows what that owned."""
    priority: int
    loss: Loss
    pods: tuple[str, ...]
    """Keys of its pods that have a node."""


def runners(snapshot: Snapshot, prices: Prices) -> tuple[Runner, ...]:
    """All Workloads that are admitted and not on their way out; of what has none, jobs and lone pods that hold
    accelerators. More of their pods may wait.
    """
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.all():
        if not pod.done:
            pods.setdefault(_top(snapshot, pod), []).append(pod)
    queued = [one for one in snapshot.workloads.all() if phase(one) in PLACED]
    # A job that lost some of its pods begins anew, and tells when it did in no field of its own.
    again = {line.workload: line.time for line in snapshot.recent if line.what is What.STARTED}
    others = [
        _unqueued(snapshot, prices, key, one, pods[key], again.get(key, 0))
        for key, one in stand_ins(snapshot).items()
        if any(pod.node for pod in pods.get(key, ()))
    ]
    return (
        *(_queued(snapshot, prices, one, pods.get(one.key, ())) for one in queued),
        *(one for one in others if one.gpus),
    )


def _top(snapshot: Snapshot, pod: Pod) -> str:
    """Its Workload, else the outermost job, else itself."""
    return pod.workload or outermost(snapshot.jobs.get, pod.job) or pod.key


def _queued(snapshot: Snapshot, prices: Prices, workload: Workload, pods: Sequence[Pod]) -> Runner:
    placed = [pod for pod in pods if pod.node]
    held = held_units(snapshot, workload)
    # What no quota covers is held by the pods alone.
    besides = ({u: n for u, n in pod_units(snapshot, pod).items() if u not in held} for pod in placed)
    gpus, unit = in_one_unit(added(held, *besides))
    return Runner(
        key=workload.key,
        queue=workload.cluster_queue,
        gpus=gpus,
        unit=unit,
        borrowed=borrowed_gpus(snapshot).get(workload.key, 0)
        if workload.cluster_queue in snapshot.cluster_queues
        else None,
        priority=workload.priority,
        loss=loss_if_evicted(snapshot, workload, prices),
        pods=tuple(pod.key for pod in placed),
    )


def _unqueued(snapshot: Snapshot, prices: Prices, key: str, twin: Workload, pods: Sequence[Pod], again: Time) -> Runner:
    """By its pods: nobody admitted it, so it holds no quota of anybody. `again` is when it last began, if lately."""
    lost = unsaved(twin, snapshot.jobs.get(key), pods, snapshot.time, device_counter(snapshot), again=again)
    placed = [pod for pod in pods if pod.node]
    gpus, unit = in_one_unit(added(*(_held(snapshot, pod) for pod in placed)))
    return Runner(
        key=key,
        queue=twin.queue,
        gpus=gpus,
        unit=unit,
        borrowed=0,
        priority=max((pod.priority for pod in placed), default=twin.priority),
        loss=priced(snapshot, lost, prices),
        pods=tuple(pod.key for pod in placed),
    )


def _held(snapshot: Snapshot, pod: Pod) -> Units:
    """What a pod requests; of one that shares a GPU without requesting it, the GPU."""
    return pod_units(snapshot, pod) or {WHOLE_GPU: len(pod.gpus)}
