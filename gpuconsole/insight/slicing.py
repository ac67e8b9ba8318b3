"""Slices that do not divide their pods: Kueue 0.19 admits all of them, and chooses places for whole slices only.

kueue#15277; the gate of the pods that are left over never opens.
"""

from msgspec import Struct

from gpuconsole.model.pod_sets import PodSet


class Undivided(Struct, frozen=True):
    """So many pods in slices of a size that leaves some over."""

    count: int
    size: int

    @property
    def left_over(self) -> int:
        """Pods that get no place."""
        return self.count % self.size

    @property
    def helps(self) -> str:
        """The nearest numbers of pods that the slices divide."""
        whole = self.count - self.left_over
        return f"run {' or '.join(str(count) for count in (whole, whole + self.size) if count)} pods"


def undivided(pod_set: PodSet, count: int) -> Undivided | None:
    """What keeps some of so many pods of a set without a place; None where no slices are asked for, or these divide."""
    size = pod_set.topology.slice_size if pod_set.topology is not None else None
    return Undivided(count, size) if size and count % size else None
