"""Pods by node, workload and gang, running workloads by queue, and pods that could not be created.

The groups are updated from Snapshot to Snapshot, so that the cost depends on the changes. A workload runs by its
conditions and its pods. Pods are missing if a ResourceQuota of their namespace refuses them. Of gangs that are not
fully scheduled: the GPUs that they hold and need, and deadlocks between them.
"""

import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.insight.index.demand import pod_units
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod, PodPhase, ResourceQuota, default_class
from gpuconsole.model.devices import ANY_DEVICE, WHOLE_GPU, added, in_one_unit
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.jobs import pod_name
from gpuconsole.model.jobs.batch import next_pieces
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.resource_quota import QuotaRefusal, pod_refusal
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility, row_changes
from gpuconsole.model.workloads import Workload, WorkloadPhase, phase

Pods = Mapping[str, Pod]
"""Key → pod."""
NO_PODS: Pods = {}


class PodsByNode:
    """Pods that have not finished, by node and by workload. Immutable; unchanged nodes share their pods."""

    def __init__(
        self,
        rows: Sequence[Pod | None],
        by_node: Mapping[str, Pods],
        by_workload: Mapping[str, Pods],
        succeeded: Mapping[str, int],
    ) -> None:
        self.rows = rows
        self.by_node = by_node
        """Node → its pods, in order of arrival; unscheduled pods are under ``""``."""
        self.by_workload = by_workload
        """Workload → its pods; those without one are under ``""``."""
        self.succeeded = succeeded
        """Workload → number of its succeeded pods, if any."""

    def on(self, node: str) -> Pods:
        """Return the pods on a node."""
        return self.by_node.get(node, NO_PODS)

    def of(self, workload: str) -> Pods:
        """Return the pods of a workload."""
        return self.by_workload.get(workload, NO_PODS)

    @property
    def waiting(self) -> Pods:
        """Unscheduled pods."""
        return self.by_node.get("", NO_PODS)


NO_PODS_BY_NODE = PodsByNode((), {}, {}, {})


@incremental(NO_PODS_BY_NODE)
def pods_by_node(snapshot: Snapshot, before: PodsByNode) -> PodsByNode:
    """Group the pods of a Snapshot; only nodes whose pods changed since the last call are updated."""
    rows = snapshot.pods.rows
    return before if before.rows is rows else updated(before, rows)


def updated(old: PodsByNode, rows: Sequence[Pod | None]) -> PodsByNode:
    """Return the pods by node and workload after the table changed to `rows`; only changed groups are new."""
    gone, come = row_changes(old.rows, rows)
    nodes: dict[str, dict[str, Pod]] = {}
    workloads: dict[str, dict[str, Pod]] = {}
    ended = Counter[str]()
    for pod in gone:
        if not pod.done:
            _open(old.on, nodes, pod.node).pop(pod.key, None)
            _open(old.of, workloads, pod.workload).pop(pod.key, None)
        elif pod.workload and pod.phase is PodPhase.SUCCEEDED:
            ended[pod.workload] -= 1
    for pod in come:
        if not pod.done:
            # Each `key` is a new text; the state has it as well.
            key = sys.intern(pod.key)
            _open(old.on, nodes, pod.node)[key] = pod
            _open(old.of, workloads, pod.workload)[key] = pod
        elif pod.workload and pod.phase is PodPhase.SUCCEEDED:
            ended[pod.workload] += 1
    owners = {**old.by_workload, **workloads}
    for name in [name for name, pods in workloads.items() if not pods]:
        del owners[name]
    return PodsByNode(rows, {**old.by_node, **nodes}, owners, _added(old.succeeded, ended))


def _added(before: Mapping[str, int], more: Counter[str]) -> Mapping[str, int]:
    """Return the counts with these added; the same object if none are."""
    changed = {name: before.get(name, 0) + number for name, number in more.items() if number}
    if not changed:
        return before
    return {name: number for name, number in {**before, **changed}.items() if number}


def _open(before: Callable[[str], Pods], now: dict[str, dict[str, Pod]], name: str) -> dict[str, Pod]:
    """Return the pods of a node or a workload as a copy that may be changed."""
    if name not in now:
        now[name] = dict(before(name))
    return now[name]


Queues = tuple[str, str]
"""A ClusterQueue, and the key of one of its LocalQueues."""


def phase_of(snapshot: Snapshot, workload: Workload) -> WorkloadPhase:
    """Return the phase of a workload of a Snapshot, or of a synthetic Workload (see `unqueued_work`)."""
    return phase(workload, pods_run(snapshot, workload) if workload.admitted else None)


