"""Kueue's configuration objects (v1beta1 and v1beta2), validated by the rules of Kueue 0.19's CRDs and webhooks."""

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import HOSTNAME
from gpuconsole.model.documents.amounts import weight
from gpuconsole.model.documents.metadata import metadata
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.documents.selectors import selector, taints, tolerations
from gpuconsole.model.manifests.quotas import resource_groups
from gpuconsole.model.queues import (
    AdmissionCheck,
    BorrowWithinCohort,
    CheckRule,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    Fungibility,
    FungibilityPreference,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    StopPolicy,
    Topology,
    WorkloadPriorityClass,
)

TOP = ("apiVersion", "kind", "metadata", "spec", "status")
NO_SELECTOR = "no-namespace-selector"
"""Code of the finding that a ClusterQueue admits nobody."""
MOST_CHECKS = 64
MOST_LEVELS = 16
OLD_SPELLINGS = {"Borrow": Fungibility.MAY_STOP_SEARCH, "Preempt": Fungibility.MAY_STOP_SEARCH}


def _spec(reader: Reader, *fields: str) -> Reader:
    reader.only(*TOP)
    spec = reader.mapping("spec")
    spec.only(*fields)
    return spec


def resource_flavor(reader: Reader, now: Time) -> ResourceFlavor:
    meta = metadata(reader, now, namespaced=False)
    spec = _spec(reader, "nodeLabels", "nodeTaints", "tolerations", "topologyName")
    labels = spec.labels("nodeLabels", limit=63)
    flavor = ResourceFlavor(
        name=meta.name,
        uid=meta.uid,
        node_labels=labels,
        node_taints=taints(spec, "nodeTaints"),
        tolerations=tolerations(spec, "tolerations"),
        topology=spec.text("topologyName"),
    )
    for key, count in (("nodeLabels", labels), ("nodeTaints", flavor.node_taints), ("tolerations", flavor.tolerations)):
        if len(count) > 8:
            spec.report.refused(spec.at(key), f"it has {len(count)} entries, 8 are allowed", "drop some", "too-many")
    if flavor.topology and not labels:
        problem = "at least one nodeLabel is required when topology is set"
        spec.report.refused(spec.at("topologyName"), problem, "add a nodeLabel of the nodes", "required")
    return flavor


def cluster_queue(reader: Reader, now: Time) -> ClusterQueue:
    """A ClusterQueue; without namespaceSelector it admits nobody (a warning), `{}` admits from every namespace."""
    meta = metadata(reader, now, namespaced=False)
    spec = _spec(
        reader,
        *("cohort", "cohortName", "namespaceSelector", "queueingStrategy", "resourceGroups", "flavorFungibility"),
        *("preemption", "admissionChecks", "admissionChecksStrategy", "stopPolicy", "fairSharing", "admissionScope"),
        "concurrentAdmissionPolicy",
    )
    if "namespaceSelector" not in spec:
        spec.report.warning(
            spec.at("namespaceSelector"),
            f"ClusterQueue {meta.name} has no namespaceSelector: it selects no namespace and admits nobody",
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
        resource_groups=resource_groups(spec, parent=parent, above="cohort", lends_own=True),
        fungibility=_fungibility(spec.mapping("flavorFungibility")),
        preemption=_preemption(spec.mapping("preemption")),
        checks=_checks(spec),
        stop_policy=spec.choice("stopPolicy", StopPolicy.NONE),
        fair_weight=weight(spec),
        admission_mode=_admission_mode(spec),
    )


def _admission_mode(spec: Reader) -> str:
    modes = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
    mode = spec.mapping("admissionScope").one_of("admissionMode", "", modes)
    return mode if mode == modes[0] else ""


def _fungibility(place: Reader) -> FlavorFungibility:
    place.only("whenCanBorrow", "whenCanPreempt", "preference")
    borrow = place.choice("whenCanBorrow", Fungibility.MAY_STOP_SEARCH, also=OLD_SPELLINGS)
    preempt = place.choice("whenCanPreempt", Fungibility.TRY_NEXT_FLAVOR, also=OLD_SPELLINGS)
    preference = None
    if "preference" in place:
        preference = place.choice("preference", FungibilityPreference.BORROWING_OVER_PREEMPTION)
        if borrow != Fungibility.TRY_NEXT_FLAVOR or preempt != Fungibility.TRY_NEXT_FLAVOR:
            place.report.refused(
                place.at("preference"),
                "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
                "write TryNextFlavor in both, or drop preference",
                "needless-preference",
            )
    return FlavorFungibility(borrow, preempt, preference)


