"""Volcano's and Karpenter's objects that are read and shown; their engines act on them in their own rooms."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.cluster import NO_LABELS
from gpuconsole.model.resources import EMPTY, Resources


class VolcanoQueue(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    name: str
    weight: int = 1
    parent: str = ""
    capability: Resources = EMPTY
    deserved: Resources = EMPTY
    guarantee: Resources = EMPTY
    reclaimable: bool = True
    priority: int = 0

    @property
    def key(self) -> str:
        return self.name


class PodGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A gang by Volcano (scheduling.volcano.sh) or the Coscheduling plugin (scheduling.x-k8s.io)."""

    namespace: str = "default"
    name: str
    min_member: int = 1
    queue: str = ""
    priority_class: str = ""
    min_resources: Resources = EMPTY

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodePool(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A Karpenter NodePool, as far as it is read today."""

    name: str
    labels: Mapping[str, str] = NO_LABELS
    requirements: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after: str = ""

    @property
    def key(self) -> str:
        return self.name
