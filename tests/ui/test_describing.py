"""`d` and `y` tell every kind of object in words and as YAML, and a hostile one harms neither."""

import pytest
import yaml
from msgspec.structs import replace

from gpuconsole.model.autoscaling import NodePool
from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.cluster import LimitRange, LimitRangeItem, PriorityClass, RuntimeClass
from gpuconsole.model.devices import (
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from gpuconsole.model.events import HistoryEvent, HistoryEventKind, KueueEvent
from gpuconsole.model.kai import KaiQueue
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import AdmissionCheck, Topology
from gpuconsole.model.resources import GPU
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.model.workloads import (
    Admission,
    CheckState,
    Condition,
    EvictionCount,
    PodSetAssignment,
    PodSetNeeds,
    PodSetUpdate,
    RequeueState,
    SchedulingStats,
    TopologyDomain,
    Workload,
)
from gpuconsole.ui.describe import describe, events
from gpuconsole.ui.paint import plain
from gpuconsole.ui.yaml_view import as_manifest, as_yaml
from tests.support.console_clusters import HOSTILE, history, org_cohort, running, snapshot_of, waiting

OTHERS: list[Object] = [
    PriorityClass(name="high", value=1000),
    RuntimeClass(name="sandboxed", handler="kata", overhead={"cpu": 250}),
    Topology(name="racks", levels=("block", "rack")),
    AdmissionCheck(name="check", controller="c"),
    VolcanoQueue(name="v"),
    KaiQueue(name="k"),
    PodGroup(name="g"),
    NodePool(name="pool"),
    LimitRange(namespace="research", name="limits", items=(LimitRangeItem(max={"cpu": 1500}),)),
    DeviceClass(name="gpu.example.com", selectors=("device.driver == 'gpu.example.com'",)),
    ResourceSlice(name="node-1-gpus", driver="gpu.example.com", pool="node-1", devices=(Device(name="gpu-0"),)),
    ResourceClaimTemplate(namespace="research", name="one", requests=(DeviceRequest(device_class="gpu.example.com"),)),
    ResourceClaim(namespace="research", name="shared"),
]


def described(key: str, table: str = "workloads") -> list[str]:
    lines = describe(snapshot_of(org_cohort(), history()), table, key)
    assert lines is not None
    return [plain(row) for row in lines]


def test_a_pending_workload_tells_what_kueue_wrote() -> None:
    assert described("research/rlhf-2") == [
        "Workload research/rlhf-2",
        "Created          2026-01-05T09:02:20Z",
        "Phase            pending",
        "Owner            Job/research/rlhf-2",
        "Queue            research/lq-research",
        "ClusterQueue     not admitted",
        "Priority         500",
        "Evictions        0",
        "",
        "Pod sets",
        "  main ×1: each nvidia.com/gpu 6",
        "    tolerates nvidia.com/gpu:any effect",
        "",
        "Conditions",
        "  QuotaReserved    False      12m  Pending",
        "    couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
        " in flavor a100-80gb, 2 more needed",
        "",
        "Events",
        "       12m ago  pending          NoFit · couldn't assign flavors to pod set main",
    ]


def test_a_workload_tells_its_checks_its_cluster_and_where_it_is() -> None:
    racks = tuple(TopologyDomain((f"rack-{number}", "node-1"), 2) for number in range(22))
    given = PodSetAssignment(flavors={GPU: "a100"}, usage={GPU: 44}, count=44, levels=("rack", "node"), topology=racks)
    workload = Workload(
        namespace="lab",
        name="train",
        cluster="west",
        nominated_clusters=("east", "west"),
        admission=Admission(cluster_queue="q", pod_sets=(given,)),
        checks=(CheckState(name="budget", state="Retry", message="no money", since=0),),
    )
    offered = replace(workload, name="offered", cluster="")
    snapshot = snapshot_of([workload, offered])
    told = [plain(row) for row in describe(snapshot, "workloads", "lab/train") or ()]
    assert "Cluster          west" in told
    assert told[told.index("Admission") + 2 : told.index("Admission checks") - 1] == [
        *(f"    2 in rack-{number} / node-1" for number in range(20)),
        "    and 2 more domains",
    ]
    checks = told.index("Admission checks")
    assert told[checks + 1].split()[:2] == ["budget", "Retry"]
    assert told[checks + 2] == "    no money"
    assert "Nominated        east, west" in [plain(row) for row in describe(snapshot, "workloads", "lab/offered") or ()]


def test_events_are_told_as_kueue_tells_them_without_repeating_a_text() -> None:
    told = (
        KueueEvent("ns/w", "EvictedDueToPreempted", "make room"),
        KueueEvent("ns/w", "Preempted", "make room; preemptor effective priority: 5"),
        KueueEvent("ns/by", "Pending", "no room", warning=True),
    )
    line = HistoryEvent(
        time=0, what=HistoryEventKind.EVICTED, workload="ns/w", reason="Preempted", message="make room", told=told
    )
    assert [plain(row) for row in events([line], MINUTE)] == [
        "",
        "Events",
        "        1m ago  evicted          Preempted · make room",
        "                EvictedDueToPreempted ",
        "                Preempted        make room; preemptor effective priority: 5",
        "                Pending          no room",
    ]


def test_events_of_a_queue_name_the_workloads_and_those_of_a_workload_whom_it_preempted() -> None:
    rows = [
        HistoryEvent(time=0, what=HistoryEventKind.PENDING, workload="ns/job-a-0a1b2", queue="q", reason="NoFit"),
        HistoryEvent(time=0, what=HistoryEventKind.PENDING, workload="ns/b", queue="q", reason="NoFit"),
        HistoryEvent(
            time=0,
            what=HistoryEventKind.PREEMPTED,
            workload="ns/b",
            queue="q",
            by="ns/job-a-0a1b2",
            reason="InClusterQueue",
        ),
    ]
    told = {
        key: [plain(row).split("ago  ")[-1] for row in events(rows[first:], MINUTE, key)][2:]
        for first, key in ((0, "q"), (2, "ns/job-a-0a1b2"), (2, "ns/b"))
    }
    evicted = "preempted        ns/b · InClusterQueue · by ns/a"
    assert told == {
        "q": ["pending          ns/a · NoFit", "pending          ns/b · NoFit", evicted],
        "ns/job-a-0a1b2": [evicted],
        "ns/b": ["preempted        InClusterQueue · by ns/a"],
    }


def test_a_queue_tells_whether_it_can_admit_and_a_flavor_who_depends_on_it() -> None:
    active = next(line for line in described("cq-prod", "cluster_queues") if line.startswith("Active"))
    assert active == "Active           True · Ready · Can admit new workloads"
    assert "Used by          cq-prod, cq-research" in described("a100-80gb", "flavors")


def test_a_node_tells_who_owns_its_gpus() -> None:
    lines = described("node-2", "nodes")
    assert lines[lines.index("Pods") :] == [
        "Pods",
        "  research/llm-ft-0  Running  node-2 GPU 0,1,2,3",
        "  research/embed-0  Running  node-2 GPU 4,5",
        "",
        "Events",
        "  none recorded",
    ]


def test_an_object_that_is_gone_has_no_description() -> None:
    assert describe(snapshot_of(org_cohort()), "workloads", "research/gone") is None


@pytest.mark.parametrize("thing", [*org_cohort(), *OTHERS], ids=lambda thing: f"{type(thing).__name__} {thing.key}")
def test_every_kind_can_be_described_and_written_as_yaml(thing: Object) -> None:
    assert describe(snapshot_of([*org_cohort(), *OTHERS]), TABLES[type(thing)], thing.key)
    document = yaml.safe_load(as_yaml(thing))
    assert document == as_manifest(thing)
    assert document["metadata"]["name"] == thing.name


def test_yaml_has_the_shape_of_the_manifest() -> None:
    bare = PodSet(template=PodTemplate(containers=(Container(requests={GPU: 4}),)))
    admitted = Condition("Admitted", True, "Admitted", "", 0)
    workload = replace(running("w", 4), pod_sets=(bare,), conditions=(admitted,), uid="")
    assert as_manifest(workload) == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "namespace": "research",
            "name": "w",
            "creationTimestamp": "2026-01-05T08:14:20Z",
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "w", "controller": True, "blockOwnerDeletion": True}
            ],
        },
        "spec": {
            "queueName": "lq-research",
            "priority": 500,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "resources": {
                                        "requests": {"nvidia.com/gpu": "4"},
                                        "limits": {"nvidia.com/gpu": "4"},
                                    },
                                }
                            ]
                        }
                    },
                }
            ],
        },
        "status": {
            "conditions": [{"type": "Admitted", "status": "True", "reason": "Admitted"}],
            "admission": {
                "clusterQueue": "cq-research",
                "podSetAssignments": [
                    {
                        "name": "main",
                        "flavors": {"nvidia.com/gpu": "a100-80gb"},
                        "resourceUsage": {"nvidia.com/gpu": "4"},
                    }
                ],
            },
        },
    }


