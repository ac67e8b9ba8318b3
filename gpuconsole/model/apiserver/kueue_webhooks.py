"""Schemas and webhooks of Kueue's kinds other than Workload (Kueue 0.19).

Queues: ClusterQueue, Cohort, LocalQueue, WorkloadPriorityClass. Capacity: ResourceFlavor, Topology. Admission checks:
AdmissionCheck, ProvisioningRequestConfig, MultiKueueConfig, MultiKueueCluster. Only ClusterQueue (`validate`), Cohort
and ResourceFlavor have a validating webhook here (clusterqueue_webhook, cohort_webhook, resourceflavor_webhook).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.apiserver.common_validation import Gates, check_labels, check_selector, enabled
from gpuconsole.model.apiserver.pod_schema import (
    CONDITIONS,
    LABEL_SELECTOR,
    STOP_POLICY,
    TOLERATION,
    WEIGHT,
    exactly_one,
    named,
)
from gpuconsole.model.apiserver.schema import (
    AMOUNTS,
    INT_32,
    KIND,
    LONGEST_LABEL,
    MOMENT,
    NODE_LABEL,
    TEXT,
    Empty,
    Schema,
    SchemaRule,
    Transition,
    a_text,
    duplicate,
    forbidden,
    invalid,
    listed,
    mapped,
    not_supported,
    one_of,
    quantity,
    record,
    whole,
)
from gpuconsole.model.documents.findings import LABEL, FieldError, Path, label_key, label_value
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.resources import capped

MOST_IN_QUEUE = 256
"""Most flavors, and most covered resources, in all resource groups of a ClusterQueue."""
MOST_COMBINATIONS = 512
"""Most combinations of a flavor and a resource in a resource group."""
SMALLEST_WEIGHT = capped("1n")
"""A weight must be 0, or larger than this."""
_QUOTA = record(
    {"name!": TEXT, "nominalQuota!": quantity(zero="0"), "borrowingLimit": quantity(), "lendingLimit": quantity()}
)
_FLAVOR = record({"name!": named(zero=""), "resources!": listed(_QUOTA, least=1, most=64, by=("name",))})


def _misnumbered(group: Mapping[str, Any]) -> int:
    """Return the position of the first flavor whose resources do not match the group's coveredResources in number."""
    sizes = [len(flavor.get("resources") or ()) for flavor in group["flavors"]]
    return next((n for n, size in enumerate(sizes) if size != len(group["coveredResources"])), 0)


def _number_remedy(group: Mapping[str, Any]) -> str:
    flavor, covered = group["flavors"][_misnumbered(group)], group["coveredResources"]
    given = [quota.get("name", "") for quota in flavor.get("resources") or ()]
    missing = [resource for resource in covered if resource not in given]
    extra = [resource for resource in given if resource not in covered]
    parts = [f"lacks {' and '.join(missing)}, whose quota is 0 then"] if missing else []
    parts += [f"lists {', '.join(extra)}, which the group does not cover"] if extra else []
    said = f"flavor {flavor.get('name', '')} {' and '.join(parts)}: " if parts else ""
    return f"{said}list the resources of coveredResources, in that order: {', '.join(covered)}"


_SAME_NUMBER = SchemaRule(
    "flavors must have the same number of resources as the coveredResources",
    lambda group: all(len(flavor["resources"]) == len(group["coveredResources"]) for flavor in group["flavors"]),
    lambda group: _number_remedy(group),
    "resource-number",
    lambda group: ("flavors", _misnumbered(group), "resources"),
)
RESOURCE_GROUPS = listed(
    record(
        {
            "coveredResources!": listed(TEXT, least=1, most=64),
            "flavors!": listed(_FLAVOR, least=1, most=64, by=("name",)),
        },
        rules=(_SAME_NUMBER,),
    ),
    most=16,
)


def usage(*amounts: str) -> Schema:
    """Return the schema of usage in a status: flavors with their resources, each with these amounts."""
    resource = record({"name!": TEXT} | dict.fromkeys(amounts, quantity()))
    flavor = record({"name!": named(), "resources!": listed(resource, most=64, by=("name",))})
    return listed(flavor, most=64, by=("name",))


