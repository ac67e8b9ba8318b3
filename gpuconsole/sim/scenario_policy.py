"""The policy of a scenario: engines, prices, arrivals and durations, parsed from their strings.

`engine.kueueConfig` is Kueue's Configuration, `engine.placement` names the placement engine and its configuration; both
may be inline or in a file beside the scenario. Every function adds its errors to a list of problems and goes on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from gpuconsole.model.autoscaling import InstanceTypeCatalogue
from gpuconsole.model.clock import Span, parse_span
from gpuconsole.model.documents.findings import DocumentFindings, Finding, Severity
from gpuconsole.model.documents.sources import read_file
from gpuconsole.model.prices import Prices
from gpuconsole.model.prices import load as load_prices
from gpuconsole.model.resources import amount
from gpuconsole.scheduling.kai.config import InvalidArgument, KaiPolicy, UsagePolicy, parse_configuration
from gpuconsole.scheduling.kube.profile import ParsedKubeSchedulerConfiguration, PlacementPolicy, SchedulerProfile
from gpuconsole.scheduling.kube.profile import read_configuration as read_kube_configuration
from gpuconsole.scheduling.kueue import config
from gpuconsole.scheduling.kueue.config import AdmissionFairSharing, KueueConfig, from_scenario
from gpuconsole.scheduling.kueue.configuration.form import GROUP, KIND, VERSION
from gpuconsole.scheduling.kueue.configuration.loading import load_file, read_kueue_configuration, to_kueue_config
from gpuconsole.scheduling.volcano.config import FEATURE_GATES, HELM_CONF, VolcanoPolicy
from gpuconsole.scheduling.volcano.plugins.deviceshare import parse_mig_config
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration
from gpuconsole.sim import run_times
from gpuconsole.sim.policy import Autoscaler, Checks, SimPolicy
from gpuconsole.sim.run_times import ALWAYS, MEASURED, ArrivalStream, JobSize, Latencies, LatencyDistribution, LogNormal
from gpuconsole.sim.scenario_capacity import NO_CATALOGUE, read_capacity, read_spot
from gpuconsole.sim.scenario_form import (
    AutoscalerForm,
    LatenciesForm,
    PlacementForm,
    QuantilesForm,
    ScenarioAdmissionFairSharing,
    ScenarioForm,
    ShapeForm,
    SpreadForm,
    StreamForm,
    UsageForm,
)

KUEUE_CONFIG_PATH = "engine.kueueConfig"


def read_kueue_config(value: dict[str, Any] | str, folder: Path | None, problems: list[str]) -> KueueConfig:
    """Read the Configuration that a scenario contains or names; errors are added to `problems`."""
    if isinstance(value, str):
        return _from_file(value, folder, problems)
    report = DocumentFindings()
    configuration = read_kueue_configuration({"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, **value}, report)
    errors = _errors(report.findings)
    problems.extend(f"{KUEUE_CONFIG_PATH}.{error.path}: {error.problem}; {error.remedy}" for error in errors)
    return KueueConfig() if errors else to_kueue_config(configuration)


def _from_file(name: str, folder: Path | None, problems: list[str]) -> KueueConfig:
    if folder is None:
        problems.append(
            f"{KUEUE_CONFIG_PATH}: a file is relative to the scenario's own, and this one has none; write it out here"
        )
        return KueueConfig()
    loaded = load_file(folder / name)
    for error in _errors(loaded.findings):
        path = f"{error.path}: " if error.path else ""
        problems.append(f"{KUEUE_CONFIG_PATH}: {error.file}:{error.line}: {path}{error.problem}; {error.remedy}")
    return loaded.config or KueueConfig()


def _errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]


PLACEMENT_PATH = "engine.placement"


def read_placement(
    form: PlacementForm, folder: Path | None, problems: list[str]
) -> PlacementPolicy | VolcanoPolicy | KaiPolicy:
    """Read the placement settings; errors are added to `problems`."""
    if form.usage is not None and form.engine != "KAI":
        problems.append(f"{PLACEMENT_PATH}.usage: only KAI looks at past use; write engine: KAI, or leave it out")
    if form.engine == "Volcano":
        return VolcanoPolicy(
            conf=_volcano_conf(form.conf, folder, problems),
            devices=_volcano_devices(form.devices, folder, problems),
            feature_gates=_volcano_feature_gates(form.feature_gates, problems),
        )
    if form.devices:
        problems.append(f"{PLACEMENT_PATH}.devices: only Volcano reads one; write engine: Volcano, or leave it out")
    if form.feature_gates:
        problems.append(
            f"{PLACEMENT_PATH}.featureGates: only Volcano reads them; write engine: Volcano, or leave them out"
        )
    if form.engine == "KAI":
        return KaiPolicy(conf=_kai_conf(form.conf, folder, problems), usage=_usage(form.usage, problems))
    return PlacementPolicy(
        score=form.score,
        gangs=form.gangs,
        preemption=form.preemption,
        profile=_profile(form, folder, problems),
    )


def _profile(form: PlacementForm, folder: Path | None, problems: list[str]) -> SchedulerProfile | None:
    """The kube-scheduler profile that the scenario names; None if it only sets the scoring."""
    if not form.conf and not form.profile:
        return None
    if form.score != PlacementForm().score:
        problems.append(f"{PLACEMENT_PATH}.score: a profile says itself how nodes are scored; leave one of them out")
    text, name = _inline_or_file(form.conf, folder, problems)
    if not text and form.conf:
        return None
    read = read_kube_configuration(text, name) if text else ParsedKubeSchedulerConfiguration((SchedulerProfile(),))
    problems.extend(_error_lines(read.errors))
    found = read.named(form.profile)
    if found is None:
        known = ", ".join(profile.name for profile in read.profiles)
        problems.append(f"{PLACEMENT_PATH}.profile: there is no profile {form.profile}; there is {known}")
    return found


def _error_lines(errors: Iterable[Finding]) -> Iterator[str]:
    for error in errors:
        where = f"{error.file}:{error.line}: {error.path}".rstrip(": ")
        yield f"{PLACEMENT_PATH}.conf: {where}: {error.problem}; {error.remedy}"


def _inline_or_file(value: str, folder: Path | None, problems: list[str], key: str = "conf") -> tuple[str, str]:
    """An inline configuration or that of a file, and its name; an empty text if it cannot be read."""
    if not value or "\n" in value.strip():
        return value, f"{PLACEMENT_PATH}.{key}"
    if folder is None:
        problems.append(
            f"{PLACEMENT_PATH}.{key}: a file is relative to the scenario's own, and this one has none; write it out"
        )
        return "", value
    source = read_file(folder / value)
    problems.extend(
        f"{PLACEMENT_PATH}.{key}: {value}: {trouble.problem}; {trouble.remedy}" for trouble in source.troubles
    )
    return source.text, value


def _kai_conf(value: str, folder: Path | None, problems: list[str]) -> str:
    """The text of KAI's scheduler configuration; empty for KAI's defaults."""
    text, _ = _inline_or_file(value, folder, problems)
    try:
        parse_configuration(text)
    except InvalidArgument as problem:
        problems.append(
            f"{PLACEMENT_PATH}.conf: {problem}; write it as KAI's scheduler reads it: actions, tiers of plugins"
        )
        return ""
    return text


def _usage(form: UsageForm | None, problems: list[str]) -> UsagePolicy | None:
    if form is None:
        return None
    spans = {}
    for name, text in (("window", form.window), ("halfLife", form.half_life)):
        try:
            spans[name] = parse_span(text)
        except ValueError as problem:
            problems.append(f"{PLACEMENT_PATH}.usage.{name}: {problem}")
    return UsagePolicy(window=spans.get("window", 0), half_life=spans.get("halfLife", 0))


def _volcano_devices(value: str, folder: Path | None, problems: list[str]) -> str:
    """The text of Volcano's device-config.yaml."""
    text, name = _inline_or_file(value, folder, problems, "devices")
    try:
        parse_mig_config(text)
    except ValueError as problem:
        problems.append(
            f"{PLACEMENT_PATH}.devices: {name}: {problem}"
            if name != f"{PLACEMENT_PATH}.devices"
            else f"{name}: {problem}"
        )
        return ""
    return text


