"""Records of searches for victims, kept if the caller requests them."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.model.decisions import CandidateVerdict, ConsideredCandidate
from gpuconsole.scheduling.kueue.requests import Holding


class SearchTrace:
    """Record of one search: its candidates in order, and the verdict on each. Mutates."""

    __slots__ = ("verdicts",)

    def __init__(self) -> None:
        self.verdicts: dict[int, tuple[Holding, CandidateVerdict]] = {}
        """Workload id → the workload and the verdict on it."""

    def begin(self, candidates: Iterable[Holding]) -> None:
        """Start a new attempt with these candidates."""
        self.verdicts = {candidate.id: (candidate, CandidateVerdict.NOT_NEEDED) for candidate in candidates}

    def record(self, candidate: Holding, verdict: CandidateVerdict) -> None:
        """Record the verdict on a candidate."""
        self.verdicts[candidate.id] = candidate, verdict


class FinishedTrace(Struct, frozen=True):
    """Record of a finished search."""

    victims: frozenset[int]
    by_share: str
    """Share of the preemptor's ClusterQueue before the preemption."""
    shares: Mapping[str, str]
    """ClusterQueue of a victim → its share before the preemption."""
    considered: tuple[ConsideredCandidate, ...]
    left_out: int
    """Number of workloads that `considered` omits."""


SearchTraces = dict[int, list[FinishedTrace]]
"""Id of the preemptor → its searches that found victims, in order."""
