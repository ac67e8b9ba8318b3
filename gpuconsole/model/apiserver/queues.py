"""Cohort, LocalQueue and WorkloadPriorityClass: their schemas, and the webhook of Cohort."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuconsole.model.apiserver.gates import Gates
from gpuconsole.model.apiserver.quotas import RESOURCE_GROUPS, Limits, check_groups, check_weight, usage
from gpuconsole.model.apiserver.schema import AMOUNTS, INT_32, MOMENT, Transition, a_text, record
from gpuconsole.model.apiserver.selectors import CONDITIONS, STOP_POLICY, WEIGHT, named
from gpuconsole.model.documents.fields import FieldError

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


_IMMUTABLE = Transition(
    "field is immutable", lambda new, old: bool(new == old), "leave it as it was, or create another object"
)
_CONSUMED = record({"consumedResources!": AMOUNTS, "lastUpdate!": MOMENT})
_queues_USAGE = usage("total")
LOCAL_QUEUE = {
    "spec": record(
        {"clusterQueue": named(rules=(_IMMUTABLE,)), "stopPolicy": STOP_POLICY, "fairSharing": WEIGHT},
    ),
    "status": record(
        {
            "conditions": CONDITIONS,
            "flavorsReservation": _queues_USAGE,
            "flavorsUsage": _queues_USAGE,
            "fairSharing": record({"admissionFairSharingStatus": _CONSUMED}, int64="weightedShare!"),
        },
        int32="pendingWorkloads reservingWorkloads admittedWorkloads",
    ),
}
WORKLOAD_PRIORITY_CLASS = {"value!": INT_32, "description": a_text(most=2048)}
