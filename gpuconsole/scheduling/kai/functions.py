"""Extension points of a session: functions that plugins register, in the order of the tiers (KAI 0.13 framework)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo, PodSetInfo, SubGroup
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.fair_share.division import QueueState
from gpuconsole.scheduling.kai.fair_share.reclaimable import OverCapacity
from gpuconsole.scheduling.kai.messages import NodeError

NodeSet = list[KaiNodeInfo]
"""The nodes on which a job, or a group of its tasks, may be placed."""


class VictimJob(Struct, frozen=True):
    """A job with the tasks that it would lose in a scenario."""

    job: PodGroupInfo
    tasks: Sequence[PodInfo]


class SolverScenario(Protocol):
    """Victims that may be evicted to place a job, as plugins check them."""

    @property
    def preemptor(self) -> PodGroupInfo: ...

    def victims(self) -> Mapping[str, VictimJob]:
        """All victims by job."""
        ...


class NoSuitableNodes(Exception):
    """No node set is suitable for the job, so the attempt to place it ends."""


class CannotScore(Exception):
    """A plugin cannot score the node, so the node is left out."""


QueueComparison = Callable[
    [QueueState, QueueState, PodGroupInfo | None, PodGroupInfo | None, Sequence[PodGroupInfo], Sequence[PodGroupInfo]],
    int,
]
"""Compares two queues by which comes first; the arguments are both queues, their next jobs, and their victims."""
FindExceededQueue = Callable[[PodGroupInfo, Sequence[PodInfo]], OverCapacity | None]
"""Returns the queue whose quota or limit the job would exceed with these tasks; None if there is none."""
SubsetNodes = Callable[
    [PodGroupInfo, SubGroup | PodSetInfo, Mapping[str, PodSetInfo], Sequence[PodInfo], NodeSet], list[NodeSet]
]
"""Splits a set of nodes into those that a group of the job may be placed on, best first.

The arguments are the job, the group, its pod sets by name, the tasks to place, and the nodes.
"""


class NodeScorer(Struct, frozen=True):
    """A plugin's node score, and its band: the maximum or the unit of the score."""

    plugin: str
    band: int
    score: Callable[[PodInfo, KaiNodeInfo], float]


class RelativeNodeScorer(Protocol):
    """A node score that is relative to the values of all nodes."""

    plugin: str
    band: int

    def measure(self, task: PodInfo, node: KaiNodeInfo) -> float | None:
        """The value of the node that is compared; None for a node that is left out."""

    def score(self, value: float | None, minimum: float, maximum: float) -> float:
        """The node's score from its value, and from the least and greatest value of all nodes."""


class KaiFunctions:
    """The functions that plugins registered, by extension point. Mutates.

    Comparisons return a negative number if the first argument comes first, 0 if they do not decide.
    """

    def __init__(self) -> None:
        self.gpu_order: list[Callable[[PodInfo, KaiNodeInfo, str], float]] = []
        self.node_order: list[NodeScorer] = []
        """Node scores; they depend on the task's shape and the node's kind, and else only on keys in `score_keys`."""
        self.score_keys: list[Callable[[PodInfo], Hashable]] = []
        """Keys of everything else that scores depend on: while they are equal, so are the scores."""
        self.relative_scores: list[RelativeNodeScorer] = []
        self.job_order: list[Callable[[PodGroupInfo, PodGroupInfo], int]] = []
        self.pod_set_order: list[Callable[[PodSetInfo, PodSetInfo], int]] = []
        self.task_order: list[Callable[[PodInfo, PodInfo], int]] = []
        self.queue_order: list[QueueComparison] = []
        self.may_reclaim: list[Callable[[PodGroupInfo], bool]] = []
        self.reclaim_victims: list[Callable[[PodGroupInfo, PodGroupInfo], bool]] = []
        self.preempt_victims: list[Callable[[PodGroupInfo, PodGroupInfo], bool]] = []
        self.reclaim_scenarios: list[Callable[[SolverScenario], bool]] = []
        self.preempt_scenarios: list[Callable[[SolverScenario], bool]] = []
        self.on_solution_start: list[Callable[[], None]] = []
        self.queue_use: list[Callable[[QueueState], str]] = []
        self.over_quota: list[FindExceededQueue] = []
        self.over_capacity: list[FindExceededQueue] = []
        self.over_capacity_on_node: list[Callable[[PodInfo, PodGroupInfo, KaiNodeInfo], OverCapacity | None]] = []
        self.subsets: list[SubsetNodes] = []
        self.pre_predicates: list[Callable[[PodInfo, PodGroupInfo], str | None]] = []
        self.predicates: list[Callable[[PodInfo, PodGroupInfo, KaiNodeInfo], NodeError | None]] = []
        self.all_predicate_errors: list[
            Callable[[PodInfo, PodGroupInfo, KaiNodeInfo], Iterator[tuple[str, NodeError]]]
        ] = []
        """All errors of the predicates for a node, each with the predicate's name."""
        self.node_only_predicates: list[Callable[[PodInfo, KaiNodeInfo], bool]] = []
        """Predicates whose result never changes in a session; False excludes the node."""
        self.on_job_placement_start: list[Callable[[PodGroupInfo], None]] = []
        self.on_allocate: list[Callable[[PodInfo], None]] = []
        self.on_deallocate: list[Callable[[PodInfo], None]] = []
