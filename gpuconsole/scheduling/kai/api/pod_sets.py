"""Sub-groups of a gang: pod sets with a minimum each, in a tree with optional topology constraints (KAI 0.13)."""

from collections.abc import Iterator

from msgspec import Struct

from gpuconsole.scheduling.kai.api.statuses import ACTIVE_ALLOCATED, ACTIVE_USED, ALIVE, KaiPodStatus
from gpuconsole.scheduling.kai.api.tasks import PodInfo


class TopologyConstraint(Struct, frozen=True, kw_only=True):
    """Pods should share a domain of the preferred level, and must share one of the required level."""

    topology: str = ""
    required: str = ""
    preferred: str = ""


class PodSetInfo:
    """Tasks of which at least `minimum` run together. Mutates."""

    def __init__(self, name: str, minimum: int, constraint: TopologyConstraint | None = None) -> None:
        self.name, self.minimum, self.constraint = name, minimum, constraint
        self.parent: SubGroup | None = None
        self.tasks: dict[str, PodInfo] = {}
        self._counted: dict[str, KaiPodStatus] = {}

    def assign(self, task: PodInfo) -> None:
        """Add a task, or record its new status."""
        self.tasks[task.uid] = task
        self._counted[task.uid] = task.status

    @property
    def active_allocated(self) -> int:
        return sum(status in ACTIVE_ALLOCATED for status in self._counted.values())

    @property
    def active_used(self) -> int:
        return sum(status in ACTIVE_USED for status in self._counted.values())

    @property
    def alive(self) -> int:
        return sum(status in ALIVE for status in self._counted.values())

    @property
    def gated(self) -> int:
        return sum(status is KaiPodStatus.GATED for status in self._counted.values())

    @property
    def ready(self) -> bool:
        """True if enough tasks for the minimum are alive and not gated."""
        return self.alive - self.gated >= self.minimum

    @property
    def satisfied(self) -> bool:
        return self.active_used >= self.minimum

    @property
    def elastic(self) -> bool:
        return self.minimum < len(self.tasks)


class SubGroup:
    """An inner group of sub-groups and pod sets; the root has an empty name."""

    def __init__(self, name: str = "", constraint: TopologyConstraint | None = None) -> None:
        self.name, self.constraint = name, constraint
        self.parent: SubGroup | None = None
        self.groups: list[SubGroup] = []
        self.pod_sets: list[PodSetInfo] = []

    def add(self, child: "SubGroup | PodSetInfo") -> None:
        """Add a sub-group or a pod set below this one."""
        child.parent = self
        if isinstance(child, PodSetInfo):
            self.pod_sets.append(child)
        else:
            self.groups.append(child)

    def all_pod_sets(self) -> dict[str, PodSetInfo]:
        """The pod sets below, by name, in the order of their names."""
        return dict(sorted((pod_set.name, pod_set) for pod_set in self._walk()))

    def _walk(self) -> Iterator[PodSetInfo]:
        yield from self.pod_sets
        for group in self.groups:
            yield from group._walk()

    def bare(self) -> "SubGroup":
        """The same tree without tasks."""
        twin = SubGroup(self.name, self.constraint)
        for group in self.groups:
            twin.add(group.bare())
        for pod_set in self.pod_sets:
            twin.add(PodSetInfo(pod_set.name, pod_set.minimum, pod_set.constraint))
        return twin
