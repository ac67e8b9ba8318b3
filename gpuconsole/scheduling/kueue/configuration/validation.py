"""Validates a Configuration in the order and with the fields and messages of Kueue (0.19 config: Validate).

`validate` is the entry point. The larger sections have functions of their own: `validate_multi_kueue`,
`validate_custom_labels` (of metrics) and `tls_errors`, which rejects versions below 1.2 and cipher suites and curves
that Go's crypto/tls lacks. `BUILT_IN_INTEGRATIONS` has the kinds of jobs that Kueue manages, by the name of their
integration framework.

`validate_device_class_mappings` checks the mappings of device classes to quota resources.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuconsole.model.documents.findings import (
    FieldError,
    MapKey,
    Path,
    duplicate,
    forbidden,
    identifier,
    invalid,
    label,
    label_key,
    label_value,
    required,
    service_name,
    subdomain,
    too_long,
    too_many,
    unsupported,
)
from gpuconsole.scheduling.devices.allocator import compile_error
from gpuconsole.scheduling.kueue.config import GATE_DEFAULTS, PreemptionStrategy
from gpuconsole.scheduling.kueue.configuration.form import (
    INCREMENTAL,
    NAMESPACE_LABEL,
    SYSTEM_NAMESPACE,
    AccessProvider,
    ClusterProfile,
    CustomLabel,
    DeviceClassMappingForm,
    KueueConfigurationForm,
    MultiKueueForm,
    SelectorForm,
    SourceForm,
    TLSOptions,
    parse_duration,
    selector_errors,
)

MAX_MAPPINGS = 16
MAX_CLASSES = 8
MAX_NAME_LENGTH = 253
MAX_DRIVER_LENGTH = 63
MAX_DOMAIN_LENGTH = 63
MAX_IDENTIFIER_LENGTH = 32
ONE_SOURCE = "exactly one source type must be set per entry"
_ROOT: Path = ("resources", "deviceClassMappings")
Errors = Iterator[FieldError]
Enabled = Callable[[str], bool]


def validate_device_class_mappings(configuration: KueueConfigurationForm, enabled: Enabled) -> Errors:
    """Yield the errors in `resources.deviceClassMappings`."""
    mappings = () if configuration.resources is None else configuration.resources.device_class_mappings
    if len(mappings) > MAX_MAPPINGS:
        yield too_many(_ROOT, MAX_MAPPINGS)
    owners = _Owners()
    seen: set[str] = set()
    for number, mapping in enumerate(mappings):
        path = (*_ROOT, number)
        yield from _qualified(mapping.name, (*path, "name"))
        if mapping.name in seen:
            yield duplicate((*path, "name"))
        seen.add(mapping.name)
        yield from _classes(mapping, (*path, "deviceClassNames"), owners)
        yield from _sources(mapping, (*path, "sources"), enabled)


class _Owners:
    """Tracks the mapping of each class and its counters. Mutates."""

    def __init__(self) -> None:
        self._resources: dict[str, str] = {}
        self._counters: dict[str, set[str]] = {}

    def conflict(self, name: str, mapping: DeviceClassMappingForm) -> str:
        """Register a class of a mapping; return the error text, or empty if it is valid.

        Several mappings may share a class if their first sources are different counters.
        """
        counter = _counter(mapping)
        if name not in self._resources:
            self._resources[name] = mapping.name
            self._counters[name] = {counter} - {""}
            return ""
        if self._resources[name] == mapping.name:
            return ""
        counted = self._counters[name]
        if not counter or not counted:
            return f"device class already mapped to resource {self._resources[name]}"
        if counter in counted:
            return f'device class already has a counter source for counter "{counter}"'
        counted.add(counter)
        return ""


def _counter(mapping: DeviceClassMappingForm) -> str:
    first = mapping.sources[0].counter if mapping.sources else None
    return "" if first is None else first.name


def _qualified(name: str, path: Path) -> Errors:
    faults = label_key(name)
    if faults:
        yield invalid(path, "; ".join(faults))
    if len(name) > MAX_NAME_LENGTH:
        yield invalid(path, f"must not exceed {MAX_NAME_LENGTH} characters")


def _classes(mapping: DeviceClassMappingForm, path: Path, owners: _Owners) -> Errors:
    names = mapping.device_class_names
    if not names:
        yield required(path, "at least one device class name is required")
    if len(names) > MAX_CLASSES:
        yield too_many(path, MAX_CLASSES)
    seen: set[str] = set()
    for number, name in enumerate(names):
        place = (*path, number)
        yield from _qualified(name, place)
        if name in seen:
            yield duplicate(place)
        seen.add(name)
        conflict = owners.conflict(name, mapping)
        if conflict:
            yield invalid(place, conflict)


def _sources(mapping: DeviceClassMappingForm, path: Path, enabled: Enabled) -> Errors:
    kinds: set[str] = set()
    for number, source in enumerate(mapping.sources):
        place = (*path, number)
        if source.counter is None and source.capacity is None:
            yield required(place, ONE_SOURCE)
        elif source.counter is not None and source.capacity is not None:
            yield invalid(place, ONE_SOURCE)
        elif source.counter is not None:
            kinds.add("counter")
            yield from _counted(source.counter, (*place, "counter"), enabled)
        elif source.capacity is not None:
            kinds.add("capacity")
            yield from _shared(source.capacity, (*place, "capacity"), enabled)
    if len(kinds) > 1:
        yield invalid(path, "cannot mix counter and capacity sources in the same mapping")


def _counted(source: SourceForm, path: Path, enabled: Enabled) -> Errors:
    if not enabled("KueueDRAIntegrationPartitionableDevices"):
        yield invalid(path, "counter sources require KueueDRAIntegrationPartitionableDevices to be enabled")
        return
    faults = label(source.name)
    if not source.name:
        yield required((*path, "name"))
    elif faults:
        yield invalid((*path, "name"), ",".join(faults))
    yield from _devices(source, path)


def _shared(source: SourceForm, path: Path, enabled: Enabled) -> Errors:
    if not enabled("KueueDRAIntegrationConsumableCapacity"):
        yield invalid(path, "capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled")
        return
    yield from _capacity_name(source.name, (*path, "name"))
    yield from _devices(source, path)


def _devices(source: SourceForm, path: Path) -> Errors:
    driver, place = source.driver, (*path, "driver")
    faults = subdomain(driver)
    if not driver:
        yield required(place)
    elif len(driver) > MAX_DRIVER_LENGTH:
        yield invalid(place, f"must not exceed {MAX_DRIVER_LENGTH} characters")
    elif faults:
        yield invalid(place, ",".join(faults))
    below = (*path, "deviceSelector", "cel", "expression")
    problem = compile_error(source.expression)
    if not source.expression:
        yield required(below)
    elif problem:
        yield invalid(below, f"CEL compilation failed: {problem}")


def _capacity_name(name: str, path: Path) -> Errors:
    """Validate a C identifier with an optional domain; as in Kubernetes, a name with more slashes is accepted."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier(name, path)
    elif len(parts) == 2:
        yield from _domain(parts[0], path)
        if parts[1]:
            yield from _identifier(parts[1], path)
        else:
            yield invalid(path, "the name must not be empty")


