"""GPU owners by node, tracked in the same node states as kube-scheduler's rules. Mutates."""

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.kube.node_cache import NodeCache
from gpuconsole.scheduling.kube.nodes import AssignedPod
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.kube.profile import PlacementPolicy

POLICY = PlacementPolicy()


class VolcanoGpuOwners:
    """Nodes with the owner of each GPU."""

    def __init__(self) -> None:
        self._board = NodeCache(POLICY)
        self._shapes = PodClasses()
        self._homes: dict[str, int] = {}
        """Pod → number of its node."""

    def describe(self, name: str, node: Node | None) -> None:
        """Apply a node; None if it was deleted."""
        self._board.describe(name, node)

    def take_in(self, pod: Pod) -> None:
        """Apply a pod: on a node it gets the GPUs and MIG instances that it names, otherwise it gives up what
        it had.
        """
        if not pod.node or pod.done:
            self.forget(pod.key)
        elif self.of(pod.key) != pod.gpus or self._homes.get(pod.key) != self._board.number(pod.node):
            self.forget(pod.key)
            self.seat(pod, pod.bound or pod.created)

    def seat(self, pod: Pod, now: Time) -> AssignedPod:
        """Give a pod its GPUs and MIG instances: those that it names if they are free, else others that are."""
        number = self._board.number(pod.node)
        seat = AssignedPod(pod.key, self._shapes.of(pod.template), pod.priority, now, pod.gpus, slices=pod.slices)
        self._homes[pod.key] = number
        return self._board.seat(number, seat)

    def forget(self, pod: str) -> None:
        """Release a pod's GPUs and MIG instances."""
        number = self._homes.pop(pod, None)
        if number is not None:
            self._board.unseat(number, pod)

    def of(self, pod: str) -> tuple[int, ...]:
        """The GPUs assigned to a pod."""
        number = self._homes.get(pod)
        return () if number is None else self._board.nodes[number].seats[pod].gpus

    def slices_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod."""
        number = self._homes.get(pod)
        return () if number is None else self._board.nodes[number].seats[pod].slices

    def free(self) -> dict[str, tuple[int, ...]]:
        """The unassigned GPUs, by node."""
        return {state.name: state.free_gpus for state in self._board.nodes if state.node is not None}

    def fitting(self, template: PodTemplate) -> int:
        """How many pods of a template fit now."""
        return self._board.outlook(self._shapes.of(template), template.priority or 0).slots

    def fork(self) -> "VolcanoGpuOwners":
        """An independent copy."""
        twin = VolcanoGpuOwners()
        twin._board, twin._shapes, twin._homes = self._board.fork(), self._shapes, self._homes.copy()
        return twin
