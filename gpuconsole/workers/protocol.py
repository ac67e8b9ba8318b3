"""Messages between console and worker: one request, one reply, as msgpack over a pipe."""

from typing import Union

import msgspec
from msgspec import Struct

from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import StartEstimates
from gpuconsole.insight.forecast.forecast import Forecast, WorkloadOutlook
from gpuconsole.insight.pending.why import Tried
from gpuconsole.insight.preemption.risk import Risk
from gpuconsole.insight.whatif.plan import CapacityPlan
from gpuconsole.insight.whatif.whatif import WhatIf
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.events import Event
from gpuconsole.model.snapshot import EVERYTHING, Visibility
from gpuconsole.scheduling.placement import ScoreTable


class Carried(Struct, frozen=True):
    """A command that the simulation carried out, and the virtual time at which it did."""

    at: Time
    command: Command


class Begin(Struct, frozen=True, tag=True):
    """Start the replica from this saved simulation."""

    state: bytes
    digest: int
    """Checksum of the simulation's history until then."""


class UpdateSnapshot(Struct, frozen=True, tag=True):
    """Apply the changes of a live cluster since the last update."""

    anew: bool
    """True if the changes start from an empty cluster, because another cluster, or none, was sent before."""
    time: Time
    news: tuple[bytes, ...]
    """Encoded events, in chunks: while msgspec encodes, no other thread of the process runs."""
    policy: bytes
    """The scheduler settings (SimPolicy) as JSON."""
    seen: Visibility = EVERYTHING
    """Which resources of the cluster are visible."""


class ReplaySteps(Struct, frozen=True, tag=True):
    """Repeat in the replica what the simulation did since the last request."""

    steps: tuple[Carried, ...]
    now: Time
    digest: int
    """Checksum of the history that the replica must have then."""


class QuestionMessage(Struct, frozen=True, kw_only=True):
    """A question, with the steps to replay before it."""

    follow: ReplaySteps | None = None
    """What to replay before answering; None if the simulation has had no steps since the last request."""
    seen: bool = False
    """True if it is about the cluster of the last UpdateSnapshot, not about the replicated simulation."""


class LongQuestionMessage(QuestionMessage, frozen=True, kw_only=True):
    """A question whose answer comes in parts, each requested by `NextPiece`."""

    number: int = 0
    """Number of the question; a new question of one type replaces the last one of that type."""


class AskWhatIf(LongQuestionMessage, frozen=True, tag=True):
    """Start a what-if, and return its first result."""

    commands: tuple[Command, ...]
    horizon: Span
    against: tuple[Command, ...] = ()
    places: tuple[str, ...] = ()
    """Place of each command in its file, for refusals."""


class NextPiece(Struct, frozen=True, tag=True):
    """Return the next result of a long question; without this request it is not computed."""

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
    """Start the simulation runs for the estimated start of one pending workload, or the risk of a running one."""

    workload: str


class AskStarts(LongQuestionMessage, frozen=True, tag=True):
    """Start the simulation runs for the estimated starts of all pending workloads."""


class AskForecast(Struct, frozen=True, tag=True):
    """Forecast Kueue's next decisions from the last update, and compare the previous forecast with its decisions."""

    assumed: tuple[str, ...]
    """Assumptions about the cluster, as sentences."""
    unseen: tuple[str, ...]
    """Why objects that decisions depend on are not visible, as sentences."""


class Expect(Struct, frozen=True, tag=True):
    """Prepare for a question about the cluster of the last UpdateSnapshot."""


class Done(Struct, frozen=True, tag=True):
    """The request is complete, without a result.

    If `same` is False, a request or question could not be handled because the replica differs from the simulation; the
    worker then needs a saved simulation (`Begin`).
    """

    same: bool = True


class WhatIfReply(Struct, frozen=True, tag=True):
    """The next result of a what-if."""

    look: Progress[WhatIf]


class ScoresReply(Struct, frozen=True, tag=True):
    """The scores of all nodes for a pod; None if the placement engine has none."""

    table: ScoreTable | None


class WhyReply(Struct, frozen=True, tag=True):
    """An explanation of a pending workload, with the suggestions tried so far."""

    tried: Progress[Tried]


class PlanReply(Struct, frozen=True, tag=True):
    """The progress of the search for changes that reach a target wait."""

    planning: Progress[CapacityPlan]


class RiskReply(Struct, frozen=True, tag=True):
    """The progress of the runs for the preemption risk."""

    progress: Progress[Risk]


class OutlookReply(Struct, frozen=True, tag=True):
    """The estimated start or the risk of one workload, as far as it is computed."""

    ahead: Progress[WorkloadOutlook]


class StartsReply(Struct, frozen=True, tag=True):
    """The estimated starts of pending workloads, as far as they are computed."""

    outlook: Progress[StartEstimates]


class ForecastReply(Struct, frozen=True, tag=True):
    """A forecast, and the differences of the previous one from Kueue's decisions."""

    forecast: Forecast
    said: ForecastDifferences


class Failed(Struct, frozen=True, tag=True):
    """An error, as text."""

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
