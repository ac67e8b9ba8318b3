"""Converts a Configuration to the settings that admission uses; other fields are dropped."""

from collections.abc import Mapping

from gpuconsole.scheduling.kueue import gates
from gpuconsole.scheduling.kueue.config import (
    AdmissionFairSharing,
    KueueConfig,
    MultiKueueSettings,
    ObjectRetention,
    PreemptionStrategy,
    RequeuingStrategy,
    WaitForPodsReady,
)
from gpuconsole.scheduling.kueue.configuration.durations import parse
from gpuconsole.scheduling.kueue.configuration.form import (
    AdmissionFairSharingForm,
    DeviceClassMappingForm,
    KueueConfigurationForm,
    Resources,
    WaitForPodsReadyForm,
    WorkloadRetention,
)
from gpuconsole.scheduling.kueue.configuration.multikueue import INCREMENTAL
from gpuconsole.scheduling.kueue.configuration.multikueue import MultiKueueForm as MultiKueueForm
from gpuconsole.scheduling.kueue.dra.mapping import CapacitySource, CounterSource, DeviceClassMapping
from gpuconsole.scheduling.kueue.transformations import RETAIN, Transformation

IGNORE_UNDECLARED = "IgnoreUndeclared"


def policy(configuration: KueueConfigurationForm) -> KueueConfig:
    """Return the settings for admission from a valid Configuration with defaults; otherwise may raise ValueError."""
    named = gates.resolve(configuration.feature_gates or {})
    sharing = configuration.fair_sharing
    resources = configuration.resources or Resources()
    retention = configuration.object_retention_policies
    return KueueConfig(
        fair_sharing=sharing is not None,
        strategies=KueueConfig().strategies
        if sharing is None
        else tuple(map(PreemptionStrategy, sharing.preemption_strategies)),
        wait_for_pods_ready=_pods_ready(configuration.wait_for_pods_ready),
        object_retention=_retention(None if retention is None else retention.workloads),
        admission_fair_sharing=_admission_fair_sharing(configuration.admission_fair_sharing),
        ignore_undeclared=_ignores_undeclared(resources, named),
        exclude_resource_prefixes=resources.exclude_resource_prefixes,
        transformations=_transformations(resources),
        device_class_mappings=tuple(map(_device_class_mapping, resources.device_class_mappings)),
        multi_kueue=_multi_kueue(configuration.multi_kueue or MultiKueueForm(), named),
        gates=named,
    )


def _multi_kueue(form: MultiKueueForm, named: Mapping[str, bool]) -> MultiKueueSettings:
    usual, steps = MultiKueueSettings(), form.incremental_dispatcher_config
    stepped = steps is not None and named.get("MultiKueueIncrementalDispatcherConfig", True)
    size = steps.step_size if steps is not None and stepped else None
    return MultiKueueSettings(
        incremental=form.dispatcher_name == INCREMENTAL,
        step_size=usual.step_size if size is None else size,
        worker_lost_timeout=usual.worker_lost_timeout
        if form.worker_lost_timeout is None
        else parse(form.worker_lost_timeout),
    )


def _ignores_undeclared(resources: Resources, named: Mapping[str, bool]) -> bool:
    return named.get("QuotaCheckStrategy", True) and resources.quota_check_strategy == IGNORE_UNDECLARED


def _pods_ready(form: WaitForPodsReadyForm | None) -> WaitForPodsReady | None:
    if form is None:
        return None
    strategy, usual = form.requeuing_strategy, RequeuingStrategy()
    base = None if strategy is None else strategy.backoff_base_seconds
    most = None if strategy is None else strategy.backoff_max_seconds
    return WaitForPodsReady(
        timeout=parse(form.timeout),
        recovery_timeout=None if form.recovery_timeout is None else parse(form.recovery_timeout),
        block_admission=bool(form.block_admission),
        requeuing_strategy=RequeuingStrategy(
            timestamp=usual.timestamp if strategy is None else strategy.timestamp or usual.timestamp,
            backoff_base_seconds=usual.backoff_base_seconds if base is None else base,
            backoff_max_seconds=usual.backoff_max_seconds if most is None else most,
            backoff_limit_count=None if strategy is None else strategy.backoff_limit_count,
        ),
    )


def _retention(form: WorkloadRetention | None) -> ObjectRetention:
    if form is None:
        return ObjectRetention()
    finished, deactivated = form.after_finished, form.after_deactivated_by_kueue
    return ObjectRetention(
        after_finished=None if finished is None else parse(finished),
        after_deactivated_by_kueue=None if deactivated is None else parse(deactivated),
    )


def _admission_fair_sharing(form: AdmissionFairSharingForm | None) -> AdmissionFairSharing | None:
    if form is None:
        return None
    return AdmissionFairSharing(
        usage_half_life=parse(form.usage_half_life_time),
        usage_sampling_interval=parse(form.usage_sampling_interval),
        resource_weights=form.resource_weights,
    )


def _transformations(resources: Resources) -> dict[str, Transformation]:
    return {
        part.input: Transformation(
            input=part.input,
            strategy=part.strategy or RETAIN,
            multiply_by=part.multiply_by,
            outputs={name: str(quantity) for name, quantity in part.outputs.items()},
        )
        for part in resources.transformations
    }


def _device_class_mapping(form: DeviceClassMappingForm) -> DeviceClassMapping:
    counters = (source.counter for source in form.sources if source.counter is not None)
    capacities = (source.capacity for source in form.sources if source.capacity is not None)
    return DeviceClassMapping(
        name=form.name,
        device_class_names=form.device_class_names,
        counters=tuple(CounterSource(name=s.name, driver=s.driver, device_selector=s.expression) for s in counters),
        capacities=tuple(
            CapacitySource(name=s.name, driver=s.driver, device_selector=s.expression) for s in capacities
        ),
    )