def _domain(domain: str, path: Path) -> Errors:
    if not domain:
        yield invalid(path, "the domain must not be empty")
        return
    if len(domain) > MAX_DOMAIN_LENGTH:
        yield too_long(path, MAX_DOMAIN_LENGTH)
    for problem in subdomain(domain.lower()):
        yield invalid(path, problem)


def _identifier(text: str, path: Path) -> Errors:
    if len(text) > MAX_IDENTIFIER_LENGTH:
        yield too_long(path, MAX_IDENTIFIER_LENGTH)
    for problem in identifier(text):
        yield invalid(path, problem)


MAX_CUSTOM_LABELS = 20
"""Maximum number of custom labels of metrics."""
MAX_OF_SOURCE_KIND = {"Workload": 2, "LocalQueue": 6, "ClusterQueue": 6, "Cohort": 6}
"""Source kind → maximum number of its custom labels."""
MAX_TRACKED_VALUES = 16
MAX_TRACKED_WORKLOAD_VALUES = 12
"""Maximum number of tracked values of a custom label whose source is a Workload; of others, `MAX_TRACKED_VALUES`."""
_CUSTOM_LABELS: Path = ("metrics", "customLabels")
_METRIC_LABEL = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def validate_custom_labels(labels: Sequence[CustomLabel]) -> Errors:
    """Yield the errors in `metrics.customLabels`."""
    if len(labels) > MAX_CUSTOM_LABELS:
        yield too_many(_CUSTOM_LABELS, MAX_CUSTOM_LABELS)
    seen: set[str] = set()
    for number, custom in enumerate(labels):
        path = (*_CUSTOM_LABELS, number)
        if not _METRIC_LABEL.fullmatch(custom.name):
            yield invalid((*path, "name"), "must match ^[a-zA-Z][a-zA-Z0-9_]*$")
        if custom.name in seen:
            yield duplicate((*path, "name"))
        seen.add(custom.name)
        yield from _label_source(custom, path)
        yield from _label_values(custom, path)
    yield from _labels_by_kind(labels)


