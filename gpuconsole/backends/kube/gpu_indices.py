"""Which GPUs of its node a pod is shown on. No API of Kubernetes says it, so the lowest free indices are assumed."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.resources import gpus


class GpuIndexAllocator:
    """Indices by node and pod. Mutates; a pod keeps its own for as long as it holds its node."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}
        self._pods: dict[str, tuple[str, tuple[int, ...]]] = {}

    def allocate(self, pod: Pod) -> Pod:
        """The pod with its indices; one that holds no node, or no more, has none."""
        wanted = gpus(pod.template.requests) if pod.node and not pod.done else 0
        node, indices = self._pods.get(pod.key, ("", ()))
        if (node, len(indices)) != (pod.node, wanted):
            self.release(pod.key)
            indices = self._sit(pod, wanted) if wanted else ()
        return replace(pod, gpus=indices, guessed=True) if indices else pod

    def release(self, pod: str) -> None:
        """A pod is gone, or gives its GPUs back."""
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
