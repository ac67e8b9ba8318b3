"""Cost over time: allocates the price of each node to workloads, idle capacity and system pods, hour by hour.

`CostAllocator` consumes the events of a cluster. When an event changes a node or its pods, the time before it is booked
at the old shares, so costs are exact and depend neither on polling nor on batches. Each USD of a node is booked once,
as used, underutilized, lost, idle or system, so all rows add up to price × lifetime of all nodes. As in OpenCost,
a pod is allocated the part of its node that it holds, used or not, and what nobody holds is idle.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from math import isclose
from typing import Any, NamedTuple

from msgspec import Struct

from gpuconsole.insight.cost.rates import NO_PRICE, NodePrice, instance_price, node_price, node_shares
from gpuconsole.insight.health.telemetry import LOW_UTILIZATION, PodUtilization, pod_utilization
from gpuconsole.insight.index.gpu_time import (
    GpuLayout,
    allocated_gpus,
    gpu_layout,
    owner_of,
    part_of_node,
    queue_among,
)
from gpuconsole.model.autoscaling import (
    GROUP,
    INSTANCE_TYPE,
    ON_DEMAND,
    POOL,
    SPOT,
    ZONE,
    NodeGroup,
    ProvisionedInstance,
)
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.device_requests import DeviceCounter, gpus_claimable, gpus_of_node
from gpuconsole.model.devices import ResourceClaim, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.prices import Prices, gpu_type, is_spot
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT, group_key, own_queue

SYSTEM_NAMESPACES = frozenset(
    {
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "gpu-operator",
        "nvidia-gpu-operator",
        "nvidia-device-plugin",
        "nvidia-dra-driver-gpu",
        "kueue-system",
        "volcano-system",
        "kai-scheduler",
        "jobset-system",
        "lws-system",
        "kubeflow-system",
        "kuberay-system",
        "karpenter",
        "cert-manager",
        "monitoring",
    }
)
"""Namespaces of the cluster's own components."""
MOST_RUNS = 100
"""Maximum runs of equal hours that are kept of a workload for lost work; older ones can no longer be lost."""
MOST_SHARED = 4096
"""Maximum amounts of shares that are compared with new ones to save memory; measured shares all differ."""
OTHER, NO_GPU = "other", "cpu"
"""GPU types of nodes with GPUs of an unknown type, and of nodes without GPUs."""


class CostKind(StrEnum):
    """What a part of a node is used for."""

    WORKLOAD = "workload"
    IDLE = "idle"
    SYSTEM = "system"
    """Pods of the cluster's own components."""


