"""Messages between console and worker, one request and one reply, as msgpack over a pipe; analyses that they name."""

import time
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    Union,
    Unpack,
    get_args,
    get_type_hints,
)

import msgspec
from msgspec import Struct

from gpuconsole.insight.forecast.agreement import ShadowReport
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.forecast.estimates import StartEstimates, start_estimate_steps
from gpuconsole.insight.forecast.forecast import Forecast, WorkloadOutlook, outlook_steps
from gpuconsole.insight.pending.why import Tried, rehearsal_of, trying, view_on
from gpuconsole.insight.preemption.risk import Risk, eviction_risk_steps
from gpuconsole.insight.whatif.futures import Elsewhere
from gpuconsole.insight.whatif.plan import CapacityPlan, plan_steps
from gpuconsole.insight.whatif.whatif import WhatIf, what_if_steps
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Command
from gpuconsole.model.cooperative import Progress
from gpuconsole.model.events import Event
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility
from gpuconsole.scheduling.placement import ScoreTable
from gpuconsole.sim.admission_simulator import AdmissionSimulator

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

AdmissionTrialBase: TypeAlias = tuple[Snapshot, AdmissionSimulator | None]
"""A cluster, and its admission state to try changes on; None without Kueue."""


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


class Question(Struct, frozen=True, kw_only=True, tag=True):
    """Start an analysis, and return its first progress; each further one is requested by `NextPiece`."""

    number: int
    """Number of the question; a new question of one analysis replaces the last one of that analysis."""
    analysis: str
    """A key of `ANALYSES`."""
    arguments: msgspec.Raw
    """The arguments of its function without the cluster, as a msgpack array."""
    follow: ReplaySteps | None = None
    """What to replay before answering; None if the simulation has had no steps since the last request."""
    seen: bool = False
    """True if it is about the cluster of the last UpdateSnapshot, not about the replicated simulation."""


class NextPiece(Struct, frozen=True, tag=True):
    """Return the next progress of a question; without this request it is not computed."""

    number: int


class AskForecast(Struct, frozen=True, tag=True):
    """Forecast Kueue's next decisions from the last update, and compare the previous forecast with its decisions.

    It is no analysis: it takes one short step, and it depends on the forecast before it.
    """

    assumed: tuple[str, ...]
    """Assumptions about the cluster, as sentences."""
    unseen: tuple[str, ...]
    """Why objects that decisions depend on are not visible, as sentences."""
    followed: bool = False
    """True if the shadow has followed all changes until now: the forecast is then made with its queues."""


class BeginShadow(Struct, frozen=True, tag=True):
    """Begin to check Kueue's decisions: with the objects of the cluster at this time."""

    time: Time
    objects: tuple[bytes, ...]
    """Encoded events that create the objects, in chunks."""
    policy: bytes
    """The scheduler settings (SimPolicy) as JSON."""


class FollowChanges(Struct, frozen=True, tag=True):
    """Check the decisions that these changes show, and return what was found since the begin."""

    changes: bytes
    """Encoded events, in their order."""


class Expect(Struct, frozen=True, tag=True):
    """Prepare for a question about the cluster of the last UpdateSnapshot."""


class Done(Struct, frozen=True, tag=True):
    """The request is complete, without a result.

    If `same` is False, a request or question could not be handled because the replica differs from the simulation; the
    worker then needs a saved simulation (`Begin`).
    """

    same: bool = True


class AnswerPiece(Struct, frozen=True, tag=True):
    """The next progress of an analysis."""

    progress: msgspec.Raw
    """A `Progress` of the answer's type, as msgpack."""


class ForecastReply(Struct, frozen=True, tag=True):
    """A forecast, and the differences of the previous one from Kueue's decisions."""

    forecast: Forecast
    said: ForecastDifferences


class ShadowReply(Struct, frozen=True, tag=True):
    """What the shadow of the live cluster has found."""

    report: ShadowReport


class Failed(Struct, frozen=True, tag=True):
    """An error, as text."""

    problem: str


Request = Union[
    Begin, ReplaySteps, UpdateSnapshot, Expect, Question, NextPiece, AskForecast, BeginShadow, FollowChanges
]
Reply = Union[Done, AnswerPiece, ForecastReply, ShadowReply, Failed]

