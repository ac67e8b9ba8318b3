"""Forecast of Kueue's next scheduling cycles for all pending workloads.

The simulator's admission engine runs cycles on a Snapshot; no time passes, and nothing is written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.admission_forecaster import AdmissionForecaster, CyclesResult
from gpuconsole.insight.data_gaps import in_sentences
from gpuconsole.insight.device_demand import amount_of
from gpuconsole.model.clock import Time
from gpuconsole.model.decisions import Preempt
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Admission, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.observation import Observation
from gpuconsole.sim.policy import SimPolicy

NO_KUEUE = "Kueue is not installed in this cluster"


class ForecastAction(StrEnum):
    """Effect of the next scheduling cycles on a workload."""

    ADMITTED = "admitted"
    """Quota is reserved for it."""
    AFTER_VICTIMS = "after-victims"
    """It preempts others and waits for their quota."""
    WAITS = "waits"
    PREEMPTED = "preempted"
    """It runs, and is a victim."""


class WorkloadForecast(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Forecast of the next scheduling cycles for one workload."""

    workload: str
    queue: str = ""
    """ClusterQueue."""
    gpus: int = 0
    """GPUs, or what `unit` names."""
    unit: str = WHOLE_GPU.noun
    priority: int = 0
    created: Time = 0
    fate: ForecastAction
    cycle: int = 0
    """Number of the cycle that admits it, from 1; 0 if none does."""
    flavors: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Flavors of each pod set, as `assigned` writes them."""
    victims: tuple[str, ...] = ()
    """Workloads that it preempts."""
    by: str = ""
    """Its preemptor."""
    rule: str = ""
    """Rule by which it is a victim: the reason of Kueue's Preempted condition."""
    reason: str = ""
    message: str = ""
    """Reason and message of a pending workload, as Kueue would write them."""