def pods_run(snapshot: Snapshot, workload: Workload) -> bool | None:
    """Return True if all pods of a workload's gang run; None if its pods are not visible."""
    # A synthetic Workload may have the name of a Workload with other pods.
    if snapshot.workloads.get(workload.key) is not workload:
        return None
    return _run(workload, pods_by_node(snapshot), snapshot.seen)


def pods_of_gang(workload: Workload) -> int:
    """Return the number of admitted pods that are still needed; reclaimable pods have succeeded."""
    parts = workload.admission.pod_sets if workload.admission is not None else workload.pod_sets
    return max(1, sum(part.count for part in parts) - sum(workload.reclaimable.values()))


def _run(workload: Workload, where: PodsByNode, seen: Visibility) -> bool | None:
    """Return True if all admitted pods run or have succeeded, as Kueue's Job.PodsReady; None if unknown."""
    key = workload.key
    pods, succeeded = where.of(key), where.succeeded.get(key, 0)
    if not pods and not succeeded:
        return None
    running = 0
    for pod in pods.values():
        if not pod.deleted:
            if pod.phase is not PodPhase.RUNNING:
                return False
            running += 1
    if running + succeeded >= pods_of_gang(workload):
        return True
    return False if seen.all_of(Pod, within=workload.namespace) else None


class RunningIndex:
    """Index of the running workloads, by queue. Immutable."""

    def __init__(
        self, rows: Sequence[Workload | None], where: PodsByNode, seen: Visibility, queues: Mapping[str, Queues]
    ) -> None:
        self.rows = rows
        self.where = where
        self.seen = seen
        self.queues = queues
        """Running workload → its queues."""
        self.count = Counter(queues.values())
        """Number of running workloads per queue."""


@incremental(RunningIndex((), NO_PODS_BY_NODE, EVERYTHING, {}))
def running(snapshot: Snapshot, known: RunningIndex) -> RunningIndex:
    """Return the running workloads; only workloads that changed since the last call, or their pods, are checked."""
    rows, where, seen = snapshot.workloads.rows, pods_by_node(snapshot), snapshot.seen
    if known.rows is rows and known.where is where and known.seen == seen:
        return known
    if known.seen != seen:
        known = RunningIndex((), NO_PODS_BY_NODE, seen, {})
    return _carried_on(known, snapshot, where)


def _carried_on(old: RunningIndex, snapshot: Snapshot, where: PodsByNode) -> RunningIndex:
    gone, come = row_changes(old.rows, snapshot.workloads.rows)
    queues = dict(old.queues)
    for workload in gone:
        queues.pop(workload.key, None)
    touched: dict[str, Workload] = {sys.intern(one.key): one for one in come}
    if old.where is not where:
        left, joined = row_changes(old.where.rows, where.rows)
        for key in _workloads_of((*left, *joined)):
            if (found := snapshot.workloads.get(key)) is not None:
                touched[key] = found
    for key, workload in touched.items():
        if workload.admitted and phase(workload, _run(workload, where, snapshot.seen)) is WorkloadPhase.RUNNING:
            queues[key] = workload.cluster_queue, workload.local_queue
        else:
            queues.pop(key, None)
    return RunningIndex(snapshot.workloads.rows, where, snapshot.seen, queues)


def _workloads_of(pods: Iterable[Pod]) -> set[str]:
    return {pod.workload for pod in pods if pod.workload}


class RefusedPods(Struct, frozen=True):
    """The missing pods of one owner, and why the API server refuses the first of them."""

    templates: tuple[PodTemplate, ...]
    there: int
    """Number of existing pods that have not ended."""
    refusal: QuotaRefusal

    @property
    def text(self) -> str:
        """One sentence, without a full stop."""
        count, quota = len(self.templates), self.refusal.quota
        what = f"ResourceQuota {quota.name} of namespace {quota.namespace}"
        why = (
            f"{what} would be exceeded"
            if self.refusal.resource
            else f"{what} requires requests or limits that their containers do not set"
        )
        return f"{count} of {self.there + count} pods cannot be created: {why}"


def refused_pods(snapshot: Snapshot, owner: Workload | Job, pods: Sequence[Pod]) -> RefusedPods | None:
    """Return the missing pods of an admitted workload or an unqueued job, if a ResourceQuota refuses them; else None.

    Only the first missing pod is checked. `pods` are its existing pods.
    """
    return _refused(snapshot, quotas_of(snapshot, owner.namespace), owner, pods)


