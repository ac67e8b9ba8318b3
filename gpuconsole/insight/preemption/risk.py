"""Preemption risk of running work, by Monte Carlo runs of the cluster, as for `forecast.eta`.

Each run draws arrivals (from the simulation's own arrival streams, else from recorded ones), run times, and
interruptions of spot nodes (recorded rates, or those of the instance-type catalogue). The total effort is bounded, so a
large cluster gets fewer runs with a shorter horizon. The answer has the work that an eviction now would lose, for work
with or without a Workload, and the preemption order if a lender reclaims its quota, by the engine's own search (see
`sharing.ledger`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.insight.cost.rates import UNKNOWN, EvictionLoss, loss_if_evicted, priced
from gpuconsole.insight.data_gaps import latency_assumption, queue_assumptions
from gpuconsole.insight.expectations import DELETED
from gpuconsole.insight.forecast.eta import PastSubmission, again, workload_history
from gpuconsole.insight.forecast.expected_start import SETTINGS, run_time_assumption
from gpuconsole.insight.index.demand import device_counter, held_units, pod_units
from gpuconsole.insight.index.gpu_time import uncheckpointed
from gpuconsole.insight.index.unqueued_work import outermost, unqueued_work
from gpuconsole.insight.pending.why import AdmissionView, view_of
from gpuconsole.insight.preemption.history import rule_in_words
from gpuconsole.insight.sharing.fair_shares import borrowed_gpus
from gpuconsole.insight.sharing.ledger import ledger
from gpuconsole.insight.tables import counted
from gpuconsole.model.autoscaling import INSTANCE_TYPE, InstanceTypeCatalogue
from gpuconsole.model.clock import HOUR, MINUTE, Span, Time, format_span
from gpuconsole.model.cluster import NODE_LOST, Pod
from gpuconsole.model.commands import InterruptSpot, Submit
from gpuconsole.model.cooperative import Progress, complete_answer
from gpuconsole.model.devices import WHOLE_GPU, Units, added, in_one_unit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices, is_spot
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import PLACED, Workload, phase
from gpuconsole.sim.policy import INTERRUPTED, MONTH, SPOT_INTERRUPTION, FixedCapacity, SimPolicy
from gpuconsole.sim.run_times import learn_run_times, random_for

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


class Runner(Struct, frozen=True, kw_only=True):
    """Running work that can be evicted: an admitted Workload, or a job or pod without one."""

    key: str
    """Key of its Workload, otherwise of its job, otherwise of the pod."""
    queue: str
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    borrowed: int | None
    """Number of its borrowed GPUs. None if its ClusterQueue does not exist, as its nominal quota is unknown."""
    priority: int
    loss: EvictionLoss
    pods: tuple[str, ...]
    """Keys of its pods that have a node."""


def runners(snapshot: Snapshot, prices: Prices) -> tuple[Runner, ...]:
    """List admitted Workloads, and unqueued jobs and lone pods that hold accelerators; some pods may be pending."""
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.all():
        if not pod.done:
            pods.setdefault(_top(snapshot, pod), []).append(pod)
    queued = [one for one in snapshot.workloads.all() if phase(one) in PLACED]
    # A job that lost some of its pods restarts, but none of its fields has the time.
    again = {line.workload: line.time for line in snapshot.recent if line.what is HistoryEventKind.STARTED}
    others = [
        _unqueued(snapshot, prices, key, one, pods[key], again.get(key, 0))
        for key, one in unqueued_work(snapshot).items()
        if any(pod.node for pod in pods.get(key, ()))
    ]
    return (
        *(_queued(snapshot, prices, one, pods.get(one.key, ())) for one in queued),
        *(one for one in others if one.gpus),
    )


def _top(snapshot: Snapshot, pod: Pod) -> str:
    """Return the key of a pod's Workload, otherwise of its outermost job, otherwise of the pod."""
    return pod.workload or outermost(snapshot.jobs.get, pod.job) or pod.key


