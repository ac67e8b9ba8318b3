"""ClusterQueue: its schema and its webhook (Kueue 0.19 clusterqueue_webhook)."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.gates import Gates, enabled
from gpuconsole.model.apiserver.labels import check_selector
from gpuconsole.model.apiserver.quotas import (
    RESOURCE_GROUPS,
    Groups,
    Limits,
    check_groups,
    check_totals,
    check_weight,
    flavor_names,
    usage,
)
from gpuconsole.model.apiserver.refusals import forbidden, invalid, not_supported
from gpuconsole.model.apiserver.schema import (
    INT_32,
    Empty,
    SchemaRule,
    a_text,
    listed,
    one_of,
    record,
)
from gpuconsole.model.apiserver.selectors import CONDITIONS, LABEL_SELECTOR, STOP_POLICY, WEIGHT, named
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path

_TRY_NEXT = "TryNextFlavor"
MOST_MIGRATION_FLAVORS = 16


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
_USAGE = usage("total", "borrowed")
_STATUS = record(
    {
        "conditions": CONDITIONS,
        "flavorsReservation": _USAGE,
        "flavorsUsage": _USAGE,
        "fairSharing": record(int64="weightedShare!"),
    },
    int32="pendingWorkloads reservingWorkloads admittedWorkloads",
)
_SPEC = record(
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
CLUSTER_QUEUE = {"spec": _SPEC, "status": _STATUS}


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
