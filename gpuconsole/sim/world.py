"""The state of a simulation: objects, scheduler sessions, timers and bookkeeping, in one place. Mutates.

Every change of an object passes through `put` or `drop`, which update the state, the sessions and the outbox together,
so that the state always equals the emitted events. Beside the objects a `World` has the running groups (pods that work
together, with counts), the worker clusters of a MultiKueue manager, which are separate simulations on its clock, and
the usage of ResourceQuotas. The policy decides which placement engine it has.
"""

from collections.abc import Iterable
from random import Random
from typing import Any, Protocol, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.autoscaling import NodeGroup
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.cluster import (
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PriorityClass,
    ResourceQuota,
    StorageClass,
    default_class,
)
from gpuconsole.model.commands import Command
from gpuconsole.model.device_requests import DeviceCounter
from gpuconsole.model.devices import ResourceClaim, ResourceClaimTemplate
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import ClusterQueue, LocalQueue, QueueingStrategy, ResourceFlavor, Topology
from gpuconsole.model.resource_quota import COUNTED, Counted, counted, used_by
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.volcano import PodGroup
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kube.session import KubePlacement
from gpuconsole.scheduling.kueue.concurrent_admission import parents_of, same_flavors
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.placement import MultiScheduler, PlacementEngine
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.scheduling.volcano.jobs.states import DelayedAction, JobRequest
from gpuconsole.sim.kernel import Kernel
from gpuconsole.sim.policy import AutoscalerState, SimPolicy
from gpuconsole.sim.run_times import LatencyStep, named_uid, ordered_uid, random_for


class WorkerCluster(Protocol):
    """The interface of a worker cluster to its manager; a Simulation implements it."""

    @property
    def next_time(self) -> Time | None: ...
    def workload(self, key: str) -> Workload | None: ...
    def snapshot(self) -> Snapshot: ...
    def submit(self, command: Command) -> None: ...
    def advance(self, until: Time) -> None: ...
    def fork(self) -> "WorkerCluster": ...
    def save(self) -> bytes: ...


class MultiKueueMember(Struct, frozen=True, kw_only=True):
    """A worker cluster, and since when the manager cannot reach it (None: it can)."""

    cluster: WorkerCluster
    disconnected_since: Time | None = field(default=None, name="lost")


class Dispatch(Struct, frozen=True, kw_only=True):
    """What a MultiKueue manager knows of a workload that it dispatched."""

    round_started: Time | None = field(default=None, name="started")
    """When the current round of nominating worker clusters began."""
    clusters_with_copy: tuple[str, ...] = field(default=(), name="sent")
    """Names of the worker clusters that have a copy."""
    admitted_cluster: str = field(default="", name="runs")
    """The cluster whose copy was admitted, until the workload's quota is released."""


class QuotaUsage:
    """Cache of the quotas of queried namespaces, with their current usage.

    A namespace is counted when it is first queried; each change of an object then adjusts the count. A changed quota
    recounts its namespace, a changed priority class all.
    """

    def __init__(self) -> None:
        self._quotas: dict[str, tuple[ResourceQuota, ...]] = {}
        self._default_class = ""

    def quotas_of(self, state: ClusterState, namespace: str) -> tuple[ResourceQuota, ...]:
        """The quotas of a namespace by name, with their current usage."""
        known = self._quotas.get(namespace)
        if known is None:
            self._default_class = default_class(state.table("priority_classes").all())[1]
            known = self._quotas[namespace] = self._count_namespace(state, namespace)
        return known

    def apply_change(self, kind: type, old: object, new: object) -> None:
        """Adjust the counts for an object that was created, changed or deleted (old or new is None)."""
        if not self._quotas:
            return
        if kind is ResourceQuota:
            self._forget_namespaces(old, new)
        elif kind is PriorityClass:
            self._quotas.clear()
        elif kind in COUNTED and not (type(old) is type(new) and _has_same_usage(old, new)):
            self._add_usage(old, -1)
            self._add_usage(new, 1)

    def clear(self) -> None:
        """Discard all counts after changes that bypassed the cache; each namespace is counted again when queried."""
        self._quotas.clear()

    def fork(self) -> "QuotaUsage":
        """Return an equal, independent copy."""
        copied = QuotaUsage()
        copied._quotas, copied._default_class = self._quotas.copy(), self._default_class
        return copied

    def _count_namespace(self, state: ClusterState, namespace: str) -> tuple[ResourceQuota, ...]:
        quotas = [quota for quota in state.table("resource_quotas").all() if quota.namespace == namespace]
        objs = _countable_objects(state, namespace) if quotas else {}
        return tuple(
            replace(quota, used={**quota.used, **counted(quota, objs, self._default_class)})
            for quota in sorted(quotas, key=lambda quota: quota.name)
        )

    def _forget_namespaces(self, old: object, new: object) -> None:
        namespaces = {quota.namespace for quota in (old, new) if isinstance(quota, ResourceQuota)}
        for namespace in namespaces:
            # A quota with the usage counted here needs no recount.
            if new not in self._quotas.get(namespace, ()):
                self._quotas.pop(namespace, None)

    def _add_usage(self, obj: object, sign: int) -> None:
        if not isinstance(obj, COUNTED) or not self._quotas.get(obj.namespace):
            return
        self._quotas[obj.namespace] = tuple(
            _with_usage(quota, obj, sign, self._default_class) for quota in self._quotas[obj.namespace]
        )


