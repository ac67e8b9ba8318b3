"""Records how searches for victims proceeded, where the caller asks for it."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.model.preemption_trace import CandidateVerdict, ConsideredCandidate
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
        self.verdicts[candidate.id] = candidate, verdict


class FinishedTrace(Struct, frozen=True):
    """Record of a finished search."""

    victims: frozenset[int]
    by_share: str
    shares: Mapping[str, str]
    """ClusterQueue → its share before anybody left."""
    considered: tuple[ConsideredCandidate, ...]
    left_out: int


SearchTraces = dict[int, list[FinishedTrace]]
"""Id of the preemptor → its searches that found victims, in order."""
