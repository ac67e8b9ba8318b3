"""Kubernetes' own Workload (KEP-4671) and CompositePodGroup (KEP-6012) in the group scheduling.k8s.io.

Its PodGroups are read as `volcano.PodGroup`, as those of other gang schedulers are.
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
    """Name of each pod group, or template of one → how many of its pods start together (minCount; basic: 1)."""

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
    """Name of the composite group that it is in; empty for the root of a hierarchy."""
    policy: str = "gang"
    """`gang` or `basic`"""
    min_groups: int = 1
    """How many of its child groups start together (minGroupCount; basic: 1)."""
    topology_key: str = ""
    """All pods of its child groups have to be on nodes that share the value of this label."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