def _countable_objects(state: ClusterState, namespace: str) -> dict[type[Counted], list[Counted]]:
    """The objects of a namespace that quotas count, of the kinds that are completely visible."""
    return {
        kind: [obj for obj in state.table(TABLES[kind]).all() if obj.namespace == namespace]
        for kind in COUNTED
        if state.seen.all_of(kind, within=namespace)
    }


def _has_same_usage(old: object, new: object) -> bool:
    """True if a change cannot affect an object's usage, as most changes are of statuses."""
    if isinstance(old, Pod) and isinstance(new, Pod):
        return old.template is new.template and old.done == new.done
    return old == new


def _with_usage(quota: ResourceQuota, obj: Counted, sign: int, default_class: str) -> ResourceQuota:
    usage = used_by(quota, obj, default_class)
    if not usage:
        return quota
    return replace(
        quota, used={**quota.used, **{name: quota.used.get(name, 0) + sign * n for name, n in usage.items()}}
    )


def first_group_phase(policy: SimPolicy) -> str:
    """The initial phase of a PodGroup: Pending with Volcano, else Inqueue, as no other engine enqueues PodGroups."""
    return (
        "Pending" if isinstance(policy.placement, VolcanoPolicy) or policy.second_scheduler is not None else "Inqueue"
    )


def placement_engine(policy: SimPolicy) -> PlacementEngine:
    """Create the engine that places the pods of a simulation: one scheduler, or two side by side."""
    first = _new_engine(policy.placement)
    return (
        first
        if policy.second_scheduler is None
        else MultiScheduler(first, _new_engine(policy.second_scheduler), policy.second_scheduler.scheduler)
    )


def _new_engine(policy: PlacementPolicy | VolcanoPolicy | KaiPolicy) -> PlacementEngine:
    """A new engine for this policy; imports only that engine."""
    match policy:
        case PlacementPolicy():
            return KubePlacement(policy)
        case VolcanoPolicy():
            from gpuconsole.scheduling.volcano.engine import VolcanoPlacement

            return VolcanoPlacement(policy)
        case KaiPolicy():
            from gpuconsole.scheduling.kai.engine import KaiPlacement

            return KaiPlacement(policy)
        case _:
            assert_never(policy)


NEVER: Time = 2**62
"""A time later than any other: something that never happens."""


