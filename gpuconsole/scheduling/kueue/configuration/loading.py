"""Loads a Configuration from a file, validates it and converts it to the settings for admission.

The file may hold the Configuration itself or Kueue's installation manifests: their ConfigMap with the Configuration is
found among the other objects. `to_kueue_config` converts it; fields that admission does not depend on are dropped.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from gpuconsole.model.documents.findings import DocumentFindings, Finding, Severity
from gpuconsole.model.documents.sources import SourceText, from_text, read_file
from gpuconsole.model.documents.yaml_json import (
    FormError,
    YamlDocument,
    YamlProblem,
    looks_like_json,
    named,
    read_json,
    read_yaml,
    sections,
    unwrapped,
)
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kueue.config import (
    RETAIN,
    AdmissionFairSharing,
    CapacitySource,
    CounterSource,
    DeviceClassMapping,
    KueueConfig,
    MultiKueueSettings,
    ObjectRetention,
    PreemptionStrategy,
    RequeuingStrategy,
    Transformation,
    WaitForPodsReady,
    resolve_gates,
)
from gpuconsole.scheduling.kueue.configuration.form import (
    GROUP,
    INCREMENTAL,
    KIND,
    NAMESPACE,
    VERSION,
    AdmissionFairSharingForm,
    DeviceClassMappingForm,
    KueueConfigurationForm,
    MultiKueueForm,
    Resources,
    WaitForPodsReadyForm,
    WorkloadRetention,
    parse_duration,
)
from gpuconsole.scheduling.kueue.configuration.reading import is_configuration, read_kueue_configuration

IGNORE_UNDECLARED = "IgnoreUndeclared"


def to_kueue_config(configuration: KueueConfigurationForm) -> KueueConfig:
    """Return the settings for admission from a valid Configuration with defaults; otherwise may raise ValueError."""
    gates = resolve_gates(configuration.feature_gates or {})
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
        ignore_undeclared=_ignores_undeclared(resources, gates),
        exclude_resource_prefixes=resources.exclude_resource_prefixes,
        transformations=_transformations(resources),
        device_class_mappings=tuple(map(_device_class_mapping, resources.device_class_mappings)),
        multi_kueue=_multi_kueue(configuration.multi_kueue or MultiKueueForm(), gates),
        gates=gates,
    )


def _multi_kueue(form: MultiKueueForm, gates: Mapping[str, bool]) -> MultiKueueSettings:
    usual, steps = MultiKueueSettings(), form.incremental_dispatcher_config
    stepped = steps is not None and gates.get("MultiKueueIncrementalDispatcherConfig", True)
    size = steps.step_size if steps is not None and stepped else None
    return MultiKueueSettings(
        incremental=form.dispatcher_name == INCREMENTAL,
        step_size=usual.step_size if size is None else size,
        worker_lost_timeout=usual.worker_lost_timeout
        if form.worker_lost_timeout is None
        else parse_duration(form.worker_lost_timeout),
    )


def _ignores_undeclared(resources: Resources, gates: Mapping[str, bool]) -> bool:
    return gates.get("QuotaCheckStrategy", True) and resources.quota_check_strategy == IGNORE_UNDECLARED


def _pods_ready(form: WaitForPodsReadyForm | None) -> WaitForPodsReady | None:
    if form is None:
        return None
    strategy, usual = form.requeuing_strategy, RequeuingStrategy()
    base = None if strategy is None else strategy.backoff_base_seconds
    most = None if strategy is None else strategy.backoff_max_seconds
    return WaitForPodsReady(
        timeout=parse_duration(form.timeout),
        recovery_timeout=None if form.recovery_timeout is None else parse_duration(form.recovery_timeout),
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
        after_finished=None if finished is None else parse_duration(finished),
        after_deactivated_by_kueue=None if deactivated is None else parse_duration(deactivated),
    )


def _admission_fair_sharing(form: AdmissionFairSharingForm | None) -> AdmissionFairSharing | None:
    if form is None:
        return None
    return AdmissionFairSharing(
        usage_half_life=parse_duration(form.usage_half_life_time),
        usage_sampling_interval=parse_duration(form.usage_sampling_interval),
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


CONFIG_MAP_KEY = "controller_manager_config.yaml"
"""Key of the Configuration in Kueue's ConfigMap."""