def _volcano_feature_gates(value: dict[str, bool], problems: list[str]) -> dict[str, bool]:
    """Volcano's feature gates that affect scheduling; any other one is an error."""
    known = ", ".join(FEATURE_GATES)
    problems.extend(
        f"{PLACEMENT_PATH}.featureGates.{name}: it changes nothing here; one of {known}"
        for name in sorted(value)
        if name not in FEATURE_GATES
    )
    return {name: value[name] for name in sorted(value.keys() & set(FEATURE_GATES))}


def _volcano_conf(value: str, folder: Path | None, problems: list[str]) -> str:
    """The text of volcano-scheduler.conf; by default that of Volcano's Helm chart."""
    text, name = _inline_or_file(value, folder, problems)
    if not text:
        return HELM_CONF
    problems.extend(_error_lines(read_configuration(text, name).errors))
    return text


MAX_PER_HOUR = 1_000_000
"""Maximum arrival rate of a stream; with more, the simulated time would hardly advance."""
T = TypeVar("T")

_SPELLED_OUT: Mapping[str, Callable[[ScenarioForm], object]] = {
    "fairSharingEnabled": lambda form: form.fair_sharing_enabled,
    "fairSharing": lambda form: form.fair_sharing,
    "admissionFairSharing": lambda form: form.admission_fair_sharing,
    "featureGates": lambda form: form.feature_gates,
}
"""Scenario keys that Kueue's Configuration has as well; a scenario uses one or the other."""


