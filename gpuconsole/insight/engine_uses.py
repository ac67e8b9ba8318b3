"""What the queues of Volcano and KAI use, wait for and are promised, counted pod by pod. GPUs alone."""

from collections.abc import Iterator
from math import ceil

from msgspec import Struct, field

from gpuconsole.insight.demand import pod_gpus
from gpuconsole.insight.holdings import Holding, holdings, queue_of, starts
from gpuconsole.model.resources import EMPTY, gpus
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT
from gpuconsole.scheduling.volcano.jobs.group import group_name


class Use(Struct):
    """What one queue has. Filled while it is counted."""

    held: float = 0.0
    """GPUs, those that are shared in parts."""
    wanted: float = 0.0
    """GPUs of pods without a node."""
    held_back: int = 0
    """GPUs of jobs that have no pods, since Volcano has not let their PodGroups in."""
    promised: int = 0
    """GPUs of what Volcano has let in and that has no nodes yet: nobody else is let in on them."""
    placed: set[str] = field(default_factory=set)
    """Owners of pods that have their nodes."""
    starting: set[str] = field(default_factory=set)
    """Those of them some of whose pods do not run yet."""
    waiting: set[str] = field(default_factory=set)
    """Owners some of whose pods have no node, or are not made yet."""

    @property
    def used(self) -> int:
        """GPUs; one of which it has a part only counts with its other parts, rounded up."""
        return ceil(self.held - 1e-9)

    def add(self, other: "Use") -> None:
        self.held += other.held
        self.wanted += other.wanted
        self.held_back += other.held_back
        self.promised += other.promised
        self.placed |= other.placed
        self.starting |= other.starting
        self.waiting |= other.waiting


def uses(snapshot: Snapshot, by_namespace: bool = False) -> dict[str, Use]:
    """What each queue uses and waits for in GPUs, or each namespace in units of any kind."""
    found: dict[str, Use] = {}
    for node, held in holdings(snapshot).items():
        for one in held:
            use = found.setdefault(_name(snapshot, one, by_namespace), Use())
            amount = one.devices if by_namespace else one.gpus
            if node:
                use.held += amount
                use.placed.add(one.owner)
                if starts(snapshot, one):
                    use.starting.add(one.owner)
            else:
                use.wanted += amount
                use.waiting.add(one.owner)
    return found


def _name(snapshot: Snapshot, one: Holding, by_namespace: bool) -> str:
    return one.namespace if by_namespace else queue_of(snapshot, one)


def volcano_uses(snapshot: Snapshot) -> dict[str, Use]:
    """The same for Volcano, with what waits to be let in, and what was let in and has no nodes yet."""
    found = uses(snapshot)
    _hold_back(snapshot, found)
    _promise(snapshot, found)
    return found


def _hold_back(snapshot: Snapshot, own: dict[str, Use]) -> None:
    """Count in what waits to be let in (enqueued): it asks for nothing yet, so that no queue deserves more for it."""
    outside = {group.key: group for group in snapshot.pod_groups.all() if group.phase in ("", "Pending")}
    if outside:
        for held in holdings(snapshot).values():
            for one in held:
                outside.pop(one.group, None)
    jobs = {f"{job.namespace}/{group_name(job)}": job for job in snapshot.jobs.all() if job.volcano} if outside else {}
    for key, group in outside.items():
        job = jobs.get(key)
        use = own.setdefault(group.queue or VOLCANO_DEFAULT, Use())
        if job is not None:
            use.held_back += sum(pod_gpus(part.template) * part.count for part in job.pod_sets)
        else:
            use.held_back += gpus(group.min_resources or EMPTY)
        use.waiting.add(job.key if job is not None else key)


def _promise(snapshot: Snapshot, own: dict[str, Use]) -> None:
    for group, _, promised in let_in(snapshot):
        own.setdefault(group.queue or VOLCANO_DEFAULT, Use()).promised += promised


def let_in(snapshot: Snapshot) -> Iterator[tuple[PodGroup, int, int]]:
    """The PodGroups that were let in, what their pods hold, and what their minResources name beyond that."""
    groups = {group.key: group for group in snapshot.pod_groups.all() if group.phase in ("Inqueue", "Running")}
    held: dict[str, float] = {}
    for node, pods in holdings(snapshot).items() if groups else ():
        for one in pods:
            if node and one.group in groups:
                held[one.group] = held.get(one.group, 0.0) + one.gpus
    for key, group in groups.items():
        holds = ceil(held.get(key, 0.0) - 1e-9)
        yield group, holds, max(0, gpus(group.min_resources or EMPTY) - holds)
