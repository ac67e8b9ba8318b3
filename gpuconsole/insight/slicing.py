"""Pod counts that are not a multiple of the slice size: Kueue 0.19 admits all pods, but places only whole slices.

kueue#15277; the scheduling gate of the remaining pods is never removed.
"""

from msgspec import Struct

from gpuconsole.model.pod_template import PodSet


class Undivided(Struct, frozen=True):
    """A number of pods that is not a multiple of the slice size."""

    count: int
    size: int

    @property
    def left_over(self) -> int:
        """Pods without an assigned domain."""
        return self.count % self.size

    @property
    def helps(self) -> str:
        """The nearest pod counts that the slice size divides."""
        whole = self.count - self.left_over
        return f"run {' or '.join(str(count) for count in (whole, whole + self.size) if count)} pods"


def undivided(pod_set: PodSet, count: int) -> Undivided | None:
    """The mismatch between pod count and slice size; None if there is none, or no slices are requested."""
    size = pod_set.topology.slice_size if pod_set.topology is not None else None
    return Undivided(count, size) if size and count % size else None
