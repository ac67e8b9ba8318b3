"""A search for victims: the preemptor's request, the check whether it fits, and the reduction to a minimal set of
victims.
"""

from collections.abc import Hashable, Sequence

from msgspec import Struct

from gpuconsole.model.decisions import CandidateVerdict, PreemptionRule
from gpuconsole.scheduling.kueue.compiled_config import ClusterQueueConfig
from gpuconsole.scheduling.kueue.context import Context
from gpuconsole.scheduling.kueue.requests import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.search_trace import SearchTrace
from gpuconsole.scheduling.kueue.topology.tas_assignment import Demands, find
from gpuconsole.scheduling.kueue.usage import UsageTree


class PreemptionTarget(Struct, frozen=True):
    """A victim with the rule that allows it; a replaced slice of the same job has no rule."""

    holding: Holding
    rule: PreemptionRule | None


class PreemptionSearch:
    """The request of a preemptor and the columns in which it needs preemption; `uses` are (column, amount) pairs."""

    __slots__ = ("columns", "context", "demands", "request", "rules", "trace", "uses")

    def __init__(
        self,
        context: Context,
        rules: ClusterQueueConfig,
        request: WorkloadRequest,
        columns: frozenset[int],
        uses: Sequence[tuple[int, int]],
        demands: Demands | None = None,
    ) -> None:
        self.context = context
        self.rules = rules
        self.request = request
        self.columns = columns
        self.uses = uses
        self.demands = demands or {}
        """Flavor → topology requests that must fit, too."""
        self.trace: SearchTrace | None = None
        """Record of the candidates, if a trace is requested."""

    @property
    def key(self) -> Hashable:
        """Equal for searches that have the same result while the usage is the same."""
        wanted = tuple((flavor, d.pod_set.name, d.count) for flavor, group in self.demands.items() for d in group)
        return self.request.id, self.columns, tuple(self.uses), wanted

    @property
    def usage(self) -> UsageTree:
        return self.context.snapshot.usage

    def fits(self, *, borrowing: bool) -> bool:
        """True if the preemptor fits now, its topology included; without `borrowing` also within nominal quota."""
        node, usage = self.rules.node, self.usage
        if not borrowing and any(usage.over(node, column, amount) for column, amount in self.uses):
            return False
        if not usage.fits(node, self.uses):
            return False
        return not self.demands or not find(self.context, self.demands).failed


def fill_back(search: PreemptionSearch, targets: list[PreemptionTarget], *, borrowing: bool) -> list[PreemptionTarget]:
    """Put victims back, last chosen first, as long as the preemptor still fits; the last one chosen stays a victim.

    All targets must be removed from the usage. The last target takes the place of one that is put back, so the order
    changes as in Kueue; only the set matters.
    """
    accounts = search.context.snapshot
    targets = targets[:]
    for index in range(len(targets) - 2, -1, -1):
        accounts.add(targets[index].holding)
        if search.fits(borrowing=borrowing):
            if search.trace is not None:
                search.trace.record(targets[index].holding, CandidateVerdict.PUT_BACK)
            targets[index] = targets[-1]
            targets.pop()
        else:
            accounts.remove(targets[index].holding)
    return targets
