"""Interface between the simulation and an engine that places pods, and two such engines in one cluster.

The simulation applies objects to a `PlacementEngine`: kube-scheduler's rules, Volcano's or KAI's. The engine decides
about pods and assumes its decisions; the simulation carries them out. A `ScoreTable` shows one decision in detail: the
result of every filter and every score for every node.

`MultiScheduler` combines two engines. Each places the pods that name its scheduler and accounts for pods placed by the
other; pods that do not name the second scheduler belong to the first one. Only one engine decides per pass; the other
learns its decisions once they are carried out.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.events import PlacementDecision
from gpuconsole.model.gpus.mig import MigInstance
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate


class ScoreColumn(Struct, frozen=True):
    """A score column of a `ScoreTable`: the plugin and its weight, for KAI its score band (highest score)."""

    plugin: str
    weight: int
    skipped: bool = False
    """True if the plugin does not apply to the pod."""


class FilterColumn(Struct, frozen=True):
    """A filter column of a `ScoreTable`: a plugin that filters nodes."""

    plugin: str
    skipped: bool = False


class NodeScore(Struct, frozen=True):
    """Score of one plugin for one node."""

    raw: int
    normalised: int
    """kube-scheduler: 0 to 100. KAI: percentage of the plugin's score band. Volcano: the raw score."""
    weighted: int
    """The plugin's part of the node's total score. kube-scheduler and Volcano: the normalised score times the weight,
    for Volcano in hundredths. KAI: the raw score in hundredths.
    """


class NodeRow(Struct, frozen=True, kw_only=True):
    """Filter and score results of one node."""

    node: str
    verdicts: tuple[str, ...]
    """Reason of each filter of the table that refuses the node; empty where it passes."""
    scores: tuple[NodeScore, ...] = ()
    """One per scoring plugin of the table; none if the node is refused or was not sampled."""
    total: int = 0
    sampled: bool = True
    """False if the search ended before this node: enough others had been found."""
    chosen: bool = False

    @property
    def fits(self) -> bool:
        """True if no filter refuses the node."""
        return not any(self.verdicts)

    @property
    def refusal(self) -> str:
        """Reason of the first filter that refuses the node, which the scheduler's message counts; empty if it fits."""
        return next((verdict for verdict in self.verdicts if verdict), "")


class ScoreTable(Struct, frozen=True, kw_only=True):
    """Filter and score results of all nodes for one pod, as if it were scheduled now.

    A running pod is evaluated as if it had not been placed.
    """

    pod: str
    scheduler: str
    filters: tuple[FilterColumn, ...]
    plugins: tuple[ScoreColumn, ...]
    rows: tuple[NodeRow, ...]
    """All nodes; in the order of the search, for KAI by rank with the nodes that do not fit last."""
    ties: tuple[str, ...] = ()
    """The other nodes that rank the same as the chosen one, in order; kube-scheduler picks among them at random."""
    message: str = ""
    """Why no node fits, as in the scheduler's event; empty if a node is chosen."""

    @property
    def chosen(self) -> str:
        """The node that the pod would get; empty if none fits."""
        return next((row.node for row in self.rows if row.chosen), "")


class PartiallyPlacedGang(Struct, frozen=True, kw_only=True):
    """A partially scheduled gang that holds GPUs while its other pods are pending."""

    gang: str
    job: str
    """`Kind/namespace/name`; empty if its pods name no job."""
    placed: int
    size: int
    gpus_held: int
    gpus_missing: int

    @property
    def name(self) -> str:
        """The job, or the gang if there is none."""
        return self.job or self.gang


