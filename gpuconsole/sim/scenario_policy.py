"""The policy of a scenario: engines, prices, arrivals and durations, parsed from their strings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from gpuconsole.model import prices as price_table
from gpuconsole.model.catalogue import InstanceTypeCatalogue
from gpuconsole.model.clock import Span, parse_span
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import amount
from gpuconsole.scheduling.kueue import gates
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig, from_scenario
from gpuconsole.sim import latencies
from gpuconsole.sim.arrivals import ALWAYS, ArrivalStream, JobSize
from gpuconsole.sim.latencies import MEASURED, Latencies, LatencyDistribution
from gpuconsole.sim.policy import Autoscaler, Checks, SimPolicy
from gpuconsole.sim.random_streams import LogNormal
from gpuconsole.sim.scenario_capacity import NO_CATALOGUE, capacity_of, spot_of
from gpuconsole.sim.scenario_form import (
    AutoscalerForm,
    LatenciesForm,
    QuantilesForm,
    ScenarioAdmissionFairSharing,
    ScenarioForm,
    ShapeForm,
    SpreadForm,
    StreamForm,
)
from gpuconsole.sim.scenario_kueue import kueue_config
from gpuconsole.sim.scenario_placement import placement_of

MOST_PER_HOUR = 1_000_000
"""Maximum arrival rate of a stream; with more, the simulated time would hardly advance."""
T = TypeVar("T")

_SPELLED_OUT: Mapping[str, Callable[[ScenarioForm], object]] = {
    "fairSharingEnabled": lambda form: form.fair_sharing_enabled,
    "fairSharing": lambda form: form.fair_sharing,
    "admissionFairSharing": lambda form: form.admission_fair_sharing,
    "featureGates": lambda form: form.feature_gates,
}
"""Scenario keys that Kueue's Configuration has as well; a scenario uses one or the other."""


def policy_of(
    form: ScenarioForm,
    prices: Prices,
    folder: Path | None,
    problems: list[str],
    catalogue: InstanceTypeCatalogue = NO_CATALOGUE,
) -> SimPolicy:
    """Read everything except objects and steps; errors are added to `problems`.

    `prices` and `catalogue` are defaults; `folder` is the folder of the files that the scenario names.
    """
    read = _Reading(problems)
    if form.engine.capacity.gpus_per_node < 1:
        problems.append(f"engine.capacity.gpusPerNode: {form.engine.capacity.gpus_per_node} is not 1 or more")
    return SimPolicy(
        kueue=read.kueue(form, folder) if form.engine.admission == "Kueue" else None,
        placement=placement_of(form.engine.placement, folder, problems),
        wake_up_batch=read.span(form.wake_up_batch, "wakeUpBatch") if form.wake_up_batch else None,
        latencies=read.latencies(form.latencies),
        prices=read.prices(form.prices) if form.prices else prices,
        checks=Checks(form.checks),
        autoscaler=read.autoscaler(form.autoscaler),
        durations=read.spread(form.durations, "durations"),
        capacity=capacity_of(form.engine.capacity, read, folder, catalogue),
        spot=spot_of(form.engine.capacity.spot, read),
        keep_finished=read.span(form.keep_finished, "keepFinished") if form.keep_finished else None,
        arrivals=tuple(read.stream(stream, f"arrivals[{n}]") for n, stream in enumerate(form.arrivals)),
    )