def _queued(snapshot: Snapshot, prices: Prices, workload: Workload, pods: Sequence[Pod]) -> Runner:
    placed = [pod for pod in pods if pod.node]
    held = held_units(snapshot, workload)
    # Devices without quota are counted from the pods.
    besides = ({u: n for u, n in pod_units(snapshot, pod).items() if u not in held} for pod in placed)
    gpus, unit = in_one_unit(added(held, *besides))
    return Runner(
        key=workload.key,
        queue=workload.cluster_queue,
        gpus=gpus,
        unit=unit,
        borrowed=borrowed_gpus(snapshot).get(workload.key, 0)
        if workload.cluster_queue in snapshot.cluster_queues
        else None,
        priority=workload.priority,
        loss=loss_if_evicted(snapshot, workload, prices),
        pods=tuple(pod.key for pod in placed),
    )


def _unqueued(snapshot: Snapshot, prices: Prices, key: str, twin: Workload, pods: Sequence[Pod], again: Time) -> Runner:
    """Make the Runner of unqueued work from its pods, as it holds no quota. `again` is its last restart, if recent."""
    lost = uncheckpointed(twin, snapshot.jobs.get(key), pods, snapshot.time, device_counter(snapshot), again=again)
    placed = [pod for pod in pods if pod.node]
    gpus, unit = in_one_unit(added(*(_held(snapshot, pod) for pod in placed)))
    return Runner(
        key=key,
        queue=twin.queue,
        gpus=gpus,
        unit=unit,
        borrowed=0,
        priority=max((pod.priority for pod in placed), default=twin.priority),
        loss=priced(snapshot, lost, prices),
        pods=tuple(pod.key for pod in placed),
    )


def _held(snapshot: Snapshot, pod: Pod) -> Units:
    """Return the devices that a pod requests, else the GPU that it shares without a request."""
    return pod_units(snapshot, pod) or {WHOLE_GPU: len(pod.gpus)}


USUAL = 0.10
"""Fraction of the spot instances of an unlisted type that is interrupted per month: AWS's Spot Instance Advisor gives
5% to 20% for most types."""
_LEAST: Span = HOUR
"""A record shorter than this counts as this long: one interruption in the first minute is no rate."""


class SpotInterruptions(Struct, frozen=True, kw_only=True):
    """How often each of the present spot nodes is expected to be interrupted by the cloud provider."""

    per_hour: Mapping[str, float]
    """Spot node → expected interruptions per hour."""
    recorded: int
    """Interruptions in the record."""
    span: Span
    """Length of the record."""

    def sample(self, seed: int, start: Time, end: Time) -> list[tuple[Time, str]]:
        """Draw the times of interruptions before `end`, at most one per node; the same for the same seed."""
        found = []
        for node, rate in self.per_hour.items():
            if rate > 0:
                time = start + round(random_for(seed, "spot interruption", node).expovariate(rate) * HOUR)
                if time < end:
                    found.append((time, node))
        return found

    @property
    def assumption(self) -> str:
        """Assumption about spot nodes, in words."""
        if not self.per_hour:
            return "no spot interruptions: the cluster has no spot nodes"
        nodes = counted(len(self.per_hour), "spot node")
        hourly = sum(self.per_hour.values())
        source = (
            f"{counted(self.recorded, 'interruption')} recorded in the last {format_span(self.span)}"
            if self.recorded
            else "the rates of the instance-type catalogue"
        )
        return f"spot interruptions are drawn for {nodes}, {hourly:.3g} per hour in total ({source})"


