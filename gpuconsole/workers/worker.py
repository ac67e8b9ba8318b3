"""What the worker process can be asked: a method a question, each of which knows what its answer looks like."""

from collections.abc import Iterator, Sequence

from gpuconsole.insight.forecast import Forecast
from gpuconsole.insight.forecast_check import ForecastDifferences
from gpuconsole.insight.plan import PlanProgress
from gpuconsole.insight.risk import EvictionRiskProgress
from gpuconsole.insight.start_estimates import StartEstimates
from gpuconsole.insight.whatif import WhatIfProgress
from gpuconsole.insight.why import Tried
from gpuconsole.insight.workload_outlook import WorkloadOutlook
from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.scheduling.score_table import ScoreTable
from gpuconsole.workers.protocol import (
    AskForecast,
    AskOutlook,
    AskPlan,
    AskRisk,
    AskScores,
    AskStarts,
    AskWhatIf,
    AskWhy,
    ForecastReply,
    OutlookReply,
    PlanReply,
    RiskReply,
    ScoresReply,
    StartsReply,
    WhatIfReply,
    WhyReply,
)
from gpuconsole.workers.worker_client import ObservedCluster, WorkerClient


class Worker(WorkerClient):
    """The process that runs futures, so that this one has time for keys. It may be asked from any thread."""

    def looks(
        self,
        commands: Sequence[Command],
        horizon: Span,
        against: Sequence[Command] = (),
        seen: ObservedCluster | None = None,
        places: Sequence[str] = (),
    ) -> Iterator[WhatIfProgress]:
        """Have the worker compute a what-if look by look, from where the simulation stands, or from a cluster.

        Between two looks others may ask; who stops asking gives it up. Raises WorkerError.
        """
        for reply in self.pieces(AskWhatIf(tuple(commands), horizon, tuple(against), tuple(places)), seen):
            assert isinstance(reply, WhatIfReply)
            yield reply.look
            if reply.look.last:
                return

    def why(self, workload: str, seen: ObservedCluster | None = None) -> Iterator[Tried]:
        """Have the worker say why a workload waits, and try what would let it in, as `looks`. Raises WorkerError."""
        for reply in self.pieces(AskWhy(workload), seen):
            assert isinstance(reply, WhyReply)
            yield reply.tried
            if reply.tried.under_way is None:
                return

    def plan(
        self, commands: Sequence[Command], wanted: Span, seen: ObservedCluster | None = None
    ) -> Iterator[PlanProgress]:
        """Have the worker try what would let these run within a wait, as `looks` does. Raises WorkerError."""
        for reply in self.pieces(AskPlan(tuple(commands), wanted), seen):
            assert isinstance(reply, PlanReply)
            yield reply.planning
            if reply.planning.plan is not None:
                return

    def risk(self, seen: ObservedCluster | None = None) -> Iterator[EvictionRiskProgress]:
        """Have the worker run the cluster forward for what may be evicted, as `looks` does. Raises WorkerError."""
        for reply in self.pieces(AskRisk(), seen):
            assert isinstance(reply, RiskReply)
            yield reply.progress
            if reply.progress.last:
                return

    def scores(self, pod: Pod, seen: ObservedCluster | None = None) -> ScoreTable | None:
        """Have the worker judge all nodes for a pod, as `looks` does. Raises WorkerError."""
        reply = self.answer(AskScores(pod, seen=seen is not None), seen)
        assert isinstance(reply, ScoresReply)
        return reply.table

    def ahead(self, workload: str, seen: ObservedCluster | None = None) -> Iterator[WorkloadOutlook]:
        """Have the worker run the cluster forward for a workload, as `looks` does. Raises WorkerError."""
        for reply in self.pieces(AskOutlook(workload), seen):
            assert isinstance(reply, OutlookReply)
            yield reply.ahead
            if reply.ahead.whole:
                return

    def outlook(self, seen: ObservedCluster | None = None) -> Iterator[StartEstimates]:
        """Have the worker run the cluster forward for all that waits, as `looks` does. Raises WorkerError."""
        for reply in self.pieces(AskStarts(), seen):
            assert isinstance(reply, StartsReply)
            yield reply.outlook
            if reply.outlook.whole:
                return

    def forecast(
        self, seen: ObservedCluster, assumed: tuple[str, ...], unseen: tuple[str, ...]
    ) -> tuple[Forecast, ForecastDifferences]:
        """Have the worker look at a live cluster, see `Observer.look`. Raises WorkerError."""
        reply = self.answer(AskForecast(assumed, unseen), seen)
        assert isinstance(reply, ForecastReply)
        return reply.forecast, reply.said
