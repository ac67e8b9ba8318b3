"""Messages between console and worker: one request, one reply, as msgpack over a pipe."""

from typing import Union

import msgspec
from msgspec import Struct

from gpuconsole.insight.forecast import Forecast
from gpuconsole.insight.forecast_check import ForecastDifferences
from gpuconsole.insight.plan import PlanProgress
from gpuconsole.insight.risk import EvictionRiskProgress
from gpuconsole.insight.start_estimates import StartEstimates
from gpuconsole.insight.whatif import WhatIfProgress
from gpuconsole.insight.why import Tried
from gpuconsole.insight.workload_outlook import WorkloadOutlook
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Event
from gpuconsole.model.visibility import EVERYTHING, Visibility
from gpuconsole.scheduling.score_table import ScoreTable


class Carried(Struct, frozen=True):
    at: Time
    command: Command


class Begin(Struct, frozen=True, tag=True):
    """Start from a saved simulation."""

    state: bytes
    digest: int


class UpdateSnapshot(Struct, frozen=True, tag=True):
    """Apply the changes of a live cluster since the last update."""

    anew: bool
    """Nothing is known of it so far."""
    time: Time
    news: tuple[bytes, ...]
    """Events, some at a time: while they are encoded, no other thread of the process gets its turn."""
    policy: bytes
    seen: Visibility = EVERYTHING
    """What of it is known at all."""


class ReplaySteps(Struct, frozen=True, tag=True):
    """Repeat the steps of the simulation up to its current state."""

    steps: tuple[Carried, ...]
    now: Time
    digest: int


class QuestionMessage(Struct, frozen=True, kw_only=True):
    """A question, with the steps to replay before it."""

    follow: ReplaySteps | None = None
    """None if there is no news."""
    seen: bool = False
    """Of the cluster that was seen last, not of the simulation that is followed."""


class LongQuestionMessage(QuestionMessage, frozen=True, kw_only=True):
    """A question that is answered in parts."""

    number: int = 0
    """Of the question: a new one of a kind takes the place of the last one of its kind."""


class AskWhatIf(LongQuestionMessage, frozen=True, tag=True):
    """Start a what-if, and return its first result."""

    commands: tuple[Command, ...]
    horizon: Span
    against: tuple[Command, ...] = ()
    places: tuple[str, ...] = ()
    """Where each of the commands stands, for those that are refused."""


class NextPiece(Struct, frozen=True, tag=True):
    """Return the next result of a what-if or another long question. Not asking cancels it."""

    number: int


class AskScores(QuestionMessage, frozen=True, tag=True):
    """Return every filter and score result of every node for a pod."""

    pod: Pod


class AskWhy(LongQuestionMessage, frozen=True, tag=True):
    """Explain why a workload is pending, and start to try suggestions."""

    workload: str


class AskPlan(LongQuestionMessage, frozen=True, tag=True):
    """Start a plan that makes these workloads start within a target wait."""

    commands: tuple[Command, ...]
    wanted: Span


class AskRisk(LongQuestionMessage, frozen=True, tag=True):
    """Start the simulation runs for the preemption risk."""


class AskOutlook(LongQuestionMessage, frozen=True, tag=True):
    """Start the simulation runs for the forecast of one workload."""

    workload: str


class AskStarts(LongQuestionMessage, frozen=True, tag=True):
    """Start the simulation runs for the estimated starts of all pending workloads."""


class AskForecast(Struct, frozen=True, tag=True):
    """Forecast Kueue's next decisions from the last update, and compare the previous forecast."""

    assumed: tuple[str, ...]
    unseen: tuple[str, ...]


class Expect(Struct, frozen=True, tag=True):
    """Prepare for a question about the last update."""


class Done(Struct, frozen=True, tag=True):
    """The replica is up to date; `same` is False if it differs from the simulation."""

    same: bool = True


class WhatIfReply(Struct, frozen=True, tag=True):
    look: WhatIfProgress


class ScoresReply(Struct, frozen=True, tag=True):
    table: ScoreTable | None


class WhyReply(Struct, frozen=True, tag=True):
    tried: Tried


class PlanReply(Struct, frozen=True, tag=True):
    planning: PlanProgress


class RiskReply(Struct, frozen=True, tag=True):
    progress: EvictionRiskProgress


class OutlookReply(Struct, frozen=True, tag=True):
    ahead: WorkloadOutlook


class StartsReply(Struct, frozen=True, tag=True):
    outlook: StartEstimates


class ForecastReply(Struct, frozen=True, tag=True):
    forecast: Forecast
    said: ForecastDifferences


class Failed(Struct, frozen=True, tag=True):
    problem: str


Long = Union[AskWhatIf, AskWhy, AskPlan, AskRisk, AskOutlook, AskStarts]
Question = Union[Long, AskScores]
Request = Union[Begin, ReplaySteps, UpdateSnapshot, Expect, Question, NextPiece, AskForecast]
Answered = Union[WhatIfReply, ScoresReply, WhyReply, PlanReply, RiskReply, OutlookReply, StartsReply, ForecastReply]
Reply = Union[Done, Answered, Failed]

ENCODER = msgspec.msgpack.Encoder()
REQUESTS = msgspec.msgpack.Decoder(Request)
REPLIES = msgspec.msgpack.Decoder(Reply)
NEWS = msgspec.msgpack.Decoder(list[Event])