Groups = Sequence[Mapping[str, Any]]
"""Value of `spec.resourceGroups`."""


def flavor_names(groups: Groups) -> tuple[str, ...]:
    """Return the sorted names of the flavors in all groups."""
    return tuple(sorted({flavor.get("name", "") for group in groups for flavor in group.get("flavors") or ()}))


class Limits(Struct, frozen=True):
    """Rules for borrowingLimit and lendingLimit in the quotas of a ClusterQueue or Cohort."""

    orphan: str
    """The unset field, `cohort` or `parent`, without which no limit may be set; empty if it is set."""
    lends_own: bool
    """True if lendingLimit must not exceed the nominal quota."""


def check_groups(groups: Groups, limits: Limits) -> Iterator[FieldError]:
    """Validate names, amounts and limits; a resource or flavor may be in one group only.

    Kueue 0.19 clusterqueue_webhook validateResourceGroups.
    """
    resources: set[str] = set()
    flavors: set[str] = set()
    for g, group in enumerate(groups):
        path: Path = ("spec", "resourceGroups", g)
        covered = group.get("coveredResources") or []
        for n, resource in enumerate(covered):
            place = (*path, "coveredResources", n)
            for message in label_key(resource):
                yield invalid(place, resource, message, "write it as nvidia.com/gpu", "bad-name")
            if resource in resources:
                yield duplicate(place, resource)
            resources.add(resource)
        for n, flavor in enumerate(group.get("flavors") or ()):
            place = (*path, "flavors", n)
            yield from _check_flavor(flavor, covered, limits, place)
            name = flavor.get("name", "")
            if name in flavors:
                yield duplicate((*place, "name"), name)
            flavors.add(name)


def _check_flavor(
    flavor: Mapping[str, Any], covered: Sequence[str], limits: Limits, path: Path
) -> Iterator[FieldError]:
    for n, (quota, resource) in enumerate(zip(flavor.get("resources") or (), covered, strict=False)):
        place = (*path, "resources", n)
        name = quota.get("name", "")
        if name != resource:
            order = f"list the resources of coveredResources, in that order: {', '.join(covered)}"
            yield invalid((*place, "name"), name, "must match the name in coveredResources", order, "resource-order")
        yield from _not_negative(quota, "nominalQuota", place)
        yield from _not_orphaned(quota, "borrowingLimit", limits.orphan, place)
        yield from _not_negative(quota, "borrowingLimit", place)
        yield from _not_negative(quota, "lendingLimit", place)
        yield from _not_orphaned(quota, "lendingLimit", limits.orphan, place)
        lent, nominal = quota.get("lendingLimit"), quota.get("nominalQuota", 0)
        if limits.lends_own and lent is not None and capped(lent) > capped(nominal):
            detail, code = "must be less than or equal to the nominalQuota", "lending-over-nominal"
            yield invalid((*place, "lendingLimit"), lent, detail, f"write {nominal} or less", code)


def _not_negative(quota: Mapping[str, Any], key: str, path: Path) -> Iterator[FieldError]:
    amount = quota.get(key)
    if amount is not None and capped(amount) < 0:
        yield invalid((*path, key), amount, "must be greater than or equal to 0", "write 0 or more", "negative")


def _not_orphaned(quota: Mapping[str, Any], key: str, orphan: str, path: Path) -> Iterator[FieldError]:
    if orphan and key in quota:
        code = f"{key.removesuffix('Limit')}-without-cohort"
        detail = f"must be nil when {orphan} is empty"
        yield invalid((*path, key), quota[key], detail, f"name a {orphan}, or drop {key}", code)


def check_totals(groups: Groups) -> Iterator[FieldError]:
    """Validate the total numbers of flavors and resources in a ClusterQueue."""
    path: Path = ("spec", "resourceGroups")
    for what, key in (("flavors", "flavors"), ("covered resources", "coveredResources")):
        total = sum(len(group.get(key) or ()) for group in groups)
        if total > MOST_IN_QUEUE:
            detail = f"total number of {what} across all resourceGroups must be ≤ {MOST_IN_QUEUE}, got {total}"
            yield invalid(path, total, detail, "split the queue", "too-many")
    for g, group in enumerate(groups):
        total = sum(len(flavor.get("resources") or ()) for flavor in group.get("flavors") or ())
        if total > MOST_COMBINATIONS:
            detail = (
                f"number of flavor-resource combinations in a resourceGroup must be ≤ {MOST_COMBINATIONS}, got {total}"
            )
            yield invalid((*path, g), total, detail, "split the group", "too-many")