def read_policy(
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
        placement=read_placement(form.engine.placement, folder, problems),
        wake_up_batch=read.span(form.wake_up_batch, "wakeUpBatch") if form.wake_up_batch else None,
        latencies=read.latencies(form.latencies),
        prices=read.prices(form.prices) if form.prices else prices,
        checks=Checks(form.checks),
        autoscaler=read.autoscaler(form.autoscaler),
        durations=read.distribution(form.durations, "durations"),
        capacity=read_capacity(form.engine.capacity, read, folder, catalogue),
        spot=read_spot(form.engine.capacity.spot, read),
        keep_finished=read.span(form.keep_finished, "keepFinished") if form.keep_finished else None,
        arrivals=tuple(read.stream(stream, f"arrivals[{n}]") for n, stream in enumerate(form.arrivals)),
    )


class _Reading:
    """Parses values, and collects their errors. Mutates its list of problems only."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems

    def kueue(self, form: ScenarioForm, folder: Path | None) -> KueueConfig:
        if form.engine.kueue_config is None:
            return self.admission(form)
        twice = [key for key, value in _SPELLED_OUT.items() if value(form)]
        self.problems.extend(f"{key}: engine.kueueConfig says it; leave one of them out" for key in twice)
        return read_kueue_config(form.engine.kueue_config, folder, self.problems)

    def admission(self, form: ScenarioForm) -> KueueConfig:
        """Kueue's settings by the scenario's own keys."""
        named = form.feature_gates
        wrong = dict(config.gate_refusals(named))
        self.problems.extend(f"featureGates.{gate}: {why}; {config.gate_remedy(gate)}" for gate, why in wrong.items())
        self.problems.extend(f"featureGates: {why}" for _, why in config.contradictory_gates(named))
        document = {"fairSharingEnabled": form.fair_sharing_enabled, "fairSharing": form.fair_sharing}
        chosen = config.resolve_gates({gate: on for gate, on in named.items() if gate not in wrong})
        read = self._try(lambda: from_scenario({**document, "featureGates": chosen}), "fairSharing", KueueConfig())
        return replace(read, admission_fair_sharing=self.preemption_strategies(form.admission_fair_sharing))

    def preemption_strategies(self, form: ScenarioAdmissionFairSharing | None) -> AdmissionFairSharing | None:
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
                return run_times.DEFAULT_LATENCIES
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

    def distribution(self, form: SpreadForm | str, path: str) -> LogNormal:
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
        return self._try(lambda: load_prices(msgspec.json.encode(table).decode(), "prices"), "prices", Prices())

    def stream(self, form: StreamForm, path: str) -> ArrivalStream:
        if form.by_hour and len(form.by_hour) != 24:
            self.problems.append(f"{path}.byHour: it has {len(form.by_hour)} factors; a day has 24 hours")
        if not form.shapes or not form.kinds:
            self.problems.append(f"{path}: a stream needs at least one of shapes and one of kinds")
        numbers = (form.per_hour, form.at_start, *form.by_hour, *form.kinds.values(), *form.priorities.values())
        if min(numbers) < 0:
            self.problems.append(f"{path}: rates, weights and numbers are 0 or more")
        if form.per_hour > MAX_PER_HOUR:
            self.problems.append(f"{path}.perHour: {form.per_hour:g} is more than {MAX_PER_HOUR} jobs an hour")
        usual = ArrivalStream(name="", namespace="")
        return ArrivalStream(
            name=form.name,
            namespace=form.namespace,
            queue=form.queue,
            per_hour=form.per_hour,
            by_hour=form.by_hour or ALWAYS,
            kinds=form.kinds,
            shapes=tuple(self.shape(pod_class, f"{path}.shapes[{n}]") for n, pod_class in enumerate(form.shapes)),
            duration=self.distribution(form.duration, f"{path}.duration"),
            checkpoint=None if form.checkpoint is None else self.distribution(form.checkpoint, f"{path}.checkpoint"),
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
            duration=None if form.duration is None else self.distribution(form.duration, f"{path}.duration"),
        )

    def _try(self, read: Callable[[], T], path: str, default: T) -> T:
        try:
            return read()
        except ValueError as error:
            self.problems.append(f"{path}: {error}")
            return default
