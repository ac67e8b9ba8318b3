"""Free capacity of nodes, filled pod by pod to test where pods would fit. The nodes themselves do not change."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.autoscaling import PRICE, ProvisionedInstance
from gpuconsole.model.catalogue import InstanceType
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import HOSTNAME, NO_LABELS, Taint
from gpuconsole.model.resources import PODS
from gpuconsole.scheduling.kube.filters import refusal
from gpuconsole.scheduling.kube.pod_classes import PodClass, PodClasses
from gpuconsole.sim.gpu_setup import BARE, GpuSetup, apply_gpu_setup


class NodeFit:
    """A node and its free capacity. Mutates by `take` and `reset`."""

    __slots__ = ("_refused", "left", "node")

    def __init__(self, node: Node, pods: Iterable[Pod] = (), shapes: PodClasses | None = None) -> None:
        self.node = node
        self.left = dict(node.allocatable)
        self._refused: set[int] = set()
        for pod in pods:
            self._use((shapes or PodClasses()).of(pod.template))

    def copy(self) -> "NodeFit":
        """A copy with the same free capacity."""
        twin = NodeFit.__new__(NodeFit)
        twin.node, twin.left, twin._refused = self.node, self.left.copy(), set()
        return twin

    def fits(self, shape: PodClass) -> bool:
        """True if a pod of this class tolerates the node and fits. A refusal is cached until `reset`."""
        if id(shape) in self._refused:
            return False
        left = self.left
        fits = (
            left.get(PODS, 1) >= 1
            and all(left.get(name, 0) >= amount for name, amount in shape.requests.items())
            and not refusal(self.node, shape)
        )
        if not fits:
            self._refused.add(id(shape))
        return fits

    def take(self, shape: PodClass) -> bool:
        """Place a pod here if it fits."""
        if not self.fits(shape):
            return False
        self._use(shape)
        return True

    def reset(self, left: Mapping[str, int]) -> None:
        """Undo placements back to this free capacity."""
        self.left = dict(left)
        self._refused.clear()

    def _use(self, shape: PodClass) -> None:
        for name, amount in shape.requests.items():
            self.left[name] = self.left.get(name, 0) - amount
        if PODS in self.left:
            self.left[PODS] -= 1


def first_fit(rooms: Sequence[NodeFit], shape: PodClass) -> NodeFit | None:
    """Place the pod on the first node that it fits, and return that."""
    return next((room for room in rooms if room.take(shape)), None)


def node_fits_of(
    nodes: Iterable[Node], pods: Mapping[str, Sequence[Pod]], shapes: PodClasses, without: Iterable[str] = ()
) -> list[NodeFit]:
    """Nodes that accept pods, by name, with their free capacity; without the nodes in `without`."""
    gone = set(without)
    usable = (node for node in nodes if node.ready and not node.unschedulable and node.name not in gone)
    return [NodeFit(node, pods.get(node.name, ()), shapes) for node in sorted(usable, key=lambda node: node.name)]


def node_of(
    instance: ProvisionedInstance,
    kind: InstanceType,
    now: Time,
    labels: Mapping[str, str] = NO_LABELS,
    taints: tuple[Taint, ...] = (),
    equipment: GpuSetup = BARE,
) -> Node:
    """The node that a machine becomes, with its GPUs partitioned and shared."""
    node = Node(
        name=instance.name,
        uid=f"node-{instance.name}-{instance.launched}",
        created=now,
        labels={**kind.labels(instance.zone, instance.capacity_type), **labels, HOSTNAME: instance.name},
        annotations={PRICE: f"{instance.price:.10g}"},
        taints=taints,
        capacity=kind.capacity,
        allocatable=kind.capacity,
    )
    return apply_gpu_setup(node, equipment)


def tainted(node: Node, taint: Taint) -> Node:
    """The node with an additional taint."""
    return node if taint in node.taints else replace(node, taints=(*node.taints, taint))


def untainted(node: Node, taint: Taint) -> Node:
    """The node without this taint."""
    return replace(node, taints=tuple(other for other in node.taints if other != taint))
