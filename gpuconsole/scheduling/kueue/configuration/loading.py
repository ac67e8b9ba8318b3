"""Loads a Configuration from a file, validates it and converts it to the settings for admission.

The file may hold the Configuration itself or Kueue's installation manifests: their ConfigMap with the Configuration is
found among the other objects. `to_kueue_config` converts it; fields that admission does not depend on are dropped.

`read_kueue_configuration` reads it from a document, and reports everything that Kueue would reject. Kueue decodes
strictly: an unknown field or a wrong type is an error that prevents its start. A document of version v1beta1 is
converted to v1beta2 first (Kueue 0.19 apis/config/v1beta1 conversion).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from msgspec import Meta, Struct, structs

from gpuconsole.model.documents.findings import (
    DocumentFindings,
    FieldError,
    FieldErrorKind,
    Finding,
    MapKey,
    Severity,
    path_text,
)
from gpuconsole.model.documents.findings import Path as FieldPath
from gpuconsole.model.documents.reader import fit, shown, unknown_keys
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
from gpuconsole.model.resources import parse_quantity
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kueue.config import (
    DEFAULT_STRATEGIES,
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
    contradictory_gates,
    gate_refusals,
    gate_remedy,
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
    nanoseconds,
    parse_duration,
    with_defaults,
)
from gpuconsole.scheduling.kueue.configuration.form import format_duration as write_duration
from gpuconsole.scheduling.kueue.configuration.validation import validate

_REMOVED_FIELD = "v1beta2 does not have it; it is ignored"


def from_v1beta1(document: Mapping[str, Any], report: DocumentFindings) -> dict[str, Any]:
    """Convert a v1beta1 document to v1beta2; removed fields are dropped with a note.

    Sections fairSharing and waitForPodsReady are dropped where they are disabled, else they get v1beta1's defaults.
    """
    plain = {**document, "apiVersion": f"{GROUP}/{VERSION}"}
    if plain.pop("queueVisibility", None) is not None:
        report.note(("queueVisibility",), _REMOVED_FIELD, "use the visibility API", "old-field")
    integrations = plain.get("integrations")
    if isinstance(integrations, Mapping) and "podOptions" in integrations:
        report.note(("integrations", "podOptions"), _REMOVED_FIELD, "use managedJobsNamespaceSelector", "old-field")
        plain["integrations"] = {name: value for name, value in integrations.items() if name != "podOptions"}
    sharing, ready = plain.pop("fairSharing", None), plain.pop("waitForPodsReady", None)
    if _is_enabled(sharing):
        plain["fairSharing"] = {"preemptionStrategies": [*DEFAULT_STRATEGIES], **_settings(sharing)}
    if _is_enabled(ready):
        plain["waitForPodsReady"] = {"timeout": "5m", "blockAdmission": True, **_settings(ready)}
    return plain


def _is_enabled(settings: object) -> bool:
    return isinstance(settings, Mapping) and settings.get("enable") is True


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "enable" and value != []}


OLD_API_VERSION = "v1beta1"
"""The version that is converted."""
F = TypeVar("F", bound=Struct)


def is_configuration(document: Mapping[str, Any]) -> bool:
    """True for a document with the kind and API group of a Configuration, of any version."""
    return document.get("kind") == KIND and str(document.get("apiVersion", "")).startswith(f"{GROUP}/")


def read_kueue_configuration(document: Mapping[str, Any], report: DocumentFindings) -> KueueConfigurationForm:
    """Read a Configuration, fill in its defaults and validate it.

    Errors are reported; unreadable values, unknown fields and unknown feature gates are dropped.
    """
    given = decode_configuration(document, report)
    configuration = with_defaults(given)
    named = {name: on for name, on in (given.feature_gates or {}).items() if _is_known(name, on, report)}
    for _, why in contradictory_gates(named):
        report.error(("featureGates",), why, "turn the one on, or the other off", "feature-gates")
    # Values that could not be read were reported and dropped: do not report them as missing too.
    unread = {finding.path for finding in report.findings}
    for error in validate(configuration, resolve_gates(named)):
        if error.field not in unread:
            _report_refusal(error, document, report)
    return structs.replace(configuration, feature_gates=named or None)


def decode_configuration(document: Mapping[str, Any], report: DocumentFindings) -> KueueConfigurationForm:
    """Read a Configuration as written, v1beta2 or v1beta1, without defaults or validation; errors are reported."""
    plain = _without_nulls(document)
    version = str(plain.get("apiVersion", "")).rpartition("/")[2]
    if version == OLD_API_VERSION:
        plain = from_v1beta1(plain, report)
    elif version != VERSION:
        known = f"write apiVersion: {GROUP}/{VERSION}"
        report.error(("apiVersion",), f"{shown(document.get('apiVersion'))} is not known", known, "old-version")
        plain = {**plain, "apiVersion": f"{GROUP}/{VERSION}"}
    for found in unknown_keys(plain, KueueConfigurationForm):
        report.error(found.path, f'unknown field "{path_text(found.path)}"', found.advice, "unknown-field")
    form, misfits = fit(plain, KueueConfigurationForm)
    for misfit in misfits:
        report.error(misfit.path, misfit.problem, "write a value of that type", "wrong-type")
    return _with_durations(form or KueueConfigurationForm(), (), report)


def _without_nulls(value: Any) -> Any:
    """Drop null values: Kubernetes treats them as absent."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, (list, tuple)) else value