class _Reading:
    """Parses values, and collects their errors. Mutates its list of problems only."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems

    def kueue(self, form: ScenarioForm, folder: Path | None) -> KueueConfig:
        if form.engine.kueue_config is None:
            return self.spelled_out(form)
        twice = [key for key, said in _SPELLED_OUT.items() if said(form)]
        self.problems.extend(f"{key}: engine.kueueConfig says it; leave one of them out" for key in twice)
        return kueue_config(form.engine.kueue_config, folder, self.problems)

    def spelled_out(self, form: ScenarioForm) -> KueueConfig:
        """Kueue's settings by the scenario's own keys."""
        named = form.feature_gates
        wrong = dict(gates.refusals(named))
        self.problems.extend(f"featureGates.{gate}: {why}; {gates.remedy(gate)}" for gate, why in wrong.items())
        self.problems.extend(f"featureGates: {why}" for _, why in gates.contradictions(named))
        document = {"fairSharingEnabled": form.fair_sharing_enabled, "fairSharing": form.fair_sharing}
        chosen = gates.resolve({gate: on for gate, on in named.items() if gate not in wrong})
        read = self._try(lambda: from_scenario({**document, "featureGates": chosen}), "fairSharing", KueueConfig())
        return replace(read, admission_fair_sharing=self.turns(form.admission_fair_sharing))

    def turns(self, form: ScenarioAdmissionFairSharing | None) -> AdmissionFairSharing | None:
        if form is None:
            return None
        path = "admissionFairSharing"
        interval = self.span(form.usage_sampling_interval, f"{path}.usageSamplingInterval")
        if not interval:
            self.problems.append(f"{path}.usageSamplingInterval: it must be greater than 0; 5m is usual")
        self.problems.extend(
            f"{path}.resourceWeights.{name}: {weight:g} is negative; 0 leaves the resource out of account"
            for name, weight in form.resource_weights.items()
            if weight < 0
        )
        return AdmissionFairSharing(
            usage_half_life=self.span(form.usage_half_life_time, f"{path}.usageHalfLifeTime"),
            usage_sampling_interval=interval,
            resource_weights=form.resource_weights,
        )

    def autoscaler(self, form: AutoscalerForm) -> Autoscaler:
        if form.failures < 0:
            self.problems.append(f"autoscaler.failures: {form.failures} is negative; 0 lets the first attempt succeed")
        return Autoscaler(delay=self.span(form.delay, "autoscaler.delay"), failures=form.failures)

    def latencies(self, form: LatenciesForm | Literal["measured", "none"] | None) -> Latencies | None:
        match form:
            case None:
                return latencies.DEFAULT_LATENCIES
            case "measured":
                return MEASURED
            case "none":
                return None
        return Latencies(
            scheduling_cycle=self.latency(form.scheduling_cycle, "schedulingCycle", MEASURED.scheduling_cycle),
            job_unsuspend=self.latency(form.job_unsuspend, "jobUnsuspend", MEASURED.job_unsuspend),
            pod_creation=self.latency(form.pod_creation, "podCreation", MEASURED.pod_creation),
            bind=self.latency(form.bind, "bind", MEASURED.bind),
            start=self.latency(form.start, "start", MEASURED.start),
            job_suspend=self.latency(form.job_suspend, "jobSuspend", MEASURED.job_suspend),
            pod_deletion=self.latency(form.pod_deletion, "podDeletion", MEASURED.pod_deletion),
            status_update=self.latency(form.status_update, "statusUpdate", MEASURED.status_update),
            workload_reconcile=self.latency(form.workload_reconcile, "workloadReconcile", MEASURED.workload_reconcile),
        )

    def latency(
        self, form: QuantilesForm | str | None, step: str, measured: LatencyDistribution
    ) -> LatencyDistribution:
        path = f"latencies.{step}"
        match form:
            case None:
                return measured
            case str():
                return LatencyDistribution.constant(self.span(form, path))
        known = len(self.problems)
        texts = (("p5", form.p5), ("p50", form.p50), ("p90", form.p90), ("p99", form.p99), ("max", form.max))
        spans = {name: self.span(text, f"{path}.{name}") for name, text in texts}
        if len(self.problems) > known:
            return measured
        return self._try(lambda: LatencyDistribution(**spans), path, measured)

    def span(self, text: str, path: str) -> Span:
        return self._try(lambda: parse_span(text), path, 0)

    def spread(self, form: SpreadForm | str, path: str) -> LogNormal:
        if isinstance(form, str):
            return LogNormal(median=self.span(form, path))
        if form.sigma < 0:
            self.problems.append(f"{path}.sigma: {form.sigma:g} is negative; 0 is no spread, 0.7 is a usual one")
        return LogNormal(
            median=max(1, self.span(form.median, f"{path}.median")),
            sigma=form.sigma,
            least=self.span(form.least, f"{path}.least"),
            most=self.span(form.most, f"{path}.most"),
        )

    def prices(self, table: dict[str, Any]) -> Prices:
        # JSON is YAML, so the reader of price files reads this one too.
        return self._try(lambda: price_table.load(msgspec.json.encode(table).decode(), "prices"), "prices", Prices())

    def stream(self, form: StreamForm, path: str) -> ArrivalStream:
        if form.by_hour and len(form.by_hour) != 24:
            self.problems.append(f"{path}.byHour: it has {len(form.by_hour)} factors; a day has 24 hours")
        if not form.shapes or not form.kinds:
            self.problems.append(f"{path}: a stream needs at least one of shapes and one of kinds")
        numbers = (form.per_hour, form.at_start, *form.by_hour, *form.kinds.values(), *form.priorities.values())
        if min(numbers) < 0:
            self.problems.append(f"{path}: rates, weights and numbers are 0 or more")
        if form.per_hour > MOST_PER_HOUR:
            self.problems.append(f"{path}.perHour: {form.per_hour:g} is more than {MOST_PER_HOUR} jobs an hour")
        usual = ArrivalStream(name="", namespace="")
        return ArrivalStream(
            name=form.name,
            namespace=form.namespace,
            queue=form.queue,
            per_hour=form.per_hour,
            by_hour=form.by_hour or ALWAYS,
            kinds=form.kinds,
            shapes=tuple(self.shape(shape, f"{path}.shapes[{n}]") for n, shape in enumerate(form.shapes)),
            duration=self.spread(form.duration, f"{path}.duration"),
            checkpoint=None if form.checkpoint is None else self.spread(form.checkpoint, f"{path}.checkpoint"),
            checkpointed=form.checkpointed,
            priorities=form.priorities,
            pod_priority_class=form.pod_priority_class,
            grace=None if form.grace is None else self.span(form.grace, f"{path}.grace"),
            at_start=form.at_start,
            first=self.span(form.first, f"{path}.first"),
            image=form.image or usual.image,
        )

    def shape(self, form: ShapeForm, path: str) -> JobSize:
        if form.pods < 1 or form.gpus < 0 or form.weight < 0:
            self.problems.append(f"{path}: a shape has 1 pod or more, 0 GPUs or more, and no negative weight")
        return JobSize(
            pods=max(1, form.pods),
            gpus=form.gpus,
            weight=form.weight,
            resources={
                name: self._try(lambda n=name, v=value: amount(n, v), f"{path}.resources.{name}", 0)  # type: ignore[misc]
                for name, value in form.resources.items()
            },
            node_selector=form.node_selector,
            min_pods=form.min_pods,
            kinds=form.kinds,
            duration=None if form.duration is None else self.spread(form.duration, f"{path}.duration"),
        )

    def _try(self, read: Callable[[], T], path: str, default: T) -> T:
        try:
            return read()
        except ValueError as error:
            self.problems.append(f"{path}: {error}")
            return default