def _label_source(label: CustomLabel, path: Path) -> Errors:
    if label.source_label_key and label.source_annotation_key:
        yield invalid(path, "sourceLabelKey and sourceAnnotationKey are mutually exclusive")
    if label.source_label_key:
        field, key = "sourceLabelKey", label.source_label_key
    elif label.source_annotation_key:
        field, key = "sourceAnnotationKey", label.source_annotation_key
    else:
        field, key = "name", label.name
    faults = label_key(key)
    if faults:
        yield invalid((*path, field), "; ".join(faults))


def _label_values(label: CustomLabel, path: Path) -> Errors:
    values, place = label.tracked_values, (*path, "trackedValues")
    if _label_kind(label) == "Workload":
        if not values:
            yield invalid(place, "must not be empty when sourceKind is 'Workload'")
        if len(values) > MAX_TRACKED_WORKLOAD_VALUES:
            yield invalid(
                place, f"must not be greater than {MAX_TRACKED_WORKLOAD_VALUES} when sourceKind is 'Workload'"
            )
    elif len(values) > MAX_TRACKED_VALUES:
        yield too_many(place, MAX_TRACKED_VALUES)
    if len(set(values)) < len(values):
        yield invalid(place, "must not contain duplicates")


def _labels_by_kind(labels: Sequence[CustomLabel]) -> Errors:
    for kind, count in sorted(Counter(map(_label_kind, labels)).items()):
        if kind not in MAX_OF_SOURCE_KIND:
            yield invalid(_CUSTOM_LABELS, f"unknown source kind: {kind}")
        elif count > MAX_OF_SOURCE_KIND[kind]:
            wanted = f"found {count}, expected <= {MAX_OF_SOURCE_KIND[kind]}"
            yield invalid(_CUSTOM_LABELS, f"too many custom labels for source kind {kind}: {wanted}")


def _label_kind(label: CustomLabel) -> str:
    return "ClusterQueue" if label.source_kind is None else label.source_kind


VERSIONS = ("VersionTLS12", "VersionTLS13")
_OLD_VERSIONS = ("VersionTLS10", "VersionTLS11")
SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
)
INSECURE_SUITES = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
)
"""Insecure cipher suites of Go's crypto/tls, which are accepted too."""
CURVES = (23, 24, 25, 29, 4587, 4588, 4589)
"""IANA ids of P-256, P-384, P-521, X25519 and hybrids with ML-KEM."""


