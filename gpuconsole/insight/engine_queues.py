"""Quota trees of clusters without Kueue: queues of Volcano and KAI with their deserved amounts, else namespaces.

Accelerators of all kinds are counted. A Volcano queue deserves what its manifest says, else its share by weight as
in the plugin proportion. A KAI queue deserves its quota; a MIG instance counts as many GPUs as it has compute slices,
and a DRA device one (KAI 0.13 `GetGpusQuota`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.device_demand import CLAIMED, quota_unit
from gpuconsole.insight.engine_uses import EngineQueueUse, counted_amounts, uses, volcano_uses
from gpuconsole.insight.gpumap import gpu_rows
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, QuotaUse, sum_up
from gpuconsole.model.device_units import DRA_DEVICE, WHOLE_GPU, DeviceUnit, UnitKind, added, common
from gpuconsole.model.kai import UNLIMITED, KaiQueue
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.resources import GPU, MIG_PREFIX
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.kai.api.resources import mig_profile
from gpuconsole.scheduling.volcano.api.queue import QueueAttributes, QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.plugins.proportion import divide

ROOT = "root"
"""Volcano's own queue above all others."""
DRA_DEVICES = "DRA devices"
"""Resource name shown for DRA devices, which have none."""
SLICES, GPUS_AND_SLICES = "compute slice", "GPU or compute slice"
"""Unit of KAI's quota where a MIG instance counts as more than one."""


class _Offer(Struct, frozen=True):
    """One kind of accelerator of a cluster."""

    counted: str
    """Counted resource, as in `engine_uses`."""
    total: int
    unit: DeviceUnit

    @property
    def resource(self) -> str:
        return DRA_DEVICES if self.counted == CLAIMED else self.counted or GPU

    @property
    def slices(self) -> int:
        """GPUs of KAI's quota that one device counts as; 0 for MIG instances whose name KAI cannot parse."""
        if not self.counted or self.counted == CLAIMED:
            return 1
        profile = mig_profile(self.counted)
        return profile[0] if profile is not None else 0


def _offers(snapshot: Snapshot, used: Iterable[str]) -> list[_Offer]:
    """List the accelerators that nodes offer or queues use or limit, GPUs first; only GPUs if there are none."""
    totals: dict[str, dict[DeviceUnit, int]] = {name: {} for name in used}
    for row in gpu_rows(snapshot):
        for unit, amount in row.units.items():
            name = "" if row.cells and unit == row.unit else _counted(unit)
            totals[name] = added(totals.get(name, {}), {unit: amount})
    return [
        _Offer(name, sum(totals[name].values()), common(totals[name]) or quota_unit(snapshot, name or GPU))
        for name in sorted(totals)
    ] or [_Offer("", 0, WHOLE_GPU)]


def _counted(unit: DeviceUnit) -> str:
    return CLAIMED if unit == DRA_DEVICE else f"{MIG_PREFIX}{unit.profile}" if unit.kind is UnitKind.MIG else ""


def _noun(offers: Iterable[_Offer]) -> str:
    """Return the unit of these accelerators; `device` if there are several."""
    one = common(offer.unit for offer in offers)
    return one.noun if one is not None else "device"


