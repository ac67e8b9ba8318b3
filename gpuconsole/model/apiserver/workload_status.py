"""Schema of a Workload's status."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.capacity import TOLERATIONS
from gpuconsole.model.apiserver.schema import (
    AMOUNTS,
    INT_32,
    LABELS,
    MOMENT,
    SchemaRule,
    Transition,
    a_text,
    listed,
    mapped,
    one_of,
    record,
    whole,
)
from gpuconsole.model.apiserver.selectors import CONDITIONS, exactly_one, named, pod_set_name

_MOST_PODS = 100_000
_LEVEL_TEXT = a_text(most=63)
_VALUES = record(
    {
        "universal": _LEVEL_TEXT,
        "individual": record(
            {"roots!": listed(_LEVEL_TEXT, least=1, most=_MOST_PODS), "prefix": _LEVEL_TEXT, "suffix": _LEVEL_TEXT}
        ),
    },
    rules=(exactly_one("universal", "individual"),),
)
_COUNTS = record(
    {"universal": whole(1), "individual": listed(whole(1), least=1, most=_MOST_PODS)},
    rules=(exactly_one("universal", "individual"),),
)


def _has_count_each(piece: Mapping[str, Any]) -> bool:
    counts = piece["podCounts"]
    return "individual" not in counts or len(counts["individual"]) == piece["domainCount"]


def _has_root_each(piece: Mapping[str, Any]) -> bool:
    levels = piece["valuesPerLevel"]
    return all(
        "individual" not in level or len(level["individual"]["roots"]) == piece["domainCount"] for level in levels
    )


_SLICE = record(
    {
        "domainCount!": whole(1),
        "valuesPerLevel!": listed(_VALUES, least=1, most=16),
        "podCounts!": _COUNTS,
    },
    rules=(
        SchemaRule(
            "podCounts.individual must have length equal to domainCount",
            _has_count_each,
            "write one count a domain",
        ),
        SchemaRule(
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this "
            "TopologyAssignmentSlice",
            _has_root_each,
            "write one root a domain",
        ),
    ),
)
_TOPOLOGY_ASSIGNMENT = record(
    {
        "levels!": listed(a_text(most=317), least=1, most=16),
        "slices!": listed(_SLICE, most=1000),
    },
    rules=(
        SchemaRule(
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
            lambda place: all(len(piece["valuesPerLevel"]) == len(place["levels"]) for piece in place["slices"]),
            "write the values of each level",
        ),
    ),
)
_ASSIGNMENT = record(
    {
        "name": pod_set_name(default="main"),
        "flavors": mapped(named()),
        "resourceUsage": AMOUNTS,
        "count": whole(0),
        "topologyAssignment": _TOPOLOGY_ASSIGNMENT,
        "delayedTopologyRequest": one_of("Pending", "Ready", most=7),
    }
)
_POD_SET_UPDATE = record(
    {
        "name!": pod_set_name(),
        "labels": LABELS,
        "annotations": LABELS,
        "nodeSelector": LABELS,
        "tolerations": TOLERATIONS,
    }
)
_CHECK = record(
    {
        "name!": a_text(least=1, most=316),
        "state!": one_of("Pending", "Ready", "Retry", "Rejected"),
        "lastTransitionTime!": MOMENT,
        "message!": a_text(most=32768),
        "podSetUpdates": listed(_POD_SET_UPDATE, most=18),
        "requeueAfterSeconds": whole(0),
        "retryCount": whole(0),
    }
)
_EVICTION = record({"reason!": a_text(most=316), "underlyingCause!": a_text(most=316), "count!": whole(0)})
_CLUSTER = a_text(most=256)
STATUS = record(
    {
        "conditions": CONDITIONS,
        "admission": record({"clusterQueue": named(), "podSetAssignments": listed(_ASSIGNMENT, most=18, by=("name",))}),
        "requeueState": record({"count": whole(0), "requeueAt": MOMENT}),
        "reclaimablePods": listed(record({"name!": pod_set_name(), "count!": whole(0)}), most=18, by=("name",)),
        "admissionChecks": listed(_CHECK, most=8, by=("name",)),
        "resourceRequests": listed(record({"name!": pod_set_name(), "resources": AMOUNTS}), most=18, by=("name",)),
        "accumulatedPastExecutionTimeSeconds": INT_32,
        "schedulingStats": record({"evictions": listed(_EVICTION, most=256, by=("reason", "underlyingCause"))}),
        "nominatedClusterNames": listed(_CLUSTER, most=20),
        "clusterName": _CLUSTER,
        "unhealthyNodes": listed(record({"name!": a_text(most=63)}), most=8, by=("name",)),
        "preemptionGates": listed(
            record(
                {
                    "name!": a_text(least=1, most=63),
                    "position!": one_of("Closed", "Open"),
                    "lastTransitionTime!": MOMENT,
                }
            ),
            most=8,
            by=("name",),
        ),
    },
    rules=(
        Transition(
            "clusterName is immutable once set",
            lambda new, old: (
                "clusterName" not in old or "clusterName" not in new or bool(new["clusterName"] == old["clusterName"])
            ),
            "leave it as it was",
        ),
        SchemaRule(
            "clusterName and nominatedClusterNames are mutually exclusive",
            lambda status: "clusterName" not in status or not status.get("nominatedClusterNames"),
            "drop nominatedClusterNames once the cluster is chosen",
        ),
    ),
)
