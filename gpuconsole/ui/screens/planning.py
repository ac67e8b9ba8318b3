"""The screens of what many runs of the cluster tell: what may evict running work, and what would let work in."""

from collections.abc import Sequence

from gpuconsole.insight.plan import Planning
from gpuconsole.insight.risk import RUNS, Foreboding
from gpuconsole.model.clock import Span, Time, format_span
from gpuconsole.model.commands import Command
from gpuconsole.services.answers import Answers
from gpuconsole.ui import format as fmt
from gpuconsole.ui.answers.plan import plan_lines
from gpuconsole.ui.answers.risk import risk_lines
from gpuconsole.ui.screens.long_answer import LongAnswerScreen, Told


def risk_screen() -> LongAnswerScreen[Foreboding]:
    """For each running workload, what may evict it and how probable that is."""
    return LongAnswerScreen("risk", "What may evict running work, and how probable that is", Answers.risk, _risk)


def plan_screen(commands: Sequence[Command], wanted: Span) -> LongAnswerScreen[Planning]:
    """What quota, nodes or policy would let what these submit run within a wait, at the least cost."""
    title = f"What would let them run within {format_span(wanted)}, at the least cost"
    return LongAnswerScreen("plan", title, lambda answers: answers.plan(commands, wanted), _plan)


def _risk(piece: Foreboding) -> Told:
    lines = risk_lines(piece.risk) if piece.risk is not None else None
    if piece.risk is not None and piece.runs == RUNS:
        return Told(_as_of(piece.risk.time), lines, whole=True)
    return Told(f"run {piece.runs + 1} of {RUNS}, at +{format_span(piece.reached)}", lines)


def _plan(piece: Planning) -> Told:
    if piece.plan is not None:
        return Told(_as_of(piece.plan.time), plan_lines(piece.plan), whole=True)
    return Told(f"{piece.done} of {piece.of} kinds done, trying: {piece.kind}")


def _as_of(time: Time) -> str:
    return f"as of {fmt.clock(time)}"
