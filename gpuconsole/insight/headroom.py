"""The queue picker: how much each LocalQueue could still take, flavor by flavor."""

from msgspec import Struct

from gpuconsole.insight.device_choices import DeviceChoice
from gpuconsole.insight.device_demand import quota_accelerators
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, queues_below
from gpuconsole.model.quantity import GPU
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.snapshot import Snapshot


class FlavorHeadroom(Struct, frozen=True):
    """One kind of accelerator in one flavor, as a new workload would see it."""

    flavor: str
    available: int
    """Could be admitted now, by own quota and borrowing, without evicting anybody."""
    own_left: int
    """Of these, inside the queue's own quota: nobody may reclaim them."""
    potential: int
    """The most that the queue could ever have: a larger request never fits."""
    resource: str = GPU


class Headroom(Struct, frozen=True, kw_only=True):
    """One LocalQueue to choose."""

    namespace: str
    name: str
    cluster_queue: str
    flavors: tuple[FlavorHeadroom, ...]
    pending: int
    """How many wait in its ClusterQueue."""
    problem: str
    """Why it admits nothing; empty if it does."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def of(self, device: DeviceChoice) -> tuple[FlavorHeadroom, ...]:
        """The flavors with quota of these devices."""
        return tuple(flavor for flavor in self.flavors if device.counts(flavor.resource))

    def best(self, device: DeviceChoice) -> int:
        """Devices that the roomiest flavor could give now."""
        return max((flavor.available for flavor in self.of(device)), default=0)


def headroom(snapshot: Snapshot) -> tuple[Headroom, ...]:
    """All LocalQueues by name, with what they could still take."""
    found = []
    for queue in queues_below(quota_tree(snapshot)):
        if queue.kind is NodeKind.LOCAL_QUEUE:
            found.append(_headroom(snapshot, queue, None))
        else:
            found += [_headroom(snapshot, door, queue) for door in queue.children]
    return tuple(sorted(found, key=lambda one: one.key))


def _headroom(snapshot: Snapshot, door: QuotaNode, queue: QuotaNode | None) -> Headroom:
    namespace, _, name = door.name.partition("/")
    flavors = queue.flavors if queue is not None else ()
    return Headroom(
        namespace=namespace,
        name=name,
        cluster_queue=snapshot.local_queues[door.name].cluster_queue,
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
        pending=queue.pending if queue is not None else door.pending,
        problem=_problem(snapshot, door, queue, namespace),
    )


def _problem(snapshot: Snapshot, door: QuotaNode, queue: QuotaNode | None, namespace: str) -> str:
    if door.problem:
        return door.problem
    for node in (door, queue):
        if node is not None and node.stop is not StopPolicy.NONE:
            return f"{node.name} is stopped ({node.stop})"
    selector = snapshot.cluster_queues[queue.name].namespace_selector if queue is not None else None
    known = snapshot.namespaces.get(namespace)
    if selector is not None and known is not None and not selector.matches(known.labels) and queue is not None:
        return f"{queue.name} does not accept namespace {namespace}"
    return ""
