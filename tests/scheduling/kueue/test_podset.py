"""What an admission writes into pods: flavors' labels and tolerations, a gate for topologies, what checks add."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.labels import Toleration
from gpuconsole.model.pod_template import PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import Admission, CheckState, PodSetAssignment, PodSetUpdate, TopologyDomain, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.podset import (
    SLICE_NAME,
    TOPOLOGY_GATE,
    UNCONSTRAINED,
    Additions,
    Conflict,
    additions_by_pod_set,
    apply_additions,
    from_assignment,
)

SPOT = Toleration("spot", "Exists")
FLAVORS = {
    "a100": ResourceFlavor(name="a100", node_labels={"gpu": "a100"}, tolerations=(SPOT,)),
    "fast": ResourceFlavor(name="fast", node_labels={"disk": "nvme"}),
}
GIVEN = PodSetAssignment(flavors={"nvidia.com/gpu": "a100", "cpu": "a100", "storage": "fast"})
PLACED = replace(GIVEN, levels=("rack",), topology=(TopologyDomain(("r1",), 1),))


def test_each_flavor_counts_once() -> None:
    added = from_assignment(GIVEN, PodSet(), FLAVORS)
    assert added == Additions(node_selector={"gpu": "a100", "disk": "nvme"}, tolerations=(SPOT,))


def test_a_flavor_that_is_gone_cannot_be_written() -> None:
    with pytest.raises(LookupError, match=r'resourceflavors.kueue.x-k8s.io "a100" not found'):
        from_assignment(GIVEN, PodSet(), {})


def test_places_of_a_topology_hold_the_pods_behind_a_gate() -> None:
    asked = PodSet(topology=TopologyRequest(required="rack"))
    assert from_assignment(PLACED, asked, FLAVORS).scheduling_gates == (TOPOLOGY_GATE,)
    assert from_assignment(PLACED, asked, FLAVORS).annotations == {}
    assert from_assignment(PLACED, PodSet(), FLAVORS).annotations == {UNCONSTRAINED: "true"}
    assert from_assignment(PLACED, asked, FLAVORS, topology=False).scheduling_gates == ()


TEMPLATE = PodTemplate(
    labels={"app": "train"},
    annotations={"note": "mine"},
    node_selector={"zone": "a"},
    tolerations=(Toleration("spot", "Exists", seconds=30), Toleration("gpu")),
    scheduling_gates=("mine",),
)


def test_what_is_there_already_is_not_repeated() -> None:
    added = Additions(
        labels={"app": "train", "team": "ml"},
        node_selector={"gpu": "a100"},
        tolerations=(SPOT, Toleration("dedicated")),
        scheduling_gates=("mine", TOPOLOGY_GATE),
    )
    assert apply_additions(TEMPLATE, added) == replace(
        TEMPLATE,
        labels={"app": "train", "team": "ml"},
        node_selector={"zone": "a", "gpu": "a100"},
        tolerations=(*TEMPLATE.tolerations, Toleration("dedicated")),
        scheduling_gates=("mine", TOPOLOGY_GATE),
    )


CONFLICTS = {
    "labels": (Additions(labels={"app": "serve"}), "conflict for key=app, value1=train, value2=serve"),
    "annotations": (Additions(annotations={"note": "yours"}), "conflict for key=note, value1=mine, value2=yours"),
    "nodeSelector": (Additions(node_selector={"zone": "b"}), "conflict for key=zone, value1=a, value2=b"),
}


@pytest.mark.parametrize("what", CONFLICTS)
def test_another_value_of_the_same_name_is_a_conflict(what: str) -> None:
    added, conflict = CONFLICTS[what]
    with pytest.raises(Conflict, match=f"^invalid admission check PodSetUpdate: conflict for {what}: {conflict}$"):
        apply_additions(TEMPLATE, added)


def test_a_new_slice_of_an_elastic_job_takes_over_the_names_of_the_old_one() -> None:
    template = PodTemplate(annotations={SLICE_NAME: "old", "kueue.x-k8s.io/workload": "old"})
    names = {SLICE_NAME: "new", "kueue.x-k8s.io/workload": "new"}
    assert apply_additions(template, Additions(annotations=names)).annotations == names
    with pytest.raises(Conflict):
        apply_additions(template, Additions(annotations=names), elastic=False)
    with pytest.raises(Conflict):
        apply_additions(template, Additions(annotations={"kueue.x-k8s.io/workload": "new"}))


def admitted(*checks: CheckState) -> Workload:
    given = replace(GIVEN, flavors={"cpu": "a100"})
    return Workload(
        name="w",
        queue="lq",
        pod_sets=(PodSet(),),
        admission=Admission(cluster_queue="cq", pod_sets=(given,)),
        checks=checks,
    )


def test_pods_are_told_where_they_belong_and_what_checks_add() -> None:
    update = PodSetUpdate(name="main", node_selector={"booked": "yes"}, labels={"prov": "1"})
    other = PodSetUpdate(name="other", node_selector={"booked": "no"})
    workload = admitted(CheckState(name="prov", state="Ready", updates=(other, update)))
    assert [added for _, _, added in additions_by_pod_set(workload, FLAVORS, KueueConfig())] == [
        Additions(
            labels={
                "kueue.x-k8s.io/podset": "main",
                "kueue.x-k8s.io/local-queue-name": "lq",
                "kueue.x-k8s.io/cluster-queue-name": "cq",
                "prov": "1",
            },
            annotations={"kueue.x-k8s.io/workload": "w"},
            node_selector={"gpu": "a100", "booked": "yes"},
            tolerations=(SPOT,),
        )
    ]


def test_a_check_that_wants_other_nodes_than_the_flavor_is_named() -> None:
    update = PodSetUpdate(name="main", node_selector={"gpu": "h100"})
    workload = admitted(CheckState(name="prov", state="Ready", updates=(update,)))
    with pytest.raises(Conflict, match=r'^in admission check "prov": invalid admission check PodSetUpdate: '):
        list(additions_by_pod_set(workload, FLAVORS, KueueConfig()))
