"""Kubernetes' own Workload of the group scheduling.k8s.io (KEP-4671): which groups its pods are in, as templates.

Its PodGroups are read as `volcano.PodGroup`, as those of other gang schedulers are.
"""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS


class SchedulingWorkload(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A Workload of scheduling.k8s.io; Kueue's is another kind of that name."""

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