def queues(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    """Return the roots of the trees of Kueue, Volcano and KAI; the namespaces if there are none of these."""
    found = quota_tree(snapshot)
    if len(snapshot.volcano_queues) or len(snapshot.kai_queues) or not found:
        found += _volcano(snapshot) + _kai(snapshot)
        return found or _namespaces(snapshot)
    return found


def _volcano(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    known = {queue.name: queue for queue in snapshot.volcano_queues.all() if queue.name != ROOT}
    if not known:
        return ()
    parents = {name: queue.parent if queue.parent in known else "" for name, queue in known.items()}
    summed = _rolled_up(volcano_uses(snapshot), parents)
    limits = [counted_amounts(part) for queue in known.values() for part in (queue.capability, queue.deserved)]
    offers = _offers(
        snapshot, {name for part in (*(use.resources for use in summed.values()), *limits) for name in part}
    )
    deserved = _deserved(known, parents, summed, offers)

    def use_of(queue: VolcanoQueue, counted: EngineQueueUse, offer: _Offer) -> QuotaUse:
        # Volcano's queues do not limit DRA devices: each may use all.
        nominal = offer.total if offer.counted == CLAIMED else deserved[queue.name].get(offer.counted, 0)
        most = counted_amounts(queue.capability).get(offer.counted) or offer.total
        used = counted.used(offer.counted)
        return QuotaUse(
            resource=offer.resource,
            nominal=nominal,
            used=used,
            admitted=used,
            borrowed=max(0, used - nominal),
            available=max(0, most - used - counted.promised[offer.counted]),
            potential=most,
        )

    def make(name: str, children: tuple[QuotaNode, ...]) -> QuotaNode:
        queue, counted = known[name], summed[name]
        flavors = tuple(use_of(queue, counted, offer) for offer in offers)
        words = [f"weight {queue.weight}", "reclaimable" if queue.reclaimable else "not reclaimable"]
        if guaranteed := sum(counted_amounts(queue.guarantee).values()):
            words.append(f"guarantee {guaranteed}")
        stop = StopPolicy.NONE if queue.state in ("Open", "") else StopPolicy.HOLD
        pending = sum(map(round, counted.pending.values()))
        node = _node(NodeKind.VOLCANO_QUEUE, name, flavors, counted, children, " · ".join(words), stop)
        return replace(node, unit=_noun(offers), pending_gpus=pending)

    return _tree(parents, make)


def _deserved(
    known: Mapping[str, VolcanoQueue],
    parents: Mapping[str, str],
    summed: Mapping[str, EngineQueueUse],
    offers: Sequence[_Offer],
) -> dict[str, dict[str, int]]:
    """Deserved amounts from the manifests, else by weight among the top-level queues (the plugin proportion)."""
    counted = [offer for offer in offers if offer.counted != CLAIMED]
    whole = Resource.of({offer.resource: offer.total for offer in counted})
    indexes = {name: QueueAttributes(QueueInfo(queue)) for name, queue in known.items() if not parents[name]}
    guaranteed = Resource()
    for name in indexes:
        guaranteed.add(Resource.of(_by_resource(counted_amounts(known[name].guarantee))))
    for name, index in indexes.items():
        use = summed[name]
        used = {offer.counted: use.used(offer.counted) for offer in counted}
        wanted = {name: amount + round(use.wanted[name]) for name, amount in used.items()}
        index.allocated, index.request = Resource.of(_by_resource(used)), Resource.of(_by_resource(wanted))
        index.limit(whole, guaranteed, known[name].capability)
    divide(whole, indexes)
    found: dict[str, dict[str, int]] = {}
    for name, queue in known.items():
        said = counted_amounts(queue.deserved)
        parts = (
            {o.counted: round(indexes[name].deserved.get(o.resource) / 1000) for o in counted}
            if name in indexes
            else {}
        )
        found[name] = parts | said
    return found


def _by_resource(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name or GPU: amount for name, amount in amounts.items()}


def _kai(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    known = {queue.name: queue for queue in snapshot.kai_queues.all()}
    if not known:
        return ()
    parents = {name: queue.parent if queue.parent in known else "" for name, queue in known.items()}
    summed = _rolled_up(uses(snapshot), parents)
    offers = [
        offer
        for offer in _offers(snapshot, {name for use in summed.values() for name in use.resources})
        if offer.slices
    ] or [_Offer("", 0, WHOLE_GPU)]
    total = sum(offer.total * offer.slices for offer in offers)
    parted = any(offer.slices > 1 for offer in offers)
    mixed = GPUS_AND_SLICES if any(offer.unit.kind is not UnitKind.MIG for offer in offers) else SLICES

    def make(name: str, children: tuple[QuotaNode, ...]) -> QuotaNode:
        queue, counted = known[name], summed[name]
        quota = total if queue.gpu.quota == UNLIMITED else round(queue.gpu.quota)
        limit = total if queue.gpu.limit == UNLIMITED else round(queue.gpu.limit)
        used = sum(counted.used(offer.counted) * offer.slices for offer in offers)
        whole = _kai_use(GPU, used, quota, limit)
        flavors = tuple(_kai_part(offer, counted.used(offer.counted), whole) for offer in offers)
        words = _kai_words(queue) + (" · a MIG instance counts as its compute slices" if parted else "")
        node = _node(NodeKind.KAI_QUEUE, name, flavors, counted, children, words)
        pending = round(sum(counted.pending.get(offer.counted, 0) * offer.slices for offer in offers))
        unit = mixed if parted else _noun(offers)
        return replace(node, gpus=whole, share_percent=whole.share_percent, unit=unit, pending_gpus=pending)

    return _tree(parents, make)


def _kai_use(resource: str, used: int, quota: int, limit: int) -> QuotaUse:
    return QuotaUse(
        resource=resource,
        nominal=quota,
        used=used,
        admitted=used,
        borrowed=max(0, used - quota),
        available=max(0, limit - used),
        potential=max(limit, quota),
    )


def _kai_part(offer: _Offer, used: int, whole: QuotaUse) -> QuotaUse:
    """Return the use of one kind of device, with the amount that KAI's quota and limit of all kinds together still
    allow.
    """
    others, slices = whole.used - used * offer.slices, offer.slices
    quota, limit = max(0, whole.nominal - others) // slices, max(0, whole.used + whole.available - others) // slices
    return _kai_use(offer.resource, used, quota, limit)


def _kai_words(queue: KaiQueue) -> str:
    words = [f"over-quota weight {queue.gpu.over_quota_weight:g}"]
    if queue.priority != 100:
        words.append(f"priority {queue.priority}")
    return " · ".join(words)


def _namespaces(snapshot: Snapshot) -> tuple[QuotaNode, ...]:
    """Namespaces with pods that request accelerators; their quota is the ResourceQuota, else the whole cluster."""
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
        used = use.used()
        if used or use.pending[""] or name in limits:
            most = limits.get(name, total)
            part = QuotaUse(
                resource=GPU, nominal=most, used=used, admitted=used, available=max(0, most - used), potential=most
            )
            words = "ResourceQuota" if name in limits else "no quota"
            node = _node(NodeKind.NAMESPACE, name, (part,), use, (), words)
            found.append(replace(node, unit=noun, pending_gpus=round(use.pending[""])))
    return tuple(found)


def _rolled_up(own: Mapping[str, EngineQueueUse], parents: Mapping[str, str]) -> dict[str, EngineQueueUse]:
    """Sum the use of each queue and its descendants."""
    summed = {name: EngineQueueUse() for name in parents}
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
    """Return the roots, with children built before their parents; queues in a cycle are in no tree."""
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
    flavors: tuple[QuotaUse, ...],
    counted: EngineQueueUse,
    children: Sequence[QuotaNode],
    policy: str,
    stop: StopPolicy = StopPolicy.NONE,
) -> QuotaNode:
    use = sum_up(flavors, GPU)
    return QuotaNode(
        kind=kind,
        name=name,
        children=tuple(children),
        flavors=flavors,
        gpus=use,
        share_percent=use.share_percent,
        pending=len(counted.waiting),
        running=len(counted.placed - counted.waiting - counted.starting),
        admitted=len(counted.placed),
        reserved=len(counted.placed),
        policy=policy,
        stop=stop,
    )
