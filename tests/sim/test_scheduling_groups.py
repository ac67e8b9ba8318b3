"""Kubernetes' own gangs (scheduling.k8s.io, KEP-4671): Workloads and PodGroups, and the pods that name them."""

from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.manifests.loading import load_text
from gpuconsole.sim.engine import Simulation
from tests.support import job_manifests
from tests.support.sim_cluster import START, UNQUEUED, node, nodes, start, submit


def group(name: str, policy: dict[str, Any], version: str = "v1alpha2") -> dict[str, Any]:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "red"},
        "spec": {"schedulingPolicy": policy},
    }


def workload(*groups: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "red"},
        "spec": {"podGroups": list(groups)},
    }


def pods(count: int, gpus: int = 2, prefix: str = "p", **spec: Any) -> list[dict[str, Any]]:
    template = job_manifests.pod(gpus)
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{prefix}{number}", "namespace": "red"},
            "spec": {**template["spec"], **spec},
        }
        for number in range(count)
    ]


def in_group(name: str) -> dict[str, Any]:
    return {"podGroupName": name}


def placed(simulation: Simulation) -> list[str]:
    return sorted(pod.name for pod in simulation.snapshot().pods.all() if pod.node)


def message(simulation: Simulation, name: str) -> str:
    return simulation.snapshot().pods[f"red/{name}"].message


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3"])
def test_pods_of_a_gang_get_their_nodes_together_or_not_at_all(version: str) -> None:
    simulation = start(nodes(1), UNQUEUED)
    gang = group("g", {"gang": {"minCount": 4}}, version)
    submit(simulation, *job_manifests.read(gang, *pods(4, schedulingGroup=in_group("g"))))
    assert placed(simulation) == []
    assert message(simulation, "p0").startswith("gang red/g not scheduled: 2 of 4 pods fit; ")
    submit(simulation, node("n2"))
    simulation.advance(START + MINUTE)
    assert placed(simulation) == ["p0", "p1", "p2", "p3"]


def test_a_gang_waits_until_as_many_pods_are_created_as_it_needs() -> None:
    simulation = start(nodes(2), UNQUEUED)
    gang = group("g", {"gang": {"minCount": 3}})
    submit(simulation, *job_manifests.read(gang, *pods(2, schedulingGroup=in_group("g"))))
    assert placed(simulation) == []
    submit(simulation, *job_manifests.read(*pods(1, prefix="late", schedulingGroup=in_group("g"))))
    assert placed(simulation) == ["late0", "p0", "p1"]


def test_more_pods_than_a_gang_needs_are_placed_as_they_fit() -> None:
    simulation = start(nodes(1), UNQUEUED)
    gang = group("g", {"gang": {"minCount": 2}})
    submit(simulation, *job_manifests.read(gang, *pods(3, schedulingGroup=in_group("g"))))
    assert len(placed(simulation)) == 2


def test_pods_of_a_basic_group_are_placed_one_by_one() -> None:
    simulation = start(nodes(1), UNQUEUED)
    basic = group("g", {"basic": {}})
    submit(simulation, *job_manifests.read(basic, *pods(4, schedulingGroup=in_group("g"))))
    assert len(placed(simulation)) == 2


def test_pods_wait_for_a_group_that_does_not_exist_yet() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, *job_manifests.read(*pods(1, schedulingGroup=in_group("g"))))
    assert (placed(simulation), message(simulation, "p0")) == (
        [],
        "gang red/g waits for its PodGroup: it does not exist",
    )
    submit(simulation, *job_manifests.read(group("g", {"gang": {"minCount": 1}})))
    simulation.advance(START + MINUTE)
    assert placed(simulation) == ["p0"]