def tls_errors(options: TLSOptions) -> list[str]:
    """Return the first error of the version, the cipher suites and the curves each; empty if there are none."""
    return [
        *_tls_version(options.min_version),
        *_cipher_suites(options.cipher_suites),
        *_curves(options.curve_preferences),
    ]


def _tls_version(version: str) -> Iterator[str]:
    if version in _OLD_VERSIONS:
        yield "invalid minVersion. Please use VersionTLS12 or VersionTLS13"
    elif version and version not in VERSIONS:
        yield f'invalid minVersion: unknown tls version "{version}". Please use VersionTLS12 or VersionTLS13'


def _cipher_suites(suites: tuple[str, ...]) -> Iterator[str]:
    unknown = next((suite for suite in suites if suite not in SUITES and suite not in INSECURE_SUITES), None)
    if unknown is not None:
        names = " ".join(SUITES)
        problem = f"Cipher suite {unknown} not supported or doesn't exist"
        yield f"invalid cipher suites: {problem}. Please use the secure cipher names: [{names}]"


def _curves(curves: tuple[int, ...]) -> Iterator[str]:
    unknown = next((curve for curve in curves if curve not in CURVES), None)
    if unknown is not None:
        yield f"invalid curve preferences: curve {unknown} not supported or doesn't exist"


Kind = tuple[str, str, str]
"""(kind, version, group)"""

BUILT_IN_INTEGRATIONS: Mapping[str, Kind] = {
    "batch/job": ("Job", "v1", "batch"),
    "deployment": ("Deployment", "v1", "apps"),
    "jobset.x-k8s.io/jobset": ("JobSet", "v1alpha2", "jobset.x-k8s.io"),
    "kubeflow.org/jaxjob": ("JAXJob", "v1", "kubeflow.org"),
    "kubeflow.org/mpijob": ("MPIJob", "v2beta1", "kubeflow.org"),
    "kubeflow.org/paddlejob": ("PaddleJob", "v1", "kubeflow.org"),
    "kubeflow.org/pytorchjob": ("PyTorchJob", "v1", "kubeflow.org"),
    "kubeflow.org/tfjob": ("TFJob", "v1", "kubeflow.org"),
    "kubeflow.org/xgboostjob": ("XGBoostJob", "v1", "kubeflow.org"),
    "leaderworkerset.x-k8s.io/leaderworkerset": ("LeaderWorkerSet", "v1", "leaderworkerset.x-k8s.io"),
    "pod": ("Pod", "v1", ""),
    "ray.io/raycluster": ("RayCluster", "v1", "ray.io"),
    "ray.io/rayjob": ("RayJob", "v1", "ray.io"),
    "ray.io/rayservice": ("RayService", "v1", "ray.io"),
    "sparkoperator.k8s.io/sparkapplication": ("SparkApplication", "v1beta2", "sparkoperator.k8s.io"),
    "statefulset": ("StatefulSet", "v1", "apps"),
    "trainer.kubeflow.org/trainjob": ("TrainJob", "v1alpha1", "trainer.kubeflow.org"),
    "workload.codeflare.dev/appwrapper": ("AppWrapper", "v1beta2", "workload.codeflare.dev"),
}
POD = "pod"

WITHOUT_MULTIKUEUE_ADAPTER = ("deployment", "sparkoperator.k8s.io/sparkapplication")
"""Frameworks without a MultiKueue adapter."""


