"""How many gangs would start now: by a queue's quota, by a flavor's nodes and by its topology, and why these differ.

A gang is counted as in `fragmentation`: one pod where a node can hold it, else equal pods on as many nodes. By topology
it has to be in one domain of the lowest level above the hosts: of the flavor's own topology, or of one that all its
nodes are in. Each number is as if nothing else was placed.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.basis import Bound, undecidable
from gpuconsole.insight.doors import closed
from gpuconsole.insight.engine_queues import queues as all_queues
from gpuconsole.insight.engine_shares import ENGINES
from gpuconsole.insight.fragmentation import SIZES, Usefulness, idle_at_most, slots_of, usefulness, usefulness_at_most
from gpuconsole.insight.gpumap import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.positions import pending
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, QuotaUse, queues_below
from gpuconsole.insight.tables import counted
from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.queues import QueueingStrategy, ResourceFlavor, StopPolicy
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot

Counts = Mapping[int, int]
"""Size of the gang in GPUs → how many of them."""


class Starts(Struct, frozen=True, kw_only=True):
    """What one ClusterQueue could start now in one flavor; a queue of Volcano or KAI, on any nodes."""

    queue: str
    local_queues: tuple[str, ...]
    """Its doors that are open: each of them has all of it."""
    flavor: str
    """Empty for any nodes."""
    available: int
    """GPUs that its quota gives without evicting anybody; of Volcano and KAI, by its limit and those above it."""
    idle: int
    """GPUs of the flavor's nodes that a new pod could get."""
    by_quota: Counts
    by_nodes: Counts
    by_topology: Counts | None
    """None where the nodes are in no topology."""
    level: str
    """The level whose domains are meant; empty without a topology."""
    now: Counts
    """The least of the three."""
    text: str
    """Why they differ."""


def slots(snapshot: Snapshot, bound: Bound) -> tuple[Usefulness, tuple[Starts, ...]]:
    """What fits on idle GPUs, and what starts in each queue; nothing of these where what decides is not all seen."""
    useful = usefulness_at_most(snapshot) if bound is Bound.AT_MOST else usefulness(snapshot)
    return useful, () if undecidable(snapshot) else starts(snapshot, bound)


def starts(snapshot: Snapshot, bound: Bound = Bound.EXACT) -> tuple[Starts, ...]:
    """All queues by name (of Volcano's and KAI's, those that take jobs), flavors as in the manifest; GPUs only.

    Where idle GPUs have a bound only, so has what starts: of ClusterQueues, whose quota does not rest on nodes and
    pods; why the three differ is not known then.
    """
    rows = idle_at_most(snapshot) if bound is Bound.AT_MOST else {row.node: row for row in gpu_rows(snapshot)}
    nodes = {flavor.name: _Nodes(snapshot, flavor, rows) for flavor in snapshot.flavors.all()}
    found = []
    for node in queues_below(all_queues(snapshot)):
        if node.kind is NodeKind.CLUSTER_QUEUE:
            uses = (use for use in node.flavors if is_gpu(use.resource) and use.potential > 0)
            shut = _shut(snapshot, node)
            found += [_starts(node, use, nodes[use.flavor], shut) for use in uses if use.flavor in nodes]
        elif node.kind in ENGINES and bound is Bound.EXACT:
            everywhere = _Nodes(snapshot, ResourceFlavor(name=""), rows)
            found += [_starts(leaf, use, everywhere, leaf.shut) for leaf, use in _leaves(node)]
    if bound is not Bound.EXACT:
        found = [replace(one, text="") for one in found]
    return tuple(sorted(found, key=lambda one: one.queue))


def _leaves(queue: QuotaNode) -> Iterator[tuple[QuotaNode, QuotaUse]]:
    """The queues that take jobs, with no more than those above them may have."""
    waiting = [(queue, queue.gpus.available)]
    while waiting:
        node, most = waiting.pop()
        if not node.children:
            yield node, replace(node.gpus, available=most)
        waiting += [(child, min(most, child.gpus.available)) for child in reversed(node.children)]


class _Nodes:
    """The nodes of one flavor, counted once for all queues."""

    def __init__(self, snapshot: Snapshot, flavor: ResourceFlavor, rows: Mapping[str, GpuRow]) -> None:
        nodes = [
            node for node in snapshot.nodes.all() if node.gpus and flavor.node_labels.items() <= node.labels.items()
        ]
        self.whole = slots_of(flavor.name, [rows[node.name] for node in nodes])
        self.spread = sum(rows[node.name].counts[GpuState.IDLE] > 0 for node in nodes)
        shy = {node.name: taints for node in nodes if (taints := _taints(node, flavor))}
        self.tainted = sum(rows[name].counts[GpuState.IDLE] for name in shy)
        """Idle GPUs that only pods get which tolerate what the flavor does not name."""
        self.taints = sorted({taint for taints in shy.values() for taint in taints})
        levels = _levels(snapshot, flavor, nodes)
        self.level = levels[-1] if levels else ""
        groups: dict[tuple[str, ...], list[GpuRow]] = {}
        for node in nodes:
            if levels:
                groups.setdefault(tuple(node.labels[level] for level in levels), []).append(rows[node.name])
        self.domains = [slots_of("/".join(values), group, self.level) for values, group in groups.items()]

    @property
    def by_topology(self) -> dict[int, int] | None:
        if not self.level:
            return None
        return {size: sum(domain.slots[size] for domain in self.domains) for size in SIZES}


