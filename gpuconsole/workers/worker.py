"""Questions to the worker process: one method each, with the type of its answer."""

from collections.abc import Iterator, Sequence

from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import StartEstimates
from gpuconsole.insight.forecast.forecast import Forecast
from gpuconsole.insight.forecast.workload_outlook import WorkloadOutlook
from gpuconsole.insight.pending.why import Tried
from gpuconsole.insight.preemption.risk import EvictionRiskProgress
from gpuconsole.insight.whatif.plan import PlanProgress
from gpuconsole.insight.whatif.whatif import WhatIfProgress
from gpuconsole.model.clock import Span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.scheduling.placement import ScoreTable
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
    """The process that computes futures, so that the console stays responsive. Thread-safe."""

    def looks(
        self,
        commands: Sequence[Command],
        horizon: Span,
        against: Sequence[Command] = (),
        seen: ObservedCluster | None = None,
        places: Sequence[str] = (),
    ) -> Iterator[WhatIfProgress]:
        """Compute a what-if, result by result, from the simulation's current state or from a cluster.

        Other questions may be asked between two results; not asking for the next one cancels it. Raises WorkerError.
        """
        for reply in self.pieces(AskWhatIf(tuple(commands), horizon, tuple(against), tuple(places)), seen):
            assert isinstance(reply, WhatIfReply)
            yield reply.look
            if reply.look.last:
                return

    def why(self, workload: str, seen: ObservedCluster | None = None) -> Iterator[Tried]:
        """Explain why a workload is pending, and try suggestions, as `looks`. Raises WorkerError."""
        for reply in self.pieces(AskWhy(workload), seen):
            assert isinstance(reply, WhyReply)
            yield reply.tried
            if reply.tried.under_way is None:
                return

    def plan(
        self, commands: Sequence[Command], wanted: Span, seen: ObservedCluster | None = None
    ) -> Iterator[PlanProgress]:
        """Compute a plan that makes these workloads start within a target wait, as `looks`. Raises WorkerError."""
        for reply in self.pieces(AskPlan(tuple(commands), wanted), seen):
            assert isinstance(reply, PlanReply)
            yield reply.planning
            if reply.planning.plan is not None:
                return

    def risk(self, seen: ObservedCluster | None = None) -> Iterator[EvictionRiskProgress]:
        """Compute the preemption risk of running workloads, as `looks`. Raises WorkerError."""
        for reply in self.pieces(AskRisk(), seen):
            assert isinstance(reply, RiskReply)
            yield reply.progress
            if reply.progress.last:
                return

    def scores(self, pod: Pod, seen: ObservedCluster | None = None) -> ScoreTable | None:
        """Compute the scores of all nodes for a pod, as `looks`. Raises WorkerError."""
        reply = self.answer(AskScores(pod, seen=seen is not None), seen)
        assert isinstance(reply, ScoresReply)
        return reply.table

    def ahead(self, workload: str, seen: ObservedCluster | None = None) -> Iterator[WorkloadOutlook]:
        """Compute the forecast of one workload, as `looks`. Raises WorkerError."""
        for reply in self.pieces(AskOutlook(workload), seen):
            assert isinstance(reply, OutlookReply)
            yield reply.ahead
            if reply.ahead.whole:
                return

    def outlook(self, seen: ObservedCluster | None = None) -> Iterator[StartEstimates]:
        """Compute the estimated starts of all pending workloads, as `looks`. Raises WorkerError."""
        for reply in self.pieces(AskStarts(), seen):
            assert isinstance(reply, StartsReply)
            yield reply.outlook
            if reply.outlook.whole:
                return

    def forecast(
        self, seen: ObservedCluster, assumed: tuple[str, ...], unseen: tuple[str, ...]
    ) -> tuple[Forecast, ForecastDifferences]:
        """Forecast Kueue's next decisions in a live cluster; see `ForecastChecker.look`. Raises WorkerError."""
        reply = self.answer(AskForecast(assumed, unseen), seen)
        assert isinstance(reply, ForecastReply)
        return reply.forecast, reply.said
