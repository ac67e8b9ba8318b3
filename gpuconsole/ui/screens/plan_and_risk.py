"""Screens of the preemption risk and of the plan, both computed by simulation runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuconsole.insight.data_gaps import missing_for_placement
from gpuconsole.insight.preemption.risk import RUNS, EvictionRiskProgress, reclaim_risk
from gpuconsole.insight.whatif.plan import PlanOption, PlanProgress
from gpuconsole.model.clock import Span, Time, format_span
from gpuconsole.model.commands import Command
from gpuconsole.services.analysis import AnalysisService
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action
from gpuconsole.ui.answers.plan import key_of, options_of, plan_parts
from gpuconsole.ui.answers.risk import risk_parts
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.long_answer import AnswerChunk, LongAnswerScreen
from gpuconsole.ui.whatif_changes import WhatIfChange


def risk_screen() -> LongAnswerScreen[EvictionRiskProgress]:
    """The preemption risk of each running workload."""
    return LongAnswerScreen("risk", "Preemption risk of running workloads", _risk_steps, _risk)


def _risk_steps(answers: AnalysisService) -> Iterator[EvictionRiskProgress]:
    """Results run by run; if invalid nodes or pods prevent simulation, the part that does not need them."""
    standing = answers.standing()
    if missing_for_placement(standing.snapshot):
        yield EvictionRiskProgress(runs=0, reached=0, risk=reclaim_risk(standing), last=True)
    else:
        yield from answers.risk()


class PlanScreen(LongAnswerScreen[PlanProgress]):
    """The cheapest changes of quota, nodes or policy that start the submitted jobs within a target wait."""

    def __init__(self, commands: Sequence[Command], wanted: Span, take: Callable[[WhatIfChange], object]) -> None:
        """`take` adds the changes of an option to the what-if."""
        title = f"Cheapest options to start within {format_span(wanted)}"
        super().__init__("plan", title, lambda answers: answers.plan(commands, wanted), self._chunk)
        self._take = take
        self._options: Mapping[str, PlanOption] = {}

    def _chunk(self, piece: PlanProgress) -> AnswerChunk:
        if piece.plan is None:
            return AnswerChunk(f"{piece.done} of {piece.of} kinds of options evaluated, now: {piece.kind}")
        self._options = {key_of(option): option for option in options_of(piece.plan)}
        return AnswerChunk(_as_of(piece.plan.time), plan_parts(piece.plan), whole=True)

    def handlers(self) -> Handlers:
        return {**super().handlers(), "object.rehearse": self._rehearse}

    def refusal(self, action: Action) -> str:
        if action.id == "object.rehearse" and self.option is None:
            return "no option is selected"
        if action.id == "object.rehearse" and self.option is not None and not self.option.commands:
            return "this option changes nothing"
        return super().refusal(action)

    @property
    def option(self) -> PlanOption | None:
        """The selected option."""
        return self._options.get(self.row.key) if self.row is not None else None

    def _rehearse(self) -> None:
        if (option := self.option) is not None:
            self.console_app.up()
            self._take(WhatIfChange(option.words, option.commands))


def _risk(piece: EvictionRiskProgress) -> AnswerChunk:
    parts = risk_parts(piece.risk) if piece.risk is not None else None
    if piece.risk is not None and piece.last:
        return AnswerChunk(_as_of(piece.risk.time), parts, whole=True)
    return AnswerChunk(f"run {piece.runs + 1} of at most {RUNS}, at +{format_span(piece.reached)}", parts)


def _as_of(time: Time) -> str:
    return f"as of {fmt.clock(time)}"
