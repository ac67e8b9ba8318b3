"""Pod sets of jobs and workloads: a number of identical pods and their topology request."""

from msgspec import Struct

from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import scale


class TopologyRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topology request of a pod set; `required` and `preferred` name a level's node label."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_required: str = ""
    slice_size: int | None = None
    slice_constraints: tuple[tuple[str, int], ...] = ()
    group: str = ""
    index_label: str = ""
    subgroup_index_label: str = ""
    subgroup_count: int | None = None

    @property
    def explicit(self) -> bool:
        """True if it requests a topology, and not only an order of pods (IsExplicitlyRequestingTAS)."""
        levels = self.required or self.preferred or self.unconstrained
        return bool(levels or self.slice_required or self.slice_size or self.slice_constraints)


class PodSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number of identical pods."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: PodTemplate = PodTemplate()
    topology: TopologyRequest | None = None
    pod_names: tuple[str, ...] = ()
    """Names of its first pods, if they had names before (a pod group's); the others are numbered."""

    @property
    def requests(self) -> dict[str, int]:
        """Total requests of all its pods, before Kueue's adjustments."""
        return scale(self.template.requests, self.count)
