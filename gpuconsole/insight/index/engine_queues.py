"""Queues of Volcano and KAI with their usage and shares, as a quota tree; namespaces in a cluster without queues.

Accelerators of all kinds are counted, pod by pod. Amounts are by counted resource: ``""`` for GPUs (and replicas of
them), the resource of MIG instances, CLAIMED for DRA devices. A Volcano queue deserves what its manifest says, else its
share by weight as in the plugin proportion. A KAI queue deserves its quota; a MIG instance counts as many GPUs as it
has compute slices, and a DRA device one (KAI 0.13 `GetGpusQuota`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.index.demand import CLAIMED, counted_as, quota_unit, template_units
from gpuconsole.insight.index.gpu_map import gpu_rows
from gpuconsole.insight.index.gpu_time import GpuAllocation, gpu_allocations, queue_of, starts
from gpuconsole.insight.index.pods import all_refused_pods
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, QuotaUse, every, quota_tree, sum_up
from gpuconsole.model.devices import DRA_DEVICE, WHOLE_GPU, DeviceUnit, UnitKind, added, common, is_counted
from gpuconsole.model.kai import UNLIMITED, KaiQueue
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.resources import EMPTY, GPU, MIG_PREFIX, Resources
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.scheduling.kai.api.tasks import mig_profile
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT
from gpuconsole.scheduling.volcano.api.queue import QueueAttributes, QueueInfo, divide_among_queues
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.jobs.pod_group import group_name

Amounts = Mapping[str, float]
"""Counted resource → how much."""


class EngineQueueUse(Struct):
    """What the pods of one queue use and request, in accelerators. Mutable: filled while pods are counted."""

    held: Counter[str] = field(default_factory=Counter)
    """Accelerators of pods with a node; shared GPUs count as fractions."""
    wanted: Counter[str] = field(default_factory=Counter)
    """Requests of pods without a node."""
    held_back: Counter[str] = field(default_factory=Counter)
    """Requests of jobs without pods: Volcano has not enqueued their PodGroups, or a ResourceQuota refuses them."""
    promised: Counter[str] = field(default_factory=Counter)
    """Requests that Volcano has enqueued and that have no nodes yet: they count as used when it enqueues others."""
    placed: set[str] = field(default_factory=set)
    """Owners of scheduled pods."""
    starting: set[str] = field(default_factory=set)
    """Owners of scheduled pods that are not running yet."""
    waiting: set[str] = field(default_factory=set)
    """Owners of pods that have no node or do not exist yet."""

    def used(self, resource: str = "") -> int:
        """Used devices; fractions of shared GPUs are added up, then rounded up."""
        return _whole(self.held[resource])

    @property
    def pending(self) -> Amounts:
        """Requests that are not scheduled, including those of pods that do not exist yet."""
        found: Counter[str] = Counter()
        for amounts in (self.wanted, self.held_back):
            found.update(amounts)
        return found

    @property
    def resources(self) -> set[str]:
        """Resources that it uses or requests."""
        return {name for amounts in (self.held, self.pending) for name, amount in amounts.items() if amount}

    def add(self, other: "EngineQueueUse") -> None:
        """Add the use of another queue."""
        self.held.update(other.held)
        self.wanted.update(other.wanted)
        self.held_back.update(other.held_back)
        self.promised.update(other.promised)
        self.placed |= other.placed
        self.starting |= other.starting
        self.waiting |= other.waiting


def _whole(amount: float) -> int:
    return ceil(amount - 1e-9)


def counted_amounts(resources: Resources) -> dict[str, int]:
    """Return the number of accelerators by resource name, without other resources such as cpu.

    All GPU resources are added up under the name "" (see `counted_as`); each MIG resource keeps its own name.
    """
    found: dict[str, int] = {}
    for name, amount in resources.items():
        if amount and is_counted(name):
            found[counted_as(name)] = found.get(counted_as(name), 0) + amount
    return found


def _amounts(one: GpuAllocation) -> Amounts:
    return {"": one.gpus, **one.parts} if one.parts else {"": one.gpus}


def uses(snapshot: Snapshot, by_namespace: bool = False) -> dict[str, EngineQueueUse]:
    """Return what each queue, or each namespace, uses and requests; by counted resource, or as one number."""
    found: dict[str, EngineQueueUse] = {}
    for node, held in gpu_allocations(snapshot).items():
        for one in held:
            use = found.setdefault(_name(snapshot, one, by_namespace), EngineQueueUse())
            amounts = {"": one.devices} if by_namespace else _amounts(one)
            if node:
                use.held.update(amounts)
                use.placed.add(one.owner)
                if starts(snapshot, one):
                    use.starting.add(one.owner)
            else:
                use.wanted.update(amounts)
                use.waiting.add(one.owner)
    if by_namespace:
        for owner, refused in all_refused_pods(snapshot).items():
            namespace = refused.refusal.quota.namespace
            use = found.setdefault(namespace, EngineQueueUse())
            asked = (template_units(snapshot, namespace, template) for template in refused.templates)
            use.held_back[""] += sum(sum(units.values()) for units in asked)
            use.waiting.add(owner)
    return found


def _name(snapshot: Snapshot, one: GpuAllocation, by_namespace: bool) -> str:
    return one.namespace if by_namespace else queue_of(snapshot, one)


def volcano_uses(snapshot: Snapshot) -> dict[str, EngineQueueUse]:
    """Return `uses` of Volcano's queues, completed by `held_back` and `promised`."""
    found = uses(snapshot)
    _hold_back(snapshot, found)
    _promise(snapshot, found)
    return found


