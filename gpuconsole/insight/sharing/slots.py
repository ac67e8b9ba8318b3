"""Numbers of gangs that could start now by quota, by nodes and by topology, with the reason why they differ.

A gang is counted as in `fragmentation`: one pod if a node can hold it, else equal pods on as many nodes. By topology it
has to be in one domain of the lowest level above the hosts: of the flavor's own topology, or of one that has all its
nodes. Each number assumes that nothing else is scheduled.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.data_gaps import IdleBound, missing_for_admission
from gpuconsole.insight.index.demand import quota_accelerators, quota_unit
from gpuconsole.insight.index.engine_queues import ENGINES
from gpuconsole.insight.index.engine_queues import queues as all_queues
from gpuconsole.insight.index.fragmentation import (
    SIZES,
    Usefulness,
    idle_at_most,
    slots_of,
    usefulness,
    usefulness_at_most,
)
from gpuconsole.insight.index.gpu_map import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.index.quota_tree import (
    NodeKind,
    QuotaNode,
    QuotaUse,
    leaves_available,
    no_start_reason,
    queues_below,
)
from gpuconsole.insight.tables import counted
from gpuconsole.model.cluster import Node
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, DeviceUnit
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import ResourceFlavor, StopPolicy
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot

Counts = Mapping[int, int]
"""Size of the gang in GPUs → number of gangs."""


class StartableGangs(Struct, frozen=True, kw_only=True):
    """Gangs that one ClusterQueue could start now in one flavor; a queue of Volcano or KAI, on any nodes."""

    queue: str
    local_queues: tuple[str, ...]
    """Its active LocalQueues: each of them can use all of it."""
    flavor: str
    """Empty for any nodes."""
    unit: str = WHOLE_GPU.noun
    """The unit that is counted: `GPU`, `MIG 1g.10gb instance` …"""
    available: int
    """GPUs that its quota allows without preemption; for Volcano and KAI, by its limit and those of its parents."""
    idle: int
    """GPUs of the flavor's nodes that a new pod could get."""
    by_quota: Counts
    by_nodes: Counts
    by_topology: Counts | None
    """None where the nodes are in no topology."""
    level: str
    """Topology level of the domains; empty without a topology."""
    now: Counts
    """The least of the three."""
    text: str
    """Reason why the three numbers differ."""


def slots(snapshot: Snapshot, bound: IdleBound) -> tuple[Usefulness, tuple[StartableGangs, ...]]:
    """Count gangs that fit on idle GPUs, and gangs that each queue could start.

    The latter are empty if objects that admission depends on are not visible.
    """
    useful = usefulness_at_most(snapshot) if bound is IdleBound.AT_MOST else usefulness(snapshot)
    return useful, () if missing_for_admission(snapshot) else starts(snapshot, bound)


def starts(snapshot: Snapshot, bound: IdleBound = IdleBound.EXACT) -> tuple[StartableGangs, ...]:
    """Count the startable gangs of all queues by name (Volcano and KAI: leaf queues), flavors as in the manifest.

    If the number of idle GPUs is only a bound, the counts are bounds, too. They are then of ClusterQueues only, whose
    quota does not depend on nodes and pods, and the text is empty.
    """
    rows = idle_at_most(snapshot) if bound is IdleBound.AT_MOST else {row.node: row for row in gpu_rows(snapshot)}
    counted_here = quota_accelerators(snapshot)
    flavors = {flavor.name: flavor for flavor in snapshot.flavors.all()}
    nodes: dict[tuple[str, str], _Nodes] = {}
    found = []
    for node in queues_below(all_queues(snapshot)):
        if node.kind is NodeKind.CLUSTER_QUEUE:
            shut = no_start_reason(snapshot, node)
            for use in node.flavors:
                if use.resource in counted_here and use.potential > 0 and use.flavor in flavors:
                    key = use.flavor, use.resource
                    if key not in nodes:
                        nodes[key] = _Nodes(snapshot, flavors[use.flavor], rows, use.resource)
                    found.append(_starts(node, use, nodes[key], shut))
        elif node.kind in ENGINES and bound is IdleBound.EXACT:
            for leaf, use in leaves_available(node):
                key = "", use.resource
                if key not in nodes:
                    nodes[key] = _Nodes(snapshot, ResourceFlavor(name=""), rows, use.resource)
                found.append(_starts(leaf, use, nodes[key], leaf.shut))
    if bound is not IdleBound.EXACT:
        found = [replace(one, text="") for one in found]
    return tuple(sorted(found, key=lambda one: one.queue))