def _levels(snapshot: Snapshot, flavor: ResourceFlavor, nodes: Sequence[Node]) -> list[str]:
    named = snapshot.topologies.get(flavor.topology) if flavor.topology else None
    for topology in [named] if named is not None else snapshot.topologies.all():
        levels = [level for level in topology.levels if level != HOSTNAME]
        if nodes and all(level in node.labels for node in nodes for level in levels):
            return levels
    return []


def _taints(node: Node, flavor: ResourceFlavor) -> list[str]:
    """The taints of a node that neither quota of this flavor nor the GPUs themselves bring tolerations for.

    Kueue gives pods the tolerations of their flavor, and its taints only to those that tolerate them; the API server's
    ExtendedResourceToleration gives who asks for a device that of the device's name.
    """
    return [
        taint.key
        for taint in node.taints
        if taint.effect != "PreferNoSchedule"
        and not is_gpu(taint.key)
        and taint not in flavor.node_taints
        and not any(toleration.tolerates(taint) for toleration in flavor.tolerations)
    ]


def _shut(snapshot: Snapshot, queue: QuotaNode) -> str:
    """Why nothing that comes to a ClusterQueue would start now, whatever its quota."""
    own = snapshot.cluster_queues[queue.name]
    head = pending(snapshot, own.name, limit=1) if own.queueing_strategy is QueueingStrategy.STRICT_FIFO else []
    if stopped := queue.shut or closed(snapshot, own):
        return stopped
    if head:
        first = head[0].workload
        return f"it is StrictFIFO, and {first.owner.partition('/')[2] or first.key} waits at its head"
    return ""


def _open(queue: QuotaNode) -> tuple[str, ...]:
    return tuple(door.name for door in queue.children if door.stop is StopPolicy.NONE)


def _starts(queue: QuotaNode, use: QuotaUse, nodes: _Nodes, closed: str) -> Starts:
    available = 0 if closed else use.available
    by_quota = {size: available // size for size in SIZES}
    by_nodes, by_topology = nodes.whole.slots, nodes.by_topology
    limits = [by_quota, by_nodes, *([by_topology] if by_topology is not None else [])]
    return Starts(
        queue=queue.name,
        local_queues=_open(queue),
        flavor=use.flavor,
        available=available,
        idle=nodes.whole.idle,
        by_quota=by_quota,
        by_nodes=dict(by_nodes),
        by_topology=by_topology,
        level=nodes.level,
        now={size: min(limit[size] for limit in limits) for size in SIZES},
        text=f"by quota nothing: {closed}"
        if closed
        else "; ".join(_reasons(queue.kind, use, nodes, by_quota, by_topology)),
    )


def _reasons(kind: NodeKind, use: QuotaUse, nodes: _Nodes, by_quota: Counts, by_topology: Counts | None) -> list[str]:
    whole, found = nodes.whole, []
    if kind in ENGINES:
        beyond = "; beyond that it gets what no other queue asks for" if use.used + use.available > use.nominal else ""
        found.append(f"it has {use.used} of the {counted(use.nominal, 'GPU')} that it deserves{beyond}")
        if use.available < whole.idle:
            found.append(f"it may have {use.available} of {whole.idle} idle GPUs: {_limit(use)}")
    elif use.available < whole.idle:
        own = max(0, min(use.available, use.nominal - use.used))
        found.append(f"quota gives {use.available} of {whole.idle} idle GPUs ({own} its own){_why_no_more(use)}")
    if use.available > whole.idle:
        why = _why_not_idle(nodes)
        gives = (
            f"by its limit it may have {use.available} more" if kind in ENGINES else f"quota gives {use.available} GPUs"
        )
        found.append(f"{gives}, but only {whole.idle} are idle on nodes: {why}")
    apart = next((size for size in SIZES if whole.slots[size] < min(by_quota[size], whole.idle // size)), None)
    if apart is not None:
        most = whole.largest_pod
        found.append(f"from {apart} on, idle GPUs lie apart: on {nodes.spread} nodes, at most {most} on one")
    if by_topology is not None:
        far = next((size for size in SIZES if by_topology[size] < min(by_quota[size], whole.slots[size])), None)
        if far is not None:
            most = max((domain.idle for domain in nodes.domains), default=0)
            found.append(f"from {far} on, one {nodes.level} has no room for as many: at most {most} are idle in one")
    found = found or ["quota, nodes and topology give the same"]
    if nodes.tainted:
        taints = ", ".join(nodes.taints)
        found.append(
            f"{counted(nodes.tainted, 'idle GPU')} only for pods that tolerate taints of their nodes: {taints}"
        )
    return found


def _limit(use: QuotaUse) -> str:
    """Why a queue of Volcano or KAI may have no more."""
    if use.used + use.available >= use.potential:
        return f"its limit is {use.potential}"
    return "the rest of its limit is promised to jobs that were let in, or those above it may have no more"


def _why_no_more(use: QuotaUse) -> str:
    limit = use.borrowing_limit
    if use.used >= use.potential:
        return ", all that the queue may ever have is in use"
    if limit is not None and use.used + use.available >= use.nominal + limit:
        return f", its borrowing limit is {limit}"
    if use.potential <= use.nominal:
        return ", and there is nobody to borrow from"
    return ", the rest is quota of others that is in use or not lent"


def _why_not_idle(nodes: _Nodes) -> str:
    whole = nodes.whole
    if not whole.nodes:
        return "no node has the labels of this flavor"
    if whole.idle == whole.gpus:
        return "the nodes of this flavor have no more"
    return f"{whole.gpus - whole.idle} of {whole.gpus} are held by pods, kept for them, or on nodes that take none"
