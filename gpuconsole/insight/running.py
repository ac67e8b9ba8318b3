"""Running work, queued by any system or not, and the work that an eviction now would lose."""

from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.cost import EvictionLoss, loss_if_evicted, priced
from gpuconsole.insight.device_demand import device_counter, held_units, pod_units
from gpuconsole.insight.uncheckpointed import uncheckpointed
from gpuconsole.insight.unqueued_work import outermost, unqueued_work
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.device_units import WHOLE_GPU, Units, added, in_one_unit
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, Workload, phase


class Runner(Struct, frozen=True, kw_only=True):
    """An admitted Workload, or a job or pod that runs without one."""

    key: str
    """Key of its Workload, otherwise of its job, otherwise of the pod."""
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    borrowed: int | None
    """None if its ClusterQueue does not exist: its nominal quota is unknown."""
    priority: int
    loss: EvictionLoss
    pods: tuple[str, ...]
    """Keys of its pods that have a node."""


def runners(snapshot: Snapshot, prices: Prices) -> tuple[Runner, ...]:
    """List admitted Workloads, and unqueued jobs and lone pods that hold accelerators; some pods may be pending."""
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.all():
        if not pod.done:
            pods.setdefault(_top(snapshot, pod), []).append(pod)
    queued = [one for one in snapshot.workloads.all() if phase(one) in PLACED]
    # A job that lost some of its pods restarts, but none of its fields has the time.
    again = {line.workload: line.time for line in snapshot.recent if line.what is HistoryEventKind.STARTED}
    others = [
        _unqueued(snapshot, prices, key, one, pods[key], again.get(key, 0))
        for key, one in unqueued_work(snapshot).items()
        if any(pod.node for pod in pods.get(key, ()))
    ]
    return (
        *(_queued(snapshot, prices, one, pods.get(one.key, ())) for one in queued),
        *(one for one in others if one.gpus),
    )


def _top(snapshot: Snapshot, pod: Pod) -> str:
    """Return the key of a pod's Workload, otherwise of its outermost job, otherwise of the pod."""
    return pod.workload or outermost(snapshot.jobs.get, pod.job) or pod.key


def _queued(snapshot: Snapshot, prices: Prices, workload: Workload, pods: Sequence[Pod]) -> Runner:
    placed = [pod for pod in pods if pod.node]
    held = held_units(snapshot, workload)
    # Devices without quota are counted from the pods.
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
    """Make the Runner of unqueued work from its pods, as it holds no quota. `again` is its last restart, if recent."""
    lost = uncheckpointed(twin, snapshot.jobs.get(key), pods, snapshot.time, device_counter(snapshot), again=again)
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
    """Return the devices that a pod requests, else the GPU that it shares without a request."""
    return pod_units(snapshot, pod) or {WHOLE_GPU: len(pod.gpus)}
