"""Validates a Configuration in the order and with the fields and messages of Kueue (0.19 config: Validate)."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping

from gpuconsole.model.documents import field_errors as syntax
from gpuconsole.model.documents.field_errors import FieldError, duplicate, invalid, required, unsupported
from gpuconsole.model.documents.findings import MapKey, Path
from gpuconsole.scheduling.kueue.config import PreemptionStrategy
from gpuconsole.scheduling.kueue.configuration.clusters import NEGATIVE, multi_kueue
from gpuconsole.scheduling.kueue.configuration.custom_labels import custom_labels
from gpuconsole.scheduling.kueue.configuration.defaults import NAMESPACE_LABEL, SYSTEM_NAMESPACE
from gpuconsole.scheduling.kueue.configuration.device_classes import device_class_mappings
from gpuconsole.scheduling.kueue.configuration.durations import parse
from gpuconsole.scheduling.kueue.configuration.form import KueueConfigurationForm
from gpuconsole.scheduling.kueue.configuration.frameworks import BUILT_IN, POD, parse_kind
from gpuconsole.scheduling.kueue.configuration.selectors import SelectorForm, selector_errors
from gpuconsole.scheduling.kueue.configuration.tls import tls_faults
from gpuconsole.scheduling.kueue.gates import DEFAULTS

STRATEGY_LISTS = (
    (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
    (PreemptionStrategy.LESS_THAN_INITIAL_SHARE,),
    (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, PreemptionStrategy.LESS_THAN_INITIAL_SHARE),
)
Errors = Iterator[FieldError]
Enabled = Callable[[str], bool]


def validate(configuration: KueueConfigurationForm, gates: Mapping[str, bool]) -> list[FieldError]:
    """Return all validation errors; `gates` are those that differ from their defaults.

    Defaults must be filled in first, or errors in default values are missed.
    """

    def enabled(gate: str) -> bool:
        return gates.get(gate, DEFAULTS[gate])

    return [
        *_pods_ready(configuration, enabled),
        *_integrations(configuration),
        *multi_kueue(configuration),
        *_fair_sharing(configuration),
        *_admission_fair_sharing(configuration),
        *_certificates(configuration),
        *_transformations(configuration),
        *device_class_mappings(configuration, enabled),
        *_managed_namespaces(configuration),
        *_retention(configuration),
        *_tls(configuration),
        *_visibility(configuration),
        *custom_labels(configuration.metrics.custom_labels),
        *_quota_check(configuration, enabled),
    ]


def _negative(path: Path, duration: str | None) -> Errors:
    if duration is not None and parse(duration) < 0:
        yield invalid(path, NEGATIVE)


def _pods_ready(configuration: KueueConfigurationForm, enabled: Enabled) -> Errors:
    settings, path = configuration.wait_for_pods_ready, ("waitForPodsReady",)
    if settings is None or enabled("DisableWaitForPodsReady"):
        return
    if parse(settings.timeout) == 0:
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
            yield invalid((*below, name), NEGATIVE)


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
        if framework not in BUILT_IN:
            yield unsupported((*path, "frameworks", number), tuple(BUILT_IN))
        elif BUILT_IN[framework] in managed:
            yield duplicate((*path, "frameworks", number))
        else:
            managed.add(BUILT_IN[framework])
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
        yield from _exempting(selector, configuration.namespace, path)


def _exempting(selector: SelectorForm, namespace: str | None, path: Path) -> Errors:
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
    if parse(given.usage_sampling_interval) <= 0:
        yield invalid((*path, "usageSamplingInterval"), "must be greater than 0")
    for resource, weight in given.resource_weights.items():
        if weight < 0:
            yield invalid((*path, "resourceWeights", MapKey(resource)), NEGATIVE)


def _certificates(configuration: KueueConfigurationForm) -> Errors:
    given, path = configuration.internal_cert_management, ("internalCertManagement",)
    if given is None or not given.enable:
        return
    for name, text, check in (
        ("webhookServiceName", given.webhook_service_name, syntax.service_name),
        ("webhookSecretName", given.webhook_secret_name, syntax.subdomain),
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
        yield from _exempting(selector, configuration.namespace, ("managedJobsNamespaceSelector",))


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
    faults = tls_faults(given)
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
