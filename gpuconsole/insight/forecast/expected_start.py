"""Position and ETA of one workload, with the data and assumptions behind the estimate."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.data_gaps import QUOTA, latency_assumption, queue_assumptions
from gpuconsole.insight.forecast.estimates import YOUNG, Calibration, CoverageRecord, Estimate, estimate, probability
from gpuconsole.insight.forecast.estimates import corrected as corrected_estimate
from gpuconsole.insight.forecast.eta import (
    HORIZON,
    RUNS,
    SimulatedStarts,
    WorkloadHistory,
    start_steps,
    workload_history,
)
from gpuconsole.insight.index.capacity import capacity
from gpuconsole.insight.index.demand import wanted_units
from gpuconsole.insight.index.pods import phase_of
from gpuconsole.insight.index.queues import Position, pending, position
from gpuconsole.insight.index.unqueued_work import unqueued_work
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.shortage import PendingExplanation
from gpuconsole.insight.pending.why import PLACES
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import HOUR, Span, Time, format_span
from gpuconsole.model.cooperative import Progress, complete_answer
from gpuconsole.model.devices import WHOLE_GPU, in_one_unit
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.queues import LocalQueue
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, Workload, WorkloadPhase
from gpuconsole.sim.run_times import WorkKind, learn_run_times

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


SPANS: tuple[Span, ...] = (HOUR, 6 * HOUR, 24 * HOUR)
"""Spans for which the probability of a start is stated."""

UNCORRECTED = "uncalibrated: not enough past estimates"
CORRECTED = "calibrated with {} past estimates"
WIDTH = "{}; the interval is {:.1f} times as wide as in the runs"
TOO_YOUNG = "only {} of history: with less than {}, estimates tend to be far too early"
TAIL = "half of the starts beyond the horizon come within 1.4 times the horizon (Pareto tail)"
"""Assumption behind an interval if some runs saw no start; see `SimulatedStarts.at`."""
SETTINGS = "quotas, nodes and priorities do not change"
RECORD = "coverage of {} past intervals: {:.0%} (target: 80%)"


class CohortPosition(Struct, frozen=True):
    """Rank (from 1) of a workload among all pending workloads of its cohort tree, by priority and age only."""

    cohort: str
    place: int
    of: int


class StartProbability(Struct, frozen=True):
    """Probability (0 to 1) of a start within a span from now."""

    span: Span
    probability: float


class Eta(Struct, frozen=True, kw_only=True):
    """Position and estimated start of a workload; no estimate if it is not pending."""

    workload: str
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    phase: WorkloadPhase
    time: Time
    position: Position | None
    cohort: CohortPosition | None
    start: Estimate | None = None
    """The estimate. None if it is not pending, and until the runs end; pending includes admitted without nodes."""
    blocker: PendingExplanation | None = None
    """Reason why it is pending, if it started in no run."""
    by_runs: SimulatedStarts | None = None
    """Its start in each run."""
    goes_by: str = ""
    """The group of similar past jobs from which its run time is drawn."""
    samples: int = 0
    """Number of finished jobs in that group."""
    past_runs: int = 0
    """Number of finished jobs in the whole cluster."""
    arrivals: int = 0
    """Number of past submissions that the runs repeat."""
    arrivals_span: Span = 0
    record: CoverageRecord = CoverageRecord()
    """Coverage of earlier estimates."""
    assumptions: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    """Calibration and coverage of the interval, in words."""

    @property
    def within(self) -> tuple[StartProbability, ...]:
        """Probabilities of a start within `SPANS`, up to the horizon of the runs."""
        found, start = self.by_runs, self.start
        if found is None or start is None:
            return ()
        ends = ((span, found.asked + span) for span in SPANS)
        return tuple(
            StartProbability(span, probability(found, start, end)) for span, end in ends if end <= found.horizon
        )


def expected_start(
    simulation: "Simulation",
    workload: str,
    lines: Iterable[HistoryEvent] = (),
    *,
    runs: int = RUNS,
    seed: int = 0,
    horizon: Span = HORIZON,
) -> Eta:
    """Estimate the start of a workload by `runs` simulations of the cluster to the horizon.

    A job or a lone pod without a Workload has no position, and starts when enough of its pods have nodes. `lines` of
    history add run times of deleted work. The simulation is not modified; the same seed gives the same answer. Raises
    KeyError if there is no such workload.
    """
    return complete_answer(expected_start_steps(simulation, workload, lines, runs=runs, seed=seed, horizon=horizon))


def expected_start_steps(
    simulation: "Simulation",
    workload: str,
    lines: Iterable[HistoryEvent] = (),
    *,
    runs: int = RUNS,
    seed: int = 0,
    horizon: Span = HORIZON,
) -> Iterator[Progress[Eta]]:
    """`expected_start` as an iterator, with the number of complete runs; only the last item has an answer."""
    snapshot = simulation.snapshot()
    answer, explanation = current_position(snapshot, workload), explain(snapshot, workload)
    if not waits(answer, explanation):
        yield Progress(answer=answer, last=True)
        return
    known = workload_history(snapshot, lines)
    for piece in start_steps(simulation, (workload,), known, runs=runs, seed=seed, horizon=horizon):
        found = None
        if piece.answer is not None:
            taken = assumptions(known, simulation)
            found = _answered(answer, known, piece.answer[workload], snapshot, explanation, taken)
        yield Progress(done=piece.done, total=piece.total, answer=found, last=piece.last)


def current_position(snapshot: Snapshot, workload: str) -> Eta:
    """Return the position of a workload, without an estimate. Raises KeyError if there is no such workload."""
    subject = _subject(snapshot, workload)
    queued = workload in snapshot.workloads
    local_queue = snapshot.local_queues.get(subject.local_queue) if queued else None
    queue = local_queue.cluster_queue if local_queue is not None else "" if queued else subject.queue
    gpus, unit = in_one_unit(wanted_units(snapshot, subject))
    return Eta(
        workload=workload,
        queue=queue,
        gpus=gpus,
        unit=unit,
        phase=phase_of(snapshot, subject),
        time=snapshot.time,
        position=position(snapshot, workload),
        cohort=_in_cohort(snapshot, subject, queue) if queued and snapshot.seen.all_of(*QUOTA, LocalQueue) else None,
    )


def waits(answer: Eta, explanation: PendingExplanation) -> bool:
    """True for a workload that is not admitted yet, or whose pods wait for nodes."""
    placeless = answer.phase in PLACED and explanation.code in PLACES
    return answer.phase in (WorkloadPhase.PENDING, WorkloadPhase.QUOTA_RESERVED) or placeless


def _answered(
    answer: Eta,
    known: WorkloadHistory,
    found: SimulatedStarts,
    snapshot: Snapshot,
    explanation: PendingExplanation,
    taken: tuple[str, ...],
) -> Eta:
    """Return the answer with the estimate and the data behind it."""
    subject = _subject(snapshot, answer.workload)
    # As in the simulation: work that Kueue does not queue is grouped by namespace and size only.
    queue = answer.queue if answer.workload in snapshot.workloads else ""
    group, curve = learn_run_times(known.runs, {}).curve(WorkKind(subject.namespace, queue, answer.gpus))
    start = estimate(found)
    return replace(
        answer,
        start=start,
        blocker=explanation if start.beyond else None,
        by_runs=found,
        goes_by=group,
        samples=curve.ends if curve is not None else 0,
        past_runs=sum(run.ended for run in known.runs),
        arrivals=len(known.arrivals),
        arrivals_span=known.span,
        assumptions=(*taken, *((TAIL,) if start.never and not start.beyond else ())),
        trust=tuple(_trust(start, Calibration(), CoverageRecord())),
    )


def _subject(snapshot: Snapshot, key: str) -> Workload:
    """Return the Workload, or the synthetic one of a job or pod without one. Raises KeyError."""
    return snapshot.workloads.get(key) or unqueued_work(snapshot)[key]


def corrected(answer: Eta, learned: Calibration, kept: CoverageRecord) -> Eta:
    """Return the answer calibrated with earlier estimates, with their coverage."""
    if answer.start is None:
        return answer
    start = corrected_estimate(answer.start, learned)
    return replace(answer, start=start, record=kept, trust=tuple(_trust(start, learned, kept)))


def _trust(start: Estimate, learned: Calibration, kept: CoverageRecord) -> Iterator[str]:
    """Calibration and coverage of the interval, in words."""
    if start.past < YOUNG:
        yield TOO_YOUNG.format(format_span(start.past), format_span(YOUNG))
    if start.beyond:
        return
    by = CORRECTED.format(learned.by) if learned.by else UNCORRECTED
    yield WIDTH.format(by, start.stretch)
    if kept.judged:
        yield RECORD.format(kept.judged, kept.covered / kept.judged)


def assumptions(known: WorkloadHistory, simulation: "Simulation") -> tuple[str, ...]:
    """Describe the assumptions of the simulation runs."""
    return (
        run_time_assumption(known),
        f"arrivals repeat those of the last {format_span(known.span)} ({counted(len(known.arrivals), 'workload')})"
        if known.repeats
        else "no new arrivals",
        SETTINGS,
        *queue_assumptions(simulation),
        latency_assumption(simulation.policy.latencies),
    )


def run_time_assumption(known: WorkloadHistory) -> str:
    """Describe the assumption about run times."""
    ended = sum(run.ended for run in known.runs)
    if not ended:
        return "no workload has finished yet: run times are about an hour, or twice the time run so far"
    return (
        f"run times follow past jobs of the same namespace, queue and size ({counted(ended, 'sample')}); "
        "running jobs last longer than they have run so far"
    )


def _in_cohort(snapshot: Snapshot, subject: Workload, queue: str) -> CohortPosition | None:
    """Rank among the pending workloads of the cohort tree; None without a cohort, or if it is not pending.

    None in a cohort cycle as well, where no workload is admitted (see `capacity.cohort_cycle`).
    """
    own, tree = snapshot.cluster_queues.get(queue), capacity(snapshot).tree
    if own is None or not own.cohort or queue not in tree.queues:
        return None
    root = tree.root(tree.queues[queue])
    mates = (name for name, node in tree.queues.items() if tree.root(node) == root)
    waiting = [entry.workload for name in mates for entry in pending(snapshot, name)]
    waiting.sort(key=lambda one: (-one.priority, one.created, one.key))
    place = next((place for place, one in enumerate(waiting, start=1) if one.key == subject.key), None)
    return CohortPosition(tree.names[root], place, len(waiting)) if place is not None else None
