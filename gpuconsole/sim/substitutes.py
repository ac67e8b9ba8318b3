"""The same workload under another scheduler: rewrites a Kueue scenario for Volcano, KAI or kube-scheduler alone."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequest
from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job, again
from gpuconsole.model.kai import EVERYTHING, UNLIMITED, KaiPodGroup, KaiQueue, QueueResource
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.resources import gpus, is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.volcano.config import HELM_CONF, VolcanoPolicy
from gpuconsole.sim.policy import SimPolicy, Substitute
from gpuconsole.sim.scenario import Scenario

_MADE = (Workload, PodGroup, KaiPodGroup, ProvisioningRequest)
"""Objects that controllers create for jobs."""


def under(scenario: Scenario, substitute: Substitute, conf: str = HELM_CONF) -> Scenario:
    """Copy a scenario for another scheduler without Kueue; `conf` is the text of volcano-scheduler.conf.

    Volcano and KAI get a queue per ClusterQueue, unless one of that name exists: its nominal quota becomes the deserved
    amount, and with its borrowing limit the upper limit.
    """
    objects = list(scenario.objects)
    queues = [obj for obj in objects if isinstance(obj, ClusterQueue)]
    usual, placement = PlacementPolicy(), scenario.policy.placement
    match substitute:
        case Substitute.KUBE:
            chosen: PlacementPolicy | VolcanoPolicy | KaiPolicy = (
                placement if isinstance(placement, PlacementPolicy) else usual
            )
        case Substitute.VOLCANO:
            chosen = (
                placement if isinstance(placement, VolcanoPolicy) and conf == HELM_CONF else VolcanoPolicy(conf=conf)
            )
            known = {obj.name for obj in objects if isinstance(obj, VolcanoQueue)}
            objects += [_volcano_queue(queue) for queue in queues if queue.name not in known]
        case Substitute.KAI:
            chosen = placement if isinstance(placement, KaiPolicy) else KaiPolicy()
            objects += _kai_queues(queues, {obj.name for obj in objects if isinstance(obj, KaiQueue)})
        case _:
            assert_never(substitute)
    policy = replace(scenario.policy, kueue=None, substitute=substitute, placement=chosen, second_scheduler=None)
    return replace(scenario, objects=tuple(objects), policy=policy)


def queued(scenario: Scenario) -> Scenario:
    """Copy a scenario for Kueue and kube-scheduler, whatever its engines."""
    policy = scenario.policy
    own = policy.placement if isinstance(policy.placement, PlacementPolicy) else PlacementPolicy()
    chosen = replace(policy, kueue=policy.kueue or KueueConfig(), substitute=None, placement=own, second_scheduler=None)
    return replace(scenario, policy=chosen)


def _limits(queue: ClusterQueue) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """For each resource: nominal quota, the part that is never lent, and the upper limit (omitted if unlimited)."""
    nominal: dict[str, int] = {}
    kept: dict[str, int] = {}
    most: dict[str, int | None] = {}
    for (_, resource), quota in queue.quotas().items():
        nominal[resource] = nominal.get(resource, 0) + quota.nominal
        if queue.cohort and quota.lending_limit is not None:
            kept[resource] = kept.get(resource, 0) + max(0, quota.nominal - quota.lending_limit)
        borrowed = quota.borrowing_limit if queue.cohort else 0
        before = most.get(resource, 0)
        most[resource] = None if borrowed is None or before is None else before + quota.nominal + borrowed
    return nominal, kept, {resource: amount for resource, amount in most.items() if amount is not None}


def _volcano_queue(queue: ClusterQueue) -> VolcanoQueue:
    nominal, kept, most = _limits(queue)
    return VolcanoQueue(
        name=queue.name,
        weight=max(1, gpus(nominal)),
        deserved=nominal,
        guarantee=kept,
        capability=most,
        reclaimable=bool(queue.cohort),
    )


def _kai_queues(queues: Sequence[ClusterQueue], known: set[str]) -> Iterator[KaiQueue]:
    """A queue per ClusterQueue, below one for its cohort: KAI has departments above the queues that take jobs."""
    parents: dict[str, float] = {}
    for queue in queues:
        if queue.name in known:
            continue
        nominal, _, most = _limits(queue)
        quota, limited = float(gpus(nominal)), any(map(is_gpu, most))
        parent = f"cohort-{queue.cohort}" if queue.cohort else f"cohort-of-{queue.name}"
        parents[parent] = parents.get(parent, 0) + quota
        limit = float(gpus(most)) if limited else UNLIMITED
        gpu = QueueResource(quota=quota, over_quota_weight=max(1.0, quota), limit=limit)
        yield KaiQueue(name=queue.name, parent=parent, gpu=gpu, cpu=EVERYTHING, memory=EVERYTHING)
    for name, quota in parents.items():
        gpu = QueueResource(quota=quota, over_quota_weight=1, limit=UNLIMITED)
        yield KaiQueue(name=name, gpu=gpu, cpu=EVERYTHING, memory=EVERYTHING)


def load_of(snapshot: Snapshot, policy: SimPolicy, seed: int) -> Scenario:
    """A scenario that submits a cluster's unfinished work again, on its nodes, at the time of the Snapshot.

    Pods of jobs and Workloads are omitted, as are finished jobs.
    """
    return Scenario(start=snapshot.time, seed=seed, objects=tuple(_fresh(snapshot)), policy=policy)


def _fresh(snapshot: Snapshot) -> Iterator[Object]:
    for obj in snapshot.objects():
        match obj:
            case Job() if obj.ended or obj.owner:
                pass
            case Job():
                yield again(obj, obj.name)
            case Workload() if not obj.owner and not obj.finished:
                yield Workload(
                    namespace=obj.namespace,
                    name=obj.name,
                    annotations=obj.annotations,
                    queue=obj.queue,
                    priority_class=obj.priority_class,
                    pod_sets=obj.pod_sets,
                )
            case Pod() if obj.job or obj.workload:
                pass
            case _ if not isinstance(obj, _MADE):
                yield obj