class PlacementDeadlock(Struct, frozen=True):
    """Partially scheduled gangs, by name, none of which fits the rest of its pods into the free capacity."""

    jobs: tuple[PartiallyPlacedGang, ...]
    free_gpus: int

    @property
    def gpus_held(self) -> int:
        """GPUs held by partially scheduled gangs."""
        return sum(job.gpus_held for job in self.jobs)

    @property
    def message(self) -> str:
        """The deadlock in one sentence that names every job."""
        lines = (
            f"{job.name} holds {job.gpus_held} GPUs with {job.placed} of {job.size} pods"
            f" and waits for {job.gpus_missing} more"
            for job in self.jobs
        )
        return f"{'; '.join(lines)}; {self.free_gpus} GPUs are free"


class PlacementEngine(Protocol):
    """Places pods on nodes: tracks free resources, GPU owners by index, and pending pods. Mutates."""

    @property
    def has_pending(self) -> bool:
        """True if `schedule` would try a pending pod: it is new, or capacity was freed since it was refused."""

    def apply(self, obj: Object, now: Time) -> None:
        """Apply a new or changed object. Kinds that do not matter for placement are ignored."""

    def delete(self, table: str, key: str, now: Time) -> None:
        """Remove a deleted object; `table` as in `objects.TABLES`."""

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Try every pending pod that can be tried; the returned binds, evictions and nominations are assumed."""

    def next_timer(self) -> Time | None:
        """Return the next time at which a decision changes without an event, or None; each time is returned once."""

    def request_pass(self) -> None:
        """Let the next `schedule` try pending pods again although no object was applied."""

    def deadlock(self) -> PlacementDeadlock | None:
        """Partially scheduled gangs that hold GPUs while their other pods do not fit; None if there are none."""

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod; empty if it is not on a node."""

    def mig_instances_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod; empty if it is not on a node."""

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, together."""

    def scores(self, pod: Pod) -> ScoreTable | None:
        """Filter results and scores of every node for a pod, as if it were scheduled now.

        The pod may be pending, running or hypothetical. None where the engine has no such table.
        """

    def prepare(self) -> None:
        """Warm the caches that forks share, so that forks recompute only what changes."""

    def fork(self) -> "PlacementEngine":
        """An independent copy of the engine."""

    def dump(self) -> tuple[str, ...]:
        """State that cannot be rebuilt by applying all objects to a new engine."""

    def load(self, memory: tuple[str, ...]) -> None:
        """Restore the state that `dump` returned, after all objects were applied."""


class SessionPlacement:
    """Common parts of engines that open one session per pass, such as Volcano and KAI. Mutates."""

    def __init__(self) -> None:
        self._has_changes = False
        """True if something happened since the last session that may change a decision."""
        self._next_change: Time | None = None
        self._last_timer: Time = 0
        """The alarm that was returned last."""

    def next_timer(self) -> Time | None:
        """Return the next time at which a decision changes without an event, or None; each time is returned once."""
        if self._next_change is None or self._next_change == self._last_timer:
            return None
        self._last_timer = self._next_change
        return self._next_change

    def request_pass(self) -> None:
        """Let the next `schedule` open a session although no object was applied."""
        self._has_changes = True

    def deadlock(self) -> PlacementDeadlock | None:
        """Return None: these engines never start a gang partially."""
        return None

    def scores(self, pod: Pod) -> ScoreTable | None:
        """Return None; an engine that has a score table overrides this."""
        return None

    def prepare(self) -> None:
        """Do nothing: these engines have no caches to warm, as a session evaluates everything again."""


SECOND_PREFIX = "beside="
"""Prefix of the second engine's lines in `MultiScheduler.memory`."""