def _preemption(place: Reader) -> Preemption:
    place.only("withinClusterQueue", "reclaimWithinCohort", "borrowWithinCohort")
    borrow = place.mapping("borrowWithinCohort")
    borrow.only("policy", "maxPriorityThreshold")
    never = PreemptionPolicy.NEVER
    preemption = Preemption(
        _policy(place, "withinClusterQueue", never, PreemptionPolicy.ANY),
        _policy(place, "reclaimWithinCohort", never, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY),
        BorrowWithinCohort(
            _policy(borrow, "policy", never, PreemptionPolicy.ANY, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY),
            borrow.optional("maxPriorityThreshold"),
        ),
    )
    if preemption.reclaim_within_cohort == never and preemption.borrow_within_cohort.policy != never:
        place.report.refused(
            place.at("borrowWithinCohort", "policy"),
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
            "set reclaimWithinCohort, or drop borrowWithinCohort",
            "borrow-without-reclaim",
        )
    return preemption


def _policy(place: Reader, key: str, default: PreemptionPolicy, *forbidden: PreemptionPolicy) -> PreemptionPolicy:
    policy = place.choice(key, default)
    if policy not in forbidden:
        return policy
    allowed = ", ".join(word.value for word in PreemptionPolicy if word not in forbidden)
    place.report.error(place.at(key), f"{key} does not take {policy}", f"it takes {allowed}", "bad-value")
    return default


def _checks(spec: Reader) -> tuple[CheckRule, ...]:
    if "admissionChecksStrategy" not in spec:
        return tuple(CheckRule(name) for name in spec.texts("admissionChecks", MOST_CHECKS))
    place = spec.mapping("admissionChecksStrategy")
    place.only("admissionChecks")
    rules = place.items("admissionChecks", MOST_CHECKS)
    return tuple(CheckRule(rule.required("name"), rule.texts("onFlavors", MOST_CHECKS)) for rule in rules)


def cohort(reader: Reader, now: Time) -> Cohort:
    meta = metadata(reader, now, namespaced=False)
    spec = _spec(reader, "parentName", "parent", "resourceGroups", "fairSharing")
    parent = "parentName" if "parentName" in spec else "parent"
    return Cohort(
        name=meta.name,
        uid=meta.uid,
        parent=spec.text(parent),
        resource_groups=resource_groups(spec, parent=parent, above="parent", lends_own=False),
        fair_weight=weight(spec),
    )


def local_queue(reader: Reader, now: Time) -> LocalQueue:
    meta = metadata(reader, now)
    spec = _spec(reader, "clusterQueue", "stopPolicy", "fairSharing")
    return LocalQueue(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        cluster_queue=spec.required("clusterQueue"),
        stop_policy=spec.choice("stopPolicy", StopPolicy.NONE),
        fair_weight=weight(spec),
    )


def workload_priority_class(reader: Reader, now: Time) -> WorkloadPriorityClass:
    meta = metadata(reader, now, namespaced=False)
    reader.only("apiVersion", "kind", "metadata", "value", "description")
    if "value" not in reader:
        reader.report.refused(reader.at("value"), "value is missing; it is 0", "give it a value", "required")
    return WorkloadPriorityClass(
        name=meta.name,
        value=reader.number("value", 0, low=-INT32 - 1, high=INT32),
        description=reader.text("description", limit=2048),
    )


def topology(reader: Reader, now: Time) -> Topology:
    """Levels, highest first; the host name may only be the lowest."""
    meta = metadata(reader, now, namespaced=False)
    spec = _spec(reader, "levels")
    levels = tuple(level.required("nodeLabel") for level in spec.items("levels", MOST_LEVELS))
    if not levels:
        spec.report.refused(spec.at("levels"), "levels is empty", "name at least one node label", "required")
    for position, level in enumerate(levels):
        if level in levels[:position]:
            spec.report.refused(spec.at("levels", position), f"{level} must be unique", "drop one", "duplicate")
        if level == HOSTNAME and position < len(levels) - 1:
            spec.report.refused(
                spec.at("levels", position),
                f"the {HOSTNAME} label can only be used at the lowest level of topology",
                "move it to the end",
                "level-order",
            )
    return Topology(name=meta.name, levels=levels)


def admission_check(reader: Reader, now: Time) -> AdmissionCheck:
    """An admission check; without a status its controller is taken as active."""
    meta = metadata(reader, now, namespaced=False)
    spec = _spec(reader, "controllerName", "parameters", "retryDelayMinutes")
    parameters = spec.mapping("parameters")
    names = [parameters.text(key) for key in ("apiGroup", "kind", "name")] if "parameters" in spec else []
    active = True
    for condition in reader.mapping("status").items("conditions"):
        if condition.text("type") == "Active":
            active = condition.text("status") == "True"
    return AdmissionCheck(
        name=meta.name, controller=spec.required("controllerName"), parameters="/".join(names), active=active
    )