class Forecast(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Forecast for all workloads at one moment, valid until the cluster changes."""

    time: Time = 0
    prospects: Mapping[str, WorkloadForecast] = {}
    """Forecasts of all pending workloads and their victims, by workload."""
    assumed: tuple[str, ...] = ()
    """Assumptions about the cluster, in sentences."""
    queues: tuple[str, ...] = ()
    """Assumptions about Kueue's in-memory queues, in sentences."""

    def of(self, workload: str) -> WorkloadForecast | None:
        """Return the forecast for a workload; None if it is neither pending nor a victim."""
        return self.prospects.get(workload)

    @property
    def expected(self) -> dict[str, WorkloadForecast]:
        """Workloads that are forecast to be admitted or to preempt others."""
        return {
            key: one
            for key, one in self.prospects.items()
            if one.fate in (ForecastAction.ADMITTED, ForecastAction.AFTER_VICTIMS)
        }

    def in_order(self) -> list[WorkloadForecast]:
        """Admissions by cycle, then preemptors, pending workloads and victims; each by priority and age."""
        order = list(ForecastAction)
        return sorted(
            self.prospects.values(),
            key=lambda one: (order.index(one.fate), one.cycle, -one.priority, one.created, one.workload),
        )


class Forecaster:
    """Forecasts one cluster repeatedly, from the changes since the last forecast. Mutates by `forecast`."""

    def __init__(self) -> None:
        self._foresight: AdmissionForecaster | None = None

    def forecast(
        self, snapshot: Snapshot, policy: SimPolicy, *, assumed: Iterable[str] = (), supposed: bool = False
    ) -> Forecast:
        """Run scheduling cycles on a Snapshot until another cycle would change nothing.

        With `supposed` the Snapshot is hypothetical; the next one is not compared with it.
        """
        if policy.kueue is None:
            return Forecast(time=snapshot.time, assumed=(*assumed, NO_KUEUE))
        outcome = self._engine(policy.kueue).ask(snapshot, keep=not supposed)
        return _as_forecast(snapshot, outcome, assumed)

    def possible(self, supposed: Snapshot, policy: SimPolicy, workload: str, other: str = "") -> Iterator[Forecast]:
        """Yield forecasts on a hypothetical Snapshot, for the possible in-memory states of Kueue about this workload.

        Other refused workloads may be inadmissible, except `other`.
        """
        if policy.kueue is not None:
            for outcome in self._engine(policy.kueue).with_possible_state(supposed, workload, other):
                yield _as_forecast(supposed, outcome, ())

    def preemptions(self, supposed: Snapshot, policy: SimPolicy) -> Sequence[Preempt]:
        """Return the preemptions on a hypothetical Snapshot, with the choice of their victims."""
        return self._engine(policy.kueue).ask(supposed, keep=False).preempted if policy.kueue is not None else ()

    def followed(self, policy: SimPolicy) -> tuple[Snapshot, Observation] | None:
        """The last observed cluster and the known state of Kueue's queues; None if the policy differs."""
        engine = self._foresight
        return engine.followed if engine is not None and engine.config == policy.kueue else None

    def _engine(self, config: KueueConfig) -> AdmissionForecaster:
        if self._foresight is None or self._foresight.config != config:
            self._foresight = AdmissionForecaster(config)
        return self._foresight


def forecast(snapshot: Snapshot, policy: SimPolicy, *, assumed: Iterable[str] = ()) -> Forecast:
    """Make a single forecast; see `Forecaster` for repeated ones."""
    return Forecaster().forecast(snapshot, policy, assumed=assumed)


def _as_forecast(snapshot: Snapshot, outcome: CyclesResult, assumed: Iterable[str]) -> Forecast:
    victims: dict[str, list[str]] = {}
    for line in outcome.preempted:
        victims.setdefault(line.by, []).append(line.workload)
    prospects = {line.workload: _victim(snapshot, line) for line in outcome.preempted}
    for workload in snapshot.workloads.all():
        if _waits(workload):
            named = tuple(victims.get(workload.key, ()))
            prospects[workload.key] = _prospect(snapshot, workload, outcome, named)
    queues = in_sentences(outcome.assumptions)
    return Forecast(time=snapshot.time, prospects=prospects, assumed=tuple(assumed), queues=queues)


def assigned(admission: Admission) -> tuple[str, ...]:
    """Format the flavors of each pod set so that they can be compared: `main×2 nvidia.com/gpu=h100`."""
    return tuple(
        f"{part.name}×{part.count} {','.join(f'{name}={flavor}' for name, flavor in sorted(part.flavors.items()))}"
        for part in sorted(admission.pod_sets, key=lambda part: part.name)
    )


def in_words(workload_forecast: WorkloadForecast) -> str:
    """Format the forecast for one workload in one line."""
    match workload_forecast.fate:
        case ForecastAction.ADMITTED:
            on = f" on {', '.join(workload_forecast.flavors)}" if workload_forecast.flavors else ""
            made_room = f", after preempting {_names(workload_forecast.victims)}" if workload_forecast.victims else ""
            return f"admitted in cycle {workload_forecast.cycle}{on}{made_room}"
        case ForecastAction.AFTER_VICTIMS:
            return f"preempts {_names(workload_forecast.victims)}"
        case ForecastAction.PREEMPTED:
            return f"preempted by {workload_forecast.by} ({workload_forecast.rule})"
        case ForecastAction.WAITS:
            return f"pending: {workload_forecast.message}" if workload_forecast.message else "pending"


def _names(workloads: Sequence[str]) -> str:
    return ", ".join(workloads[:3]) + (f" and {len(workloads) - 3} more" if len(workloads) > 3 else "")


def _waits(workload: Workload) -> bool:
    return workload.active and not workload.reserved and not workload.finished


def _victim(snapshot: Snapshot, decision: Preempt) -> WorkloadForecast:
    victim = snapshot.workloads[decision.workload]
    gpus, unit = amount_of(snapshot, victim)
    return WorkloadForecast(
        workload=victim.key,
        queue=victim.cluster_queue,
        gpus=gpus,
        unit=unit,
        priority=victim.priority,
        created=victim.created,
        fate=ForecastAction.PREEMPTED,
        by=decision.by,
        rule=decision.rule.value,
    )


def _prospect(
    snapshot: Snapshot, workload: Workload, outcome: CyclesResult, victims: tuple[str, ...]
) -> WorkloadForecast:
    local_queue = snapshot.local_queues.get(workload.local_queue)
    gpus, unit = amount_of(snapshot, workload)
    made = WorkloadForecast(
        workload=workload.key,
        queue=local_queue.cluster_queue if local_queue is not None else "",
        gpus=gpus,
        unit=unit,
        priority=workload.priority,
        created=workload.created,
        victims=victims,
        fate=ForecastAction.AFTER_VICTIMS if victims else ForecastAction.WAITS,
    )
    reserved = outcome.reserved.get(workload.key)
    if reserved is not None:
        flavors = (flavor for part in reserved.admission.pod_sets for flavor in part.flavors.values())
        return replace(
            made,
            fate=ForecastAction.ADMITTED,
            cycle=reserved.cycle,
            flavors=tuple(dict.fromkeys(flavors)),
            given=assigned(reserved.admission),
        )
    said = outcome.said.get(workload.key) or workload.condition("QuotaReserved")
    return replace(made, reason=said.reason, message=said.message) if said is not None else made