def _refused(
    snapshot: Snapshot, quotas: Sequence[ResourceQuota], owner: Workload | Job, pods: Sequence[Pod]
) -> RefusedPods | None:
    missing = _missing(snapshot, owner, pods) if quotas else []
    if not missing:
        return None
    name, template = missing[0]
    refusal = pod_refusal(quotas, template, name, default_class(snapshot.priority_classes.all())[1])
    if refusal is None:
        return None
    templates = tuple(template for _, template in missing)
    return RefusedPods(templates, sum(not pod.done for pod in pods), refusal)


@memoized("resource_quotas", "jobs", "pods", "workloads", "priority_classes", "seen")
def all_refused_pods(snapshot: Snapshot) -> Mapping[str, RefusedPods]:
    """Return the refused pods of admitted workloads and of jobs without a Workload; empty without ResourceQuotas."""
    quotas = {name: quotas_of(snapshot, name) for name in {quota.namespace for quota in snapshot.resource_quotas.all()}}
    owners = {owner.key: owner for owner in _owners(snapshot, quotas.keys())} if quotas else {}
    if not owners:
        return {}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.all():
        if (owner := pod.workload or pod.job) in owners:
            pods.setdefault(owner, []).append(pod)
    found = {key: _refused(snapshot, quotas[one.namespace], one, pods.get(key, ())) for key, one in owners.items()}
    return {key: refused for key, refused in found.items() if refused is not None}


def _owners(snapshot: Snapshot, namespaces: Container[str]) -> Iterator[Workload | Job]:
    """Yield the workloads and jobs in these namespaces whose pods may be missing."""
    queued = set[str]()
    for workload in snapshot.workloads.all():
        queued.add(workload.owner)
        mine = workload.namespace in namespaces and workload.admitted and not workload.finished
        if mine and not workload.cluster and not pods_run(snapshot, workload):
            yield workload
    for job in snapshot.jobs.all():
        makes = job.namespace in namespaces and not job.ended and not job.suspended and not job.makes_jobs
        if makes and queued.isdisjoint(_line(snapshot, job)):
            yield job


def _line(snapshot: Snapshot, job: Job) -> Iterator[str]:
    """Yield the keys of a job and its owners."""
    known = set[str]()
    above: Job | None = job
    while above is not None and above.key not in known:
        known.add(above.key)
        yield above.key
        above = snapshot.jobs.get(above.owner)


def quotas_of(snapshot: Snapshot, namespace: str) -> list[ResourceQuota]:
    """Return the ResourceQuotas of a namespace, sorted by name."""
    quotas = [quota for quota in snapshot.resource_quotas.all() if quota.namespace == namespace]
    return sorted(quotas, key=lambda quota: quota.name)


def _missing(snapshot: Snapshot, owner: Workload | Job, pods: Sequence[Pod]) -> list[tuple[str, PodTemplate]]:
    """Return the names and templates of missing pods, in order of creation."""
    job = snapshot.jobs.get(owner.owner) if isinstance(owner, Workload) else owner
    parts = _parts(owner)
    if job is None:
        job = Job(namespace=owner.namespace, name=owner.name)
    if job.ended or (job.suspended and isinstance(owner, Job)) or job.makes_jobs or not parts:
        return []
    if job.solo and isinstance(job.rules, BatchRules):
        active = {pod.index for pod in pods if not pod.done}
        part, limit = parts[0], sum(part.count for part in parts)
        return [
            (pod_name(job, part.name, piece), part.template) for piece in next_pieces(job, job.rules, limit, active)
        ]
    there = Counter(pod.pod_set for pod in pods)
    return [
        (pod_name(job, part.name, index), part.template)
        for part in parts
        for index in range(there[part.name], part.count)
    ]


def _parts(owner: Workload | Job) -> list[PodSet]:
    """Return the pod sets with their admitted counts, or requested counts if not admitted."""
    if isinstance(owner, Job) or owner.admission is None:
        return list(owner.pod_sets)
    sizes = {assigned.name: assigned.count for assigned in owner.admission.pod_sets}
    return [PodSet(name=part.name, count=sizes.get(part.name, 0), template=part.template) for part in owner.pod_sets]