def spot_interruptions(snapshot: Snapshot, policy: SimPolicy, lines: Iterable[HistoryEvent] = ()) -> SpotInterruptions:
    """Estimate the rate of each spot node: the higher of the catalogue's and the recorded one.

    `lines` of history (oldest first) contain the recorded interruptions and the length of the record.
    """
    nodes = {node.name: node.labels for node in snapshot.nodes.all() if is_spot(node.labels)}
    record = list(lines)
    recorded = sum(line.what is HistoryEventKind.CAPACITY and line.reason == INTERRUPTED for line in record)
    span = max(_LEAST, snapshot.time - record[0].time) if record else _LEAST
    exposure = (len(nodes) + recorded) * span / HOUR
    seen = recorded / exposure if recorded else 0.0
    catalogue = InstanceTypeCatalogue() if isinstance(policy.capacity, FixedCapacity) else policy.capacity.catalogue
    return SpotInterruptions(
        per_hour={
            name: max(seen, _catalogued(catalogue, labels) * policy.spot.interruptions)
            for name, labels in sorted(nodes.items())
        },
        recorded=recorded,
        span=span,
    )


def _catalogued(catalogue: InstanceTypeCatalogue, labels: Mapping[str, str]) -> float:
    """Interruptions per hour of an instance of this type."""
    kind = catalogue.types.get(labels.get(INSTANCE_TYPE, ""))
    monthly = USUAL if kind is None else kind.interrupted / 100
    return monthly / (MONTH / HOUR)


RUNS = 20
HORIZON: Span = 6 * HOUR
EFFORT = 18_000
"""Simulation steps of all runs together; a step takes 0.1 to 0.2 ms at any size of the cluster."""
FEWEST = 8
"""The first run gets 1/FEWEST of the steps; the time that it reaches is the horizon of all others."""
LIMIT = 5.0
"""Seconds of all runs together, if a clock is given: steps of some schedulers are much slower."""
_OVERTIME = 1.2
"""A run that has begun may exceed the budget by this factor."""
_STEP: Span = MINUTE
"""Simulated time between two checks of the events of a run."""
_LOOK: Span = 15 * MINUTE
"""Simulated time between two progress reports of a run."""
_LOOK_STEPS = 500
"""Steps after which a run reports progress even if simulated time has not advanced."""
_RECORDED: Span = 10 * MINUTE
"""Minimum length of the recorded arrivals that are drawn again."""
STREAM_RUN_TIMES = (
    "run times of a stream's jobs are drawn from that stream, others from past jobs of the same namespace, queue and "
    "size; running and preempted jobs last longer than they have run so far"
)
_REASONS = {SPOT_INTERRUPTION: "spot interruption", NODE_LOST: "node lost"}
"""Reasons of evictions that no scheduler decided, in words."""


class EvictionCause(Struct, frozen=True):
    """Cause of a workload's first eviction, with the number of runs."""

    reason: str
    """The rule of a preemption in words, else the eviction's own reason."""
    by_queue: str
    """ClusterQueue of the preemptor, if any."""
    runs: int


class ReclaimPosition(Struct, frozen=True):
    """Rank (from 1) of a workload in the preemption order if a lender reclaims all its quota of a flavor."""

    lender: str
    flavor: str
    place: int


class WorkloadRisk(Struct, frozen=True, kw_only=True):
    """Preemption risk of one running workload, or of a job or pod without a Workload."""

    workload: str
    queue: str
    """ClusterQueue, otherwise the queue of Volcano or KAI, if any."""
    gpus: int
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    borrowed: int | None
    """Number of its borrowed GPUs; None if its ClusterQueue does not exist."""
    priority: int
    probability: float | None
    """Fraction of the runs in which it is evicted before the horizon; None if it cannot be simulated."""
    median: Span | None
    """Median time until the eviction, in runs with an eviction."""
    causes: tuple[EvictionCause, ...]
    """The most frequent first."""
    turns: tuple[ReclaimPosition, ...]
    """Its ranks in the preemption orders of lenders."""
    lost_gpu_hours: float | None
    """Work that an eviction now would lose; None if unknown, as the cost."""
    cost: float | None
    """Cost of that work in USD."""


