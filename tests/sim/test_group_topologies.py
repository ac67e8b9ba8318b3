"""Topology constraints of Kubernetes' own pod groups (KEP-5732), and groups of groups (CompositePodGroup)."""

from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node, PriorityClass
from gpuconsole.model.manifests.loading import load_text
from gpuconsole.sim.engine import Simulation
from gpuconsole.ui.yaml_view import as_manifest
from tests.sim.test_scheduling_groups import group, in_group, message, placed, pods
from tests.support import job_manifests
from tests.support.sim_cluster import START, UNQUEUED, node, start, submit

RACK = "topology.example.com/rack"


def racked(*racks: str) -> list[Node]:
    """Nodes of four GPUs each, in these racks; none where the name is empty."""
    return [
        replace(node(f"n{number}"), labels={RACK: rack} if rack else {}) for number, rack in enumerate(racks, start=1)
    ]


def in_rack(name: str, policy: dict[str, Any], key: str = RACK) -> dict[str, Any]:
    made = group(name, policy)
    made["spec"]["schedulingConstraints"] = {"topology": [{"key": key}]}
    return made


def racks_of(simulation: Simulation) -> dict[str, str]:
    snapshot = simulation.snapshot()
    return {pod.name: snapshot.nodes[pod.node].labels.get(RACK, "") for pod in snapshot.pods.all() if pod.node}


def test_all_pods_of_a_gang_with_a_topology_constraint_are_in_one_domain_of_the_key() -> None:
    """Two racks of one node have room for two pods each; the third, of two nodes, for all four."""
    simulation = start(racked("a", "b", "c", "c"), UNQUEUED)
    gang = in_rack("g", {"gang": {"minCount": 4}})
    submit(simulation, *job_manifests.read(gang, *pods(4, schedulingGroup=in_group("g"))))
    assert racks_of(simulation) == dict.fromkeys(("p0", "p1", "p2", "p3"), "c")


def test_a_gang_that_fits_no_domain_waits_although_the_cluster_has_room() -> None:
    simulation = start(racked("a", "b", ""), UNQUEUED)
    gang = in_rack("g", {"gang": {"minCount": 3}})
    submit(simulation, *job_manifests.read(gang, *pods(3, schedulingGroup=in_group("g"))))
    assert placed(simulation) == []
    assert message(simulation, "p0") == (
        f"gang red/g not scheduled: 2 of 3 pods fit in one domain of {RACK}; 0/2 placements are available"
    )
    submit(simulation, *racked("", "", "", "b")[3:])
    simulation.advance(START + MINUTE)
    assert set(racks_of(simulation).values()) == {"b"}


def test_without_a_node_that_has_the_key_there_is_no_placement() -> None:
    simulation = start(racked("", ""), UNQUEUED)
    gang = in_rack("g", {"gang": {"minCount": 1}})
    submit(simulation, *job_manifests.read(gang, *pods(1, schedulingGroup=in_group("g"))))
    assert message(simulation, "p0") == (
        f"gang red/g not scheduled: 0 of 1 pods fit in one domain of {RACK}; 0/0 placements are available"
    )


def test_later_pods_of_a_group_have_to_join_the_others_in_their_domain() -> None:
    """Rack a has room for both pods of the gang and one more; the fourth waits, although rack b is empty."""
    simulation = start(racked("a", "b"), UNQUEUED)
    gang = in_rack("g", {"gang": {"minCount": 2}})
    submit(simulation, *job_manifests.read(gang, *pods(2, gpus=1, schedulingGroup=in_group("g"))))
    assert racks_of(simulation) == {"p0": "a", "p1": "a"}
    submit(simulation, *job_manifests.read(*pods(2, gpus=2, prefix="late", schedulingGroup=in_group("g"))))
    assert racks_of(simulation) == {"p0": "a", "p1": "a", "late0": "a"}
    assert message(simulation, "late1") == (
        f"gang red/g not scheduled: 0 of 1 pods fit in one domain of {RACK}; 0/1 placements are available"
    )