class CostOwner(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a cost is allocated to, and on what kind of node; an empty text means none."""

    kind: CostKind
    workload: str = ""
    """Key of the Workload, else of the job, the gang or the pod."""
    namespace: str = ""
    team: str = ""
    project: str = ""
    user: str = ""
    queue: str = ""
    """ClusterQueue, or the queue of Volcano or KAI."""
    gpu_type: str = ""
    """GPU type of the node as in the price table; `other` if unknown, `cpu` for a node without GPUs."""
    capacity_type: str = "on-demand"
    pool: str = ""
    """NodePool or node group; empty for static nodes."""
    zone: str = ""


class CostHour(Struct, frozen=True, omit_defaults=True):
    """Cost of one owner in one hour, or a part of it: rows of the same owner and hour are added field by field."""

    owner: CostOwner
    hour: Time
    """Start of the hour in UTC."""
    gpu_seconds: float = 0.0
    """Allocated GPU time, or unallocated for the kind IDLE; fractions of GPUs count as fractions."""
    used_usd: float = 0.0
    underutilized_usd: float = 0.0
    """Allocated while the measured utilization was below `LOW_UTILIZATION`."""
    lost_usd: float = 0.0
    """Allocated, but an eviction or a failure lost the work; at most what was booked."""
    idle_usd: float = 0.0
    system_usd: float = 0.0
    saved_usd: float = 0.0
    """Saved by spot, compared with on demand; not part of the cost."""
    busy_gpu_seconds: float = 0.0
    """Measured utilization × GPU time."""
    measured_gpu_seconds: float = 0.0
    """GPU time with a measured utilization."""

    @property
    def cost_usd(self) -> float:
        """Sum of all categories, which do not overlap."""
        return self.used_usd + self.underutilized_usd + self.lost_usd + self.idle_usd + self.system_usd


COST_AMOUNTS = tuple(name for name in CostHour.__struct_fields__ if name not in ("owner", "hour"))
"""Fields of CostHour that are added up over rows of the same owner."""
_GPU, _USED, _UNDERUTILIZED, _LOST, _IDLE, _SYSTEM, _SAVED, _BUSY, _MEASURED = range(len(COST_AMOUNTS))


class CostLabels(Struct, frozen=True, kw_only=True):
    """Labels of workloads, jobs and pods that name team, project and user, and the namespaces that are not charged.

    A label of the Workload counts first, then of the job, the pod and the pod's template. The team is the namespace for
    those without label.
    """

    team: str = "team"
    project: str = "project"
    user: str = "user"
    system_namespaces: frozenset[str] = SYSTEM_NAMESPACES


DEFAULT_LABELS = CostLabels()


class _PodFacts(NamedTuple):
    """The fields of CostOwner that depend on the pod."""

    kind: CostKind
    workload: str = ""
    namespace: str = ""
    team: str = ""
    project: str = ""
    user: str = ""
    queue: str = ""


class _NodeFields(NamedTuple):
    """The fields of CostOwner that depend on the node."""

    gpu_type: str
    capacity_type: str
    pool: str
    zone: str


class _NodeFacts(NamedTuple):
    """What the shares of a node depend on except its pods."""

    node: Node | None
    machine: tuple[str, ProvisionedInstance] | None
    """Its group, and the instance of the same name."""
    devices: int
    """Number of GPUs that it offers by DRA."""
    price: NodePrice
    gpus: float
    """Physical GPUs."""
    layout: GpuLayout | None
    """None before the node joins."""
    fields: _NodeFields


_IDLE_FACTS = _PodFacts(CostKind.IDLE)


class _Run:
    """Consecutive hours with the same bookings. Mutable."""

    __slots__ = ("amounts", "count", "first")

    def __init__(self, first: Time, amounts: list[float]) -> None:
        self.first = first
        self.count = 1
        self.amounts = amounts
        """GPU-seconds, used and underutilized USD of each hour that can still be lost."""

    @property
    def last(self) -> Time:
        """Start of the last hour."""
        return self.first + (self.count - 1) * HOUR


class _Account:
    """Bookings of one CostOwner in the current hour, and what of it can still be lost. Mutable."""

    __slots__ = ("current", "nodes", "owner", "runs", "shares", "sums")

    def __init__(self, owner: CostOwner) -> None:
        self.owner = owner
        self.sums: list[float] | None = None
        """Booked in the current hour and not drained; None without a booking."""
        self.current = [0.0, 0.0, 0.0]
        """Booked in the current hour and drained: GPU-seconds, used and underutilized USD that can be lost."""
        self.runs: list[_Run] = []
        """Earlier hours."""
        self.shares = 0
        """Number of nodes on which it has a share."""
        self.nodes: list[str] = []
        """Names of these nodes, only of a workload: the idle account of a big cluster has thousands."""

    def enter(self, node: str) -> None:
        """Note that it has a share of a node."""
        self.shares += 1
        if self.owner.kind is CostKind.WORKLOAD:
            self.nodes.append(node)

    def leave(self, node: str) -> None:
        """Note that it has no share of a node any more."""
        self.shares -= 1
        if self.owner.kind is CostKind.WORKLOAD:
            self.nodes.remove(node)

    def close(self, hour: Time) -> None:
        """Move the current hour to the earlier ones."""
        amounts, last = self.current, self.runs[-1] if self.runs else None
        self.current = [0.0, 0.0, 0.0]
        if not amounts[0]:
            return
        if last is not None and last.last + HOUR == hour and _same(last.amounts, amounts):
            last.count += 1
        else:
            self.append(_Run(hour, amounts))

    def append(self, run: _Run) -> None:
        """Add the newest of the earlier hours; beyond `MOST_RUNS` the oldest is forgotten."""
        self.runs.append(run)
        del self.runs[:-MOST_RUNS]

    def newest(self) -> Time | None:
        """Return the newest earlier hour that can be lost."""
        return self.runs[-1].last if self.runs else None

    def reopen(self) -> list[float]:
        """Return the amounts of the newest earlier hour, to be changed, and forget it."""
        run = self.runs[-1]
        run.count -= 1
        if not run.count:
            self.runs.pop()
        return list(run.amounts)


def _same(one: list[float], other: list[float]) -> bool:
    return all(isclose(a, b, rel_tol=1e-9) for a, b in zip(one, other, strict=True))


_Amounts = tuple[tuple[int, float], ...]
"""Field and amount per hour of a share of a node."""


class _Node:
    """Booked time and present shares of a node. Mutable."""

    __slots__ = ("lines", "measured_until", "since")

    def __init__(self, since: Time) -> None:
        self.since = since
        """Time up to which it is booked."""
        self.lines: tuple[tuple[_Account, _Amounts], ...] = ()
        """Account → (field, amount per hour)."""
        self.measured_until: Time | None = None
        """Time at which its telemetry becomes stale, so that its shares change; None if it never does."""


class CostAllocator:
    """Allocates the cost of a cluster's nodes from its events on. Mutates.

    Time moves by the events and by `advance`. A cost is booked at the prices and shares that were valid at its time.
    Memory is bounded by the nodes and pods, and by `MOST_RUNS` for each running workload.
    """

    def __init__(self, snapshot: Snapshot, prices: Prices, labels: CostLabels = DEFAULT_LABELS) -> None:
        self._prices, self._labels = prices, labels
        self.state = ClusterState.of(snapshot, ())
        """The cluster after the events that were noted; only `note` applies events."""
        self._time = snapshot.time
        self._hour = snapshot.time // HOUR * HOUR
        self._counter = DeviceCounter.of_state(self.state)
        self._devices: Mapping[str, int] | None = None
        """Node → number of GPUs that it offers by DRA; None after a change."""
        self._machines: dict[str, tuple[str, ProvisionedInstance]] = {}
        """Instance → its group, and itself."""
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        """Node → its unfinished pods."""
        self._facts: dict[str, _PodFacts] = {}
        """Placed pod → its facts, as last computed."""
        self._outdated: set[str] = set()
        """Pods whose facts must be computed again."""
        self._orphans: set[str] = set()
        """Placed pods whose Workload or job was deleted."""
        self._node_facts: dict[str, _NodeFacts] = {}
        self._fields: dict[_NodeFields, _NodeFields] = {}
        self._dependents: dict[str, list[str]] = {}
        """Key of a Workload, job or pod group → keys of its placed pods: mostly one, for which a set is large."""
        self._accounts: dict[tuple[_PodFacts, _NodeFields], _Account] = {}
        self._by_owner: dict[str, list[_Account]] = {}
        """Key of a workload → its accounts."""
        self._touched: dict[str, None] = {}
        """Nodes that are booked up to now, and whose shares must be computed again."""
        self._rows: dict[tuple[_Account, Time], list[float]] = {}
        self._amounts: dict[_Amounts, _Amounts] = {}
        """Equal amounts of many shares as one object, as most nodes of a cluster are alike."""
        for group in snapshot.node_groups.all():
            self._set_instances(group.name, group.instances)
        for node in snapshot.nodes.all():
            self._touch(node.name)
        for pod in snapshot.pods.all():
            self._place(None, pod)

    @property
    def time(self) -> Time:
        """Time up to which events have been noted."""
        return self._time

    def note(self, event: Event) -> None:
        """Apply one event. Events come in the order of time; an older one counts as happening now."""
        if event.time > self._time:
            self._move(event.time)
        match event:
            case HistoryEvent():
                if event.lost_gpu_seconds > 0 and event.what is not HistoryEventKind.PREEMPTED:
                    self._lose(event)
            case Applied(_, obj):
                self._change(self.state.get(type(obj), obj.key), obj)
            case Deleted(_, table, key):
                self._delete(self.state.table(table).get(key))
        self.state.apply(event)

    def advance(self, time: Time) -> None:
        """Book the time up to `time`."""
        if time > self._time:
            self._move(time)
        self._book_all(self._time)

    def drain(self) -> tuple[CostHour, ...]:
        """Return what was booked since the last call; amounts are negative where work moved to lost.

        Call `advance` first: otherwise nodes that did not change are not yet booked.
        """
        for account in self._accounts.values():
            self._collect(account)
        rows = tuple([CostHour(account.owner, hour, *amounts) for (account, hour), amounts in self._rows.items()])
        self._rows = {}
        return rows

    # Time

    def _move(self, time: Time) -> None:
        """Move the time forward; the current hour, and whole hours after it, are booked and closed."""
        self._evaluate_touched()
        while time - self._hour >= HOUR:
            if not self._nodes and not self._accounts:
                self._hour = time // HOUR * HOUR
                break
            border = self._hour + HOUR
            self._book_all(border)
            self._close_hour()
            self._hour = border
        self._time = time

    def _book_all(self, until: Time) -> None:
        for name, node in self._nodes.items():
            self._book(name, node, until)

    def _book(self, name: str, node: _Node, until: Time) -> None:
        """Book a node up to `until`, which is in the current hour."""
        if node.measured_until is not None and node.since <= node.measured_until < until:
            self._add(node, node.measured_until)
            self._evaluate(name, node, measured=False)
        self._add(node, until)

    @staticmethod
    def _add(node: _Node, until: Time) -> None:
        hours = (until - node.since) / HOUR
        if hours > 0:
            for account, amounts in node.lines:
                sums = account.sums
                if sums is None:
                    sums = account.sums = [0.0] * len(COST_AMOUNTS)
                for field, hourly in amounts:
                    sums[field] += hourly * hours
            node.since = until

    def _close_hour(self) -> None:
        ended = []
        for key, account in self._accounts.items():
            self._collect(account)
            if not account.shares and not account.current[0]:
                ended.append(key)
            account.close(self._hour)
        for key in ended:
            account = self._accounts.pop(key)
            those = self._by_owner.get(account.owner.workload, [])
            if account in those:
                those.remove(account)
                if not those:
                    del self._by_owner[account.owner.workload]

    def _collect(self, account: _Account) -> None:
        """Move the bookings of an account in the current hour to the rows."""
        sums = account.sums
        if sums is None:
            return
        account.sums = None
        if account.owner.kind is CostKind.WORKLOAD:
            for place, field in enumerate((_GPU, _USED, _UNDERUTILIZED)):
                account.current[place] += sums[field]
        if any(sums):
            self._row(account, self._hour, sums)

    def _row(self, account: _Account, hour: Time, amounts: list[float]) -> None:
        """Add amounts to the row of an account and an hour; the caller does not use the list any more."""
        known = self._rows.get((account, hour))
        if known is None:
            self._rows[account, hour] = amounts
        else:
            for field, amount in enumerate(amounts):
                known[field] += amount

    # Changes

    def _touch(self, name: str) -> None:
        """Book a node up to now, before it or its pods change."""
        if not name or name in self._touched:
            return
        self._touched[name] = None
        node = self._nodes.get(name)
        if node is not None:
            self._book(name, node, self._time)

    def _touch_pods(self, keys: Iterable[str]) -> None:
        for key in keys:
            pod: Pod | None = self.state.get(Pod, key)
            if pod is not None:
                self._touch(pod.node)
                self._outdated.add(key)

    def _change(self, old: Any, new: Any) -> None:
        """Touch what depends on an object that was added or changed."""
        match new:
            case Pod():
                self._place(old, new)
            case Node():
                if old is None or _shape(old) != _shape(new):
                    self._touch(new.name)
            case NodeGroup():
                self._set_instances(new.name, new.instances)
            case Workload() if old is None or (old.labels, old.cluster_queue) != (new.labels, new.cluster_queue):
                self._touch_pods(self._dependents.get(new.key, ()))
            case Job() if old is None or old.labels != new.labels:
                self._touch_pods(self._dependents.get(new.key, ()))
            case PodGroup() | KaiPodGroup() if old is None or old.queue != new.queue:
                self._touch_pods(self._dependents.get(new.key, ()))
            case VolcanoQueue() if old is None and new.name == VOLCANO_DEFAULT:
                self._touch_pods(list(self._facts))
            case ResourceClaim():
                self._touch_pods((*new.reserved, *(old.reserved if old is not None else ())))
            case ResourceSlice():
                self._touch_slice(new)
                if old is not None:
                    self._touch_slice(old)
            case ResourceClaimTemplate() if old is None or old != new:
                self._touch_pods([pod.key for pod in self.state.table("pods").all() if pod.template.resource_claims])
            case NodeTelemetry():
                self._touch(new.name)
            case _:
                pass

    def _delete(self, old: Any) -> None:
        """Touch what depends on an object that is deleted; pods outlive their Workload and job under its name."""
        match old:
            case Pod():
                self._place(old, None)
            case Node() | NodeTelemetry():
                self._touch(old.name)
            case NodeGroup():
                self._set_instances(old.name, ())
            case Workload() | Job():
                self._orphans.update(self._dependents.get(old.key, ()))
            case ResourceClaim():
                self._touch_pods(old.reserved)
            case ResourceSlice():
                self._touch_slice(old)
            case _:
                pass

    def _set_instances(self, group: str, instances: Iterable[ProvisionedInstance]) -> None:
        now = {one.name: (group, one) for one in instances}
        known: NodeGroup | None = self.state.get(NodeGroup, group)
        for name in (one.name for one in (known.instances if known is not None else ()) if one.name not in now):
            self._touch(name)
            self._machines.pop(name, None)
        for name, found in now.items():
            if self._machines.get(name) != found:
                self._touch(name)
                self._machines[name] = found

    def _place(self, old: Pod | None, new: Pod | None) -> None:
        """Update the pods of the nodes on which a pod was and is."""
        before, after = _node_of(old), _node_of(new)
        if not before and not after:
            return
        if old is not None and new is not None and before == after and _holding(old) == _holding(new):
            self._pods[after][new.key] = new
            return
        if old is not None and before:
            self._touch(before)
            self._outdated.add(old.key)
            self._pods[before].pop(old.key, None)
            if not self._pods[before]:
                del self._pods[before]
            if before != after:
                self._facts.pop(old.key, None)
                self._outdated.discard(old.key)
                self._orphans.discard(old.key)
            for key in _keys(old):
                pods = self._dependents.get(key)
                if pods is not None:
                    pods.remove(old.key)
                    if not pods:
                        del self._dependents[key]
        if new is not None and after:
            self._touch(after)
            # Each `key` is a new text; the state has it as well.
            pod = sys.intern(new.key)
            self._pods.setdefault(after, {})[pod] = new
            for key in _keys(new):
                self._dependents.setdefault(key, []).append(pod)

    def _touch_slice(self, offered: ResourceSlice) -> None:
        self._devices = None
        for name in dict.fromkeys((offered.node, *(device.node for device in offered.devices))):
            self._touch(name)

    # Shares

    def _evaluate_touched(self) -> None:
        """Compute the shares of the nodes that changed, from now on."""
        touched, self._touched = self._touched, {}
        for name in touched:
            known = self._nodes.get(name)
            if self.state.get(Node, name) is not None or name in self._machines:
                if known is None:
                    known = self._nodes[name] = _Node(self._time)
                self._evaluate(name, known)
            elif known is not None:
                for account, _ in known.lines:
                    account.leave(name)
                del self._nodes[name]
                self._node_facts.pop(name, None)

    def _evaluate(self, name: str, booked: _Node, *, measured: bool = True) -> None:
        """Compute the shares of a node; `measured` is False when its telemetry has become stale."""
        _, _, devices, price, gpus, layout, fields = self._facts_of_node(name)
        pods = self._pods.get(name, {})
        parts = [0.0] * len(pods)
        if layout is not None and pods:
            sharers = Counter(index for pod in pods.values() for index in pod.gpus)
            parts = [
                part_of_node(pod, layout, allocated_gpus(pod, sharers), devices, self._counter) for pod in pods.values()
            ]
        shares, idle = node_shares(parts, has_gpus=gpus > 0)
        booked.measured_until = None
        levels = self._utilization(name, booked, pods) if measured and pods else {}
        for account, _ in booked.lines:
            account.leave(name)
        lines: dict[_Account, dict[int, float]] = {}
        for (key, pod), share in zip(pods.items(), shares, strict=True):
            if share:
                facts, level = self._facts_of_pod(key, pod), levels.get(key)
                category = _SYSTEM
                if facts.kind is CostKind.WORKLOAD:
                    category = _UNDERUTILIZED if level is not None and level.percent < LOW_UTILIZATION else _USED
                amounts = {_GPU: gpus * share * 3600, category: price.hourly * share, _SAVED: price.saved * share}
                if level is not None:
                    amounts[_MEASURED] = gpus * share * 3600
                    amounts[_BUSY] = amounts[_MEASURED] * min(1.0, max(0.0, level.busy / 100))
                self._line(lines, facts, fields, amounts)
        if idle:
            amounts = {_GPU: gpus * idle * 3600, _IDLE: price.hourly * idle, _SAVED: price.saved * idle}
            self._line(lines, _IDLE_FACTS, fields, amounts)
        booked.lines = tuple([(account, self._shared(tuple(amounts.items()))) for account, amounts in lines.items()])
        for account in lines:
            account.enter(name)

    def _line(
        self,
        lines: dict[_Account, dict[int, float]],
        facts: _PodFacts,
        where: _NodeFields,
        amounts: Mapping[int, float],
    ) -> None:
        """Add amounts per hour to those of an account, unless all are 0."""
        there = {field: amount for field, amount in amounts.items() if amount}
        if there:
            account = self._account(facts, where)
            sums = lines.get(account)
            if sums is None:
                lines[account] = there
            else:
                for field, amount in there.items():
                    sums[field] = sums.get(field, 0.0) + amount

    def _shared(self, amounts: _Amounts) -> _Amounts:
        """Return earlier amounts that are equal, so that each exists once."""
        if len(self._amounts) >= MOST_SHARED:
            self._amounts.clear()
        return self._amounts.setdefault(amounts, amounts)

    def _dra_devices(self) -> Mapping[str, int]:
        if self._devices is None:
            self._devices = gpus_claimable(self.state.table("resource_slices").all())
        return self._devices

    def _utilization(self, name: str, booked: _Node, pods: Mapping[str, Pod]) -> Mapping[str, PodUtilization]:
        """Return the measured utilization of pods on a node, and note when its telemetry becomes stale."""
        telemetry: NodeTelemetry | None = self.state.get(NodeTelemetry, name)
        if telemetry is None:
            return {}
        if telemetry.lasts:
            stale = telemetry.time + telemetry.lasts
            if stale <= booked.since:
                return {}
            booked.measured_until = stale
        return pod_utilization(telemetry, pods.values())

    def _account(self, facts: _PodFacts, where: _NodeFields) -> _Account:
        known = self._accounts.get((facts, where))
        if known is None:
            owner = CostOwner(**facts._asdict(), **where._asdict())
            known = self._accounts[facts, where] = _Account(owner)
            if facts.kind is CostKind.WORKLOAD:
                self._by_owner.setdefault(facts.workload, []).append(known)
        return known

    def _facts_of_node(self, name: str) -> _NodeFacts:
        node: Node | None = self.state.get(Node, name)
        machine = self._machines.get(name)
        devices = self._dra_devices().get(name, 0)
        known = self._node_facts.get(name)
        if known is not None and known.node is node and known.machine is machine and known.devices == devices:
            return known
        group, instance = machine if machine is not None else ("", None)
        labels = node.labels if node is not None else NO_LABELS
        gpus = (gpus_of_node(node) or devices) if node is not None else instance.gpus if instance is not None else 0
        kind = gpu_type(labels if node is not None or instance is None else {INSTANCE_TYPE: instance.type})
        fields = _NodeFields(
            (kind or OTHER) if gpus else NO_GPU,
            instance.capacity_type if instance is not None else SPOT if is_spot(labels) else ON_DEMAND,
            group or labels.get(POOL, "") or labels.get(GROUP, ""),
            labels.get(ZONE, "") or (instance.zone if instance is not None else ""),
        )
        price = NO_PRICE
        if instance is not None:
            price = instance_price(instance)
        elif node is not None:
            price = node_price(node, self._prices, devices)
        layout = gpu_layout(node) if node is not None else None
        # Most nodes of a cluster have equal fields.
        fields = self._fields.setdefault(fields, fields)
        found = self._node_facts[name] = _NodeFacts(node, machine, devices, price, gpus, layout, fields)
        return found

    def _facts_of_pod(self, key: str, pod: Pod) -> _PodFacts:
        known = self._facts.get(key)
        if known is not None and key not in self._outdated:
            return known
        workload: Workload | None = self.state.get(Workload, pod.workload) if pod.workload else None
        job: Job | None = self.state.get(Job, pod.job) if pod.job else None
        self._outdated.discard(key)
        if known is not None and key in self._orphans and (workload is None if pod.workload else job is None):
            return known
        places = [one.labels for one in (workload, job, pod, pod.template) if one is not None]
        team, project, user = (
            next((place[key] for place in places if place.get(key)), "")
            for key in (self._labels.team, self._labels.project, self._labels.user)
        )
        if pod.namespace in self._labels.system_namespaces:
            found = _PodFacts(CostKind.SYSTEM, owner_of(pod), pod.namespace)
        else:
            # An evicted workload has no ClusterQueue any more while its last pods terminate.
            queue = self._queue(pod, workload) or (known.queue if known is not None else "")
            found = _PodFacts(
                CostKind.WORKLOAD, owner_of(pod), pod.namespace, team or pod.namespace, project, user, queue
            )
        self._facts[key] = found
        return found

    def _queue(self, pod: Pod, workload: Workload | None) -> str:
        kai_groups, groups, queues = map(self.state.table, ("kai_pod_groups", "pod_groups", "volcano_queues"))
        return queue_among(workload, group_key(pod), own_queue(pod), kai_groups.get, groups.get, queues.get)

    # Lost work

    def _lose(self, event: HistoryEvent) -> None:
        """Move what an eviction lost from used and underutilized to lost: the newest hours first, at most all.

        The lost GPU time counts, at the prices at which it was booked; the event's own cost may differ for MIG.
        """
        owner = event.workload
        if owner not in self._by_owner and event.pod:
            pod: Pod | None = self.state.get(Pod, event.pod)
            owner = owner_of(pod) if pod is not None else event.pod
        # Booking moves nodes to other accounts where telemetry has become stale.
        for name in {name: None for account in self._by_owner.get(owner, ()) for name in account.nodes}:
            self._book(name, self._nodes[name], self._time)
        accounts = self._by_owner.get(owner, [])
        for account in accounts:
            self._collect(account)
        lost = event.lost_gpu_seconds
        hour: Time | None = self._hour
        amounts = [(account, account.current) for account in accounts]
        while hour is not None and lost > 0:
            booked = sum(one[0] for _, one in amounts)
            part = min(1.0, lost / booked) if booked else 0.0
            # Exactly 0 where an hour has enough: a rounding error would make this hour the next one for ever.
            lost = 0.0 if part < 1.0 and booked else lost - booked * part
            for account, one in amounts:
                self._move_to_lost(account, hour, one, part)
                if hour != self._hour and booked and part < 1.0:
                    account.append(_Run(hour, one))
            hour = max((newest for account in accounts if (newest := account.newest()) is not None), default=None)
            if lost > 0 and hour is not None:
                amounts = [(account, account.reopen()) for account in accounts if account.newest() == hour]
        if event.what is HistoryEventKind.EVICTED and not event.pod:
            # What is left was checkpointed.
            for account in accounts:
                account.current = [0.0, 0.0, 0.0]
                account.runs.clear()

    def _move_to_lost(self, account: _Account, hour: Time, booked: list[float], part: float) -> None:
        """Move a part of what an account booked in an hour, and reduce `booked` by it."""
        used, underutilized = booked[1] * part, booked[2] * part
        booked[:] = [one * (1.0 - part) for one in booked]
        if used or underutilized:
            moved = [0.0] * len(COST_AMOUNTS)
            moved[_USED], moved[_UNDERUTILIZED], moved[_LOST] = -used, -underutilized, used + underutilized
            self._row(account, hour, moved)


def _node_of(pod: Pod | None) -> str:
    """Return the node on which a pod holds resources; empty if it holds none."""
    return pod.node if pod is not None and not pod.done else ""


def _shape(node: Node) -> tuple[object, ...]:
    """Return what the price and the shares of a node depend on."""
    return node.allocatable, node.labels, node.annotations


def _holding(pod: Pod) -> tuple[object, ...]:
    """Return what the share and the owner of a placed pod depend on."""
    return pod.gpus, pod.slices, pod.guessed, pod.workload, pod.job, pod.gang, pod.labels, pod.annotations, pod.template


def _keys(pod: Pod) -> Iterator[str]:
    """Yield the keys of the objects that name the owner and the queue of a pod."""
    return (key for key in (pod.workload, pod.job, group_key(pod)) if key)
