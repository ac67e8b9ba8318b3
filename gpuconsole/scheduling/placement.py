"""What a simulation asks of an engine that places pods: kube-scheduler's rules, Volcano's or KAI's.

An engine is told of objects, decides about pods, and assumes what it decided; the simulation carries it out.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.decisions import PlacementDecision
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.scheduling.score_table import ScoreTable


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


class PlacementDeadlock(Struct, frozen=True):
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


class PlacementEngine(Protocol):
    """Nodes with free resources and GPU owners by index, and the pods that wait for them. Mutates."""

    @property
    def has_pending(self) -> bool:
        """True if a pod waits that `schedule` would try: it is new, or something freed since it was refused."""

    def apply(self, obj: Object, now: Time) -> None:
        """An object appeared or changed. Kinds that the engine does not look at are ignored."""

    def delete(self, table: str, key: str, now: Time) -> None:
        """An object is gone; `table` as in `objects.TABLES`."""

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Try every pod that could be tried; binds, evictions and nominations are assumed."""

    def alarm(self) -> Time | None:
        """When time alone will change what it decides; told once for each such time, after a pass."""

    def stir(self) -> None:
        """Let the next pass look again, though nothing was applied."""

    def deadlock(self) -> PlacementDeadlock | None:
        """The jobs that hold GPUs with some of their pods while the others do not fit; None if there are none."""

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the GPUs that nobody owns, by node."""

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs that a pod owns; none if it sits on no node."""

    def slices_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances that a pod owns; none if it sits on no node."""

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, all at once."""

    def scores(self, pod: Pod) -> ScoreTable | None:
        """What every filter and every score says of every node, for a pod as if it came now.

        The pod may wait, run, or be one that nobody has made. None where the engine gives no such table.
        """

    def prepare(self) -> None:
        """Look at what forks will need, so that they only look at what changes."""

    def fork(self) -> "PlacementEngine":
        """An engine that starts equal and never touches this one."""

    def memory(self) -> tuple[str, ...]:
        """What applying all objects to a new engine would not bring back."""

    def recall(self, memory: tuple[str, ...]) -> None:
        """Take back what `memory` gave, after all objects were applied."""


class SessionPlacement:
    """What engines share that open one session a pass, as Volcano and KAI do. Mutates."""

    def __init__(self) -> None:
        self._stirred = False
        """Something happened since the last session."""
        self._alarm: Time | None = None
        self._rung: Time = 0
        """The alarm that was told last."""

    def alarm(self) -> Time | None:
        """When time alone will change what it decides; told once for each such time, after a pass."""
        if self._alarm is None or self._alarm == self._rung:
            return None
        self._rung = self._alarm
        return self._alarm

    def stir(self) -> None:
        """Let the next pass open a session."""
        self._stirred = True

    def deadlock(self) -> PlacementDeadlock | None:
        """None: a session starts a gang whole or not at all."""
        return None

    def scores(self, pod: Pod) -> ScoreTable | None:
        """None: what a node scores in a session depends on what else the session does."""
        return None

    def prepare(self) -> None:
        """Nothing: a session looks at everything anew."""
