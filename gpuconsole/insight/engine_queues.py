"""The queues of clusters that Kueue does not rule: Volcano's and KAI's with what they deserve, else the namespaces.

GPUs alone are counted. What a queue of Volcano deserves is what its manifest says, else its part by weight, divided as
the plugin proportion does; of KAI it is the quota.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil

from msgspec import Struct, field

from gpuconsole.insight.demand import pod_gpus
from gpuconsole.insight.holdings import Holding, holdings, queue_of
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, QuotaUse
from gpuconsole.model.kai import UNLIMITED, KaiQueue
from gpuconsole.model.quantity import GPU
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.resources import EMPTY, gpus
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.jobs.group import group_name
from gpuconsole.scheduling.volcano.plugins.proportion import divide
from gpuconsole.scheduling.volcano.plugins.queue_books import QueueBook

ROOT = "root"
"""Volcano's own queue above all others."""


class Use(Struct):
    """What one queue has. Filled while it is counted."""

    held: float = 0.0
    """GPUs, those that are shared in parts."""
    wanted: float = 0.0
    """GPUs of pods without a node."""
    held_back: int = 0
    """GPUs of jobs that have no pods, since Volcano has not let their PodGroups in."""
    running: set[str] = field(default_factory=set)
    """Owners of pods that have their nodes."""
    waiting: set[str] = field(default_factory=set)
    """Owners some of whose pods have no node, or are not made yet."""

    @property
    def used(self) -> int:
        """GPUs; one of which it has a part only counts with its other parts, rounded up."""
        return ceil(self.held - 1e-9)

    def add(self, other: "Use") -> None:
        self.held += other.held
        self.wanted += other.wanted
        self.held_back += other.held_back
        self.running |= other.running
        self.waiting |= other.waiting