def test_what_became_of_a_workload_is_written_as_the_api_writes_it_and_read_back() -> None:
    check = CheckState(
        name="prov",
        state="Retry",
        message="no nodes",
        retry_count=2,
        requeue_after=60,
        since=MINUTE,
        updates=(PodSetUpdate(name="main", labels={"a": "b"}),),
    )
    workload = Workload(
        name="w",
        priority=500,
        priority_class="urgent",
        priority_kind="WorkloadPriorityClass",
        max_execution_time=2 * MINUTE,
        conditions=(Condition("QuotaReserved", False, "Pending", "no room", MINUTE),),
        requeue=RequeueState(3, 5 * MINUTE),
        resource_requests=(PodSetNeeds("main", {"cpu": 1500, "memory": 2**30}),),
        reclaimable={"main": 2},
        checks=(check,),
        past_execution=90 * SECOND,
        scheduling_stats=SchedulingStats(
            (EvictionCount(reason="PodsReadyTimeout", underlying_cause="WaitForStart", count=3),)
        ),
        cluster="worker-1",
        nominated_clusters=("worker-1", "worker-2"),
    )
    written = as_manifest(workload)
    assert written["spec"]["priorityClassRef"] == {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "urgent",
    }
    assert written["status"]["schedulingStats"] == {
        "evictions": [{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 3}]
    }
    assert decode_object(written, now=0) == workload


