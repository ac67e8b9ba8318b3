"""Applies configuration changes: requeues the affected inadmissible workloads and moves workloads between queues.

Objects are only stored when they change; `recompile` compiles them when they are next needed, so that loading a whole
cluster compiles it once. Kueue 0.19 pkg/cache/queue/manager.go and the controllers' event handlers.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.cluster import Namespace, Node
from gpuconsole.model.devices import ResourceSlice
from gpuconsole.model.queues import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    QueueingStrategy,
    ResourceFlavor,
    Topology,
)
from gpuconsole.model.resources import Resources
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import afs_charges
from gpuconsole.scheduling.kueue.cluster_queue import ClusterQueueHeap
from gpuconsole.scheduling.kueue.cluster_queue_status import ConfigObjects, queues_using_flavor
from gpuconsole.scheduling.kueue.dra.charges import needs_devices
from gpuconsole.scheduling.kueue.dra.claims import DeviceCatalogue
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.state import COHORT, KueueState
from gpuconsole.scheduling.kueue.topology.domains import node_changes
from gpuconsole.scheduling.kueue.workloads import cluster_queue_for, queue_workload, recompute_request

CONFIG_TABLES = ConfigObjects.__struct_fields__
_DEVICE_TABLES = ("device_classes", "resource_slices", "resource_claim_templates")


def store_object(state: KueueState, table: str, key: str, obj: Any) -> None:
    """Add, update or delete (None) a configuration object. An unchanged object changes nothing."""
    old = getattr(state.objects, table).get(key)
    if old == obj:
        return
    if isinstance(old, Node) and isinstance(obj, Node) and not node_changes(old, obj):
        getattr(state.unshared_objects(), table)[key] = obj
        return
    if table == "local_queues":
        if state.charging:
            afs_charges.on_local_queue_changed(state, key, obj)
        if _only_usage_changed(old, obj):
            state.unshared_objects().local_queues[key] = obj
            return
    _note_quotas(state, old, obj)
    if obj is None or not (isinstance(obj, ClusterQueue) and obj.terminating):
        _note_cohorts_above(state, old if obj is None else obj)
    objects = getattr(state.unshared_objects(), table)
    if table == "nodes":
        state.nodes_stale = True
    elif table in _DEVICE_TABLES:
        state.devices_stale = True
    else:
        state.is_config_stale = True
    if obj is None:
        objects.pop(key, None)
    else:
        objects[key] = obj
    _note_affected(state, old, obj)
    _note_quotas(state, obj, old)


def on_unchanged_write(state: KueueState, obj: Any, *, spec_changed: bool) -> None:
    """Apply a write that changed nothing that admission depends on.

    Kueue's controllers reconcile anyway: a ClusterQueue after every write, a Cohort after any change of its spec
    (`spec_changed`).
    """
    if isinstance(obj, ClusterQueue) or (isinstance(obj, Cohort) and spec_changed):
        _note_cohorts_above(state, obj)
        if spec_changed:
            _note_affected(state, obj, obj)
            _note_quotas(state, obj, None)


def _only_usage_changed(old: LocalQueue | None, new: LocalQueue | None) -> bool:
    """True if only the usage in a LocalQueue's status changed."""
    if old is None or new is None:
        return False
    return replace(old, consumed=new.consumed, sampled=new.sampled, usage=new.usage) == new


def recompile(state: KueueState) -> None:
    """Compile the changed configuration and move workloads into new queues and out of deleted ones."""
    stocked = state.setup.devices if state.devices_stale else None
    if not state.is_config_stale:
        if state.nodes_stale:
            state.rebuild_tas()
        if stocked is not None:
            state.rebuild_devices()
            _recompute_charges(state, stocked)
        _reconcile_cohorts(state)
        _bump_generations(state)
        _notify_noted(state)
        return
    before = {name: _queue_settings(state, rules.queue) for name, rules in state.setup.queues.items()}
    closed = {name for name, rules in state.setup.queues.items() if not (rules.active or rules.queue.terminating)}
    local_queues, limits, overheads = state.setup.local_queue_targets, state.setup.limits, state.setup.overheads
    state.compile_config()
    queues = state.setup.queues
    for name, rules in queues.items():
        if before.get(name) != _queue_settings(state, rules.queue):
            _create_queue(state, rules.queue)
    relimited = [n for n in limits.keys() | state.setup.limits.keys() if limits.get(n) != state.setup.limits_of(n)]
    if relimited or local_queues != state.setup.local_queue_targets:
        _requeue_moved_workloads(state, relimited, local_queues)
    if overheads != state.setup.overheads:
        _recompute_overheads(state, overheads)
    if stocked is not None:
        _recompute_charges(state, stocked)
    for name in before.keys() - queues.keys():
        state.workload_index.drop_queue(name)
    _reconcile_cohorts(state)
    _bump_generations(state)
    state.noted_queues.update(dict.fromkeys(name for name in closed if name in queues and queues[name].active))
    _notify_noted(state)