def _hold_back(snapshot: Snapshot, own: dict[str, EngineQueueUse]) -> None:
    """Count requests that are not enqueued: they do not raise the deserved amount of a queue."""
    outside = {group.key: group for group in snapshot.pod_groups.all() if group.phase in ("", "Pending")}
    if outside:
        for held in gpu_allocations(snapshot).values():
            for one in held:
                outside.pop(one.group, None)
    jobs = {f"{job.namespace}/{group_name(job)}": job for job in snapshot.jobs.all() if job.volcano} if outside else {}
    for key, group in outside.items():
        job = jobs.get(key)
        use = own.setdefault(group.queue or VOLCANO_DEFAULT, EngineQueueUse())
        if job is not None:
            for part in job.pod_sets:
                asked = counted_amounts(part.template.requests)
                claims = template_units(snapshot, job.namespace, part.template).get(DRA_DEVICE, 0)
                asked |= {CLAIMED: claims} if claims else {}
                use.held_back.update({name: amount * part.count for name, amount in asked.items()})
        else:
            use.held_back.update(counted_amounts(group.min_resources or EMPTY))
        use.waiting.add(job.key if job is not None else key)


def _promise(snapshot: Snapshot, own: dict[str, EngineQueueUse]) -> None:
    for group, _, promised in let_in(snapshot):
        own.setdefault(group.queue or VOLCANO_DEFAULT, EngineQueueUse()).promised.update(promised)


def let_in(snapshot: Snapshot) -> Iterator[tuple[PodGroup, Mapping[str, int], Mapping[str, int]]]:
    """Yield enqueued PodGroups, what their pods use, and what their minResources reserve beyond that."""
    groups = {group.key: group for group in snapshot.pod_groups.all() if group.phase in ("Inqueue", "Running")}
    held: dict[str, Counter[str]] = {}
    for node, pods in gpu_allocations(snapshot).items() if groups else ():
        for one in pods:
            if node and one.group in groups:
                held.setdefault(one.group, Counter()).update(_amounts(one))
    for key, group in groups.items():
        holds = {name: _whole(amount) for name, amount in held.get(key, Counter[str]()).items() if amount}
        named = counted_amounts(group.min_resources or EMPTY)
        yield group, holds, {name: more for name, n in named.items() if (more := n - holds.get(name, 0)) > 0}


