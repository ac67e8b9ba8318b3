"""The queues of clusters that Kueue does not rule: Volcano's and KAI's with what they deserve, else the namespaces.

GPUs alone are counted. What a queue of Volcano deserves is what its manifest says, else its part by weight, divided as
the plugin proportion does; of KAI it is the quota.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuconsole.insight.engine_uses import Use, uses, volcano_uses
from gpuconsole.insight.gpumap import gpu_rows
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, QuotaUse
from gpuconsole.model.device_units import WHOLE_GPU, added, common
from gpuconsole.model.kai import UNLIMITED, KaiQueue
from gpuconsole.model.quantity import GPU
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.resources import gpus
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.plugins.proportion import divide
from gpuconsole.scheduling.volcano.plugins.queue_books import QueueBook

ROOT = "root"
"""Volcano's own queue above all others."""


def queues(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    """The roots of all queues: Kueue's tree, Volcano's and KAI's; the namespaces where there is none of these."""
    found = quota_tree(snapshot)
    if len(snapshot.volcano_queues) or len(snapshot.kai_queues) or not found:
        total = sum(node.gpus for node in snapshot.nodes.all())
        found += _volcano(snapshot, total) + _kai(snapshot, total)
        return found or _namespaces(snapshot)
    return found


def _volcano(snapshot: Snapshot, total: int) -> tuple[QuotaNode, ...]:
    known = {queue.name: queue for queue in snapshot.volcano_queues.all() if queue.name != ROOT}
    if not known:
        return ()
    parents = {name: queue.parent if queue.parent in known else "" for name, queue in known.items()}
    summed = _rolled_up(volcano_uses(snapshot), parents)
    deserved = _deserved(known, parents, summed, total)

    def make(name: str, children: tuple[QuotaNode, ...]) -> QuotaNode:
        queue = known[name]
        use = QuotaUse(
            resource=GPU,
            nominal=deserved[name],
            used=summed[name].used,
            admitted=summed[name].used,
            borrowed=max(0, summed[name].used - deserved[name]),
            available=max(0, (gpus(queue.capability) or total) - summed[name].used - summed[name].promised),
            potential=gpus(queue.capability) or total,
        )
        words = [f"weight {queue.weight}", "reclaimable" if queue.reclaimable else "not reclaimable"]
        if gpus(queue.guarantee):
            words.append(f"guarantee {gpus(queue.guarantee)}")
        stop = StopPolicy.NONE if queue.state in ("Open", "") else StopPolicy.HOLD
        return _node(NodeKind.VOLCANO_QUEUE, name, use, summed[name], children, " · ".join(words), stop)

    return _tree(parents, make)


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


def _namespaces(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    """Every namespace with pods that ask for accelerators, with its ResourceQuotas as quota, else all there are."""
    units = added(*(row.units for row in gpu_rows(snapshot)))
    total, unit = sum(units.values()), common(units)
    noun = unit.noun if unit is not None else "device" if units else WHOLE_GPU.noun
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
            found.append(_node(NodeKind.NAMESPACE, name, part, use, (), words, unit=noun))
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
    unit: str = WHOLE_GPU.noun,
) -> QuotaNode:
    return QuotaNode(
        kind=kind,
        name=name,
        children=tuple(children),
        flavors=(use,),
        gpus=use,
        unit=unit,
        share_percent=use.share_percent,
        pending=len(counted.waiting),
        running=len(counted.placed - counted.waiting - counted.starting),
        admitted=len(counted.placed),
        reserved=len(counted.placed),
        pending_gpus=round(counted.wanted) + counted.held_back,
        policy=policy,
        stop=stop,
    )