def test_places_are_written_as_the_api_writes_them_and_read_back() -> None:
    hosts = (TopologyDomain(("gpu-1",), 2), TopologyDomain(("gpu-2",), 2))
    assignment = PodSetAssignment(levels=("kubernetes.io/hostname",), topology=hosts, count=4, delayed="Ready")
    workload = Workload(
        name="w", admission=Admission(cluster_queue="q", pod_sets=(assignment,)), unhealthy_nodes=("gpu-1",)
    )
    written = as_manifest(workload)
    assert written["status"]["unhealthyNodes"] == [{"name": "gpu-1"}]
    assert written["status"]["admission"]["podSetAssignments"] == [
        {
            "name": "main",
            "count": 4,
            "delayedTopologyRequest": "Ready",
            "topologyAssignment": {
                "levels": ["kubernetes.io/hostname"],
                "slices": [
                    {
                        "domainCount": 2,
                        "valuesPerLevel": [{"individual": {"prefix": "gpu-", "roots": ["1", "2"]}}],
                        "podCounts": {"universal": 2},
                    }
                ],
            },
        }
    ]
    assert decode_object(written, now=0) == workload


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_told_too(text: str) -> None:
    thing = replace(waiting(text, 1), conditions=(Condition("QuotaReserved", False, text, text, 0),))
    snapshot = snapshot_of([thing])
    assert describe(snapshot, "workloads", thing.key)
    assert yaml.safe_load(as_yaml(thing))["metadata"]["name"] == text