def _bump_generations(state: KueueState) -> None:
    requoted = dict.fromkeys(member for name in state.quotas_changed for member in state.queues_in_tree(name))
    state.quotas_changed.clear()
    for name in requoted:
        state.bump_generation(name)


def _note_cohorts_above(state: KueueState, obj: Any) -> None:
    """Note that the cohorts above a changed ClusterQueue must be reconciled; a termination does not count."""
    if isinstance(obj, ClusterQueue):
        state.changed_below[obj.cohort] = None


def _reconcile_cohorts(state: KueueState) -> None:
    """Reconcile the Cohort objects above changed ClusterQueues, except roots.

    That counts as a change of their quotas, and requeues their tree's inadmissible workloads (Kueue 0.19
    cohort_controller: cohortCqHandler).
    """
    tree = state.setup.tree
    for cohort in state.changed_below:
        node = tree.cohorts.get(cohort)
        if node is not None and has_cohort_below_root(state, cohort):
            state.quotas_changed.update((tree.names[queue], None) for queue in tree.subtree_queues(tree.root(node)))
            state.mark_cohort_due(cohort)
    state.changed_below.clear()


def has_cohort_below_root(state: KueueState, cohort: str) -> bool:
    """True if this cohort or one above it, except the root, has a Cohort object, so that Kueue reconciles it."""
    tree = state.setup.tree
    node = tree.cohorts.get(cohort)
    below_root = (node, *tree.paths[node])[:-1] if node is not None else ()
    return any(tree.names[one] in state.objects.cohorts for one in below_root)


def _queue_settings(state: KueueState, queue: ClusterQueue) -> tuple[QueueingStrategy, bool]:
    """Return the settings that need a new queue when they change."""
    return queue.queueing_strategy, state.config.orders_local_queues(queue)


def _create_queue(state: KueueState, rules: ClusterQueue) -> None:
    """Create a queue, or recreate it because its settings changed."""
    old = state.workload_index.read_queue(rules.name)
    strategy, taking_turns = _queue_settings(state, rules)
    queue = ClusterQueueHeap(
        strict=strategy == QueueingStrategy.STRICT_FIFO,
        hashing=state.config.enabled("SchedulingEquivalenceHashing"),
        taking_turns=taking_turns,
    )
    for request, inadmissible in old.sorted_pending() if old is not None else ():
        (queue.mark_inadmissible if inadmissible else queue.push)(request)
    state.workload_index.add_queue(rules.name, queue)


def _requeue_moved_workloads(
    state: KueueState, relimited: Collection[str], before: Mapping[str, tuple[str, bool]]
) -> None:
    """Move workloads whose LocalQueue now points to another ClusterQueue.

    `relimited` are namespaces with changed LimitRanges, `before` has the previous targets of LocalQueues. A workload
    that is in no queue until its backoff ends is queued early only if its LocalQueue's target changed.
    """
    for number, record in enumerate(state.workload_index.records):
        match record:
            case WorkloadRequest():
                target = cluster_queue_for(state, record.workload)
                if target == record.cluster_queue:
                    if record.workload.namespace in relimited:
                        recompute_request(state, record)
                    continue
                state.workload_index.queue(record.cluster_queue).remove(number)
                workload = record.workload
            case Workload():
                if before.get(record.local_queue) == state.setup.local_queue_targets.get(record.local_queue):
                    continue
                target, workload = cluster_queue_for(state, record), record
            case _:
                continue
        queue_workload(state, number, workload, target, from_local_queue=True)


