"""Workloads as values: what one asks for, and what its life left on it."""

from typing import Any

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    EvictionCount,
    PodSetNeeds,
    PreemptionGate,
    RequeueState,
    SchedulingStats,
    Workload,
    anew,
)

ASKED = Workload(
    namespace="ml",
    name="train",
    created=HOUR,
    labels={"team": "a"},
    annotations={"gpuconsole.io/duration": "2h"},
    queue="lq",
    priority=7,
    priority_class="high",
    priority_kind="WorkloadPriorityClass",
    pod_sets=(PodSet(name="main", count=4),),
    max_execution_time=HOUR,
)
LIVED: dict[str, Any] = {
    "uid": "u-1",
    "owner": "Job/ml/train",
    "job_uid": "u-2",
    "active": False,
    "conditions": (Condition("Evicted", True),),
    "admission": Admission(cluster_queue="cq"),
    "requeue": RequeueState(count=2, at=MINUTE),
    "resource_requests": (PodSetNeeds("main"),),
    "reclaimable": {"main": 1},
    "checks": (CheckState(name="prov", state="Ready"),),
    "past_execution": MINUTE,
    "unhealthy_nodes": ("n1",),
    "scheduling_stats": SchedulingStats((EvictionCount(reason="Preempted", count=3),)),
    "preemption_gates": (PreemptionGate(name="gate"),),
    "done": MINUTE,
    "cluster": "west",
    "nominated_clusters": ("west", "east"),
    "inadmissible": True,
}


def test_a_workload_made_anew_asks_for_the_same_and_has_lived_nothing() -> None:
    asked = {name: getattr(ASKED, name) for name in Workload.__struct_fields__ if name not in LIVED}

    assert anew(Workload(**asked, **LIVED)) == ASKED


def test_each_field_is_either_asked_for_or_lived() -> None:
    plain = Workload(name="")
    asked = {name for name in Workload.__struct_fields__ if getattr(ASKED, name) != getattr(plain, name)}

    assert (asked & set(LIVED), asked | set(LIVED)) == (set(), set(Workload.__struct_fields__))
