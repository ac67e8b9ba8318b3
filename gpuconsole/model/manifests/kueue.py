"""Manifests of Kueue's queues, flavors, topologies, admission checks, priorities and MultiKueue (v1beta1, v1beta2).

`webhook_validation` reports what the API server refuses.
"""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import labels, metadata
from gpuconsole.model.documents.pods_and_selectors import selector, taints, tolerations
from gpuconsole.model.documents.reader import INT32, Reader, billionths, not_negative, weight
from gpuconsole.model.queues import (
    AdmissionCheck,
    BorrowWithinCohort,
    CheckRule,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    ConcurrentAdmission,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    FungibilityPreference,
    LocalQueue,
    MigrationMode,
    MultiKueueCluster,
    MultiKueueConfig,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Topology,
    WorkloadPriorityClass,
)


def resource_groups(spec: Reader) -> tuple[ResourceGroup, ...]:
    """Read `spec.resourceGroups`."""
    return tuple(_group(place) for place in spec.items("resourceGroups"))


def _group(place: Reader) -> ResourceGroup:
    covered = tuple(dict.fromkeys(place.texts("coveredResources")))
    return ResourceGroup(covered, tuple(_flavor(flavor, covered) for flavor in place.items("flavors")))


def _flavor(place: Reader, covered: tuple[str, ...]) -> FlavorQuotas:
    """Read a flavor's quotas: a missing one is 0, one of a resource that is not covered is dropped."""
    quotas = dict(_quota(item) for item in place.items("resources"))
    return FlavorQuotas(place.text("name"), {resource: quotas.get(resource, Quota()) for resource in covered})


def _quota(item: Reader) -> tuple[str, Quota]:
    resource = item.text("name")
    if "nominalQuota" not in item:
        item.report.warning(item.at("nominalQuota"), "nominalQuota is missing; it is 0", "give a quota", "no-quota")
    return resource, Quota(
        not_negative(item, "nominalQuota", resource) or 0,
        not_negative(item, "borrowingLimit", resource),
        not_negative(item, "lendingLimit", resource),
    )


NO_SELECTOR = "no-namespace-selector"
"""Code of the finding that a ClusterQueue without namespaceSelector admits no workloads."""
OLD_SPELLINGS = {"Borrow": Fungibility.MAY_STOP_SEARCH, "Preempt": Fungibility.MAY_STOP_SEARCH}
"""Values of flavorFungibility in v1beta1."""


def cluster_queue(reader: Reader, now: Time) -> ClusterQueue:
    """Read a ClusterQueue; without namespaceSelector it matches no namespace (a warning), `{}` matches all."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    if "namespaceSelector" not in spec:
        spec.report.warning(
            spec.at("namespaceSelector"),
            f"ClusterQueue {meta.name} has no namespaceSelector: it selects no namespace and admits no workloads",
            "write namespaceSelector: {} to admit from every namespace (gpuconsole run --admit-all-namespaces does it)",
            NO_SELECTOR,
        )
    parent = "cohortName" if "cohortName" in spec else "cohort"
    return ClusterQueue(
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        cohort=spec.text(parent),
        namespace_selector=selector(spec, "namespaceSelector"),
        queueing_strategy=spec.choice("queueingStrategy", QueueingStrategy.BEST_EFFORT_FIFO),
        resource_groups=resource_groups(spec),
        fungibility=_fungibility(spec.mapping("flavorFungibility")),
        preemption=_preemption(spec.mapping("preemption")),
        checks=_checks(spec),
        stop_policy=spec.choice("stopPolicy", StopPolicy.NONE),
        fair_weight=weight(spec),
        admission_mode=_admission_mode(spec),
        concurrent_admission=_concurrent_admission(spec),
        terminating=bool(reader.mapping("metadata").moment("deletionTimestamp")),
    )


def _concurrent_admission(spec: Reader) -> ConcurrentAdmission | None:
    if "concurrentAdmissionPolicy" not in spec:
        return None
    migration = spec.mapping("concurrentAdmissionPolicy").mapping("migration")
    return ConcurrentAdmission(
        migration.choice("mode", MigrationMode.TRY_PREFERRED_FLAVORS),
        migration.mapping("constraints").text("lastAcceptableFlavorName"),
    )


def _admission_mode(spec: Reader) -> str:
    modes = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
    scope = spec.mapping("admissionScope")
    mode = scope.text("admissionMode")
    return mode if mode == modes[0] else ""


def _fungibility(place: Reader) -> FlavorFungibility:
    preference = None
    if "preference" in place:
        preference = place.choice("preference", FungibilityPreference.BORROWING_OVER_PREEMPTION)
    return FlavorFungibility(
        place.choice("whenCanBorrow", Fungibility.MAY_STOP_SEARCH, also=OLD_SPELLINGS),
        place.choice("whenCanPreempt", Fungibility.TRY_NEXT_FLAVOR, also=OLD_SPELLINGS),
        preference,
    )


def _preemption(place: Reader) -> ClusterQueuePreemption:
    borrow = place.mapping("borrowWithinCohort")
    never = PreemptionPolicy.NEVER
    return ClusterQueuePreemption(
        _policy(place, "withinClusterQueue", never, PreemptionPolicy.ANY),
        _policy(place, "reclaimWithinCohort", never, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY),
        BorrowWithinCohort(
            _policy(borrow, "policy", never, PreemptionPolicy.ANY, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY),
            borrow.optional("maxPriorityThreshold"),
        ),
    )


def _policy(place: Reader, key: str, default: PreemptionPolicy, *forbidden: PreemptionPolicy) -> PreemptionPolicy:
    return place.choice(key, default, without=forbidden)


def _checks(spec: Reader) -> tuple[CheckRule, ...]:
    if "admissionChecksStrategy" not in spec:
        return tuple(CheckRule(name) for name in spec.texts("admissionChecks"))
    rules = spec.mapping("admissionChecksStrategy").items("admissionChecks")
    return tuple(CheckRule(rule.text("name"), rule.texts("onFlavors")) for rule in rules)


def cohort(reader: Reader, now: Time) -> Cohort:
    """Read a Cohort."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    parent = "parentName" if "parentName" in spec else "parent"
    return Cohort(
        name=meta.name,
        uid=meta.uid,
        parent=spec.text(parent),
        resource_groups=resource_groups(spec),
        fair_weight=weight(spec),
    )