def parse_kind(text: str) -> Kind | None:
    """Read `Kind.version.group.com`; None if it has fewer than three parts."""
    parts = text.split(".", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


NEGATIVE_DURATION_ERROR = "must be greater than or equal to 0"
EXEC_MODES = ("Never", "IfAvailable", "Always")
"""Interactive modes of a credentials command (client-go ExecInteractiveMode)."""
_MULTI_KUEUE: Path = ("multiKueue",)


def validate_multi_kueue(configuration: KueueConfigurationForm) -> Errors:
    """Yield the errors in `multiKueue`."""
    given = configuration.multi_kueue
    if given is None:
        return
    for name, duration in (("gcInterval", given.gc_interval), ("workerLostTimeout", given.worker_lost_timeout)):
        yield from _negative((*_MULTI_KUEUE, name), duration)
    faults = [] if given.origin is None else label_value(given.origin)
    if faults:
        yield invalid((*_MULTI_KUEUE, "origin"), ",".join(faults))
    integrations = configuration.integrations
    yield from _frameworks(given, () if integrations is None else integrations.frameworks or ())
    if given.cluster_profile is not None:
        yield from _cluster_profile(given.cluster_profile)
    yield from _dispatcher(given)


def _frameworks(given: MultiKueueForm, enabled: tuple[str, ...]) -> Errors:
    built_in = {
        BUILT_IN_INTEGRATIONS[name]
        for name in enabled
        if name in BUILT_IN_INTEGRATIONS and name not in WITHOUT_MULTIKUEUE_ADAPTER
    }
    seen = set()
    for number, framework in enumerate(given.external_frameworks):
        kind, path = parse_kind(framework.name), (*_MULTI_KUEUE, "externalFrameworks", number, "name")
        if kind is None:
            yield invalid(path, "must be in 'kind.version.group' format")
            continue
        if kind in seen:
            yield duplicate(path)
        seen.add(kind)
        if kind in built_in:
            yield invalid(path, "conflicts with a built-in MultiKueue adapter")


def _cluster_profile(given: ClusterProfile) -> Errors:
    path = (*_MULTI_KUEUE, "clusterProfile")
    if given.access_providers and given.credentials_providers:
        yield forbidden((*path, "credentialsProviders"), "must not be specified when accessProviders is specified")
    if given.access_providers:
        yield from _access_providers(given.access_providers, (*path, "accessProviders"))
    else:
        yield from _access_providers(given.credentials_providers, (*path, "credentialsProviders"))


def _access_providers(providers: tuple[AccessProvider, ...], path: Path) -> Errors:
    """Validate access providers; as in Kueue, the field paths have no list indices."""
    below = (*path, "execConfig")
    for provider in providers:
        asked = provider.exec_config
        missing = [(*path, "name")] if not provider.name else []
        missing += [(*below, "command")] if not asked.command else []
        missing += [(*below, "apiVersion")] if not asked.api_version else []
        missing += [(*below, "env", "name") for variable in asked.env if not variable.name]
        missing += [(*below, "interactiveMode")] if not asked.interactive_mode else []
        yield from (required(place, "must be specified") for place in missing)
        if asked.interactive_mode and asked.interactive_mode not in EXEC_MODES:
            yield unsupported((*below, "interactiveMode"), EXEC_MODES)


def _dispatcher(given: MultiKueueForm) -> Errors:
    steps, path = given.incremental_dispatcher_config, (*_MULTI_KUEUE, "incrementalDispatcherConfig")
    if steps is None:
        return
    if given.dispatcher_name != INCREMENTAL:
        only = "incrementalDispatcherConfig is only valid when dispatcherName is set to the incremental dispatcher"
        yield invalid(path, only)
    if steps.step_size is not None and steps.step_size < 1:
        yield invalid((*path, "stepSize"), "must be greater than or equal to 1")


STRATEGY_LISTS = (
    (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
    (PreemptionStrategy.LESS_THAN_INITIAL_SHARE,),
    (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, PreemptionStrategy.LESS_THAN_INITIAL_SHARE),
)


def validate(configuration: KueueConfigurationForm, gates: Mapping[str, bool]) -> list[FieldError]:
    """Return all validation errors; `gates` are those that differ from their defaults.

    Defaults must be filled in first, or errors in default values are missed.
    """

    def enabled(gate: str) -> bool:
        return gates.get(gate, GATE_DEFAULTS[gate])

    return [
        *_pods_ready(configuration, enabled),
        *_integrations(configuration),
        *validate_multi_kueue(configuration),
        *_fair_sharing(configuration),
        *_admission_fair_sharing(configuration),
        *_certificates(configuration),
        *_transformations(configuration),
        *validate_device_class_mappings(configuration, enabled),
        *_managed_namespaces(configuration),
        *_retention(configuration),
        *_tls(configuration),
        *_visibility(configuration),
        *validate_custom_labels(configuration.metrics.custom_labels),
        *_quota_check(configuration, enabled),
    ]


def _negative(path: Path, duration: str | None) -> Errors:
    if duration is not None and parse_duration(duration) < 0:
        yield invalid(path, NEGATIVE_DURATION_ERROR)


def _pods_ready(configuration: KueueConfigurationForm, enabled: Enabled) -> Errors:
    settings, path = configuration.wait_for_pods_ready, ("waitForPodsReady",)
    if settings is None or enabled("DisableWaitForPodsReady"):
        return
    if parse_duration(settings.timeout) == 0:
        yield required((*path, "timeout"), "must be specified")
    yield from _negative((*path, "timeout"), settings.timeout)
    yield from _negative((*path, "recoveryTimeout"), settings.recovery_timeout)
    strategy, below = settings.requeuing_strategy, (*path, "requeuingStrategy")
    if strategy is None:
        return
    if strategy.timestamp not in (None, "Creation", "Eviction"):
        yield unsupported((*below, "timestamp"), ("Creation", "Eviction"))
    for name, number in (
        ("backoffLimitCount", strategy.backoff_limit_count),
        ("backoffBaseSeconds", strategy.backoff_base_seconds),
        ("backoffMaxSeconds", strategy.backoff_max_seconds),
    ):
        if number is not None and number < 0:
            yield invalid((*below, name), NEGATIVE_DURATION_ERROR)


def _integrations(configuration: KueueConfigurationForm) -> Errors:
    given, path = configuration.integrations, ("integrations",)
    if given is None:
        yield required(path, "cannot be empty")
        return
    if given.frameworks is None:
        yield required((*path, "frameworks"), "cannot be empty")
        return
    managed = set()
    for number, framework in enumerate(given.frameworks):
        if framework not in BUILT_IN_INTEGRATIONS:
            yield unsupported((*path, "frameworks", number), tuple(BUILT_IN_INTEGRATIONS))
        elif BUILT_IN_INTEGRATIONS[framework] in managed:
            yield duplicate((*path, "frameworks", number))
        else:
            managed.add(BUILT_IN_INTEGRATIONS[framework])
    for number, text in enumerate(given.external_frameworks or ()):
        kind, place = parse_kind(text), (*path, "externalFrameworks", number)
        if kind is None:
            yield invalid(place, "must be format, 'Kind.version.group.com'")
        elif kind in managed:
            yield duplicate(place)
        else:
            managed.add(kind)
    if POD in given.frameworks:
        yield from _pod_namespaces(configuration)


def _pod_namespaces(configuration: KueueConfigurationForm) -> Errors:
    selector, path = configuration.managed_jobs_namespace_selector, ("managedJobsNamespaceSelector",)
    if selector is None:
        yield required(path, "cannot be empty when pod integration is enabled")
    else:
        yield from _selector_excludes(selector, configuration.namespace, path)


def _selector_excludes(selector: SelectorForm, namespace: str | None, path: Path) -> Errors:
    """Validate the selector, and that it excludes kube-system and Kueue's namespace."""
    wrong = list(selector_errors(selector, path))
    yield from wrong
    if wrong:
        return
    for name in (SYSTEM_NAMESPACE, namespace):
        if name and selector.selector.matches({NAMESPACE_LABEL: name}):
            yield invalid(path, f'should not match the "{name}" namespace')


def _fair_sharing(configuration: KueueConfigurationForm) -> Errors:
    given, path = configuration.fair_sharing, ("fairSharing", "preemptionStrategies")
    if given is None:
        return
    if not given.preemption_strategies:
        yield required(path, "must be specified")
    elif given.preemption_strategies not in STRATEGY_LISTS:
        yield unsupported(path, tuple(",".join(strategies) for strategies in STRATEGY_LISTS))


def _admission_fair_sharing(configuration: KueueConfigurationForm) -> Errors:
    given, path = configuration.admission_fair_sharing, ("admissionFairSharing",)
    if given is None:
        return
    yield from _negative((*path, "usageHalfLifeTime"), given.usage_half_life_time)
    if parse_duration(given.usage_sampling_interval) <= 0:
        yield invalid((*path, "usageSamplingInterval"), "must be greater than 0")
    for resource, weight in given.resource_weights.items():
        if weight < 0:
            yield invalid((*path, "resourceWeights", MapKey(resource)), NEGATIVE_DURATION_ERROR)


def _certificates(configuration: KueueConfigurationForm) -> Errors:
    given, path = configuration.internal_cert_management, ("internalCertManagement",)
    if given is None or not given.enable:
        return
    for name, text, check in (
        ("webhookServiceName", given.webhook_service_name, service_name),
        ("webhookSecretName", given.webhook_secret_name, subdomain),
    ):
        faults = [] if text is None else check(text)
        if faults:
            yield invalid((*path, name), ",".join(faults))


def _transformations(configuration: KueueConfigurationForm) -> Errors:
    seen = set()
    given = configuration.resources
    for number, part in enumerate(() if given is None else given.transformations):
        path = ("resources", "transformations", number)
        if part.strategy not in ("Retain", "Replace"):
            yield unsupported((*path, "strategy"), ("Retain", "Replace"))
        if part.input in seen:
            yield duplicate((*path, "input"))
        seen.add(part.input)


def _managed_namespaces(configuration: KueueConfigurationForm) -> Errors:
    selector = configuration.managed_jobs_namespace_selector
    if selector is not None:
        yield from _selector_excludes(selector, configuration.namespace, ("managedJobsNamespaceSelector",))


def _retention(configuration: KueueConfigurationForm) -> Errors:
    policies = configuration.object_retention_policies
    if policies is None or policies.workloads is None:
        return
    path = ("objectRetentionPolicies", "workloads")
    yield from _negative((*path, "afterFinished"), policies.workloads.after_finished)
    yield from _negative((*path, "afterDeactivatedByKueue"), policies.workloads.after_deactivated_by_kueue)


def _tls(configuration: KueueConfigurationForm) -> Errors:
    given = configuration.tls
    if given is None:
        return
    faults = tls_errors(given)
    if faults:
        yield invalid(("tls",), "\n".join(faults))
    elif given.min_version == "VersionTLS13" and given.cipher_suites:
        yield invalid(("tls", "cipherSuites"), "may not be specified when `minVersion` is 'VersionTLS13'")


def _visibility(configuration: KueueConfigurationForm) -> Errors:
    given = configuration.visibility_server
    if given is None:
        return
    if given.bind_address is not None and not _is_address(given.bind_address):
        yield invalid(("visibilityServer", "bindAddress"), "must be a valid IP address")
    if given.bind_port is not None and not 1 <= given.bind_port <= 65535:
        yield invalid(("visibilityServer", "bindPort"), "must be a valid port number (1-65535)")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _quota_check(configuration: KueueConfigurationForm, enabled: Enabled) -> Errors:
    given, path = configuration.resources, ("resources", "quotaCheckStrategy")
    if given is None or given.quota_check_strategy is None or not enabled("QuotaCheckStrategy"):
        return
    strategy = given.quota_check_strategy
    if given.exclude_resource_prefixes and strategy == "IgnoreUndeclared":
        yield invalid(path, "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared")
    if strategy not in ("IgnoreUndeclared", "BlockUndeclared"):
        yield unsupported(path, ("IgnoreUndeclared", "BlockUndeclared"))