class _Nodes:
    """The nodes of one flavor, counted once for all queues."""

    def __init__(self, snapshot: Snapshot, flavor: ResourceFlavor, rows: Mapping[str, GpuRow], resource: str) -> None:
        nodes = [
            node
            for node in snapshot.nodes.all()
            if flavor.node_labels.items() <= node.labels.items() and offers(rows[node.name], node, resource)
        ]
        self.unit = unit_among([rows[node.name] for node in nodes], quota_unit(snapshot, resource))
        self.whole = slots_of(flavor.name, [rows[node.name] for node in nodes], unit=self.unit)
        self.spread = sum(self._idle(rows[node.name]) > 0 for node in nodes)
        shy = {node.name: taints for node in nodes if (taints := _taints(node, flavor))}
        self.tainted = sum(self._idle(rows[name]) for name in shy)
        """Idle GPUs whose taints the flavor does not tolerate: pods need tolerations of their own."""
        self.taints = sorted({taint for taints in shy.values() for taint in taints})
        levels = _levels(snapshot, flavor, nodes)
        self.level = levels[-1] if levels else ""
        groups: dict[tuple[str, ...], list[GpuRow]] = {}
        for node in nodes:
            if levels:
                groups.setdefault(tuple(node.labels[level] for level in levels), []).append(rows[node.name])
        self.domains = [slots_of("/".join(values), group, self.level, self.unit) for values, group in groups.items()]

    def _idle(self, row: GpuRow) -> int:
        return row.by_unit.get(self.unit, {}).get(GpuState.IDLE, 0)

    @property
    def by_topology(self) -> dict[int, int] | None:
        if not self.level:
            return None
        return {size: sum(domain.slots[size] for domain in self.domains) for size in SIZES}


def offers(row: GpuRow, node: Node, resource: str) -> bool:
    """True if the node has units that a quota of this resource counts."""
    if is_gpu(resource):
        return bool(row.cells)
    return any(cell.unit == DRA_DEVICE for cell in row.devices) or bool(node.allocatable.get(resource))


def unit_among(rows: Sequence[GpuRow], usual: DeviceUnit) -> DeviceUnit:
    """Return `usual` if one of these nodes has it or all have none, else the unit that most of them offer as GPUs."""
    counts = Counter(unit for row in rows for unit in row.by_unit if unit == usual or row.unit == unit)
    return usual if not counts or counts[usual] else counts.most_common(1)[0][0]


def _levels(snapshot: Snapshot, flavor: ResourceFlavor, nodes: Sequence[Node]) -> list[str]:
    named = snapshot.topologies.get(flavor.topology) if flavor.topology else None
    for topology in [named] if named is not None else snapshot.topologies.all():
        levels = [level for level in topology.levels if level != HOSTNAME]
        if nodes and all(level in node.labels for node in nodes for level in levels):
            return levels
    return []


def _taints(node: Node, flavor: ResourceFlavor) -> list[str]:
    """Return the taints of a node that pods of this flavor do not tolerate by default.

    Kueue adds the flavor's tolerations to pods and admits only pods that tolerate the flavor's taints; the API server's
    ExtendedResourceToleration adds the toleration of the requested device's name.
    """
    return [
        taint.key
        for taint in node.taints
        if taint.effect != "PreferNoSchedule"
        and not is_gpu(taint.key)
        and taint not in flavor.node_taints
        and not any(toleration.tolerates(taint) for toleration in flavor.tolerations)
    ]


def _open(queue: QuotaNode) -> tuple[str, ...]:
    return tuple(local_queue.name for local_queue in queue.children if local_queue.stop is StopPolicy.NONE)