def test_a_basic_group_with_a_topology_constraint_takes_the_domain_of_most_of_its_pods() -> None:
    simulation = start(racked("a", "b", "b"), UNQUEUED)
    basic = in_rack("g", {"basic": {}})
    submit(simulation, *job_manifests.read(basic, *pods(5, schedulingGroup=in_group("g"))))
    assert list(racks_of(simulation).values()) == ["b"] * 4


def test_of_domains_with_room_for_all_the_fullest_is_taken() -> None:
    """PodGroupPodsCount scores both alike, NodeResourcesFit scores MostAllocated by cpu and memory."""
    simulation = start(racked("a", "b"), UNQUEUED)
    busy = pods(1, gpus=1, prefix="busy", nodeName="n2")
    busy[0]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2", "memory": "4Gi"}
    gang = in_rack("g", {"gang": {"minCount": 1}})
    submit(
        simulation,
        *job_manifests.read(*busy),
        *job_manifests.read(gang, *pods(1, gpus=1, schedulingGroup=in_group("g"))),
    )
    assert racks_of(simulation)["p0"] == "b"


def test_a_gang_with_a_topology_constraint_evicts_nobody() -> None:
    """Kubernetes 1.36: topology-aware scheduling does not trigger preemption."""
    for gang, evicts in (
        (group("g", {"gang": {"minCount": 2}}), True),
        (in_rack("g", {"gang": {"minCount": 2}}), False),
    ):
        simulation = start([*racked("a"), PriorityClass(name="high", value=100)], UNQUEUED)
        submit(simulation, *job_manifests.read(*pods(2, prefix="old")))
        wanted = pods(2, schedulingGroup=in_group("g"), priorityClassName="high")
        submit(simulation, *job_manifests.read(gang, *wanted))
        simulation.advance(START + 5 * MINUTE)
        assert (placed(simulation) == ["p0", "p1"]) == evicts


def test_a_topology_constraint_is_read_without_a_warning_and_written_again() -> None:
    document = in_rack("g", {"gang": {"minCount": 4}})
    assert load_text(job_manifests.dumps(document), "w.yaml", strict=True).findings == ()
    (made,) = job_manifests.read(document)
    assert as_manifest(made)["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": RACK}]},
    }


ZONE = "topology.example.com/zone"


def composite(name: str, policy: dict[str, Any], key: str = "", parent: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulingPolicy": policy}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "red"},
        "spec": spec,
    }


def child(name: str, least: int, key: str = "", parent: str = "root") -> dict[str, Any]:
    made = in_rack(name, {"gang": {"minCount": least}}, key) if key else group(name, {"gang": {"minCount": least}})
    made["spec"]["parentCompositePodGroupName"] = parent
    return made


BOTH = {"gang": {"minGroupCount": 2}}


def test_the_groups_of_a_composite_gang_are_placed_together_or_not_at_all() -> None:
    simulation = start(racked("a"), UNQUEUED)
    members = [*pods(1, prefix="a", schedulingGroup=in_group("a")), *pods(2, prefix="b", schedulingGroup=in_group("b"))]
    submit(simulation, *job_manifests.read(composite("root", BOTH), child("a", 1), child("b", 2), *members))
    assert placed(simulation) == []
    assert message(simulation, "a0") == (
        "gang red/a not scheduled: fewer than 2 of the 2 groups of CompositePodGroup red/root fit"
    )
    submit(simulation, *racked("", "a")[1:])
    simulation.advance(START + MINUTE)
    assert placed(simulation) == ["a0", "b0", "b1"]


def test_as_many_groups_as_a_composite_gang_needs_are_enough() -> None:
    simulation = start(racked("a"), UNQUEUED)
    members = [*pods(1, prefix="a", schedulingGroup=in_group("a")), *pods(2, prefix="b", schedulingGroup=in_group("b"))]
    one = composite("root", {"gang": {"minGroupCount": 1}})
    submit(simulation, *job_manifests.read(one, child("a", 1), child("b", 2), *members))
    assert placed(simulation) == ["a0"]


