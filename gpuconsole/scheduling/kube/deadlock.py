"""The partial-gang deadlock: half-placed jobs that hold GPUs and wait for more than is free."""

from collections import Counter

from msgspec import Struct

from gpuconsole.scheduling.kube.session import Placement
from gpuconsole.scheduling.kube.units import Gang


class HalfPlaced(Struct, frozen=True, kw_only=True):
    """A job that can neither run nor get out of the way."""

    gang: str
    job: str
    """`Kind/namespace/name`, where its pods name it."""
    placed: int
    size: int
    gpus_held: int
    gpus_missing: int

    @property
    def name(self) -> str:
        return self.job or self.gang


class Deadlock(Struct, frozen=True):
    """Half-placed jobs, by name, none of which gets the rest of its pods out of what is free."""

    jobs: tuple[HalfPlaced, ...]
    free_gpus: int

    @property
    def gpus_held(self) -> int:
        """GPUs that are held and do no work."""
        return sum(job.gpus_held for job in self.jobs)

    @property
    def message(self) -> str:
        """The deadlock in one sentence, every job named."""
        lines = (
            f"{job.name} holds {job.gpus_held} GPUs with {job.placed} of {job.size} pods"
            f" and waits for {job.gpus_missing} more"
            for job in self.jobs
        )
        return f"{'; '.join(lines)}; {self.free_gpus} GPUs are free"


def find_deadlock(placement: Placement) -> Deadlock | None:
    """The jobs that hold GPUs with some of their pods while the others do not fit; None if there are none.

    Meant to be asked after each pass; it looks at gangs that are half placed only. While gangs are held together it
    cannot happen, except where a running gang lost pods that nothing can replace.
    """
    jobs = tuple(_half_placed(gang) for gang in placement.torn_gangs if _stuck(placement, gang))
    if not jobs:
        return None
    return Deadlock(jobs, sum(len(free) for free in placement.free_gpus().values()))


def _stuck(placement: Placement, gang: Gang) -> bool:
    if not sum(gang.seated.values()) or not gang.needed:
        return False
    kinds = Counter((waiter.shape, waiter.priority) for waiter in gang.waiters.values())
    places = sum(min(count, placement.fitting(shape, priority)) for (shape, priority), count in kinds.items())
    return places < gang.needed


def _half_placed(gang: Gang) -> HalfPlaced:
    missing = sorted((waiter.shape.gpus for waiter in gang.waiters.values()), reverse=True)[: gang.needed]
    return HalfPlaced(
        gang=gang.name,
        job=gang.job,
        placed=len(gang.seated),
        size=len(gang.seated) + gang.needed,
        gpus_held=sum(gang.seated.values()),
        gpus_missing=sum(missing),
    )