def _starts(queue: QuotaNode, use: QuotaUse, nodes: _Nodes, closed: str) -> StartableGangs:
    available = 0 if closed else use.available
    by_quota = {size: available // size for size in SIZES}
    by_nodes, by_topology = nodes.whole.slots, nodes.by_topology
    limits = [by_quota, by_nodes, *([by_topology] if by_topology is not None else [])]
    return StartableGangs(
        queue=queue.name,
        local_queues=_open(queue),
        flavor=use.flavor,
        unit=nodes.unit.noun,
        available=available,
        idle=nodes.whole.idle,
        by_quota=by_quota,
        by_nodes=dict(by_nodes),
        by_topology=by_topology,
        level=nodes.level,
        now={size: min(limit[size] for limit in limits) for size in SIZES},
        text=f"blocked: {closed}" if closed else "; ".join(_reasons(queue, use, nodes, by_quota, by_topology)),
    )


def _reasons(queue: QuotaNode, use: QuotaUse, nodes: _Nodes, by_quota: Counts, by_topology: Counts | None) -> list[str]:
    kind, whole, found = queue.kind, nodes.whole, []
    if kind in ENGINES:
        # KAI's quota may count devices of several kinds together.
        has, unit = (use, whole.unit) if queue.unit == whole.unit else (queue.gpus, queue.unit)
        beyond = "; more only while no other queue requests it" if has.used + has.available > has.nominal else ""
        found.append(f"it uses {has.used} of its {counted(has.nominal, f'deserved {unit}')}{beyond}")
        if use.available < whole.idle:
            found.append(f"it may use {use.available} of {whole.idle} idle {whole.unit}s: {_limit(use)}")
    elif use.available < whole.idle:
        own = max(0, min(use.available, use.nominal - use.used))
        lent = use.nominal - use.used - own
        parts = f"{own} without borrowing" + (f", {lent} lent" if lent > 0 else "")
        found.append(f"quota allows {use.available} of {whole.idle} idle {whole.unit}s ({parts}): {_why_no_more(use)}")
    if use.available > whole.idle:
        why = _why_not_idle(nodes)
        gives = (
            f"its limit allows {use.available} more"
            if kind in ENGINES
            else f"quota allows {counted(use.available, whole.unit)}"
        )
        found.append(f"{gives}, but only {whole.idle} are idle on nodes: {why}")
    apart = next((size for size in SIZES if whole.slots[size] < min(by_quota[size], whole.idle // size)), None)
    if apart is not None:
        most = whole.largest_pod
        found.append(f"from size {apart}, idle {whole.unit}s are spread over {nodes.spread} nodes, at most {most} each")
    if by_topology is not None:
        far = next((size for size in SIZES if by_topology[size] < min(by_quota[size], whole.slots[size])), None)
        if far is not None:
            most = max((domain.idle for domain in nodes.domains), default=0)
            found.append(f"from size {far}, no {nodes.level} has enough idle {whole.unit}s: at most {most} in one")
    found = found or ["quota, nodes and topology allow the same"]
    if nodes.tainted:
        taints = ", ".join(nodes.taints)
        idle = counted(nodes.tainted, f"idle {whole.unit}")
        found.append(f"{idle} on nodes with taints that pods must tolerate: {taints}")
    return found


def _limit(use: QuotaUse) -> str:
    """Format the limit of a queue of Volcano or KAI."""
    if use.used + use.available >= use.potential:
        return f"its limit is {use.potential}"
    return "the rest of its limit is reserved for enqueued jobs, or a parent queue has reached its limit"


def _why_no_more(use: QuotaUse) -> str:
    limit = use.borrowing_limit
    if use.used >= use.potential:
        return "all of its quota, borrowing included, is in use"
    if limit is not None and use.used + use.available >= use.nominal + limit:
        return f"its borrowing limit is {limit}"
    if use.potential <= use.nominal:
        return "it cannot borrow"
    return "the quota of other queues is in use or not lent"


def _why_not_idle(nodes: _Nodes) -> str:
    whole = nodes.whole
    if not whole.nodes:
        return "no node matches the flavor's nodeLabels"
    if whole.idle == whole.gpus:
        return "the flavor's nodes have no more"
    return f"{whole.gpus - whole.idle} of {whole.gpus} are allocated, reserved for pods, or on unschedulable nodes"