class MultiScheduler:
    """Combines the default engine with one for pods whose schedulerName is `name`. Mutates."""

    def __init__(self, first: PlacementEngine, second: PlacementEngine, name: str) -> None:
        self._first, self._second, self._name = first, second, name
        self._timers: set[Time] = set()
        """Times of the engines that `next_timer` has not returned yet."""

    @property
    def has_pending(self) -> bool:
        """True if either engine has a pod to try."""
        return self._first.has_pending or self._second.has_pending

    def apply(self, obj: Object, now: Time) -> None:
        """Apply a new or changed object; the other scheduler sees a pod only while it is on a node and not done."""
        if not isinstance(obj, Pod):
            self._first.apply(obj, now)
            self._second.apply(obj, now)
            return
        own, other = self._engines(obj.template)
        own.apply(obj, now)
        if obj.node and not obj.done:
            other.apply(obj, now)
        else:
            other.delete("pods", obj.key, now)

    def delete(self, table: str, key: str, now: Time) -> None:
        """Remove a deleted object from both engines; `table` as in `objects.TABLES`."""
        self._first.delete(table, key, now)
        self._second.delete(table, key, now)

    def schedule(self, now: Time) -> list[PlacementDecision]:
        """Run the first engine; run the second only if the first decides nothing."""
        said = self._first.schedule(now) if self._first.has_pending else []
        if not said and self._second.has_pending:
            said = self._second.schedule(now)
        return said

    def next_timer(self) -> Time | None:
        """Return the next time at which a decision of either engine changes without an event; each is returned once."""
        for engine in (self._first, self._second):
            moment = engine.next_timer()
            if moment is not None:
                self._timers.add(moment)
        soonest = min(self._timers, default=None)
        self._timers.discard(soonest or 0)
        return soonest

    def request_pass(self) -> None:
        """Let the next `schedule` of both engines try pending pods again."""
        self._first.request_pass()
        self._second.request_pass()

    def deadlock(self) -> PlacementDeadlock | None:
        """Return the deadlock of the first engine, if any; the second never starts a gang partially."""
        return self._first.deadlock()

    def free_gpus(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the unassigned GPUs, by node."""
        return self._first.free_gpus()

    def gpus_of(self, pod: str) -> tuple[int, ...]:
        """Indices of the GPUs assigned to a pod; empty if it is not on a node."""
        return self._first.gpus_of(pod)

    def mig_instances_of(self, pod: str) -> tuple[MigInstance, ...]:
        """The MIG instances assigned to a pod; empty if it is not on a node."""
        return self._first.mig_instances_of(pod)

    def largest_gang(self, template: PodTemplate) -> int:
        """How many pods of this template would fit now, together, by their own scheduler."""
        return self._engines(template)[0].largest_gang(template)

    def scores(self, pod: Pod) -> ScoreTable | None:
        """Filter results and scores of every node from the pod's own scheduler."""
        return self._engines(pod.template)[0].scores(pod)

    def prepare(self) -> None:
        """Warm the caches of both engines that forks share."""
        self._first.prepare()
        self._second.prepare()

    def fork(self) -> "MultiScheduler":
        """Independent copies of both engines."""
        twin = MultiScheduler(self._first.fork(), self._second.fork(), self._name)
        twin._timers = self._timers.copy()
        return twin

    def dump(self) -> tuple[str, ...]:
        """State that cannot be rebuilt from the objects: the first engine's lines, the second's lines, and the timers.

        The lines of the second engine, and of the timers, begin with `SECOND_PREFIX`.
        """
        marked = (SECOND_PREFIX + line for line in self._second.dump())
        return (*self._first.dump(), *marked, *(f"{SECOND_PREFIX}@{moment}" for moment in sorted(self._timers)))

    def load(self, memory: tuple[str, ...]) -> None:
        """Restore the state that `dump` returned, after all objects were applied."""
        own = [line.removeprefix(SECOND_PREFIX) for line in memory if line.startswith(SECOND_PREFIX)]
        self._timers = {int(line[1:]) for line in own if line.startswith("@")}
        self._first.load(tuple(line for line in memory if not line.startswith(SECOND_PREFIX)))
        self._second.load(tuple(line for line in own if not line.startswith("@")))

    def _engines(self, template: PodTemplate) -> tuple[PlacementEngine, PlacementEngine]:
        """A pod's own scheduler, and the other one."""
        if template.scheduler_name == self._name:
            return self._second, self._first
        return self._first, self._second