class RunningGroup(Struct, frozen=True, kw_only=True):
    """The pods of one Workload, of one job without a Workload, or one lone pod.

    Holds what would be expensive to recompute at each change; all else is in the objects. Every pod of the group is in
    one of five states: running, waiting for a node, leaving, missing, or ended.
    """

    key: str
    workload: str = ""
    job: str = ""
    pods: tuple[str, ...] = ()
    """Keys of its pods; a recreated pod keeps its name."""
    pods_needed: int = field(default=1, name="need")
    """Number of pods that must run before work can begin."""
    created: Time = field(default=0, name="formed")
    """When it was formed: older terminating pods belong to an earlier start of the same job."""
    running: int = 0
    """Number of pods that have a node and are not deleted, whether their containers have started or not."""
    starting: int = 0
    """Number of `running` pods whose containers have not started yet."""
    terminating: int = field(default=0, name="leaving")
    """Number of deleted pods within their grace period, which still occupy their nodes."""
    missing: int = 0
    """Number of pods that failed or were deleted, and will be recreated."""
    ended: int = 0
    """Number of pods that succeeded while the others work; they are not recreated."""
    start: Time | None = None
    """Time since which the work runs; None while it is interrupted."""
    recreate_after: Time = field(default=0, name="hold")
    """Missing pods are not recreated before this time (backoff after a failure)."""
    refused_since: Time | None = None
    """Time since which the API server refuses its pods (ResourceQuota); refused pods count as missing."""
    refusal: str = ""
    """The API server's message about the refused pods; empty if there are none."""
    is_independent: bool = field(default=False, name="solo")
    """True if its pods work independently, each as soon as it has a node."""
    completes_at: Time | None = None
    """When the controller of its job counts its last succeeded pod; None while it works."""
    is_reported: bool = field(default=False, name="told")
    """True if the history already says that the gang is not scheduled."""

    @property
    def with_started_containers(self) -> int:
        """Number of pods whose containers run."""
        return self.running - self.starting

    @property
    def without_node(self) -> int:
        """Number of pods that exist and have no node yet."""
        return len(self.pods) - self.running - self.terminating - self.missing - self.ended

    @property
    def existing(self) -> int:
        """Number of pods that exist: running, waiting or terminating."""
        return len(self.pods) - self.missing - self.ended


def is_member(pod: Pod, group: RunningGroup) -> bool:
    """True if a pod belongs to its running group; False for a terminating pod of an earlier start of its job."""
    return not (pod.deleted and pod.created < group.created)


def running_group_key(pod: Pod) -> str:
    """The key of a pod's running group: that of its Workload, else of its job, else of the pod."""
    return pod.workload or pod.job or f"Pod/{pod.key}"


_MOST_DRAWS = 50
"""Number of draws after which something that should have come long ago comes at once."""
STORED_KINDS = (PersistentVolume, PersistentVolumeClaim, StorageClass)
VOLCANO_JOB = "VolcanoJob/"
"""Prefix of the keys of Volcano Jobs."""


class VolcanoChange(Struct, frozen=True):
    """A changed pod of a Volcano Job or PodGroup, before (None: created) and after (None: deleted)."""

    old: Pod | PodGroup | None
    new: Pod | PodGroup | None