def _recompute_overheads(state: KueueState, before: Mapping[str, Resources]) -> None:
    """Recompute the requests of pending workloads whose RuntimeClass overhead changed."""
    now = state.setup.overheads
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    for record in list(state.workload_index.records):
        if isinstance(record, WorkloadRequest) and any(
            p.template.runtime_class in changed for p in record.workload.pod_sets
        ):
            recompute_request(state, record)


def _recompute_charges(state: KueueState, stocked: DeviceCatalogue) -> None:
    """Recompute the device charges of pending workloads after the catalogue changed from `stocked`."""
    for number, record in enumerate(state.workload_index.records):
        if not isinstance(record, WorkloadRequest | Workload):
            continue
        workload = record.workload if isinstance(record, WorkloadRequest) else record
        if not any(needs_devices(workload, stock, state.config) for stock in (stocked, state.setup.devices)):
            continue
        if isinstance(record, WorkloadRequest):
            recompute_request(state, record)
        else:
            queue_workload(state, number, workload, cluster_queue_for(state, workload))


def _notify_noted(state: KueueState) -> None:
    for name in state.noted_queues:
        if name.startswith(COHORT):
            state.mark_cohort_due(name.removeprefix(COHORT))
        else:
            state.mark_tree_due(name)
    state.noted_queues.clear()


def _note_affected(state: KueueState, old: Any, obj: Any) -> None:
    """Note the ClusterQueues whose inadmissible workloads are requeued after a change of this object (None = absent).

    For a ClusterQueue or Cohort that is its current tree, not the one that it left. `recompile` adds ClusterQueues that
    become active. Kueue 0.19 pkg/cache/queue/manager.go, and the event handlers of its controllers
    (pkg/controller/core).
    """
    queues = state.objects.cluster_queues
    affected: Iterable[str] = ()
    match obj if obj is not None else old:
        case ClusterQueue(name=name, terminating=terminating):
            affected = [name] if obj is not None and not terminating else ()
        case Cohort(name=name):
            affected = [f"{COHORT}{name}"] if obj is not None else ()
        case ResourceFlavor(name=name):
            affected = queues_using_flavor(queues.values(), name) if _may_admit_others(old, obj) else ()
        case Node() | Topology():
            flavors = state.objects.flavors
            placed = {flavor.name for flavor in flavors.values() if flavor.topology}
            affected = [q.name for q in queues.values() if any(f in placed for f, _ in q.quotas())]
        case ResourceSlice(driver=driver):
            affected = list(queues) if driver in state.setup.devices.map.drivers else []
        case Namespace():
            affected = [
                q.name
                for q in queues.values()
                if q.namespace_selector is not None
                and any(one is not None and q.namespace_selector.matches(one.labels) for one in (old, obj))
            ]
        case _:
            pass
    state.noted_queues.update(dict.fromkeys(affected))


def _may_admit_others(old: ResourceFlavor | None, new: ResourceFlavor | None) -> bool:
    """True if a change of a ResourceFlavor may let other workloads fit it (flavorSchedulingFieldsChanged)."""
    if old is None or new is None:
        return False
    return (old.node_labels, old.node_taints, old.tolerations) != (new.node_labels, new.node_taints, new.tolerations)


def _note_quotas(state: KueueState, obj: Any, other: Any) -> None:
    """Note the queues whose trees' quotas change with this object; `other` is its previous or next version."""
    match obj:
        case ClusterQueue():
            same = isinstance(other, ClusterQueue) and other.resource_groups == obj.resource_groups
            if not (same and other.cohort == obj.cohort):
                mates = state.objects.cluster_queues.values()
                state.quotas_changed.update({q.name: None for q in mates if obj.cohort and q.cohort == obj.cohort})
                state.quotas_changed[obj.name] = None
        case Cohort():
            state.quotas_changed.update(dict.fromkeys(_queues_below(state, obj.name)))


def _queues_below(state: KueueState, cohort: str) -> list[str]:
    """Return the ClusterQueues in or below a cohort; cycles are followed once."""
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
