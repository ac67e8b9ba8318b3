"""Records how searches for victims proceeded, where the caller asks for it."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.model.preemption_trace import CandidateVerdict, ConsideredCandidate
from gpuconsole.scheduling.kueue.requests import Holding


class SearchTrace:
    """One search: its candidates in order, and what became of each. Mutates."""

    __slots__ = ("verdicts",)

    def __init__(self) -> None:
        self.verdicts: dict[int, tuple[Holding, CandidateVerdict]] = {}
        """Id of the workload → the workload, and what became of it."""

    def begin(self, candidates: Iterable[Holding]) -> None:
        """A new attempt: nobody is needed so far."""
        self.verdicts = {candidate.id: (candidate, CandidateVerdict.NOT_NEEDED) for candidate in candidates}

    def record(self, candidate: Holding, verdict: CandidateVerdict) -> None:
        self.verdicts[candidate.id] = candidate, verdict


class FinishedTrace(Struct, frozen=True):
    """A search that is over."""

    victims: frozenset[int]
    by_share: str
    shares: Mapping[str, str]
    """ClusterQueue → its share before anybody left."""
    considered: tuple[ConsideredCandidate, ...]
    left_out: int


SearchTraces = dict[int, list[FinishedTrace]]
"""Id of the preemptor → its searches that found victims, in order."""
