"""Everything that is admitted or runs and may be evicted, whoever queued it, and what an eviction now would lose."""

from collections.abc import Sequence

from msgspec import Struct

from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.cost import UNKNOWN, Loss, loss_if_evicted, priced
from gpuconsole.insight.demand import pod_gpus
from gpuconsole.insight.stand_ins import outermost, stand_ins
from gpuconsole.insight.unsaved import unsaved
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import What
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import is_mig
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, Workload, phase


class Runner(Struct, frozen=True, kw_only=True):
    """One that is admitted, or runs without anybody's admission."""

    key: str
    """As it stands in a list of work: of its Workload, else of its job, else of the pod itself."""
    queue: str
    gpus: int
    """Whole ones."""
    instances: int = 0
    """MIG instances."""
    borrowed: int | None
    """None where its ClusterQueue is not there: nobody knows what that owned."""
    priority: int
    loss: Loss
    pods: tuple[str, ...]
    """Keys of its pods that have a node."""


def runners(snapshot: Snapshot, prices: Prices) -> tuple[Runner, ...]:
    """All Workloads that are admitted and not on their way out; of what has none, jobs and lone pods that hold devices.

    Devices are GPUs and MIG instances. More of their pods may wait.
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
        *(one for one in others if one.gpus or one.instances),
    )


def _top(snapshot: Snapshot, pod: Pod) -> str:
    """Its Workload, else the outermost job, else itself."""
    return pod.workload or outermost(snapshot.jobs.get, pod.job) or pod.key


def _queued(snapshot: Snapshot, prices: Prices, workload: Workload, pods: Sequence[Pod]) -> Runner:
    placed = [pod for pod in pods if pod.node]
    instances = _instances(placed)
    return Runner(
        key=workload.key,
        queue=workload.cluster_queue,
        gpus=workload.gpus,
        instances=instances,
        borrowed=borrowed_gpus(snapshot).get(workload.key, 0)
        if workload.cluster_queue in snapshot.cluster_queues
        else None,
        priority=workload.priority,
        loss=loss_if_evicted(snapshot, workload, prices) if not instances else UNKNOWN,
        pods=tuple(pod.key for pod in placed),
    )


def _unqueued(snapshot: Snapshot, prices: Prices, key: str, twin: Workload, pods: Sequence[Pod], again: Time) -> Runner:
    """By its pods: nobody admitted it, so it holds no quota of anybody. `again` is when it last began, if lately."""
    lost = unsaved(twin, snapshot.jobs.get(key), pods, snapshot.time, again=again)
    placed = [pod for pod in pods if pod.node]
    gpus = {pod.key: len(pod.gpus) or pod_gpus(pod.template) for pod in placed}
    instances = _instances(placed)
    return Runner(
        key=key,
        queue=twin.queue,
        gpus=sum(gpus.values()),
        instances=instances,
        borrowed=0,
        priority=max((pod.priority for pod in placed), default=twin.priority),
        loss=priced(snapshot, lost, prices) if not instances else UNKNOWN,
        pods=tuple(gpus),
    )


def _instances(pods: Sequence[Pod]) -> int:
    """MIG instances of pods. What their work is worth in GPU-hours is not known: an instance is no GPU."""
    return sum(count for pod in pods for name, count in pod.template.requests.items() if is_mig(name))