class Risk(Struct, frozen=True, kw_only=True):
    """Preemption risk of all running workloads, highest first."""

    time: Time
    horizon: Time
    """The end of the time that the runs cover."""
    runs: int
    wanted_horizon: Time
    """The requested end of the forecast."""
    wanted_runs: int
    workloads: tuple[WorkloadRisk, ...] = field(name="dangers")
    assumptions: tuple[str, ...]


class _Eviction(Struct, frozen=True):
    """One eviction in one Monte Carlo run."""

    after: Span
    reason: str
    by_queue: str


def risk(
    simulation: "Simulation",
    lines: Iterable[HistoryEvent] = (),
    *,
    runs: int = RUNS,
    seed: int = 0,
    horizon: Span = HORIZON,
    found: AdmissionView | None = None,
    effort: int | None = EFFORT,
) -> Risk:
    """Estimate the preemption risk of each running workload until the horizon, and the preemption order of reclaims.

    The simulation is not modified; the same seed gives the same answer. `found` is the live or saved cluster that it
    started from: the answer is about the workloads that run there, and includes evictions by the simulation's first
    cycle. `effort` bounds the steps of all runs together; None runs all of them to the horizon.
    """
    return complete_answer(
        eviction_risk_steps(simulation, lines, runs=runs, seed=seed, horizon=horizon, found=found, effort=effort)
    )


def eviction_risk_steps(
    simulation: "Simulation",
    lines: Iterable[HistoryEvent] = (),
    *,
    runs: int = RUNS,
    seed: int = 0,
    horizon: Span = HORIZON,
    found: AdmissionView | None = None,
    effort: int | None = EFFORT,
    clock: Callable[[], float] | None = None,
    limit: float = LIMIT,
) -> Iterator[Progress[Risk]]:
    """`risk` as an iterator: the complete runs, the time that the present one has reached, an answer after each run.

    With a `clock` the runs also end after `limit` seconds; then the answer depends on the speed of the machine.
    """
    budget = _Budget(effort, clock, limit)
    standing = found or view_of(simulation)
    snapshot = standing.snapshot
    chances = _Chances(simulation, snapshot, list(lines))
    running = runners(snapshot, simulation.policy.prices)
    keys = {name: one.key for one in running for name in (one.key, *one.pods)}
    at_once = _at_once(simulation, running) if found is not None else {}
    falls: dict[str, list[_Eviction]] = {}
    turns = _reclaim_positions(standing)
    end, over = snapshot.time + horizon, 0
    answer: Risk | None = None
    while over < runs and (answer is None or budget.spent() < 1):
        life = chances.life(random_for(seed, "risk", over).getrandbits(48), end, budget)
        # The first run determines the horizon of all runs.
        for reached in life.advancing(budget.part(min(runs, FEWEST)) if answer is None else _OVERTIME):
            yield Progress(done=over, total=runs, doing=f"at +{format_span(reached - snapshot.time)}")
        if answer is not None and life.reached < end:
            break
        end, over = life.reached, over + 1
        for key, fall in {**at_once, **_first_evictions(life.history, keys, snapshot.time)}.items():
            falls.setdefault(key, []).append(fall)
        workload_risks = [_workload_risk(one, falls.get(one.key, ()), over, turns.get(one.key, ())) for one in running]
        workload_risks.sort(key=_rank)
        answer = Risk(
            time=snapshot.time,
            horizon=end,
            runs=over,
            wanted_horizon=snapshot.time + horizon,
            wanted_runs=runs,
            workloads=tuple(workload_risks),
            assumptions=chances.assumptions,
        )
        yield Progress(done=over, total=runs, doing=f"at +{format_span(0)}", answer=answer)
    yield Progress(done=over, total=runs, answer=answer, last=True)


