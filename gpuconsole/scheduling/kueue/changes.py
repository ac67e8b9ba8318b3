"""What a change of the configuration means: who is woken, and which workloads find or lose their queue.

Objects are only stored when they change; `settle` compiles them when they are next needed, so that loading a whole
cluster compiles it once. Kueue 0.19 pkg/cache/queue/manager.go and the controllers' event handlers.
"""

from collections.abc import Collection
from typing import Any

from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, QueueingStrategy, ResourceFlavor, Topology
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.pending import PendingQueue
from gpuconsole.scheduling.kueue.requests import Request
from gpuconsole.scheduling.kueue.rules import Objects
from gpuconsole.scheduling.kueue.state import State
from gpuconsole.scheduling.kueue.workloads import enqueue, renew, request_of, route

TABLES = Objects.__struct_fields__


def store(state: State, table: str, key: str, thing: Any) -> None:
    """Take in an object of the configuration; None deletes it. An unchanged object changes nothing."""
    old = getattr(state.objects, table).get(key)
    if old == thing:
        return
    _wake_affected(state, old)
    objects = getattr(state.own_objects(), table)
    if table == "nodes":
        state.nodes_stale = True
    else:
        state.stale = True
    if thing is None:
        objects.pop(key, None)
    else:
        objects[key] = thing
    _wake_affected(state, thing)


def settle(state: State) -> None:
    """Compile what changed, give new queues their workloads, take them from those that are gone."""
    if not state.stale:
        if state.nodes_stale:
            state.relocate()
        return
    before = {name: rules.queue.queueing_strategy for name, rules in state.setup.queues.items()}
    limits = state.setup.limits
    state.compile()
    for name, rules in state.setup.queues.items():
        if before.get(name) != rules.queue.queueing_strategy:
            _open_queue(state, name, rules.queue.queueing_strategy)
    _route_all(
        state, [n for n in limits.keys() | state.setup.limits.keys() if limits.get(n) != state.setup.limits_of(n)]
    )
    for name in before.keys() - state.setup.queues.keys():
        state.roster.drop_queue(name)
    requoted = dict.fromkeys(member for name in state.requoted for member in state.tree_of(name))
    state.requoted.clear()
    for name in requoted:
        state.bump(name)


def _open_queue(state: State, name: str, strategy: QueueingStrategy) -> None:
    """Make a queue, or make it anew because its strategy changed."""
    old = state.roster.look_at(name)
    queue = PendingQueue(
        strict=strategy == QueueingStrategy.STRICT_FIFO,
        hashing=state.config.enabled("SchedulingEquivalenceHashing"),
    )
    for request, parked in old.listing() if old is not None else ():
        (queue.park if parked else queue.push)(request)
    state.roster.add_queue(name, queue)


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
        if target:
            enqueue(state, request_of(state, workload, number, target))
        else:
            state.roster.records[number] = workload


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
            affected = [q.name for q in queues.values() if any(f == thing.name for f, _ in q.quotas())]
        case Node() | Topology():
            flavors = state.objects.flavors
            placed = {flavor.name for flavor in flavors.values() if flavor.topology}
            affected = [q.name for q in queues.values() if any(f in placed for f, _ in q.quotas())]
        case AdmissionCheck():
            affected = [q.name for q in queues.values() if any(check.name == thing.name for check in q.checks)]
        case Namespace():
            affected = [
                q.name
                for q in queues.values()
                if q.namespace_selector is not None and q.namespace_selector.matches(thing.labels)
            ]
        case _:
            affected = []
    state.due.update(dict.fromkeys(affected))
    if isinstance(thing, ClusterQueue | Cohort):
        state.requoted.update(dict.fromkeys(affected))


def _below(state: State, cohort: str) -> list[str]:
    """ClusterQueues in or below a cohort; names that lead in a circle are followed once."""
    names, grown = {cohort}, True
    while grown:
        more = {c.name for c in state.objects.cohorts.values() if c.parent in names} - names
        names |= more
        grown = bool(more)
    return [queue.name for queue in state.objects.cluster_queues.values() if queue.cohort in names]
