"""What a change of the configuration means: who is woken, and which workloads find or lose their queue.

Objects are only stored when they change; `settle` compiles them when they are next needed, so that loading a whole
cluster compiles it once. Kueue 0.19 pkg/cache/queue/manager.go and the controllers' event handlers.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.devices import ResourceSlice
from gpuconsole.model.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    QueueingStrategy,
    ResourceFlavor,
    Topology,
)
from gpuconsole.model.resources import Resources
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import ledgers
from gpuconsole.scheduling.kueue.dra.catalogue import Catalogue
from gpuconsole.scheduling.kueue.dra.charges import needs_devices
from gpuconsole.scheduling.kueue.pending import PendingQueue
from gpuconsole.scheduling.kueue.readiness import using_check, using_flavor
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.rules import Objects
from gpuconsole.scheduling.kueue.state import State
from gpuconsole.scheduling.kueue.topology.node_changes import node_changes
from gpuconsole.scheduling.kueue.workloads import queue_up, renew, route

TABLES = Objects.__struct_fields__
_DEVICES = ("device_classes", "resource_slices", "resource_claim_templates")


def store(state: State, table: str, key: str, thing: Any) -> None:
    """Take in an object of the configuration; None deletes it. An unchanged object changes nothing."""
    old = getattr(state.objects, table).get(key)
    if old == thing:
        return
    if isinstance(old, Node) and isinstance(thing, Node) and not node_changes(old, thing):
        getattr(state.own_objects(), table)[key] = thing
        return
    if table == "local_queues":
        if state.charging:
            ledgers.introduce(state, key, thing)
        if _only_sampled(old, thing):
            state.own_objects().local_queues[key] = thing
            return
    _wake_affected(state, old)
    _note_quotas(state, old, thing)
    objects = getattr(state.own_objects(), table)
    if table == "nodes":
        state.nodes_stale = True
    elif table in _DEVICES:
        state.devices_stale = True
    else:
        state.stale = True
    if thing is None:
        objects.pop(key, None)
    else:
        objects[key] = thing
    _wake_affected(state, thing)
    _note_quotas(state, thing, old)


def _only_sampled(old: LocalQueue | None, new: LocalQueue | None) -> bool:
    """True if a LocalQueue changed in nothing but what its status says it consumed."""
    if old is None or new is None:
        return False
    return replace(old, consumed=new.consumed, sampled=new.sampled, usage=new.usage) == new


def settle(state: State) -> None:
    """Compile what changed, give new queues their workloads, take them from those that are gone."""
    stocked = state.setup.devices if state.devices_stale else None
    if not state.stale:
        if state.nodes_stale:
            state.relocate()
        if stocked is not None:
            state.restock()
            _charge_anew(state, stocked)
        return
    before = {name: _kind(state, rules.queue) for name, rules in state.setup.queues.items()}
    doors, limits, overheads = state.setup.doors, state.setup.limits, state.setup.overheads
    state.compile()
    for name, rules in state.setup.queues.items():
        if before.get(name) != _kind(state, rules.queue):
            _open_queue(state, rules.queue)
    relimited = [n for n in limits.keys() | state.setup.limits.keys() if limits.get(n) != state.setup.limits_of(n)]
    if relimited or doors != state.setup.doors:
        _route_all(state, relimited)
    if overheads != state.setup.overheads:
        _weigh_anew(state, overheads)
    if stocked is not None:
        _charge_anew(state, stocked)
    for name in before.keys() - state.setup.queues.keys():
        state.roster.drop_queue(name)
    requoted = dict.fromkeys(member for name in state.requoted for member in state.tree_of(name))
    state.requoted.clear()
    for name in requoted:
        state.bump(name)


def _kind(state: State, queue: ClusterQueue) -> tuple[QueueingStrategy, bool]:
    """What a pending queue is made for."""
    return queue.queueing_strategy, state.config.takes_turns(queue)


def _open_queue(state: State, rules: ClusterQueue) -> None:
    """Make a queue, or make it anew because its kind changed."""
    old = state.roster.look_at(rules.name)
    strategy, taking_turns = _kind(state, rules)
    queue = PendingQueue(
        strict=strategy == QueueingStrategy.STRICT_FIFO,
        hashing=state.config.enabled("SchedulingEquivalenceHashing"),
        taking_turns=taking_turns,
    )
    for request, parked in old.listing() if old is not None else ():
        (queue.park if parked else queue.push)(request)
    state.roster.add_queue(rules.name, queue)


def _route_all(state: State, relimited: Collection[str]) -> None:
    """Move workloads whose LocalQueue leads elsewhere now; `relimited` are namespaces with other LimitRanges."""
    for number, record in enumerate(state.roster.records):
        match record:
            case Request():
                target = route(state, record.workload)
                if target == record.cluster_queue:
                    if record.workload.namespace in relimited:
                        renew(state, record)
                    continue
                state.roster.queue(record.cluster_queue).remove(number)
                workload = record.workload
            case Workload():
                target, workload = route(state, record), record
            case _:
                continue
        queue_up(state, number, workload, target)


def _weigh_anew(state: State, before: Mapping[str, Resources]) -> None:
    """Pods of some RuntimeClasses cost more or less than before; workloads that wait ask for that now."""
    now = state.setup.overheads
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    for record in list(state.roster.records):
        if isinstance(record, Request) and any(p.template.runtime_class in changed for p in record.workload.pod_sets):
            renew(state, record)


def _charge_anew(state: State, stocked: Catalogue) -> None:
    """What claims can ask for changed; it was `stocked`. Workloads that hold quota keep what they were charged."""
    for number, record in enumerate(state.roster.records):
        if not isinstance(record, Request | Workload):
            continue
        workload = record.workload if isinstance(record, Request) else record
        if not any(needs_devices(workload, stock, state.config) for stock in (stocked, state.setup.devices)):
            continue
        if isinstance(record, Request):
            renew(state, record)
        else:
            queue_up(state, number, workload, route(state, workload))


def _wake_affected(state: State, thing: Any) -> None:
    """Mark the queues whose trees are woken by a change of this object, as it was or as it is."""
    queues = state.objects.cluster_queues
    match thing:
        case ClusterQueue():
            mates = [q.name for q in queues.values() if thing.cohort and q.cohort == thing.cohort]
            affected = [thing.name, *mates]
        case Cohort():
            affected = _below(state, thing.name)
        case ResourceFlavor():
            affected = using_flavor(queues.values(), thing.name)
        case Node() | Topology():
            flavors = state.objects.flavors
            placed = {flavor.name for flavor in flavors.values() if flavor.topology}
            affected = [q.name for q in queues.values() if any(f in placed for f, _ in q.quotas())]
        case AdmissionCheck():
            affected = using_check(queues.values(), thing.name)
        case ResourceSlice():
            affected = list(queues) if thing.driver in state.setup.devices.map.drivers else []
        case Namespace():
            affected = [
                q.name
                for q in queues.values()
                if q.namespace_selector is not None and q.namespace_selector.matches(thing.labels)
            ]
        case _:
            affected = []
    state.due.update(dict.fromkeys(affected))


def _note_quotas(state: State, thing: Any, other: Any) -> None:
    """Mark the queues in whose trees quotas change with this object; `other` is what it was, or will be."""
    match thing:
        case ClusterQueue():
            same = isinstance(other, ClusterQueue) and other.resource_groups == thing.resource_groups
            if not (same and other.cohort == thing.cohort):
                mates = state.objects.cluster_queues.values()
                state.requoted.update({q.name: None for q in mates if thing.cohort and q.cohort == thing.cohort})
                state.requoted[thing.name] = None
        case Cohort():
            state.requoted.update(dict.fromkeys(_below(state, thing.name)))


def _below(state: State, cohort: str) -> list[str]:
    """ClusterQueues in or below a cohort; names that lead in a circle are followed once."""
    children: dict[str, list[str]] = {}
    for one in state.objects.cohorts.values():
        children.setdefault(one.parent, []).append(one.name)
    names, left = set(), [cohort]
    while left:
        name = left.pop()
        if name not in names:
            names.add(name)
            left += children.get(name, ())
    return [queue.name for queue in state.objects.cluster_queues.values() if queue.cohort in names]