def check_weight(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate that a weight is 0 or more than a billionth, because less would be rounded to 0."""
    weight = (spec.get("fairSharing") or {}).get("weight")
    if weight is None:
        return
    path: Path = ("spec", "fairSharing")
    if capped(weight) < 0:
        detail = "must be greater than or equal to 0"
        yield replace(invalid(path, weight, detail, "write 0 or more", "negative"), deeper=("weight",))
    elif 0 < capped(weight) <= SMALLEST_WEIGHT:
        detail = "When not 0, weight must be > 10e-9"
        refusal = invalid(path, weight, detail, "write 0 or a larger weight", "bad-weight")
        yield replace(refusal, deeper=("weight",))


_TRY_NEXT = "TryNextFlavor"
MOST_MIGRATION_FLAVORS = 16
"""Most flavors of a ClusterQueue with a concurrentAdmissionPolicy."""


def _orphan(spec: Mapping[str, Any]) -> Path:
    """Return the path of the first borrowingLimit of a queue without cohort."""
    if "cohortName" in spec:
        return ()
    for g, group in enumerate(spec.get("resourceGroups") or ()):
        for f, flavor in enumerate(group["flavors"]):
            for r, quota in enumerate(flavor["resources"]):
                if "borrowingLimit" in quota:
                    return ("resourceGroups", g, "flavors", f, "resources", r, "borrowingLimit")
    return ()


_NO_ORPHANS = SchemaRule(
    "borrowingLimit must be nil when cohort is empty",
    lambda spec: not _orphan(spec),
    "name a cohort, or drop borrowingLimit",
    "borrowing-without-cohort",
    _orphan,
)
_PREFERENCE_REMEDY = "write TryNextFlavor in both, or drop preference"
_RECLAIM_REMEDY = "set reclaimWithinCohort, or drop borrowWithinCohort"
_PREFERENCE = SchemaRule(
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
    lambda place: (
        "preference" not in place or (place["whenCanBorrow"] == _TRY_NEXT and place["whenCanPreempt"] == _TRY_NEXT)
    ),
    _PREFERENCE_REMEDY,
    "needless-preference",
    lambda place: ("preference",),
)
_RECLAIM = SchemaRule(
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
    lambda place: (
        not (
            place["reclaimWithinCohort"] == "Never"
            and "borrowWithinCohort" in place
            and place["borrowWithinCohort"]["policy"] != "Never"
        )
    ),
    _RECLAIM_REMEDY,
    "borrow-without-reclaim",
    lambda place: ("borrowWithinCohort", "policy"),
)
_FLAVOR_FUNGIBILITY = record(
    {
        "whenCanBorrow": one_of("MayStopSearch", _TRY_NEXT, default="MayStopSearch"),
        "whenCanPreempt": one_of("MayStopSearch", _TRY_NEXT, default=_TRY_NEXT),
        "preference": one_of("BorrowingOverPreemption", "PreemptionOverBorrowing", empty=Empty.KEPT),
    },
    default={},
    rules=(_PREFERENCE,),
)
_PREEMPTION = record(
    {
        "withinClusterQueue": one_of("Never", "LowerPriority", "LowerOrNewerEqualPriority", default="Never"),
        "reclaimWithinCohort": one_of("Never", "LowerPriority", "Any", default="Never"),
        "borrowWithinCohort": record(
            {"policy": one_of("Never", "LowerPriority", default="Never"), "maxPriorityThreshold": INT_32}, default={}
        ),
    },
    default={},
    rules=(_RECLAIM,),
)
_CHECK = record(
    {"name!": a_text(least=1, most=316), "onFlavors": listed(named(empty=Empty.KEPT), most=64, distinct=True)}
)
_MIGRATION = record(
    {
        "mode!": one_of("TryPreferredFlavors", "RetainFirstAdmission", most=253),
        "constraints": record({"lastAcceptableFlavorName": named(empty=Empty.KEPT)}),
    },
    empty=Empty.DROPPED,
)
_CLUSTER_QUEUE_USAGE = usage("total", "borrowed")
_CLUSTER_QUEUE_STATUS = record(
    {
        "conditions": CONDITIONS,
        "flavorsReservation": _CLUSTER_QUEUE_USAGE,
        "flavorsUsage": _CLUSTER_QUEUE_USAGE,
        "fairSharing": record(int64="weightedShare!"),
    },
    int32="pendingWorkloads reservingWorkloads admittedWorkloads",
)
_CLUSTER_QUEUE_SPEC = record(
    {
        "resourceGroups": RESOURCE_GROUPS,
        "cohortName": named(),
        "queueingStrategy": one_of("StrictFIFO", "BestEffortFIFO", default="BestEffortFIFO"),
        "namespaceSelector": LABEL_SELECTOR,
        "flavorFungibility": _FLAVOR_FUNGIBILITY,
        "preemption": _PREEMPTION,
        "admissionChecksStrategy": record({"admissionChecks!": listed(_CHECK, least=1, most=64, by=("name",))}),
        "stopPolicy": STOP_POLICY,
        "fairSharing": WEIGHT,
        "admissionScope": record(
            {"admissionMode!": one_of("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")}
        ),
        "concurrentAdmissionPolicy": record({"migration!": _MIGRATION}),
    },
    rules=(_NO_ORPHANS,),
    zero={},
)
CLUSTER_QUEUE = {"spec": _CLUSTER_QUEUE_SPEC, "status": _CLUSTER_QUEUE_STATUS}


def validate(queue: Mapping[str, Any], old: Mapping[str, Any] | None, gates: Gates) -> Iterator[FieldError]:
    """Yield the webhook's errors for a new ClusterQueue, or one that replaces `old`."""
    spec = queue.get("spec") or {}
    yield from _check_spec(spec, gates)
    if old is None:
        yield from _check_on_flavors(spec, {})
        return
    before = old.get("spec") or {}
    kept = {} if enabled(gates, "RejectUpdatesToCQWithInvalidOnFlavors") else _rules_kept(spec, before)
    yield from _check_on_flavors(spec, kept)
    policy = spec.get("concurrentAdmissionPolicy")
    if policy != before.get("concurrentAdmissionPolicy"):
        path: Path = ("spec", "concurrentAdmissionPolicy")
        yield invalid(path, policy, "field is immutable", "delete the queue and create it anew", "immutable")


def _check_spec(spec: Mapping[str, Any], gates: Gates) -> Iterator[FieldError]:
    groups = spec.get("resourceGroups") or ()
    yield from check_groups(groups, Limits("" if spec.get("cohortName") else "cohort", lends_own=True))
    yield from check_selector(spec.get("namespaceSelector"), ("spec", "namespaceSelector"))
    preemption = spec.get("preemption")
    if preemption is not None and not _RECLAIM.holds({**_NO_POLICIES, **preemption}):
        yield invalid(("spec", "preemption"), preemption, _RECLAIM.message, _RECLAIM_REMEDY, _RECLAIM.code)
    fungibility = spec.get("flavorFungibility") or {}
    if not _PREFERENCE.holds({"whenCanBorrow": "", "whenCanPreempt": "", **fungibility}):
        preference = fungibility["preference"]
        detail = f'preference "{preference}" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor'
        path = ("spec", "flavorFungibility", "preference")
        yield invalid(path, preference, detail, _PREFERENCE_REMEDY, _PREFERENCE.code)
    yield from check_weight(spec)
    yield from check_totals(groups)
    if enabled(gates, "ConcurrentAdmission") and "concurrentAdmissionPolicy" in spec:
        yield from _check_migration(spec)


_NO_POLICIES = {"reclaimWithinCohort": ""}


def _rules_kept(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the old queue's onFlavors by check: invalid ones may stay as long as the queue's flavors are the same."""
    if flavor_names(spec.get("resourceGroups") or ()) != flavor_names(before.get("resourceGroups") or ()):
        return {}
    strategy = before.get("admissionChecksStrategy") or {}
    checks = strategy.get("admissionChecks") or ()
    return {check.get("name", ""): frozenset(check.get("onFlavors") or ()) for check in checks}


def _check_on_flavors(spec: Mapping[str, Any], kept: Mapping[str, frozenset[str]]) -> Iterator[FieldError]:
    flavors = flavor_names(spec.get("resourceGroups") or ())
    strategy = spec.get("admissionChecksStrategy") or {}
    for n, check in enumerate(strategy.get("admissionChecks") or ()):
        wanted = check.get("onFlavors") or ()
        if kept.get(check.get("name", "")) == frozenset(wanted):
            continue
        for f, flavor in enumerate(wanted):
            if flavor not in flavors:
                path = ("spec", "admissionChecksStrategy", "admissionChecks", n, "onFlavors", f)
                yield not_supported(path, flavor, flavors, "unknown-flavor")


def _check_migration(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate that ConcurrentAdmission migrates workloads within one resource group."""
    groups: Groups = spec.get("resourceGroups") or ()
    path: Path = ("spec", "resourceGroups")
    if len(groups) != 1:
        detail = "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined"
        yield invalid(path, len(groups), detail, "keep one group")
    elif len(groups[0].get("flavors") or ()) > MOST_MIGRATION_FLAVORS:
        detail = (
            f"cannot have more than {MOST_MIGRATION_FLAVORS} resource flavors in the ResourceGroup when "
            "ConcurrentAdmissionPolicy is defined"
        )
        yield invalid((*path, 0, "flavors"), len(groups[0]["flavors"]), detail, "drop some", "too-many")
    yield from _check_constraints(spec["concurrentAdmissionPolicy"].get("migration") or {}, flavor_names(groups))
    if spec.get("queueingStrategy") == "StrictFIFO":
        detail = "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined"
        yield invalid(("spec", "queueingStrategy"), "StrictFIFO", detail, "write BestEffortFIFO")


def _check_constraints(migration: Mapping[str, Any], flavors: tuple[str, ...]) -> Iterator[FieldError]:
    constraints, mode = migration.get("constraints"), migration.get("mode", "")
    path: Path = ("spec", "concurrentAdmissionPolicy", "migration", "constraints")
    if constraints is None:
        return
    if mode not in ("", "TryPreferredFlavors"):
        detail = f'may only be set when migration.mode is "TryPreferredFlavors" (got "{mode}")'
        yield forbidden(path, detail, "drop it, or write TryPreferredFlavors")
        return
    last = constraints.get("lastAcceptableFlavorName")
    if last is not None and last not in flavors:
        detail = f"must be one of the flavors defined in the ClusterQueue: [{' '.join(flavors)}]"
        yield invalid((*path, "lastAcceptableFlavorName"), last, detail, f"it takes {', '.join(flavors)}")


COHORT = {
    "spec": record({"parentName": named(), "resourceGroups": RESOURCE_GROUPS, "fairSharing": WEIGHT}),
    "status": record({"fairSharing": record(int64="weightedShare!")}),
}


def validate_cohort(cohort: Mapping[str, Any], old: Mapping[str, Any] | None, gates: Gates) -> Iterator[FieldError]:
    """Yield the webhook's errors for a Cohort (Kueue 0.19 cohort_webhook)."""
    spec = cohort.get("spec") or {}
    yield from check_weight(spec)
    limits = Limits("" if spec.get("parentName") else "parent", lends_own=False)
    yield from check_groups(spec.get("resourceGroups") or (), limits)


_IMMUTABLE_CLUSTER_QUEUE = Transition(
    "field is immutable", lambda new, old: bool(new == old), "leave it as it was, or create another object"
)
_CONSUMED = record({"consumedResources!": AMOUNTS, "lastUpdate!": MOMENT})
_LOCAL_QUEUE_USAGE = usage("total")
LOCAL_QUEUE = {
    "spec": record(
        {"clusterQueue": named(rules=(_IMMUTABLE_CLUSTER_QUEUE,)), "stopPolicy": STOP_POLICY, "fairSharing": WEIGHT},
    ),
    "status": record(
        {
            "conditions": CONDITIONS,
            "flavorsReservation": _LOCAL_QUEUE_USAGE,
            "flavorsUsage": _LOCAL_QUEUE_USAGE,
            "fairSharing": record({"admissionFairSharingStatus": _CONSUMED}, int64="weightedShare!"),
        },
        int32="pendingWorkloads reservingWorkloads admittedWorkloads",
    ),
}
WORKLOAD_PRIORITY_CLASS = {"value!": INT_32, "description": a_text(most=2048)}


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ALL_EFFECTS = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"
_TAINT_EFFECTS = SchemaRule(
    _ALL_EFFECTS, lambda taints: all(taint["effect"] in _EFFECTS for taint in taints), "write one of these effects"
)
_TAINT = record({"key!": a_text(zero=""), "effect!": a_text(zero=""), "value": TEXT, "timeAdded": MOMENT})
_TOLERATION_RULES = (
    SchemaRule(
        "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        lambda listed: all("key" in one or one["operator"] == "Exists" for one in listed),
        "name a key, or write operator: Exists",
    ),
    SchemaRule(
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
        lambda listed: all("tolerationSeconds" not in one or one["effect"] == "NoExecute" for one in listed),
        "write effect: NoExecute, or drop tolerationSeconds",
    ),
    SchemaRule(
        "supported toleration values: 'Equal'(default), 'Exists'",
        lambda listed: all(one.get("operator", "Equal") in ("Equal", "Exists") for one in listed),
        "write Equal or Exists",
    ),
    SchemaRule(
        "a value must be empty when 'operator' is 'Exists'",
        lambda listed: all(one.get("operator") != "Exists" or "value" not in one for one in listed),
        "drop the value, or write operator: Equal",
    ),
    SchemaRule(
        _ALL_EFFECTS,
        lambda listed: all("effect" not in one or one["effect"] in _EFFECTS for one in listed),
        "write one of these effects, or none",
    ),
)
TOLERATIONS = listed(TOLERATION, most=8, rules=_TOLERATION_RULES)


def _frozen(key: str) -> Transition:
    """Rule that a field of a flavor with a topology is immutable."""

    def holds(spec: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        return "topologyName" not in old or bool(spec.get(key) == old.get(key))

    verb = "is" if key == "topologyName" else "are"
    return Transition(
        f"{key} {verb} immutable when topologyName is set", holds, "leave it as it was, or create another flavor"
    )


_HAS_LABEL = SchemaRule(
    "at least one nodeLabel is required when topology is set",
    lambda spec: "topologyName" not in spec or len(spec["nodeLabels"]) >= 1,
    "add a nodeLabel of the nodes",
    "required",
    lambda spec: ("topologyName",),
)
_FLAVOR_SPEC = record(
    {
        "nodeLabels": mapped(TEXT, most=8),
        "nodeTaints": listed(_TAINT, most=8, rules=(_TAINT_EFFECTS,)),
        "tolerations": TOLERATIONS,
        "topologyName": named(empty=Empty.KEPT),
    },
    rules=(_HAS_LABEL, _frozen("nodeLabels"), _frozen("tolerations"), _frozen("topologyName")),
    zero={},
)
RESOURCE_FLAVOR = {"spec": _FLAVOR_SPEC}


def validate_flavor(flavor: Mapping[str, Any], old: Mapping[str, Any] | None, gates: Gates) -> Iterator[FieldError]:
    """Yield the webhook's errors for a ResourceFlavor (Kueue 0.19 resourceflavor_webhook)."""
    spec = flavor.get("spec") or {}
    yield from check_labels(spec.get("nodeLabels"), ("spec", "nodeLabels"))
    yield from _check_taints(spec.get("nodeTaints") or (), ("spec", "nodeTaints"))
    yield from check_toleration_keys(spec.get("tolerations") or (), ("spec", "tolerations"))


def _check_taints(taints: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for n, taint in enumerate(taints):
        key, value = taint.get("key", ""), taint.get("value", "")
        for message in label_key(key):
            yield invalid((*path, n, "key"), key, message, "write the key as example.com/name", "bad-label")
        wrong = list(label_value(value))
        if wrong:
            yield invalid((*path, n, "value"), value, ";".join(wrong), "write it as a label's value", "bad-label")
        mark = key, taint.get("effect", "")
        if mark in seen:
            yield duplicate((*path, n), taint, "taints must be unique by key and effect pair")
        seen.add(mark)


def check_toleration_keys(tolerations: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    """Validate keys of tolerations; an empty one tolerates every key."""
    for n, toleration in enumerate(tolerations):
        key = toleration.get("key", "")
        for message in label_key(key) if key else ():
            yield invalid((*path, n, "key"), key, message, "write the key as example.com/name", "bad-label")


def _labels(levels: Sequence[Mapping[str, str]]) -> list[str]:
    return [level["nodeLabel"] for level in levels]


def _repeated(labels: Sequence[str]) -> int:
    return next(n for n, label in enumerate(labels) if label in labels[:n])


TOPOLOGY = {
    "spec": record(
        {
            "levels!": listed(
                record({"nodeLabel!": a_text(NODE_LABEL, least=1, most=316)}),
                least=1,
                most=16,
                rules=(
                    Transition("field is immutable", lambda new, old: bool(new == old), "create another topology"),
                    SchemaRule(
                        "must be unique",
                        lambda levels: not levels or max(Counter(_labels(levels)).values()) == 1,
                        "drop one of those that are equal",
                        "duplicate",
                        lambda levels: (_repeated(_labels(levels)),),
                    ),
                    SchemaRule(
                        f"the {HOSTNAME} label can only be used at the lowest level of topology",
                        lambda levels: HOSTNAME not in _labels(levels)[:-1] or _labels(levels)[-1] == HOSTNAME,
                        "move it to the end",
                        "level-order",
                        lambda levels: (_labels(levels).index(HOSTNAME),),
                    ),
                ),
            )
        }
    )
}


_IMMUTABLE_CONTROLLER = Transition(
    "field is immutable", lambda new, old: bool(new == old), "create another AdmissionCheck"
)
_PARAMETERS = record(
    {
        "apiGroup!": named(least=1),
        "kind!": a_text(KIND, least=1, most=LONGEST_LABEL),
        "name!": a_text(LABEL, least=1, most=LONGEST_LABEL),
    }
)
ADMISSION_CHECK = {
    "spec": record(
        {"controllerName!": a_text(least=1, most=253, rules=(_IMMUTABLE_CONTROLLER,)), "parameters": _PARAMETERS},
    ),
    "status": record({"conditions": CONDITIONS}),
}
_NODE_SELECTOR = record(
    {
        "key!": a_text(NODE_LABEL, least=1, most=317),
        "valueFromProvisioningClassDetail!": a_text(least=1, most=32768),
    }
)
_RETRIES = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
PROVISIONING_REQUEST_CONFIG = {
    "spec": record(
        {
            "provisioningClassName!": named(least=1),
            "parameters": mapped(a_text(most=255), most=100),
            "managedResources": listed(TEXT, most=100, distinct=True),
            "retryStrategy": record({key: whole(default=n) for key, n in _RETRIES.items()}, default=_RETRIES),
            "podSetUpdates": record({"nodeSelector": listed(_NODE_SELECTOR, most=8, by=("key",))}),
            "podSetMergePolicy": one_of("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"),
        }
    )
}


_UNIQUE = SchemaRule(
    "must be unique",
    lambda clusters: not clusters or max(Counter(clusters).values()) == 1,
    "name each cluster once",
    "duplicate",
)
MULTI_KUEUE_CONFIG = {
    "spec": record(
        {
            "clusters!": listed(a_text(most=256), least=1, most=20, rules=(_UNIQUE,)),
            "quotaManagement": one_of("Manual", "Automated"),
        }
    )
}
_KUBE_CONFIG = record(
    {"location!": a_text(least=1, most=256), "locationType": one_of("Secret", "Path", default="Secret")}
)
MULTI_KUEUE_CLUSTER = {
    "spec": record(
        {
            "clusterSource!": record(
                {"kubeConfig": _KUBE_CONFIG, "clusterProfileRef": record({"name!": a_text(least=1, most=256)})},
                rules=(exactly_one("kubeConfig", "clusterProfileRef"),),
            )
        }
    ),
    "status": record({"conditions": CONDITIONS}),
}
