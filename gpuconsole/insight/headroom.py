"""Available quota of each LocalQueue, flavor by flavor, for the queue picker."""

from msgspec import Struct

from gpuconsole.insight.device_choices import DeviceChoice
from gpuconsole.insight.device_demand import quota_accelerators
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, queues_below
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot


class FlavorHeadroom(Struct, frozen=True):
    """Available quota of one kind of accelerator in one flavor, for a new workload."""

    flavor: str
    available: int
    """Could be admitted now, by nominal quota and borrowing, without preemption."""
    own_left: int
    """Part within nominal quota, which other queues cannot reclaim."""
    potential: int
    """Maximum capacity of the queue: a larger request never fits."""
    resource: str = GPU


class Headroom(Struct, frozen=True, kw_only=True):
    """A LocalQueue in the queue picker, with its available quota by flavor."""

    namespace: str
    name: str
    cluster_queue: str
    flavors: tuple[FlavorHeadroom, ...]
    pending: int
    """Pending workloads in its ClusterQueue."""
    problem: str
    """Reason why it admits no workload; empty if it does."""

    @property
    def key(self) -> str:
        """Key of the LocalQueue: `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def of(self, device: DeviceChoice) -> tuple[FlavorHeadroom, ...]:
        """Return the flavors with quota of these devices."""
        return tuple(flavor for flavor in self.flavors if device.counts(flavor.resource))

    def best(self, device: DeviceChoice) -> int:
        """Return the available devices of the flavor that has most."""
        return max((flavor.available for flavor in self.of(device)), default=0)


def headroom(snapshot: Snapshot) -> tuple[Headroom, ...]:
    """Return all LocalQueues by name, with their available quota."""
    found = []
    for queue in queues_below(quota_tree(snapshot)):
        if queue.kind is NodeKind.LOCAL_QUEUE:
            found.append(_headroom(snapshot, queue, None))
        else:
            found += [_headroom(snapshot, local_queue, queue) for local_queue in queue.children]
    return tuple(sorted(found, key=lambda one: one.key))


def _headroom(snapshot: Snapshot, local_queue: QuotaNode, queue: QuotaNode | None) -> Headroom:
    namespace, _, name = local_queue.name.partition("/")
    flavors = queue.flavors if queue is not None else ()
    return Headroom(
        namespace=namespace,
        name=name,
        cluster_queue=snapshot.local_queues[local_queue.name].cluster_queue,
        flavors=tuple(
            FlavorHeadroom(
                use.flavor,
                use.available,
                min(use.available, max(0, use.nominal - use.used)),
                use.potential,
                use.resource,
            )
            for use in flavors
            if use.resource in quota_accelerators(snapshot)
        ),
        pending=queue.pending if queue is not None else local_queue.pending,
        problem=_problem(snapshot, local_queue, queue, namespace),
    )


def _problem(snapshot: Snapshot, local_queue: QuotaNode, queue: QuotaNode | None, namespace: str) -> str:
    if local_queue.problem:
        return local_queue.problem
    for node in (local_queue, queue):
        if node is not None and node.stop is not StopPolicy.NONE:
            return f"{node.name} is stopped ({node.stop})"
    selector = snapshot.cluster_queues[queue.name].namespace_selector if queue is not None else None
    known = snapshot.namespaces.get(namespace)
    if selector is not None and known is not None and not selector.matches(known.labels) and queue is not None:
        return f"the namespaceSelector of {queue.name} does not match namespace {namespace}"
    return ""