CLUSTER_PROFILE_CRD = "clusterprofiles.multicluster.x-k8s.io"
"""The CRD that MultiKueue needs to find clusters by ClusterProfile (0.19 config: ConfigureClusterProfileCache)."""


class LoadedConfiguration(Struct, frozen=True, kw_only=True):
    """A Configuration read from a file, with its errors."""

    configuration: KueueConfigurationForm | None
    findings: tuple[Finding, ...] = ()
    profile_namespaces: tuple[str, ...] = ()
    """Namespaces in which Kueue looks for ClusterProfiles: its own, if the file contains their CRD."""

    @property
    def config(self) -> KueueConfig | None:
        """The settings for admission; None if there are errors."""
        wrong = any(finding.severity is Severity.ERROR for finding in self.findings)
        return None if wrong or self.configuration is None else to_kueue_config(self.configuration)


def load_file(file: str | Path) -> LoadedConfiguration:
    """Read the Configuration in a file; errors are in the findings."""
    return _load(read_file(file))


def load_text(text: str, name: str = "<text>") -> LoadedConfiguration:
    """Read the Configuration in a text; findings name it `name`."""
    return _load(from_text(text, name))


def _load(source: SourceText) -> LoadedConfiguration:
    name = clean(source.name, 1000)
    findings = [_read_error(name, 1, read_error) for read_error in source.troubles]
    found: list[tuple[KueueConfigurationForm, DocumentFindings]] = []
    profiled = False
    try:
        for number, tree in enumerate(_trees(source), start=1):
            findings += [_read_error(name, number, read_error) for read_error in tree.troubles]
            profiled = profiled or _defines_profiles(tree.value)
            inner = _configuration(tree)
            if inner is not None:
                report = DocumentFindings(name, number, strict=True, line_of=inner.place.find)
                report.object = KIND
                found.append((read_kueue_configuration(inner.value, report), report))
    except FormError as error:
        findings.append(_read_error(name, 1, error.problem))
    if len(found) != 1 and not findings:
        findings.append(_read_error(name, 1, _not_one(len(found))))
    if not found:
        return LoadedConfiguration(configuration=None, findings=tuple(findings))
    configuration, report = found[0]
    if not profiled:
        _report_unused_profiles(configuration, report)
    return LoadedConfiguration(
        configuration=configuration,
        findings=(*findings, *report.findings),
        profile_namespaces=(configuration.namespace or NAMESPACE,) if profiled else (),
    )


def _defines_profiles(document: object) -> bool:
    if not isinstance(document, dict) or document.get("kind") != "CustomResourceDefinition":
        return False
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and metadata.get("name") == CLUSTER_PROFILE_CRD


def _report_unused_profiles(configuration: KueueConfigurationForm, report: DocumentFindings) -> None:
    multi = configuration.multi_kueue
    if multi is not None and multi.cluster_profile is not None:
        problem = f"without the CRD {CLUSTER_PROFILE_CRD} no cluster is found by its ClusterProfile"
        report.note(("multiKueue", "clusterProfile"), problem, "install it before Kueue starts", "no-crd")


def _trees(source: SourceText) -> Iterator[YamlDocument]:
    trees = read_json(source.text) if looks_like_json(source.text) else None
    if trees is not None:
        yield from trees
    else:
        yield from (read_yaml(text, line) for text, line in sections(source.text))


def _configuration(tree: YamlDocument) -> YamlDocument | None:
    """Return the document if it is a Configuration, or the one in its ConfigMap; else None."""
    inner = unwrapped(tree, named(CONFIG_MAP_KEY))
    return inner if isinstance(inner.value, dict) and is_configuration(inner.value) else None


def _not_one(number: int) -> YamlProblem:
    if number:
        return YamlProblem(1, f"it holds {number} Configurations", "give one at a time", "too-many")
    begins = f"a Configuration begins with apiVersion: {GROUP}/{VERSION} and kind: Configuration"
    return YamlProblem(1, "it holds no Configuration of Kueue", begins, "no-configuration")


def _read_error(name: str, document: int, read_error: YamlProblem) -> Finding:
    report = DocumentFindings(name, document, line_of=lambda path: read_error.line)
    report.error(read_error.path, read_error.problem, read_error.remedy, read_error.code)
    return report.findings[0]
