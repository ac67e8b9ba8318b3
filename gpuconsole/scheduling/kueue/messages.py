"""Kueue 0.19's messages about pending workloads and victims, verbatim, and functions that parse them.

A granular reason says in the condition QuotaReserved=False why a workload has no quota (gate
UnadmittedWorkloadsObservability). Without that gate the reason is `PENDING` or `WAITING` (Kueue 0.19 workload_types.go,
flavorassigner.go).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from gpuconsole.model.events import PreemptionRule
from gpuconsole.model.labels import Taint
from gpuconsole.model.resources import format_quantity
from gpuconsole.model.workloads import Workload

JOB_UID = "kueue.x-k8s.io/job-uid"

OVERLAPPING_TARGETS = "Workload has overlapping preemption targets with another workload"
DEFERRED = f"{OVERLAPPING_TARGETS}, but will fit after these preemptions complete"
NO_LONGER_FITS = "Workload no longer fits after processing another workload"
PREEMPTION_GATED = "Workload requires preemption, but it's gated"
BETTER_VARIANT_ADMITTED = "A more favorable variant is already admitted"
BELOW_LAST_ACCEPTABLE = "Target flavor is below LastAcceptableFlavorName"
WAITING_FOR_PODS_READY = "waiting for all admitted workloads to be in PodsReady condition"
FAILED_CHECKS = "The workload has failed admission checks"
NAMESPACE_MISMATCH = "workload namespace doesn't match ClusterQueue selector"

_MORE_NEEDED = re.compile(r" \S+ more needed\b")
_UNASSIGNED = ("couldn't assign flavors to pod set ", "failed to assign flavors to pod set ")
_AWAITS = re.compile(r"\. Pending the (?:preemption|migration) of \d+ workload\(s\)$")
_FAILED = re.compile(r"\. Preempting \d+ workload\(s\) failed, will retry\.$")
_SKIPPED = (OVERLAPPING_TARGETS, NO_LONGER_FITS, BETTER_VARIANT_ADMITTED)
_IN_FLAVOR = re.compile(r"\bin flavor ([a-z0-9.-]*[a-z0-9])")
_UNKNOWN = "UNKNOWN"
_PATHS = re.compile(r"; preemptor path: ([^;\s]*); preemptee path: ([^;\s]*)")
_PREEMPTOR_UID = re.compile(r"\(UID: ([^,)\s]+)")
_PRIORITIES = re.compile(r"; preemptor effective priority: (-?\d+)\b.*; preemptee effective priority: (-?\d+)\b")
_DUE_TO: Mapping[PreemptionRule | None, str] = {
    PreemptionRule.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptionRule.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptionRule.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    PreemptionRule.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


def rule_in(message: str) -> PreemptionRule | None:
    """Return the preemption rule that a preemption message names; None if it names no known one."""
    known = (rule for rule, words in _DUE_TO.items() if rule is not None and f"due to {words}" in message)
    return max(known, key=lambda rule: len(_DUE_TO[rule]), default=None)


def preemptor_uid(message: str) -> str:
    """Return the UID of the preemptor that a preemption's message names; empty if it names none."""
    found = _PREEMPTOR_UID.search(message)
    return found[1] if found is not None else ""


def paths_in(message: str) -> tuple[str, str]:
    """Return the cohort paths of the preemptor's and the victim's ClusterQueue from a preemption's message; empty where
    it has none (before Kueue 0.14).
    """
    found = _PATHS.search(message)
    by, victim = (found[1], found[2]) if found is not None else ("", "")
    return by.replace(_UNKNOWN, ""), victim.replace(_UNKNOWN, "")


def priorities_in(message: str) -> tuple[int, int] | None:
    """Return the effective priorities of the preemptor and the victim from a preemption event's message; None if it has
    none.
    """
    found = _PRIORITIES.search(message)
    return (int(found[1]), int(found[2])) if found is not None else None


def inactive_message(cluster_queue: str) -> str:
    """Return the refusal of a workload whose ClusterQueue is inactive."""
    return f"ClusterQueue {cluster_queue} is inactive"


def no_replacement_message(nodes: Sequence[str]) -> str:
    """Return the message of the eviction of a workload whose failed nodes could not be replaced."""
    return f"Workload was evicted as there was no replacement for unhealthy node(s): {','.join(nodes)}"


def exceeds_capacity_reason(resource: str, flavor: str, assumed: int, request: int, capacity: int) -> str:
    """Return the reason against a flavor whose maximum capacity the request exceeds, whatever else runs.

    `assumed` is what earlier pod sets of the workload request.
    """
    before, now, most = (format_quantity(resource, value) for value in (assumed, request, capacity))
    return (
        f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({before})"
        f" + current podset request ({now}) > maximum capacity ({most})"
    )


def insufficient_quota_reason(resource: str, flavor: str, missing: int) -> str:
    """Return the reason against a flavor with too little unused quota."""
    needed = format_quantity(resource, missing)
    return f"insufficient unused quota for {resource} in flavor {flavor}, {needed} more needed"