class _Budget:
    """Bound on all runs together, in simulation steps and seconds. Mutates by `step`."""

    def __init__(self, effort: int | None, clock: Callable[[], float] | None, limit: float) -> None:
        self._effort, self._clock, self._limit = effort, clock, limit
        self._began = clock() if clock is not None else 0.0
        self._steps = 0

    def step(self) -> None:
        self._steps += 1

    def part(self, of: int) -> float:
        """Return the spent fraction after one of `of` equal parts of the remaining budget."""
        return self.spent() + (1 - self.spent()) / of

    def spent(self) -> float:
        """Return the spent fraction; 1 if all is spent."""
        if self._effort is None:
            return 0.0
        seconds = self._clock() - self._began if self._clock is not None else 0.0
        return max(self._steps / self._effort, seconds / self._limit)


class _Chances:
    """Distributions that the runs draw from: arrivals, run times, spot interruptions."""

    def __init__(self, simulation: "Simulation", snapshot: Snapshot, lines: Sequence[HistoryEvent]) -> None:
        self._simulation = simulation
        self._streams = simulation.policy.arrivals
        self._known = replace(workload_history(snapshot, lines), shortest=_RECORDED)
        self._spot = spot_interruptions(snapshot, simulation.policy, lines or snapshot.recent)
        self._run_times = learn_run_times(self._known.runs, self._known.lasted(simulation.progress()))
        self.assumptions = (
            STREAM_RUN_TIMES if self._streams else run_time_assumption(self._known),
            self._arrivals(snapshot.time),
            self._spot.assumption,
            SETTINGS,
            *queue_assumptions(simulation),
            latency_assumption(simulation.policy.latencies),
        )

    def life(self, seed: int, end: Time, budget: _Budget) -> "_Life":
        """Return one run of the cluster until `end`."""
        twin = self._simulation.estimating_fork(self._run_times, seed, redraw=True)
        for time, node in self._spot.sample(seed, twin.now, end):
            twin.schedule_commands(time, InterruptSpot(node))
        return _Life(twin, again(self._known, end, seed) if not self._streams else iter(()), end, budget)

    def _arrivals(self, now: Time) -> str:
        """Describe the assumption about arrivals."""
        known = self._known
        if self._streams:
            hour = now // HOUR % 24
            rate = sum(one.per_hour * one.by_hour[hour % len(one.by_hour)] for one in self._streams)
            streams = counted(len(self._streams), "arrival stream")
            return f"arrivals are drawn from the simulation's {streams}, {rate:.0f} jobs per hour at this time of day"
        came = f"{counted(len(known.arrivals), 'workload')} in the last {format_span(known.span)}"
        if known.repeats:
            return f"arrivals are drawn from the recorded ones: {came}"
        return f"no new arrivals: too few are recorded ({came})"


class _Life:
    """One run of the cluster. Mutates by `advancing`."""

    def __init__(self, twin: "Simulation", coming: Iterator[PastSubmission], end: Time, budget: _Budget) -> None:
        self._twin, self._coming, self._end, self._budget = twin, coming, end, budget
        self._begun = self.reached = twin.now
        self.history: list[HistoryEvent] = []
        """Events up to `reached`."""

    def advancing(self, most: float) -> Iterator[Time]:
        """Advance to the end, or until `most` of the budget is spent; yields the reached time at intervals.

        The first minute is always simulated, so that there is an answer.
        """
        due = next(self._coming, None)
        looked, steps = self.reached, 0
        while self.reached == self._begun or (self.reached < self._end and self._budget.spent() < most):
            ahead = min(self._end, self.reached + _STEP)
            while due is not None and due.time <= ahead:
                self._twin.schedule_commands(due.time, Submit((due.workload,)))
                due = next(self._coming, None)
            for _ in self._twin.advance_in_steps(ahead):
                self._budget.step()
                steps += 1
                if self.reached > self._begun and self._budget.spent() >= most:
                    return
                if steps % _LOOK_STEPS == 0:
                    yield self.reached
            self.history += [event for event in self._twin.drain() if isinstance(event, HistoryEvent)]
            self.reached = ahead
            if ahead - looked >= _LOOK:
                looked = ahead
                yield ahead


