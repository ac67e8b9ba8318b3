"""Defaults of a Configuration's fields (Kueue 0.19 SetDefaults_Configuration)."""

from msgspec.structs import replace

from gpuconsole.scheduling.kueue.configuration.form import (
    ALL_AT_ONCE,
    INCREMENTAL,
    AdmissionFairSharingForm,
    ClientConnection,
    ExpressionForm,
    IncrementalDispatcher,
    Integrations,
    InternalCertManagement,
    KueueConfigurationForm,
    LeaderElection,
    LocalQueueMetrics,
    MultiKueueForm,
    RequeuingStrategyForm,
    Resources,
    SelectorForm,
    VisibilityServer,
    WaitForPodsReadyForm,
)

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
SYSTEM_NAMESPACE = "kube-system"
NAMESPACE = "kueue-system"
NOTHING = "0s"


def defaulted(given: KueueConfigurationForm) -> KueueConfigurationForm:
    """Return the Configuration with every default filled in; explicit values stay."""
    namespace = NAMESPACE if given.namespace is None else given.namespace
    integrations = given.integrations or Integrations()
    client = given.client_connection or ClientConnection()
    return replace(
        given,
        namespace=namespace,
        webhook=replace(
            given.webhook,
            port=9443 if given.webhook.port is None else given.webhook.port,
            cert_dir=given.webhook.cert_dir or "/tmp/k8s-webhook-server/serving-certs",
        ),
        metrics=replace(
            given.metrics,
            bind_address=given.metrics.bind_address or ":8443",
            local_queue_metrics=given.metrics.local_queue_metrics or LocalQueueMetrics(enable=True),
        ),
        health=replace(given.health, health_probe_bind_address=given.health.health_probe_bind_address or ":8081"),
        leader_election=_leader_election(given.leader_election or LeaderElection()),
        internal_cert_management=_certificates(given.internal_cert_management or InternalCertManagement()),
        client_connection=ClientConnection(
            qps=300 if client.qps is None else client.qps, burst=500 if client.burst is None else client.burst
        ),
        wait_for_pods_ready=_pods_ready(given.wait_for_pods_ready or WaitForPodsReadyForm()),
        integrations=integrations if integrations.frameworks else replace(integrations, frameworks=("batch/job",)),
        managed_jobs_namespace_selector=given.managed_jobs_namespace_selector or _all_but(SYSTEM_NAMESPACE, namespace),
        multi_kueue=_multi_kueue(given.multi_kueue or MultiKueueForm()),
        admission_fair_sharing=_admission_fair_sharing(given.admission_fair_sharing),
        visibility_server=_visibility(given.visibility_server or VisibilityServer()),
        resources=_resources(given.resources),
    )


def _leader_election(given: LeaderElection) -> LeaderElection:
    return replace(
        given,
        leader_elect=True if given.leader_elect is None else given.leader_elect,
        lease_duration=_or(given.lease_duration, "15s"),
        renew_deadline=_or(given.renew_deadline, "10s"),
        retry_period=_or(given.retry_period, "2s"),
        resource_lock=given.resource_lock or "leases",
        resource_name=given.resource_name or "c1f6bfd2.kueue.x-k8s.io",
    )


def _certificates(given: InternalCertManagement) -> InternalCertManagement:
    if given.enable is False:
        return given
    service, secret = given.webhook_service_name, given.webhook_secret_name
    return InternalCertManagement(
        enable=True,
        webhook_service_name="kueue-webhook-service" if service is None else service,
        webhook_secret_name="kueue-webhook-server-cert" if secret is None else secret,
    )


def _pods_ready(given: WaitForPodsReadyForm) -> WaitForPodsReadyForm:
    timeout = _or(given.timeout, "30m0s")
    strategy = given.requeuing_strategy or RequeuingStrategyForm()
    base, most = strategy.backoff_base_seconds, strategy.backoff_max_seconds
    return WaitForPodsReadyForm(
        timeout=timeout,
        block_admission=bool(given.block_admission),
        recovery_timeout=timeout if given.recovery_timeout is None else given.recovery_timeout,
        requeuing_strategy=RequeuingStrategyForm(
            timestamp="Eviction" if strategy.timestamp is None else strategy.timestamp,
            backoff_limit_count=strategy.backoff_limit_count,
            backoff_base_seconds=60 if base is None else base,
            backoff_max_seconds=3600 if most is None else most,
        ),
    )


def _all_but(*namespaces: str) -> SelectorForm:
    excluded = ExpressionForm(key=NAMESPACE_LABEL, operator="NotIn", values=namespaces)
    return SelectorForm(match_expressions=(excluded,))


def _multi_kueue(given: MultiKueueForm) -> MultiKueueForm:
    dispatcher = ALL_AT_ONCE if given.dispatcher_name is None else given.dispatcher_name
    steps = given.incremental_dispatcher_config
    if dispatcher == INCREMENTAL and (steps is None or steps.step_size is None):
        steps = IncrementalDispatcher(step_size=3)
    return replace(
        given,
        gc_interval="1m0s" if given.gc_interval is None else given.gc_interval,
        origin=given.origin or "multikueue",
        worker_lost_timeout="15m0s" if given.worker_lost_timeout is None else given.worker_lost_timeout,
        dispatcher_name=dispatcher,
        incremental_dispatcher_config=steps,
    )


def _admission_fair_sharing(given: AdmissionFairSharingForm | None) -> AdmissionFairSharingForm | None:
    if given is None:
        return None
    return replace(given, usage_sampling_interval=_or(given.usage_sampling_interval, "5m0s"))


def _visibility(given: VisibilityServer) -> VisibilityServer:
    return given if given.bind_port is not None else replace(given, bind_port=8082)


def _resources(given: Resources | None) -> Resources | None:
    if given is None:
        return None
    transformations = (replace(part, strategy=part.strategy or "Retain") for part in given.transformations)
    return replace(given, transformations=tuple(transformations))


def _or(duration: str, otherwise: str) -> str:
    return otherwise if duration == NOTHING else duration