ROOT = "root"
"""Volcano's own queue above all others."""
DRA_DEVICES = "DRA devices"
"""Resource name shown for DRA devices, which have none."""
SLICES, GPUS_AND_SLICES = "compute slice", "GPU or compute slice"
"""Units in which KAI's quota counts MIG instances; the second where there are whole GPUs, too."""


class _Offer(Struct, frozen=True):
    """One kind of accelerator of a cluster."""

    counted: str
    """Counted resource; see the module."""
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
    whole = Resource.from_amounts({offer.resource: offer.total for offer in counted})
    indexes = {name: QueueAttributes(QueueInfo(queue)) for name, queue in known.items() if not parents[name]}
    guaranteed = Resource()
    for name in indexes:
        guaranteed.add(Resource.from_amounts(_by_resource(counted_amounts(known[name].guarantee))))
    for name, index in indexes.items():
        use = summed[name]
        used = {offer.counted: use.used(offer.counted) for offer in counted}
        wanted = {name: amount + round(use.wanted[name]) for name, amount in used.items()}
        index.allocated, index.request = (
            Resource.from_amounts(_by_resource(used)),
            Resource.from_amounts(_by_resource(wanted)),
        )
        index.set_limit(whole, guaranteed, known[name].capability)
    divide_among_queues(whole, indexes)
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


ENGINES = {NodeKind.VOLCANO_QUEUE: "Volcano", NodeKind.KAI_QUEUE: "KAI"}
RULES = {
    "Volcano": "the queue with the lowest share of its deserved amount; queues at that amount get no more",
    "KAI": "the queue with the lowest share of its quota; beyond quota, by over-quota weight",
}


class QueueShare(Struct, frozen=True, kw_only=True):
    """Share of one queue and all queues below it."""

    engine: str
    name: str
    depth: int
    unit: str = WHOLE_GPU.noun
    """Unit of the amounts: `GPU`, `MIG 1g.10gb instance`; `device` if there are several units."""
    deserved: int
    """Set by its manifest, or by its weight."""
    used: int
    waiting: int
    """Requests of unscheduled pods, and of pods that do not exist yet."""
    share: float | None
    """used / deserved (Volcano: of the dominant unit); None if nothing is deserved."""
    words: str
    """Weight and other rules of the queue, as text."""
    turn: int | None
    """Rank among the leaf queues with pending pods: 1 is served next. None = nothing pending."""


def engine_shares(snapshot: Snapshot) -> tuple[QueueShare, ...]:
    """All queues of Volcano and KAI, depth first from each root; empty if there are none."""
    nodes = list(every(root for root in queues(snapshot) if root.kind in ENGINES))
    turns: dict[tuple[NodeKind, str], int] = {}
    for kind in ENGINES:
        waiting = [node for node, _ in nodes if node.kind is kind and not node.children and node.pending_gpus]
        for place, node in enumerate(sorted(waiting, key=lambda node: (*_rank(node), node.name)), start=1):
            turns[kind, node.name] = place
    return tuple(_queue(node, depth, turns.get((node.kind, node.name))) for node, depth in nodes)


def _rank(node: QuotaNode) -> tuple[bool, float]:
    part = _part(node)
    return part is None, part or 0.0


def _part(node: QuotaNode) -> float | None:
    uses = node.flavors if node.kind is NodeKind.VOLCANO_QUEUE else (node.gpus,)
    return max((use.used / use.nominal for use in uses if use.nominal), default=None)


def _queue(node: QuotaNode, depth: int, turn: int | None) -> QueueShare:
    return QueueShare(
        engine=ENGINES[node.kind],
        name=node.name,
        depth=depth,
        unit=node.unit,
        deserved=node.gpus.nominal,
        used=node.gpus.used,
        waiting=node.pending_gpus,
        share=_part(node),
        words=node.policy,
        turn=turn,
    )