def queues(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    """The roots of all queues: Kueue's tree, Volcano's and KAI's; the namespaces where there is none of these."""
    found = quota_tree(snapshot)
    if len(snapshot.volcano_queues) or len(snapshot.kai_queues) or not found:
        total = sum(node.gpus for node in snapshot.nodes.all())
        found += _volcano(snapshot, total) + _kai(snapshot, total)
        return found or _namespaces(snapshot, total)
    return found


def uses(snapshot: Snapshot, by_namespace: bool = False) -> dict[str, Use]:
    """What each queue (or namespace) uses and waits for."""
    found: dict[str, Use] = {}
    for node, held in holdings(snapshot).items():
        for one in held:
            use = found.setdefault(_name(snapshot, one, by_namespace), Use())
            if node:
                use.held += one.gpus
                use.running.add(one.owner)
            else:
                use.wanted += one.gpus
                use.waiting.add(one.owner)
    return found


def _name(snapshot: Snapshot, one: Holding, by_namespace: bool) -> str:
    return one.namespace if by_namespace else queue_of(snapshot, one)


def _volcano(snapshot: Snapshot, total: int) -> tuple[QuotaNode, ...]:
    known = {queue.name: queue for queue in snapshot.volcano_queues.all() if queue.name != ROOT}
    if not known:
        return ()
    parents = {name: queue.parent if queue.parent in known else "" for name, queue in known.items()}
    own = uses(snapshot)
    _hold_back(snapshot, own)
    summed = _rolled_up(own, parents)
    deserved = _deserved(known, parents, summed, total)

    def make(name: str, children: tuple[QuotaNode, ...]) -> QuotaNode:
        queue = known[name]
        use = QuotaUse(
            resource=GPU,
            nominal=deserved[name],
            used=summed[name].used,
            admitted=summed[name].used,
            borrowed=max(0, summed[name].used - deserved[name]),
            available=max(0, (gpus(queue.capability) or total) - summed[name].used),
            potential=gpus(queue.capability) or total,
        )
        words = [f"weight {queue.weight}", "reclaimable" if queue.reclaimable else "not reclaimable"]
        if gpus(queue.guarantee):
            words.append(f"guarantee {gpus(queue.guarantee)}")
        stop = StopPolicy.NONE if queue.state in ("Open", "") else StopPolicy.HOLD
        return _node(NodeKind.VOLCANO_QUEUE, name, use, summed[name], children, " · ".join(words), stop)

    return _tree(parents, make)


def _hold_back(snapshot: Snapshot, own: dict[str, Use]) -> None:
    """Count in what waits to be let in (enqueued): it asks for nothing yet, so that no queue deserves more for it."""
    outside = {group.key: group for group in snapshot.pod_groups.all() if group.phase in ("", "Pending")}
    if outside:
        for held in holdings(snapshot).values():
            for one in held:
                outside.pop(one.group, None)
    jobs = {f"{job.namespace}/{group_name(job)}": job for job in snapshot.jobs.all() if job.volcano} if outside else {}
    for key, group in outside.items():
        job = jobs.get(key)
        use = own.setdefault(group.queue or VOLCANO_DEFAULT, Use())
        if job is not None:
            use.held_back += sum(pod_gpus(part.template) * part.count for part in job.pod_sets)
        else:
            use.held_back += gpus(group.min_resources or EMPTY)
        use.waiting.add(job.key if job is not None else key)


def _deserved(
    known: Mapping[str, VolcanoQueue], parents: Mapping[str, str], summed: Mapping[str, Use], total: int
) -> dict[str, int]:
    """What the manifests say, else the division by weight among those at the top (the plugin proportion)."""
    whole = Resource.of({GPU: total})
    books = {name: QueueBook(QueueInfo(queue)) for name, queue in known.items() if not parents[name]}
    guaranteed = Resource.of({GPU: sum(gpus(known[name].guarantee) for name in books)})
    for name, book in books.items():
        use = summed[name]
        book.allocated, book.request = Resource.of({GPU: use.used}), Resource.of({GPU: use.used + round(use.wanted)})
        book.limit(whole, guaranteed, known[name].capability)
    divide(whole, books)
    return {
        name: gpus(queue.deserved) or (round(books[name].deserved.get(GPU) / 1000) if name in books else 0)
        for name, queue in known.items()
    }


def _kai(snapshot: Snapshot, total: int) -> tuple[QuotaNode, ...]:
    known = {queue.name: queue for queue in snapshot.kai_queues.all()}
    if not known:
        return ()
    parents = {name: queue.parent if queue.parent in known else "" for name, queue in known.items()}
    summed = _rolled_up(uses(snapshot), parents)

    def make(name: str, children: tuple[QuotaNode, ...]) -> QuotaNode:
        queue = known[name]
        quota = total if queue.gpu.quota == UNLIMITED else round(queue.gpu.quota)
        limit = total if queue.gpu.limit == UNLIMITED else round(queue.gpu.limit)
        use = QuotaUse(
            resource=GPU,
            nominal=quota,
            used=summed[name].used,
            admitted=summed[name].used,
            borrowed=max(0, summed[name].used - quota),
            available=max(0, limit - summed[name].used),
            potential=max(limit, quota),
        )
        return _node(NodeKind.KAI_QUEUE, name, use, summed[name], children, _kai_words(queue))

    return _tree(parents, make)


def _kai_words(queue: KaiQueue) -> str:
    words = [f"over-quota weight {queue.gpu.over_quota_weight:g}"]
    if queue.priority != 100:
        words.append(f"priority {queue.priority}")
    return " · ".join(words)


def _namespaces(snapshot: Snapshot, total: int) -> tuple[QuotaNode, ...]:
    """Every namespace with pods that ask for GPUs; its quota is that of its ResourceQuotas, else all there is."""
    limits: dict[str, int] = {}
    for quota in snapshot.resource_quotas.all():
        for name in (f"requests.{GPU}", f"limits.{GPU}", GPU):
            if name in quota.hard:
                limits[quota.namespace] = min(limits.get(quota.namespace, quota.hard[name]), quota.hard[name])
    found = []
    for name, use in sorted(uses(snapshot, by_namespace=True).items()):
        if use.used or use.wanted or name in limits:
            most = limits.get(name, total)
            left = max(0, most - use.used)
            part = QuotaUse(
                resource=GPU, nominal=most, used=use.used, admitted=use.used, available=left, potential=most
            )
            words = "ResourceQuota" if name in limits else "no quota"
            found.append(_node(NodeKind.NAMESPACE, name, part, use, (), words))
    return tuple(found)


def _rolled_up(own: Mapping[str, Use], parents: Mapping[str, str]) -> dict[str, Use]:
    """What each queue and those below it have together."""
    summed = {name: Use() for name in parents}
    for name, use in own.items():
        for above in _way_up(name, parents):
            summed[above].add(use)
    return summed


def _way_up(name: str, parents: Mapping[str, str]) -> Iterable[str]:
    seen: set[str] = set()
    while name in parents and name not in seen:
        seen.add(name)
        yield name
        name = parents[name]


def _tree(parents: Mapping[str, str], make: Callable[[str, tuple[QuotaNode, ...]], QuotaNode]) -> tuple[QuotaNode, ...]:
    """The roots, children made before their parents; queues that are their own ancestors are in no tree."""
    below: dict[str, list[str]] = {}
    for name, parent in sorted(parents.items()):
        below.setdefault(parent, []).append(name)
    order: list[str] = list(below.get("", ()))
    for name in order:
        order += below.get(name, ())
    made: dict[str, QuotaNode] = {}
    for name in reversed(order):
        made[name] = make(name, tuple(made[child] for child in below.get(name, ())))
    return tuple(made[name] for name in below.get("", ()))


def _node(
    kind: NodeKind,
    name: str,
    use: QuotaUse,
    counted: Use,
    children: Sequence[QuotaNode],
    policy: str,
    stop: StopPolicy = StopPolicy.NONE,
) -> QuotaNode:
    return QuotaNode(
        kind=kind,
        name=name,
        children=tuple(children),
        flavors=(use,),
        gpus=use,
        share_percent=use.share_percent,
        pending=len(counted.waiting),
        running=len(counted.running - counted.waiting),
        reserved=len(counted.running),
        pending_gpus=round(counted.wanted) + counted.held_back,
        policy=policy,
        stop=stop,
    )