def local_queue(reader: Reader, now: Time) -> LocalQueue:
    """Read a LocalQueue with its consumed resources for admission fair sharing."""
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    queue = spec.text("clusterQueue")
    if not queue:
        problem = "clusterQueue is missing: no workload of this queue can be admitted"
        spec.report.warning(
            spec.at("clusterQueue"), problem, "name the ClusterQueue that it points to", "no-cluster-queue"
        )
    lately = reader.down("status", "fairSharing", "admissionFairSharingStatus")
    return LocalQueue(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        cluster_queue=queue,
        stop_policy=spec.choice("stopPolicy", StopPolicy.NONE),
        fair_weight=weight(spec),
        consumed=billionths(lately, "consumedResources"),
        sampled=lately.moment("lastUpdate") or 0,
    )


def workload_priority_class(reader: Reader, now: Time) -> WorkloadPriorityClass:
    """Read a WorkloadPriorityClass."""
    meta = metadata(reader, now, namespaced=False)
    return WorkloadPriorityClass(
        name=meta.name,
        value=reader.number("value", 0, low=-INT32 - 1, high=INT32),
        description=reader.text("description", limit=2048),
    )


def resource_flavor(reader: Reader, now: Time) -> ResourceFlavor:
    """Read a ResourceFlavor."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    return ResourceFlavor(
        name=meta.name,
        uid=meta.uid,
        node_labels=labels(spec, "nodeLabels"),
        node_taints=taints(spec, "nodeTaints"),
        tolerations=tolerations(spec, "tolerations"),
        topology=spec.text("topologyName"),
    )


def topology(reader: Reader, now: Time) -> Topology:
    """Read a Topology; its levels are in order from highest to lowest."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    levels = tuple(place.text("nodeLabel") for place in spec.items("levels"))
    if not levels:
        spec.report.warning(spec.at("levels"), "it has no levels", "name at least one node label", "required")
    return Topology(name=meta.name, levels=levels)


def admission_check(reader: Reader, now: Time) -> AdmissionCheck:
    """Read an AdmissionCheck; without a status it counts as active."""
    meta = metadata(reader, now, namespaced=False)
    spec, parameters = reader.mapping("spec"), reader.down("spec", "parameters")
    active = True
    for condition in reader.mapping("status").items("conditions"):
        if condition.text("type") == "Active":
            active = condition.text("status") == "True"
    return AdmissionCheck(
        name=meta.name,
        controller=spec.text("controllerName"),
        parameters="/".join(filter(None, (parameters.text(key) for key in ("apiGroup", "kind", "name")))),
        active=active,
    )


def config(reader: Reader, now: Time) -> MultiKueueConfig:
    """Read a MultiKueueConfig."""
    meta = metadata(reader, now, namespaced=False)
    return MultiKueueConfig(name=meta.name, clusters=reader.mapping("spec").texts("clusters"))


def cluster(reader: Reader, now: Time) -> MultiKueueCluster:
    """Read a MultiKueueCluster; without a status it counts as active. In v1beta1 kubeConfig is in `spec` itself."""
    meta = metadata(reader, now, namespaced=False)
    spec = reader.mapping("spec")
    source = spec.mapping("clusterSource") if "clusterSource" in spec else spec
    active = True
    for condition in reader.mapping("status").items("conditions"):
        if condition.text("type") == "Active":
            active = condition.text("status") == "True"
    return MultiKueueCluster(name=meta.name, location=source.mapping("kubeConfig").text("location"), active=active)
