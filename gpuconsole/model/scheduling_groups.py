"""Kubernetes' own Workload (KEP-4671) and CompositePodGroup (KEP-6012) in the group scheduling.k8s.io.

Its PodGroups are `volcano.PodGroup`s, like those of other gang schedulers.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS


class SchedulingWorkload(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A Workload of scheduling.k8s.io, which is not Kueue's Workload."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    groups: Mapping[str, int] = {}
    """Name of each pod group or template of one → number of its pods that start together (minCount; basic: 1)."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class CompositePodGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A group of PodGroups and composite groups, which name it as their parent."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    annotations: Mapping[str, str] = NO_LABELS
    parent_group: str = ""
    """Name of the composite group that contains it; empty for the root of a hierarchy."""
    policy: str = "gang"
    """`gang` or `basic`."""
    min_groups: int = 1
    """Number of its child groups that start together (minGroupCount; basic: 1)."""
    topology_key: str = ""
    """All pods of its child groups must be on nodes with the same value of this label."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