class PartiallyScheduledGang(Struct, frozen=True, kw_only=True):
    """A gang of which too few pods are scheduled."""

    key: tuple[str, str]
    """As `gang_key` of its pods."""
    name: str
    """Key of its Workload, else of its job, else `namespace/gang`."""
    placed: int
    needed: int
    """Number of pods that have to run at once."""
    held_gpus: int
    """GPUs, or what `unit` names, of the scheduled pods: they do no work while the gang is not complete."""
    unit: str = WHOLE_GPU.noun
    missing_gpus: int
    """GPUs of as many pending pods as are still needed, the smallest first."""
    since: Time
    """Creation time of the oldest pending pod."""

    @property
    def held(self) -> str:
        """Devices of its scheduled pods, as text: `4 MIG 1g.10gb instances`."""
        return counted(self.held_gpus, self.unit)


class GangDeadlock(Struct, frozen=True):
    """Gangs that hold GPUs while each waits for GPUs of the others."""

    gangs: tuple[PartiallyScheduledGang, ...]

    @property
    def held_gpus(self) -> int:
        """Devices that the gangs hold together."""
        return sum(gang.held_gpus for gang in self.gangs)

    @property
    def unit(self) -> str:
        """The unit of the devices; generic if there are several units."""
        units = {gang.unit for gang in self.gangs}
        return units.pop() if len(units) == 1 else ANY_DEVICE

    @property
    def held(self) -> str:
        """The held devices as text: `8 GPUs`, `4 MIG 1g.10gb instances`."""
        return counted(self.held_gpus, self.unit)


def gang_key(pod: Pod) -> tuple[str, str]:
    """Return namespace and gang name of a pod, as a gang name is unique only within its namespace."""
    return pod.namespace, pod.gang


@memoized("pods", "pod_groups", "kai_pod_groups", "nodes", "resource_claim_templates", "resource_claims")
def waiting_gangs(snapshot: Snapshot) -> tuple[PartiallyScheduledGang, ...]:
    """List the gangs of which too few pods are scheduled, the longest pending first.

    Once enough pods are scheduled, the gang runs, and its other pods are pending like any pods.
    """
    where = pods_by_node(snapshot)
    members: dict[tuple[str, str], list[Pod]] = {
        gang_key(pod): [] for pod in where.waiting.values() if pod.gang and not pod.deleted
    }
    if not members:
        return ()
    for pods in where.by_node.values():
        for pod in pods.values():
            if pod.gang and not pod.deleted and gang_key(pod) in members:
                members[gang_key(pod)].append(pod)
    gangs = (_gang(snapshot, pods) for pods in members.values())
    return tuple(
        sorted((gang for gang in gangs if gang.placed < gang.needed), key=lambda gang: (gang.since, gang.name))
    )


def _gang(snapshot: Snapshot, pods: list[Pod]) -> PartiallyScheduledGang:
    first = pods[0]
    placed = [pod for pod in pods if pod.node]
    waiting = [pod for pod in pods if not pod.node]
    needed = max(pod.gang_size for pod in pods) or _least(snapshot, first) or len(pods)
    asked = sorted(sum(pod_units(snapshot, pod).values()) for pod in waiting)
    held = added(*(pod_units(snapshot, pod) for pod in placed))
    return PartiallyScheduledGang(
        key=gang_key(first),
        name=first.workload or first.job or f"{first.namespace}/{first.gang}",
        placed=len(placed),
        needed=needed,
        held_gpus=sum(held.values()),
        unit=in_one_unit(held or pod_units(snapshot, first))[1],
        missing_gpus=sum(asked[: max(0, needed - len(placed))]),
        since=min(pod.created for pod in waiting),
    )


def _least(snapshot: Snapshot, pod: Pod) -> int:
    """Return the number of pods that the gang's PodGroup requires to run at once; 0 without a PodGroup.

    Volcano's minTaskMember does not require more: it counts only if its sum is within minMember.
    """
    key = "/".join(gang_key(pod))
    group = snapshot.pod_groups.get(key) or snapshot.kai_pod_groups.get(key)
    return group.min_member if group is not None else 0


def deadlock(snapshot: Snapshot, free_gpus: Mapping[str, int]) -> GangDeadlock | None:
    """Return the gangs that block each other: at least two hold GPUs, and the free GPUs complete none.

    `free_gpus` is node → accelerators that a new pod could take; only these decide whether a gang can be completed.
    """
    holding = tuple(gang for gang in waiting_gangs(snapshot) if gang.held_gpus and gang.missing_gpus)
    free = sum(free_gpus.values())
    if len(holding) < 2 or any(gang.missing_gpus <= free for gang in holding):
        return None
    return GangDeadlock(holding)