def _with_durations(form: F, path: FieldPath, report: DocumentFindings) -> F:
    """Return the form with durations in Go's format and without invalid quantities, which are reported."""
    hints, changes = get_type_hints(type(form), include_extras=True), {}
    for field in structs.fields(form):
        value, place = getattr(form, field.name), (*path, field.encode_name)
        if _is_duration(hints[field.name]) and value is not None:
            changes[field.name] = _duration(value, field.default, place, report)
        elif isinstance(value, Struct):
            changes[field.name] = _with_durations(value, place, report)
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
            below = (_with_durations(part, (*place, number), report) for number, part in enumerate(value))
            changes[field.name] = tuple(below)
        elif field.name == "outputs":
            changes[field.name] = dict(_quantities(value, place, report))
    return structs.replace(form, **changes) if changes else form


def _is_duration(hint: Any) -> bool:
    parts = (hint, *getattr(hint, "__args__", ()))
    marks = (mark for part in parts for mark in getattr(part, "__metadata__", ()))
    return any(isinstance(mark, Meta) and mark.title == "duration" for mark in marks)


def _duration(text: str, otherwise: Any, path: FieldPath, report: DocumentFindings) -> Any:
    try:
        return write_duration(nanoseconds(text))
    except ValueError as error:
        report.error(path, str(error), "write it as 90s, 30m or 1h30m", "bad-span")
        return otherwise


def _quantities(outputs: Mapping[str, Any], path: FieldPath, report: DocumentFindings) -> Iterator[tuple[str, str]]:
    for name, quantity in outputs.items():
        try:
            parse_quantity(quantity)
        except (ValueError, OverflowError):
            problem = f"{shown(quantity)} is not a quantity"
            report.error((*path, MapKey(name)), problem, "write it as 8, 500m, 1.5Gi or 2e3", "bad-quantity")
        else:
            yield name, str(quantity)


def _is_known(name: str, on: bool, report: DocumentFindings) -> bool:
    for _, why in gate_refusals({name: on}):
        report.error(("featureGates", name), why, gate_remedy(name), "feature-gates")
        return False
    return True


def _report_refusal(error: FieldError, document: Mapping[str, Any], report: DocumentFindings) -> None:
    value = shown(_value(document, error.path))
    match error.kind:
        case FieldErrorKind.REQUIRED:
            problem, advice = "it is missing", error.detail or "say it"
        case FieldErrorKind.DUPLICATE:
            problem, advice = f"{value} stands twice", "drop or rename one of them"
        case FieldErrorKind.FORBIDDEN:
            problem, advice = "it is forbidden here", error.detail
        case FieldErrorKind.NOT_SUPPORTED:
            problem, advice = f"{value} is not supported", error.detail
        case _:
            problem, advice = f"{value} is not accepted", error.detail
    report.error(error.path, problem, advice, "refused")


def _value(document: Any, path: FieldPath) -> Any:
    for key in path:
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, (list, tuple)) and isinstance(key, int) and key < len(document):
            document = document[key]
        else:
            return None
    return document


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