class World:
    """The mutable state of a simulated cluster, which the controllers change."""

    __slots__ = (
        "autoscaler_state",
        "backoff_at",
        "children",
        "children_workloads",
        "creators_to_reconcile",
        "cycle_at",
        "cycles_due",
        "deadlock",
        "delayed_actions",
        "devices",
        "dispatches",
        "events",
        "families_to_reconcile",
        "groups",
        "groups_to_reconcile",
        "has_typical_latencies",
        "is_unsettled",
        "kernel",
        "latency_run",
        "members",
        "nodes_to_examine",
        "now",
        "offers",
        "placement",
        "placement_due",
        "policy",
        "possibly_inadmissible",
        "quota_usage",
        "quotas_to_recount",
        "reconcile_timers",
        "refusals",
        "resource_claims_due",
        "sample_at",
        "seed",
        "session",
        "state",
        "uid_counter",
        "volcano_changes",
        "volcano_requests",
        "volume_claims_due",
        "wake_at",
        "workloads_with_checks_due",
    )

    def __init__(self, policy: SimPolicy, seed: int, now: Time, state: ClusterState) -> None:
        self.policy = policy
        self.seed = seed
        self.now = now
        self.state = state
        self.devices = DeviceCounter.of_state(state)
        self.session: KueueSession | None = None if policy.kueue is None else KueueSession(policy.kueue)
        self.placement = placement_engine(policy)
        self.kernel = Kernel()
        self.groups: dict[str, RunningGroup] = {}
        self.events: list[Event] = []
        self.nodes_to_examine: dict[str, None] = {}
        """Nodes to examine within this moment, because they or their pods changed."""
        self.groups_to_reconcile: dict[str, None] = {}
        """Running groups to reconcile within this moment, in order."""
        self.members: dict[str, MultiKueueMember] = {}
        """The worker clusters of a MultiKueue manager, by name."""
        self.dispatches: dict[str, Dispatch] = {}
        """Workloads that are offered to worker clusters or run there."""
        self.workloads_with_checks_due: dict[str, None] = {}
        """Workloads whose admission checks are reconciled within this moment, in order."""
        self.reconcile_timers: dict[str, Time] = {}
        """Workload → when Kueue's workload controller reconciles it again."""
        self.children_workloads: dict[str, dict[str, None]] = {}
        """Workload → its variants, where several flavors are tried at once."""
        self.families_to_reconcile: dict[str, None] = {}
        """Workloads whose variants are reconciled within this moment, in order."""
        self.autoscaler_state = AutoscalerState()
        """State of the autoscalers."""
        self.offers: dict[int, tuple[Object, list[Any]]] = {}
        """Cache, shared by forks: id of a NodePool → the pool, which is kept alive here, and its offerings."""
        self.refusals = ReportRefusals.CHANGED
        """The refusals that are recorded; a repeated one is not."""
        self.cycles_due = False
        self.is_unsettled = False
        """True for a simulation of a live cluster until its first moment is complete."""
        self.placement_due = False
        self.wake_at: Time | None = None
        """When the batched requeues are due; None without any."""
        self.backoff_at: Time | None = None
        self.sample_at: Time | None = None
        """When admission fair sharing samples the usage of LocalQueues next, if a timer is set for it."""
        self.possibly_inadmissible: dict[str, None] = {}
        """Workloads that may be inadmissible and are not marked so in the state."""
        self.volcano_changes: list[VolcanoChange] = []
        """Changes that Volcano's job controller has to handle within this moment."""
        self.volcano_requests: list[JobRequest] = []
        """Its queue of requests."""
        self.delayed_actions: dict[str, dict[str, DelayedAction]] = {}
        """Volcano Job → pod → the action that waits for its timeout."""
        self.resource_claims_due = False
        """ResourceClaims may have to be created or released before pods are placed."""
        self.volume_claims_due = False
        """PersistentVolumeClaims may have to be created, bound or deleted before pods are placed."""
        self.quotas_to_recount: dict[str, bool] = {}
        """Namespaces whose ResourceQuota usage is recounted within this moment; True if a quota itself changed."""
        self.quota_usage = QuotaUsage()
        """Usage of ResourceQuotas: a cache, which is not saved."""
        self.children: dict[str, dict[str, None]] = {}
        """Job → the jobs that it created."""
        self.creators_to_reconcile: dict[str, None] = {}
        """Jobs whose children are reconciled within this moment, in order."""
        self.uid_counter = 0
        """Number of Workloads created by the simulation."""
        self.cycle_at: Time = 0
        """Time of the last admission cycle; see `scheduling.run_cycles`."""
        self.has_typical_latencies = False
        """True if each latency is the median of its distribution: the estimate for a live cluster."""
        self.latency_run = 0
        """Runs that differ only in this have other latencies, but the same arrivals and run times."""
        self.deadlock = ""
        """Names of the jobs in the deadlock recorded last; empty without one."""

    def put(self, obj: Object) -> None:
        """Create or change an object, in the state and in all schedulers."""
        if self.children_workloads and isinstance(obj, ClusterQueue):
            self._note_flavors(obj)
        if isinstance(obj, Pod | PodGroup):
            self._note_change(obj)
        if self.has_quotas or isinstance(obj, ResourceQuota):
            self._note_usage(obj)
        event = Applied(self.now, obj)
        same = isinstance(obj, Workload) and self._is_same_to_kueue(obj)
        self.state.apply(event)
        self.events.append(event)
        due = self.cycles_due
        self.apply_to_schedulers(obj)
        if same:
            self.cycles_due = due

    def _is_same_to_kueue(self, workload: Workload) -> bool:
        """True if a workload's quota is unchanged, so that no cycle would decide otherwise."""
        old, session = self.workload(workload.key), self.session
        if old is None or session is None:
            return False
        waits = session.config.pods_ready_settings
        if waits is not None and waits.block_admission:
            return False
        held = old.reserved and workload.reserved and not (old.finished or workload.finished)
        evicted = old.is_true("Evicted") or workload.is_true("Evicted")
        return held and not evicted and replace(old, conditions=workload.conditions) == workload

    @property
    def has_quotas(self) -> bool:
        """True if any namespace has a ResourceQuota."""
        return bool(self.state.table("resource_quotas"))

    def _note_usage(self, obj: Object) -> None:
        """Mark the ResourceQuotas of the object's namespace for a recount within this moment."""
        known = self.state.get(type(obj), obj.key)
        self.quota_usage.apply_change(type(obj), known, obj)
        if isinstance(obj, COUNTED):
            self.quotas_to_recount.setdefault(obj.namespace, False)
        elif isinstance(obj, ResourceQuota) and (known is None or (known.hard, known.scopes) != (obj.hard, obj.scopes)):
            self.quotas_to_recount[obj.namespace] = self.resource_claims_due = self.volume_claims_due = True

    def _note_change(self, obj: Pod | PodGroup) -> None:
        if isinstance(obj, PodGroup) or obj.job.startswith(VOLCANO_JOB):
            self.volcano_changes.append(VolcanoChange(self.state.get(type(obj), obj.key), obj))

    def apply_to_schedulers(self, obj: Object) -> None:
        """Tell Kueue's session, the placement engine and the autoscalers of a new or changed object."""
        match obj:
            case Pod():
                self._note_claims(obj)
                self.autoscaler_state.note_pod(obj, self.now)
                self.placement.apply(obj, self.now)
                self.placement_due = True
                self._apply_pod_to_admission(obj)
            case Workload():
                if self.session is not None:
                    self.session.apply(obj, self.now)
                    self.cycles_due = True
                    self._update_possibly_inadmissible(obj)
                    self._mark_family(obj)
            case Job(owner=owner):
                if owner:
                    self.children.setdefault(owner, {})[obj.key] = None
                    if self.job(owner) is not None:
                        self.creators_to_reconcile[owner] = None
            case NodeGroup():
                pass
            case ResourceQuota():
                self.placement.apply(obj, self.now)
                self.placement_due = True
            case _:
                self.volume_claims_due = self.volume_claims_due or isinstance(obj, STORED_KINDS)
                self.resource_claims_due = self.resource_claims_due or isinstance(obj, ResourceClaimTemplate)
                self.autoscaler_state.has_changes = True
                self.placement.apply(obj, self.now)
                self.placement_due = True
                if self.session is not None:
                    self.session.apply(obj, self.now)
                    self.cycles_due = True
                    self._apply_topology_to_admission(obj)

    def _note_claims(self, pod: Pod) -> None:
        """Mark claims for volumes and devices for reconciliation, as they follow pods."""
        self.volume_claims_due = self.volume_claims_due or bool(pod.template.volumes)
        self.resource_claims_due = self.resource_claims_due or bool(pod.template.resource_claims)

    def _apply_pod_to_admission(self, pod: Pod) -> None:
        """Pass a pod to admission, which needs it only for topology; an ended pod may show that its node failed."""
        if self.session is None or not self.session.uses_topologies:
            return
        self.session.apply(pod, self.now)
        if pod.node and (pod.done or pod.deleted) and self._is_unavailable_node(pod.node):
            self.nodes_to_examine[pod.node] = None

    def _is_unavailable_node(self, name: str) -> bool:
        node = self.node(name)
        return node is None or not node.ready or node.unschedulable or bool(node.taints)

    def _apply_topology_to_admission(self, obj: Object) -> None:
        """With the first topology, pass all pods to admission."""
        session = self.session
        if session is None or not isinstance(obj, Node | Topology | ResourceFlavor) or not session.uses_topologies:
            return
        if isinstance(obj, Node):
            self.nodes_to_examine[obj.name] = None
            return
        for pod in self.state.table("pods").all():
            session.apply(pod, self.now)

    def _update_possibly_inadmissible(self, workload: Workload) -> None:
        waits = workload.active and not workload.inadmissible and not workload.reserved and not workload.finished
        if waits and self._is_inadmissible(workload):
            self.possibly_inadmissible[workload.key] = None
        else:
            self.possibly_inadmissible.pop(workload.key, None)

    def _mark_family(self, workload: Workload) -> None:
        if self.session is None or not self.session.config.enabled("ConcurrentAdmission"):
            return
        if workload.parent:
            self.children_workloads.setdefault(workload.parent, {})[workload.key] = None
        self.families_to_reconcile[workload.parent or workload.key] = None

    def _note_flavors(self, queue: ClusterQueue) -> None:
        """If the flavors of a ClusterQueue change, mark its workloads for reconciliation of their variants."""
        old = self.cluster_queue(queue.name)
        if old is None or same_flavors(old, queue):
            return
        local_queues = [
            (local_queue.key, local_queue.cluster_queue) for local_queue in self.state.table("local_queues").all()
        ]
        parents = [parent for key in self.children_workloads if (parent := self.workload(key)) is not None]
        self.families_to_reconcile.update(dict.fromkeys(parents_of(queue.name, local_queues, parents)))

    def _is_inadmissible(self, workload: Workload) -> bool:
        """True if its queue can make workloads inadmissible: a StrictFIFO queue keeps trying its head."""
        local_queue = self.local_queue(workload.local_queue)
        queue = self.cluster_queue(local_queue.cluster_queue) if local_queue is not None else None
        return queue is not None and queue.queueing_strategy is QueueingStrategy.BEST_EFFORT_FIFO

    def mark_inadmissible(self) -> None:
        """Mark workloads that became inadmissible with an equivalent workload (same scheduling hash).

        Forecasts do this on request only (`show_inadmissible`), as thousands become inadmissible again and again.
        """
        if self.session is None or self.refusals is ReportRefusals.CHANGED_REASON:
            return
        inadmissible = sorted({key for key in self.session.newly_inadmissible() if key in self.possibly_inadmissible})
        for key in inadmissible:
            self._set_inadmissible(key, inadmissible=True)
            del self.possibly_inadmissible[key]
        if len(inadmissible) * 8 > len(self.possibly_inadmissible):
            # Forks copy a dict without the gaps of deleted keys many times faster.
            self.possibly_inadmissible = dict.fromkeys(self.possibly_inadmissible)

    def show_inadmissible(self, keys: Iterable[str]) -> None:
        """Mark those of these workloads that are inadmissible."""
        if self.session is not None:
            for key in keys:
                self._set_inadmissible(key, inadmissible=self.session.is_inadmissible(key))

    def _set_inadmissible(self, key: str, *, inadmissible: bool) -> None:
        workload = self.workload(key)
        if workload is not None and workload.inadmissible != inadmissible:
            event = Applied(self.now, replace(workload, inadmissible=inadmissible))
            self.state.apply(event)
            self.events.append(event)

    def drop(self, kind: type[Object], key: str) -> None:
        """Delete an object, in the state and in all schedulers."""
        table = TABLES[kind]
        if self.has_quotas:
            self._note_deletion(kind, key)
        gone = self.workload(key) if kind is Workload and self.children_workloads else None
        pod = self.pod(key) if kind is Pod else None
        if pod is not None and pod.job.startswith(VOLCANO_JOB):
            self.volcano_changes.append(VolcanoChange(pod, None))
        self.volume_claims_due = self.volume_claims_due or kind in STORED_KINDS or key.startswith(VOLCANO_JOB)
        if pod is not None:
            self._note_claims(pod)
        if kind is Job:
            self._forget_job(key)
        event = Deleted(self.now, table, key)
        self.state.apply(event)
        self.events.append(event)
        self.delete_from_schedulers(table, key)
        if gone is not None:
            self.families_to_reconcile[gone.parent or key] = None
            self.children_workloads.get(gone.parent, {}).pop(key, None)

    def _note_deletion(self, kind: type[Object], key: str) -> None:
        self.quota_usage.apply_change(kind, self.state.get(kind, key), None)
        if kind in COUNTED or kind is ResourceQuota:
            namespace = key.rsplit("/", 2)[-2]
            self.quotas_to_recount[namespace] = kind is ResourceQuota or self.quotas_to_recount.get(namespace, False)
        if kind in (ResourceClaim, ResourceQuota):
            self.resource_claims_due = self.volume_claims_due = True

    def delete_from_schedulers(self, table: str, key: str) -> None:
        """Tell the schedulers that an object was deleted; `table` as in `model.objects.TABLES`."""
        is_pod, is_workload = table == TABLES[Pod], table == TABLES[Workload]
        self.autoscaler_state.has_changes = self.autoscaler_state.has_changes or not is_workload
        if is_pod:
            self.autoscaler_state.unschedulable_since.pop(key, None)
        if not is_workload:
            self.placement.delete(table, key, self.now)
            self.placement_due = True
        if is_workload:
            self.possibly_inadmissible.pop(key, None)
        if self.session is not None and not is_pod:
            self.session.delete(table, key, self.now)
            self.cycles_due = True
        if self.session is not None and self.session.uses_topologies:
            if is_pod:
                self.session.delete(table, key, self.now)
            elif table == TABLES[Node]:
                self.nodes_to_examine[key] = None

    def _forget_job(self, key: str) -> None:
        """Mark the creator and the children of a deleted job for reconciliation, and delete its Ray PodGroup."""
        job = self.job(key)
        if job is not None and job.ray_group is not None:
            group = f"{job.namespace}/{job.ray_group.name_for(job.name)}"
            if self.state.get(PodGroup, group) is not None:
                self.drop(PodGroup, group)
        if job is not None and job.owner:
            self.children.get(job.owner, {}).pop(key, None)
            if self.job(job.owner) is not None:
                self.creators_to_reconcile[job.owner] = None
        if key in self.children:
            self.creators_to_reconcile[key] = None

    def record_event(self, what: HistoryEventKind, **fields: Any) -> None:
        """Add an event to the history."""
        line = HistoryEvent(time=self.now, what=what, **fields)
        self.state.apply(line)
        self.events.append(line)

    def put_group(self, group: RunningGroup) -> None:
        """Store a running group, and mark it for reconciling before time moves on."""
        self.groups[group.key] = group
        self.groups_to_reconcile[group.key] = None

    @property
    def granular(self) -> bool:
        """True if conditions have granular reasons (gate UnadmittedWorkloadsObservability)."""
        return self.session is not None and self.session.config.has_granular_reasons

    def draw_latency(self, *steps: LatencyStep, of: tuple[object, ...]) -> Span:
        """The total latency of these steps for the object `of`; 0 if the policy has no latencies.

        Drawn by name, so that two forks of one cluster have the same latencies.
        """
        latencies = self.policy.latencies
        if latencies is None:
            return 0
        if self.has_typical_latencies:
            return sum(latencies.distribution(step).p50 for step in steps)
        return sum(latencies.distribution(step).sample(self.latency_random(step, *of)) for step in steps)

    def draw_due_time(self, since: Time, *steps: LatencyStep, of: tuple[object, ...], least: Span = 0) -> Time:
        """When something comes that is due `least` and these steps after `since`, given that it has not come yet.

        With typical latencies `since` is a time of the API server, cut to whole seconds: the result is the median.
        """
        if self.has_typical_latencies:
            first = since + least + self.draw_latency(*steps, of=of)
            earliest, latest = max(self.now, first), first + (SECOND if since < self.now else 0)
            return max(self.now + self.draw_latency("workload_reconcile", of=of), (earliest + latest) // 2)
        for number in range(_MOST_DRAWS):
            at = since + least + self.draw_latency(*steps, of=(*of, number) if number else of)
            if at > self.now:
                return at
        return self.now + self.draw_latency("workload_reconcile", of=of)

    def latency_random(self, *names: object) -> Random:
        """The random generator of a draw that depends on controller latencies, by its names."""
        return random_for(self.seed, *((self.latency_run,) if self.latency_run else ()), *names)

    def uid(self, kind: str, key: str) -> str:
        """A uid for an object created now."""
        return named_uid(self.seed, kind, key, self.now)

    def next_uid(self, key: str) -> str:
        """A uid for a workload created now: later ones sort after it."""
        self.uid_counter += 1
        return ordered_uid(self.seed, self.now, self.uid_counter, key)

    def workload(self, key: str) -> Workload | None:
        """The Workload with this `namespace/name`; None if it does not exist."""
        found: Workload | None = self.state.table("workloads").get(key)
        return found

    def job(self, key: str) -> Job | None:
        """The job with this key; None if it does not exist."""
        found: Job | None = self.state.table("jobs").get(key)
        return found

    def pod(self, key: str) -> Pod | None:
        """The pod with this `namespace/name`; None if it does not exist."""
        found: Pod | None = self.state.table("pods").get(key)
        return found

    def node(self, name: str) -> Node | None:
        """The node of this name; None if it does not exist."""
        found: Node | None = self.state.table("nodes").get(name)
        return found

    def local_queue(self, key: str) -> LocalQueue | None:
        """The LocalQueue with this `namespace/name`; None if it does not exist."""
        found: LocalQueue | None = self.state.table("local_queues").get(key)
        return found

    def cluster_queue(self, name: str) -> ClusterQueue | None:
        """The ClusterQueue of this name; None if it does not exist."""
        found: ClusterQueue | None = self.state.table("cluster_queues").get(name)
        return found

    def restart(self, policy: SimPolicy) -> None:
        """Restart the schedulers with these settings: afterwards they know only what the cluster's objects show."""
        fleet = self.autoscaler_state.fork()
        self.policy = policy
        self.session = None if policy.kueue is None else KueueSession(policy.kueue)
        self.placement = placement_engine(policy)
        for obj in self.state.freeze().objects():
            self.apply_to_schedulers(obj)
        self.families_to_reconcile.clear()
        self.creators_to_reconcile.clear()
        self.autoscaler_state = fleet

    def fork(self) -> "World":
        """An equal, independent copy. Only valid between moments."""
        copied = World.__new__(World)
        copied.policy, copied.seed, copied.now = self.policy, self.seed, self.now
        copied.state = self.state.fork()
        copied.devices = DeviceCounter.of_state(copied.state, self.devices.offered)
        copied.session = None if self.session is None else self.session.fork()
        copied.placement = self.placement.fork()
        copied.kernel = self.kernel.fork()
        copied.groups, copied.possibly_inadmissible = self.groups.copy(), self.possibly_inadmissible.copy()
        copied.events, copied.volume_claims_due, copied.resource_claims_due = (
            self.events[:],
            self.volume_claims_due,
            self.resource_claims_due,
        )
        copied.members = {name: replace(m, cluster=m.cluster.fork()) for name, m in self.members.items()}
        copied.dispatches = self.dispatches.copy()
        copied.children_workloads = {parent: variants.copy() for parent, variants in self.children_workloads.items()}
        copied.families_to_reconcile = self.families_to_reconcile.copy()
        copied.children = {owner: jobs.copy() for owner, jobs in self.children.items()}
        copied.creators_to_reconcile = self.creators_to_reconcile.copy()
        copied.workloads_with_checks_due, copied.quotas_to_recount = (
            self.workloads_with_checks_due.copy(),
            self.quotas_to_recount.copy(),
        )
        copied.quota_usage = self.quota_usage.fork()
        copied.reconcile_timers = self.reconcile_timers.copy()
        copied.volcano_changes, copied.volcano_requests = self.volcano_changes[:], self.volcano_requests[:]
        copied.delayed_actions = {job: delays.copy() for job, delays in self.delayed_actions.items()}
        copied.nodes_to_examine = self.nodes_to_examine.copy()
        copied.groups_to_reconcile, copied.uid_counter, copied.cycle_at = (
            self.groups_to_reconcile.copy(),
            self.uid_counter,
            self.cycle_at,
        )
        copied.cycles_due, copied.placement_due = self.cycles_due, self.placement_due
        copied.is_unsettled = self.is_unsettled
        copied.wake_at, copied.backoff_at, copied.deadlock = self.wake_at, self.backoff_at, self.deadlock
        copied.sample_at, copied.refusals = self.sample_at, self.refusals
        copied.latency_run, copied.has_typical_latencies = self.latency_run, self.has_typical_latencies
        copied.autoscaler_state, copied.offers = self.autoscaler_state.fork(), self.offers
        return copied