ENCODER = msgspec.msgpack.Encoder()
REQUESTS = msgspec.msgpack.Decoder(Request)
REPLIES = msgspec.msgpack.Decoder(Reply)
NEWS = msgspec.msgpack.Decoder(list[Event])
FOLLOWED = frozenset(TABLES.values()) - {"telemetry", "jobs", "pod_groups", "kai_pod_groups"}
"""Tables whose changes the shadow of a live cluster follows."""


class AnalysedCluster(NamedTuple):
    """The cluster that an analysis is about. Its functions may be slow: a fork is made, or a simulation is prepared."""

    simulation: Callable[[], "Simulation"]
    """Returns the simulation to fork, which may advance between two steps of the analysis."""
    admission: Callable[[], AdmissionTrialBase]
    """Returns the Snapshot, and the admission state to try changes on."""
    found: Callable[[], Snapshot | None] = lambda: None
    """Returns the live cluster from which the simulation starts; None for a simulated cluster."""
    elsewhere: Elsewhere | None = None
    """Moves a fork to another process, if that is possible."""


def simulated_cluster(simulation: "Simulation", elsewhere: Elsewhere | None = None) -> AnalysedCluster:
    """Return a simulated cluster as the subject of an analysis."""

    def admission() -> AdmissionTrialBase:
        snapshot = simulation.snapshot()
        return snapshot, rehearsal_of(simulation, snapshot)

    return AnalysedCluster(lambda: simulation, admission, elsewhere=elsewhere)


Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")
Analysis: TypeAlias = Callable[[AnalysedCluster, Unpack[Arguments]], Iterator[Progress[T]]]
"""A long analysis, which either process can run: (cluster, arguments) → progress until the answer is complete."""


def try_commands(
    cluster: AnalysedCluster,
    commands: tuple[Command, ...],
    horizon: Span,
    against: tuple[Command, ...],
    places: tuple[str, ...],
) -> Iterator[Progress[WhatIf]]:
    """Run a what-if; see `what_if_steps`."""
    base, found = cluster.simulation(), cluster.found()
    return what_if_steps(base, commands, horizon, against, places, found, cluster.elsewhere, time.thread_time)


def explain_pending(cluster: AnalysedCluster, workload: str) -> Iterator[Progress[Tried]]:
    """Explain why a workload is pending, and try suggestions; see `trying`."""
    return trying(*cluster.admission(), workload, cluster.simulation)


def find_plan(
    cluster: AnalysedCluster, commands: tuple[Command, ...], wanted: Span
) -> Iterator[Progress[CapacityPlan]]:
    """Find changes with which these workloads start within the wait `wanted`; see `plan_steps`."""
    return plan_steps(cluster.simulation().fork(), commands, wanted)


def estimate_risk(cluster: AnalysedCluster) -> Iterator[Progress[Risk]]:
    """Estimate the preemption risk of running workloads; see `eviction_risk_steps`."""
    simulation, found = cluster.simulation(), cluster.found()
    standing = view_on(found, simulation.policy) if found is not None else None
    return eviction_risk_steps(simulation.fork(), found=standing, clock=time.monotonic)


def estimate_outlook(cluster: AnalysedCluster, workload: str) -> Iterator[Progress[WorkloadOutlook]]:
    """Estimate the start of one pending workload, or the risk of a running one; see `outlook_steps`."""
    return outlook_steps(cluster.simulation().fork(), workload, found=cluster.found())


def estimate_starts(cluster: AnalysedCluster) -> Iterator[Progress[StartEstimates]]:
    """Estimate the starts of all pending workloads; see `start_estimate_steps`."""
    return start_estimate_steps(cluster.simulation().fork())


def score_nodes(cluster: AnalysedCluster, pod: Pod) -> Iterator[Progress[ScoreTable]]:
    """Return every filter and score result of every node for a pod; no answer if the engine has no scores."""
    yield Progress(answer=cluster.simulation().placement.scores(pod), last=True)


class AnalysisCodec:
    """An analysis, and how its arguments and its progress are decoded, by the types in its signature."""

    def __init__(self, run: Analysis[*tuple[Any, ...], Any]) -> None:
        _, *arguments, progress = get_type_hints(run).values()
        self.run = run
        self.arguments = msgspec.msgpack.Decoder(GenericAlias(tuple, tuple(arguments)))
        self.progress = msgspec.msgpack.Decoder(get_args(progress)[0])


ANALYSES = {
    run.__name__: AnalysisCodec(run)
    for run in (
        try_commands,
        explain_pending,
        find_plan,
        estimate_risk,
        estimate_outlook,
        estimate_starts,
        score_nodes,
    )
}
"""Name of a function above → the analysis that it runs."""
