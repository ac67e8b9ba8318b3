"""GPU indices of pods on their nodes, for display. Kubernetes does not report them, so the lowest free ones are
assumed.
"""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import gpus


class GpuIndexAllocator:
    """Assigns GPU indices per node and pod. Mutable; a pod keeps its indices while it holds its node."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}
        self._pods: dict[str, tuple[str, tuple[int, ...]]] = {}

    def allocate(self, pod: Pod) -> Pod:
        """Return the pod with its indices; none if it is not bound to a node or has finished."""
        wanted = gpus(pod.template.requests) if pod.node and not pod.done else 0
        node, indices = self._pods.get(pod.key, ("", ()))
        if (node, len(indices)) != (pod.node, wanted):
            self.release(pod.key)
            indices = self._sit(pod, wanted) if wanted else ()
        return replace(pod, gpus=indices, guessed=True) if indices else pod

    def release(self, pod: str) -> None:
        """Release the indices of a pod."""
        node, indices = self._pods.pop(pod, ("", ()))
        self._taken.get(node, set()).difference_update(indices)

    def _sit(self, pod: Pod, wanted: int) -> tuple[int, ...]:
        taken = self._taken.setdefault(pod.node, set())
        indices: list[int] = []
        index = 0
        while len(indices) < wanted:
            if index not in taken:
                indices.append(index)
            index += 1
        taken.update(indices)
        self._pods[pod.key] = (pod.node, tuple(indices))
        return self._pods[pod.key][1]
