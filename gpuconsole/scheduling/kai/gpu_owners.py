"""GPU owners by node and index; shared GPUs have several owners. Mutates."""

from collections.abc import Iterable, Mapping


class KaiGpuOwners:
    """GPUs of every node, and those of every placed pod."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._homes: dict[str, str] = {}
        self._owned: dict[str, tuple[int, ...]] = {}
        self._owners: dict[str, dict[int, int]] = {}
        """Node → index → how many pods own it."""

    def describe(self, node: str, gpus: int | None) -> None:
        """Set a node's GPU count; None if the node was deleted."""
        if gpus is None:
            self._sizes.pop(node, None)
        else:
            self._sizes[node] = gpus

    def seat(self, pod: str, node: str, gpus: Iterable[int]) -> None:
        """Assign exactly these GPUs of the node to the pod."""
        self.leave(pod)
        self._homes[pod], self._owned[pod] = node, tuple(gpus)
        owners = self._owners.setdefault(node, {})
        for gpu in self._owned[pod]:
            owners[gpu] = owners.get(gpu, 0) + 1

    def leave(self, pod: str) -> None:
        """Release all GPUs of the pod."""
        node = self._homes.pop(pod, None)
        for gpu in self._owned.pop(pod, ()):
            owners = self._owners[node or ""]
            owners[gpu] -= 1
            if not owners[gpu]:
                del owners[gpu]

    def of(self, pod: str) -> tuple[int, ...]:
        """Indices of the pod's GPUs; none if it is not placed."""
        return self._owned.get(pod, ())

    def home(self, pod: str) -> str:
        """The pod's node; empty if it has none."""
        return self._homes.get(pod, "")

    def free_on(self, node: str) -> list[int]:
        """Indices of unassigned GPUs, in rising order."""
        owners = self._owners.get(node, {})
        return [gpu for gpu in range(self._sizes.get(node, 0)) if gpu not in owners]

    def free(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of unassigned GPUs by node."""
        return {node: tuple(self.free_on(node)) for node in self._sizes}

    def fork(self) -> "KaiGpuOwners":
        """An independent copy."""
        twin = KaiGpuOwners()
        twin._sizes, twin._homes, twin._owned = dict(self._sizes), dict(self._homes), dict(self._owned)
        twin._owners = {node: dict(owners) for node, owners in self._owners.items()}
        return twin