def test_domains_of_child_groups_are_inside_the_domain_of_their_parent() -> None:
    """Rack r1 of zone a and rack r2 of zone b have room for one group each; zone c has two racks."""
    cells = [("a", "r1"), ("b", "r2"), ("c", "r3"), ("c", "r4")]
    there = [replace(node(f"n{number}"), labels={ZONE: zone, RACK: rack}) for number, (zone, rack) in enumerate(cells)]
    simulation = start(there, UNQUEUED)
    members = [*pods(2, prefix="a", schedulingGroup=in_group("a")), *pods(2, prefix="b", schedulingGroup=in_group("b"))]
    root = composite("root", BOTH, ZONE)
    submit(simulation, *job_manifests.read(root, child("a", 2, RACK), child("b", 2, RACK), *members))
    assert racks_of(simulation) == {"a0": "r3", "a1": "r3", "b0": "r4", "b1": "r4"}


def test_groups_wait_for_a_composite_group_that_does_not_exist_yet() -> None:
    simulation = start(racked("a"), UNQUEUED)
    submit(simulation, *job_manifests.read(child("a", 1), *pods(1, schedulingGroup=in_group("a"))))
    assert message(simulation, "p0") == "gang red/a waits for CompositePodGroup root: it does not exist"
    submit(simulation, *job_manifests.read(composite("root", {"basic": {}})))
    simulation.advance(START + MINUTE)
    assert placed(simulation) == ["p0"]


def test_a_composite_group_in_a_composite_group_counts_as_one_of_its_groups() -> None:
    simulation = start(racked("a", "a"), UNQUEUED)
    members = [*pods(1, prefix="a", schedulingGroup=in_group("a")), *pods(2, prefix="b", schedulingGroup=in_group("b"))]
    inner = composite("inner", {"gang": {"minGroupCount": 1}}, parent="root")
    submit(
        simulation, *job_manifests.read(composite("root", BOTH), inner, child("a", 1), child("b", 2, parent="inner"))
    )
    submit(simulation, *job_manifests.read(*members[:2]))
    assert placed(simulation) == []
    submit(simulation, *job_manifests.read(*members[2:]))
    assert placed(simulation) == ["a0", "b0", "b1"]


def test_a_fork_and_a_saved_simulation_know_composite_groups() -> None:
    simulation = start(racked("a"), UNQUEUED)
    submit(simulation, *job_manifests.read(composite("root", BOTH), child("a", 1), child("b", 1)))
    submit(simulation, *job_manifests.read(*pods(1, prefix="a", gpus=1, schedulingGroup=in_group("a"))))
    for one in (simulation.fork(), Simulation.load(simulation.save())):
        submit(one, *job_manifests.read(*pods(1, prefix="b", gpus=1, schedulingGroup=in_group("b"))))
        assert placed(one) == ["a0", "b0"]


def test_a_composite_group_is_written_as_it_is_read() -> None:
    document = composite("inner", BOTH, ZONE, parent="root")
    (made,) = job_manifests.read(document)
    written = as_manifest(made)
    assert (written["apiVersion"], written["kind"]) == ("scheduling.k8s.io/v1alpha3", "CompositePodGroup")
    assert written["spec"] == document["spec"]


def test_templates_of_composite_groups_are_checked() -> None:
    """Kubernetes 1.37: a composite template has children, and each group one topology constraint at most."""
    document = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "red"},
        "spec": {
            "compositePodGroupTemplates": [
                {"name": "root", "schedulingPolicy": BOTH},
                {
                    "name": "two",
                    "schedulingPolicy": {"basic": {}},
                    "podGroupTemplates": [
                        {
                            "name": "workers",
                            "schedulingPolicy": {"gang": {"minCount": 8}},
                            "schedulingConstraints": {"topology": [{"key": RACK}, {"key": ZONE}]},
                        }
                    ],
                },
            ]
        },
    }
    findings = load_text(job_manifests.dumps(document), "w.yaml", strict=True).findings
    assert [f"{finding.path}: {finding.problem}" for finding in findings] == [
        "spec.compositePodGroupTemplates[0].name: root must have at least one child PodGroupTemplate or"
        " CompositePodGroupTemplate",
        "spec.compositePodGroupTemplates[1].podGroupTemplates[0].schedulingConstraints.topology: it has 2 entries,"
        " 1 are allowed",
    ]
