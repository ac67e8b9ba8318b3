"""Workload: schema of its spec, and the rules for its changes while it holds quota."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuconsole.model.apiserver.pods import POD_TEMPLATE
from gpuconsole.model.apiserver.schema import (
    INT_32,
    Schema,
    SchemaRule,
    Transition,
    a_flag,
    a_text,
    listed,
    one_of,
    record,
    whole,
)
from gpuconsole.model.apiserver.selectors import named, pod_set_name
from gpuconsole.model.apiserver.workload_status import STATUS

Object = Mapping[str, Any]
MOST_POD_SETS = 18
_TOPOLOGY_REQUEST = record(
    {
        **dict.fromkeys(("required", "preferred", "podSetSliceRequiredTopology"), a_text(most=63)),
        **dict.fromkeys(("podIndexLabel", "subGroupIndexLabel"), a_text(most=317)),
        "podSetGroupName": a_text(most=256),
        "podsetSliceRequiredTopologyConstraints": listed(
            record({"topology!": a_text(least=1, most=63), "size!": whole(1)}), most=3
        ),
    },
    flag="unconstrained",
    int32="subGroupCount podSetSliceSize",
)
_MIN_COUNT = SchemaRule(
    "minCount should be positive and less or equal to count",
    lambda pod_set: "minCount" not in pod_set or pod_set["minCount"] <= pod_set["count"],
    lambda pod_set: f"write {pod_set['count']} or less",
    "bad-min-count",
    lambda pod_set: ("minCount",),
)
POD_SET = record(
    {
        "name": pod_set_name(default="main"),
        "template!": POD_TEMPLATE,
        "count": whole(0, default=1),
        "minCount": whole(1),
        "topologyRequest": _TOPOLOGY_REQUEST,
    },
    rules=(_MIN_COUNT,),
)
_CLASSES = {"kueue.x-k8s.io": "WorkloadPriorityClass", "scheduling.k8s.io": "PriorityClass"}


def _kind_of_group(group: str) -> SchemaRule:
    kind = _CLASSES[group]
    return SchemaRule(
        f"only the {kind} kind is allowed for the {group} group",
        lambda place: place["group"] != group or place["kind"] == kind,
        f"write kind: {kind}",
    )


_PRIORITY_CLASS = record(
    {"group!": one_of(*_CLASSES), "kind!": one_of(*_CLASSES.values()), "name!": named(least=1)},
    rules=(_kind_of_group("scheduling.k8s.io"), _kind_of_group("kueue.x-k8s.io")),
)
_SPEC = record(
    {
        "podSets": listed(POD_SET, least=1, most=MOST_POD_SETS, by=("name",)),
        "queueName": named(),
        "priorityClassRef": _PRIORITY_CLASS,
        "priority": INT_32,
        "active": a_flag(True),
        "maximumExecutionTimeSeconds": whole(1),
        "preemptionGates": listed(record({"name!": a_text(least=1, most=63)}), most=8, by=("name",)),
    },
    rules=(
        SchemaRule(
            "priority should not be nil when priorityClassRef is set",
            lambda spec: "priorityClassRef" not in spec or "priority" in spec,
            "write the value of the class",
            "required",
            lambda spec: ("priority",),
        ),
    ),
)


def is_true(workload: Object, condition: str) -> bool:
    """True if a condition of the workload is true."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(found.get("type") == condition and found.get("status") == "True" for found in conditions)


def reserves(workload: Object) -> bool:
    """True if the workload holds quota."""
    return is_true(workload, "QuotaReserved")


def _reference(workload: Object) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = workload["spec"].get("priorityClassRef")
    return found


def _while_reserved(message: str, same: Callable[[Object, Object], bool]) -> Transition:
    """Rule for a field that is immutable while the old workload holds quota."""
    return Transition(
        message,
        lambda new, old: not reserves(old) or same(new, old),
        "leave it as it was until the quota is released",
    )


def _kept(key: str, *, of: Callable[[Object], bool] = bool) -> Callable[[Object, Object], bool]:
    """Condition that a field of priorityClassRef is unchanged.

    It holds for a reference that is new or removed, and for one for which `of` is false.
    """

    def same(new: Object, old: Object) -> bool:
        now, before = _reference(new), _reference(old)
        return now is None or before is None or not of(now) or now[key] == before[key]

    return same


def _same_queue(new: Object, old: Object) -> bool:
    return not reserves(new) or new["spec"].get("queueName") == old["spec"].get("queueName")


def _same_limit(new: Object, old: Object) -> bool:
    if not (is_true(old, "Admitted") and is_true(new, "Admitted")):
        return True
    now, before = (one["spec"].get("maximumExecutionTimeSeconds", 0) for one in (new, old))
    return bool(now == before)


def _assigns_each(workload: Object) -> bool:
    admission = (workload.get("status") or {}).get("admission")
    if admission is None or not reserves(workload):
        return True
    return len(workload["spec"]["podSets"]) == len(admission["podSetAssignments"])


RULES: tuple[SchemaRule | Transition, ...] = (
    SchemaRule(
        "podSetAssignments must have the same number of podSets as the spec", _assigns_each, "assign each pod set once"
    ),
    _while_reserved(
        "priorityClassRef is immutable while workload quota reserved",
        lambda new, old: (_reference(new) is None) == (_reference(old) is None),
    ),
    _while_reserved("priorityClassRef.group is immutable while workload quota reserved", _kept("group")),
    _while_reserved("priorityClassRef.kind is immutable while workload quota reserved", _kept("kind")),
    _while_reserved(
        "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        _kept("name", of=lambda ref: (ref["group"], ref["kind"]) == ("scheduling.k8s.io", "PriorityClass")),
    ),
    _while_reserved("queueName is immutable while workload quota reserved", _same_queue),
    Transition(
        "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        _same_limit,
        "leave it as it was while the workload is admitted",
    ),
)
WORKLOAD: Mapping[str, Schema] = {"spec": _SPEC, "status": STATUS}