def test_each_replica_of_a_workloads_pod_group_is_a_gang_of_its_own() -> None:
    """v1alpha1: pods name the Workload, its pod group and a replica of that."""
    simulation = start(nodes(1), UNQUEUED)
    gang = {"name": "workers", "policy": {"gang": {"minCount": 2}}}
    ref = {"name": "w", "podGroup": "workers"}
    first = pods(2, prefix="a", workloadRef={**ref, "podGroupReplicaKey": "0"})
    second = pods(2, prefix="b", workloadRef={**ref, "podGroupReplicaKey": "1"})
    submit(simulation, *job_manifests.read(workload(gang), *first, *second))
    assert placed(simulation) == ["a0", "a1"]
    assert message(simulation, "b0").startswith("gang red/w-workers-1 not scheduled: 0 of 2 pods fit; ")


def test_pods_wait_for_a_workload_that_does_not_exist_yet() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, *job_manifests.read(*pods(2, workloadRef={"name": "w", "podGroup": "g"})))
    assert message(simulation, "p0") == "gang red/w-g waits for its PodGroup: it does not exist"
    submit(simulation, *job_manifests.read(workload({"name": "g", "policy": {"gang": {"minCount": 2}}})))
    simulation.advance(START + MINUTE)
    assert placed(simulation) == ["p0", "p1"]


def test_the_pods_of_a_job_name_their_group_in_the_template() -> None:
    simulation = start(nodes(1), UNQUEUED)
    template = job_manifests.pod(2, restart="Never")
    template["spec"]["schedulingGroup"] = in_group("g")
    job = job_manifests.job("train", 3, 3, template=template)
    submit(simulation, *job_manifests.read(group("g", {"gang": {"minCount": 3}}), job))
    assert placed(simulation) == []
    submit(simulation, node("n2"))
    simulation.advance(START + MINUTE)
    assert placed(simulation) == ["train-0", "train-1", "train-2"]


def test_a_fork_and_a_saved_simulation_know_the_groups() -> None:
    simulation = start(nodes(1), UNQUEUED)
    gang = {"name": "g", "policy": {"gang": {"minCount": 2}}}
    submit(simulation, *job_manifests.read(workload(gang), *pods(1, workloadRef={"name": "w", "podGroup": "g"})))
    for one in (simulation.fork(), Simulation.load(simulation.save())):
        submit(one, *job_manifests.read(*pods(1, prefix="late", workloadRef={"name": "w", "podGroup": "g"})))
        assert placed(one) == ["late0", "p0"]


GANG = {"gang": {"minCount": 2}}


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        (group("g", {}), ["spec.schedulingPolicy: must specify one of: `basic`, `gang`"]),
        (group("g", {"basic": {}, **GANG}), ["spec.schedulingPolicy: must specify exactly one of: `basic`, `gang`"]),
        (
            group("g", {"gang": {"minCount": 0}}),
            ["spec.schedulingPolicy.gang.minCount: 0 is out of range"],
        ),
        (group("g", {"gang": {}}), ["spec.schedulingPolicy.gang.minCount: minCount is missing"]),
        (workload(), ["spec.podGroups: podGroups is empty"]),
        (
            workload({"name": "a", "policy": GANG}, {"name": "a", "policy": GANG}),
            ["spec.podGroups[1].name: 'a' stands twice"],
        ),
        (
            workload(*({"name": f"g{number}", "policy": GANG} for number in range(9))),
            ["spec.podGroups: it has 9 entries, 8 are allowed"],
        ),
        (pods(1, workloadRef={"name": "w"})[0], ["spec.workloadRef.podGroup: podGroup is missing"]),
    ],
)
def test_what_the_api_server_refuses(document: dict[str, Any], problems: list[str]) -> None:
    findings = load_text(job_manifests.dumps(document), "w.yaml", strict=True).findings
    assert [f"{finding.path}: {finding.problem}" for finding in findings] == problems


def test_a_workload_of_templates_is_read_and_its_pod_groups_are_others_to_make() -> None:
    templates = [{"name": "g", "schedulingPolicy": GANG}]
    document = {**workload(), "apiVersion": "scheduling.k8s.io/v1alpha2", "spec": {"podGroupTemplates": templates}}
    made = group("w-g", GANG)
    made["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": "w", "podGroupTemplateName": "g"}}
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, *job_manifests.read(document, made, *pods(2, schedulingGroup=in_group("w-g"))))
    assert placed(simulation) == ["p0", "p1"]