def without_amounts(message: str) -> str:
    """Remove the missing amounts, so that refusals that differ only in them are equal."""
    return _MORE_NEEDED.sub(" more needed", message)


def unavailable_reason(resource: str) -> str:
    """Return the reason for a resource that no resource group of the ClusterQueue covers."""
    return f"resource {resource} unavailable in ClusterQueue"


def missing_namespace_message(name: str) -> str:
    """Return the refusal of a workload whose namespace does not exist, with the API server's text."""
    return f'workload namespace "{name}" does not exist: namespaces "{name}" not found'


def untolerated_taint_reason(taint: Taint, flavor: str) -> str:
    """Return the reason against a flavor with this taint, printed as a Go struct: an empty value leaves 2 spaces."""
    return f"untolerated taint {{{taint.key} {taint.value} {taint.effect} <nil>}} in flavor {flavor}"


def other_flavor_reason(flavor: str, original: str) -> str:
    """Return the reason against a flavor other than that of the slice to replace."""
    return f"could not assign {flavor} flavor since the original workload is assigned: {original}"


def not_nominated_reason(flavor: str, resource: str) -> str:
    """Return the reason for which a later assignment of the same cycle skips a flavor: it was not nominated."""
    return f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"


def other_variant_flavor_reason(flavor: str) -> str:
    """Return the reason for which a variant skips a flavor."""
    return f"skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"


def unassigned_message(reasons_by_pod_set: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return why flavors could not be assigned, by pod set; pod sets without reasons are left out."""
    return "; ".join(
        f"couldn't assign flavors to pod set {name}: {', '.join(sorted(reasons))}"
        for name, reasons in reasons_by_pod_set
        if reasons
    )


def is_unassigned(message: str) -> bool:
    """True for a refusal that makes a workload inadmissible: no flavor fits, or there are no preemption candidates."""
    return message.startswith(_UNASSIGNED) and not is_pending_preemption(message) and not is_retried_next_cycle(message)


def is_retried_next_cycle(message: str) -> bool:
    """True for the refusal of a workload that the next cycle retries in any case.

    Earlier entries took its capacity or victims, a better variant is admitted, or its evictions failed (Kueue 0.19
    scheduler.markSkipped).
    """
    return message in _SKIPPED or _FAILED.search(message) is not None


def flavors_in(message: str) -> list[str]:
    """Return the flavors that a refusal names."""
    return _IN_FLAVOR.findall(message)


def is_pending_preemption(message: str) -> bool:
    """True for the refusal of a workload whose victims are terminating; it stays the head of its ClusterQueue."""
    return _AWAITS.search(message) is not None or message == DEFERRED


def pending_preemption_message(message: str, victims: int) -> str:
    """Return the refusal of a workload whose victims are terminating."""
    return f"{message}. Pending the preemption of {victims} workload(s)"


def pending_migration_message(message: str) -> str:
    """Return the refusal of a variant that waits for the eviction of another variant."""
    return f"{message}. Pending the migration of 1 workload(s)"


def migration_message(preferred: Workload) -> str:
    """Return the message of the eviction of a variant that a more favorable one replaces."""
    return (
        f"Evicted to accommodate a workload (UID: {preferred.uid}) due to migration to more favorable resource flavor"
    )


def preempted_message(preemptor: Workload, rule: PreemptionRule | None, preemptor_path: str, victim_path: str) -> str:
    """Return the message of a victim's Preempted condition; unknown parts read UNKNOWN."""
    uid = preemptor.uid or _UNKNOWN
    job = preemptor.labels.get(JOB_UID) or preemptor.job_uid or _UNKNOWN
    return (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job}) due to {_DUE_TO.get(rule, _UNKNOWN)};"
        f" preemptor path: {preemptor_path or _UNKNOWN}; preemptee path: {victim_path or _UNKNOWN}"
    )


def failed_assignment_message(pod_set: str, error: str) -> str:
    """Return the refusal of a pod set whose assignment failed with an error."""
    return f"failed to assign flavors to pod set {pod_set}: {error}"


class GranularReason(StrEnum):
    """The granular reasons that the scheduler sets."""

    NONE = ""
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"
    ADMISSION_GATED = "AdmissionGated"


PENDING = "Pending"
"""Reason of QuotaReserved=False without the gate UnadmittedWorkloadsObservability, except where `WAITING` applies."""
WAITING = "Waiting"
"""Reason of QuotaReserved=False, without that gate, for a workload that waitForPodsReady blocks."""

_SEVERITY = {
    GranularReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    GranularReason.WAITING_FOR_QUOTA: 2,
    GranularReason.EXCEEDS_MAX_QUOTA: 3,
    GranularReason.NO_MATCHING_FLAVOR: 4,
}


def severity(reason: GranularReason) -> int:
    """Return how little waiting helps, 4 the least; 0 for reasons other than those why no flavor fits."""
    return _SEVERITY.get(reason, 0)


def most_severe(reasons: Iterable[GranularReason]) -> GranularReason:
    """Return the most severe reason; NONE if there are none."""
    return max(reasons, key=severity, default=GranularReason.NONE)