def reclaim_risk(standing: AdmissionView) -> Risk:
    """Return only the preemption order if lenders reclaim, for a cluster whose nodes or pods are not all visible."""
    snapshot, turns = standing.snapshot, _reclaim_positions(standing)
    running = [one for one in runners(snapshot, standing.policy.prices) if one.key in snapshot.workloads]
    workload_risks = [
        replace(_workload_risk(replace(one, loss=UNKNOWN), (), 1, turns.get(one.key, ())), probability=None)
        for one in running
    ]
    workload_risks.sort(key=_rank)
    now = snapshot.time
    return Risk(
        time=now,
        horizon=now,
        runs=0,
        wanted_horizon=now,
        wanted_runs=0,
        workloads=tuple(workload_risks),
        assumptions=(),
    )


def _rank(one: WorkloadRisk) -> tuple[float, float, str]:
    """Return the sort key: highest risk first, then rank in the preemption order."""
    return -(one.probability or 0.0), min((turn.place for turn in one.turns), default=inf), one.workload


def _at_once(simulation: "Simulation", running: Iterable[Runner]) -> dict[str, _Eviction]:
    """Return evictions by the simulation's first cycle of workloads that run in the live or saved cluster."""
    found: dict[str, _Eviction] = {}
    for one in running:
        workload = simulation.workload(one.key)
        if workload is not None and phase(workload) not in PLACED:
            why = workload.condition("Preempted") or workload.condition("Evicted")
            found[one.key] = _Eviction(0, rule_in_words(why.reason) if why is not None else "evicted", "")
    return found


def _first_evictions(lines: Sequence[HistoryEvent], keys: Mapping[str, str], start: Time) -> dict[str, _Eviction]:
    """Return the first eviction of each workload, with the preemption that caused it.

    `keys` maps workloads and pods to their workload.
    """
    chosen: dict[str, HistoryEvent] = {}
    found: dict[str, _Eviction] = {}
    for line in lines:
        key = keys.get(line.workload) or keys.get(line.pod)
        if key is None or key in found:
            continue
        lost = line.what is HistoryEventKind.POD_FAILED and line.reason == NODE_LOST
        if line.what is HistoryEventKind.PREEMPTED:
            chosen[key] = line
        elif lost or (line.what in (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED) and line.reason != DELETED):
            why = chosen.get(key, line)
            reason = _REASONS.get(why.reason) or rule_in_words(why.reason)
            found[key] = _Eviction(line.time - start, reason, why.by_queue)
    return found


def _reclaim_positions(standing: AdmissionView) -> Mapping[str, Sequence[ReclaimPosition]]:
    """Map workloads to their ranks in the preemption orders of the lenders."""
    found: dict[str, list[ReclaimPosition]] = {}
    if standing.session is None:
        return found
    for exposure in ledger(standing.snapshot, standing.session, standing.policy.prices).exposures:
        for place, leaving in enumerate(exposure.leaving, start=1):
            found.setdefault(leaving.workload, []).append(ReclaimPosition(exposure.lender, exposure.flavor, place))
    return found


def _workload_risk(
    one: Runner, falls: Sequence[_Eviction], runs: int, turns: Sequence[ReclaimPosition]
) -> WorkloadRisk:
    counts = Counter((fall.reason, fall.by_queue) for fall in falls)
    spans = sorted(fall.after for fall in falls)
    return WorkloadRisk(
        workload=one.key,
        queue=one.queue,
        gpus=one.gpus,
        unit=one.unit,
        borrowed=one.borrowed,
        priority=one.priority,
        probability=len(falls) / runs,
        median=spans[len(spans) // 2] if spans else None,
        causes=tuple(
            EvictionCause(reason, by_queue, number)
            for (reason, by_queue), number in sorted(counts.items(), key=lambda count: (-count[1], count[0]))
        ),
        turns=tuple(turns),
        lost_gpu_hours=one.loss.gpu_hours,
        cost=one.loss.cost,
    )
