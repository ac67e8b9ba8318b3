"""RayClusters and RayJobs of a batch scheduler: KubeRay makes a PodGroup, and their pods start together."""

from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import Copy, Delete, FailPod
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.volcano import NetworkTopology, PodGroup, RayGroup
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario

GPU, GIB = "nvidia.com/gpu", 2**30
QUEUE, PRIORITY = "volcano.sh/queue-name", "ray.io/priority-class-name"
GANG = "ray.io/gang-scheduling-enabled"
ENGINES = {"Volcano": {"engine": "Volcano"}, "kube-scheduler": {}}


def pod(cpu: str = "1", gpus: int = 0, **more: Any) -> dict[str, Any]:
    limits = {GPU: gpus} if gpus else {}
    return {
        "spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": cpu}, "limits": limits}, **more}]}
    }


def workers(gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {"groupName": "gpu", "replicas": 2, "template": pod("2", gpus), **more}


def ray(kind: str = "RayCluster", labels: dict[str, str] | None = None, *groups: Any, **spec: Any) -> dict[str, Any]:
    cluster = {"headGroupSpec": {"template": pod()}, "workerGroupSpecs": list(groups or (workers(),))}
    extra = {key: spec.pop(key) for key in ("enableInTreeAutoscaling",) if key in spec}
    cluster |= extra
    body: dict[str, dict[str, Any]] = {
        "RayCluster": cluster,
        "RayJob": {"rayClusterSpec": cluster},
        "RayService": {"rayClusterConfig": cluster},
    }
    meta = {"name": "a", "namespace": "n", "labels": {QUEUE: "ml"} if labels is None else labels}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta, "spec": {**body[kind], **spec}}


def group(document: dict[str, Any]) -> RayGroup | None:
    job = decode_object(document)
    assert isinstance(job, Job)
    return job.ray_group


NEEDS = {"cpu": 5000, GPU: 2}
TIER = {"volcano.sh/network-topology-mode": "soft", "volcano.sh/network-topology-highest-tier-allowed": "2"}
GROUPS: dict[str, tuple[dict[str, Any], RayGroup | None]] = {
    "a cluster": (ray(), RayGroup(for_volcano=True, min_member=3, min_resources=NEEDS, queue="ml")),
    "a service": (ray("RayService"), RayGroup(for_volcano=True, min_member=3, min_resources=NEEDS, queue="ml")),
    "a cluster by the older label": (
        ray("RayCluster", {"ray.io/scheduler-name": "volcano"}),
        RayGroup(for_volcano=True, min_member=3, min_resources=NEEDS),
    ),
    "one of a priority, close together": (
        ray("RayCluster", {QUEUE: "ml", PRIORITY: "high", **TIER}),
        RayGroup(
            for_volcano=True,
            min_member=3,
            min_resources=NEEDS,
            queue="ml",
            priority_class="high",
            network_topology=NetworkTopology(mode="soft", highest_tier=2),
        ),
    ),
    "one that scales itself begins with the least": (
        ray("RayCluster", None, workers(minReplicas=1), enableInTreeAutoscaling=True),
        RayGroup(for_volcano=True, min_member=2, min_resources={"cpu": 3000, GPU: 1}, queue="ml"),
    ),
    "several hosts, within the bounds, and a group that is suspended": (
        ray(
            "RayCluster",
            None,
            workers(numOfHosts=4),
            {**workers(maxReplicas=1), "groupName": "capped"},
            {**workers(minReplicas=3), "groupName": "raised"},
            {**workers(suspend=True), "groupName": "off"},
        ),
        # KubeRay counts pods within minReplicas and maxReplicas, and minResources by replicas as they are written.
        RayGroup(
            for_volcano=True, min_member=1 + 8 + 1 + 3, min_resources={"cpu": 1000 + 12 * 2000, GPU: 12}, queue="ml"
        ),
    ),
    "a job does not wait for its submitter, but counts what it needs": (
        ray("RayJob"),
        RayGroup(
            for_volcano=True, min_member=3, min_resources={**NEEDS, "cpu": 5500, "memory": 200 * 2**20}, queue="ml"
        ),
    ),
    "a job that is submitted from the head": (
        ray("RayJob", submissionMode="SidecarMode"),
        RayGroup(
            for_volcano=True, min_member=3, min_resources={**NEEDS, "cpu": 5500, "memory": 200 * 2**20}, queue="ml"
        ),
    ),
    "a job that is submitted from elsewhere": (
        ray("RayJob", submissionMode="HTTPMode"),
        RayGroup(for_volcano=True, min_member=3, min_resources=NEEDS, queue="ml"),
    ),
    "the Coscheduling plugin's": (
        ray("RayCluster", {GANG: "true"}),
        RayGroup(for_volcano=False, min_member=3, min_resources=NEEDS),
    ),
    "KAI groups pods itself": (ray("RayCluster", {"kai.scheduler/queue": "q"}), None),
    "YuniKorn reads annotations": (ray("RayCluster", {"yunikorn.apache.org/queue": "q", GANG: ""}), None),
    "no batch scheduler": (ray("RayCluster", {}), None),
}


@pytest.mark.parametrize(("document", "expected"), GROUPS.values(), ids=GROUPS)
def test_kuberay_makes_the_pod_group_of_its_batch_scheduler(
    document: dict[str, Any], expected: RayGroup | None
) -> None:
    assert group(document) == expected


def cluster_of(gpus: int, placement: dict[str, Any], *objects: dict[str, Any]) -> Simulation:
    offer = {"cpu": "64", "memory": "256Gi", "pods": "100", GPU: str(gpus)}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": offer}}
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "ml"}}
    engine = {"admission": "none", "placement": placement}
    return build_simulation(load_scenario([{"engine": engine, "objects": [node, queue, *objects]}]))


def seats(simulation: Simulation) -> list[bool]:
    return sorted(bool(pod.node) for pod in simulation.snapshot().pods.values())


@pytest.mark.parametrize("placement", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("labels", [{QUEUE: "ml"}, {GANG: "true"}], ids=["Volcano's", "Coscheduling's"])
@pytest.mark.parametrize("kind", ["RayCluster", "RayService"])
def test_the_pods_of_a_cluster_start_together_or_not_at_all(
    kind: str, labels: dict[str, str], placement: dict[str, Any]
) -> None:
    if placement and GANG in labels:
        pytest.skip("Volcano does not read the groups of the Coscheduling plugin")
    for gpus, expected in ((1, [False] * 3), (2, [True] * 3)):
        simulation = cluster_of(gpus, placement, ray(kind, labels))
        simulation.advance(simulation.now + 5 * MINUTE)
        assert seats(simulation) == expected


def test_the_pod_group_has_the_name_the_members_and_the_queue_that_kuberay_gives_it() -> None:
    simulation = cluster_of(2, ENGINES["Volcano"], ray())
    simulation.advance(simulation.now + MINUTE)
    (made,) = simulation.snapshot().pod_groups.values()
    assert (made.key, made.min_member, made.min_resources, made.queue) == ("n/ray-a-pg", 3, NEEDS, "ml")
    notes = {pod.name: dict(pod.annotations) for pod in simulation.snapshot().pods.values()}
    named = {"scheduling.k8s.io/group-name": "ray-a-pg"}
    assert {tuple(sorted(note.items())) for note in notes.values()} == {
        tuple(sorted({**named, "volcano.sh/task-spec": "headgroup"}.items())),
        tuple(sorted({**named, "volcano.sh/task-spec": "gpu"}.items())),
    }


def test_one_that_scales_itself_starts_as_soon_as_its_least_pods_fit() -> None:
    document = ray("RayCluster", None, workers(minReplicas=1), enableInTreeAutoscaling=True)
    simulation = cluster_of(1, ENGINES["Volcano"], document)
    simulation.advance(simulation.now + MINUTE)
    assert seats(simulation) == [False, True, True]


@pytest.mark.parametrize("placement", ENGINES.values(), ids=ENGINES)
def test_a_worker_that_is_lost_comes_back_alone(placement: dict[str, Any]) -> None:
    simulation = cluster_of(2, placement, ray())
    simulation.advance(simulation.now + MINUTE)
    worker = next(pod.key for pod in simulation.snapshot().pods.values() if pod.gpus)
    simulation.submit(FailPod(worker))
    simulation.advance(simulation.now + 10 * MINUTE)
    assert seats(simulation) == [True] * 3


def test_the_pod_group_goes_with_its_cluster_and_a_copy_has_one_of_its_own() -> None:
    simulation = cluster_of(4, ENGINES["Volcano"], ray())
    simulation.advance(simulation.now + MINUTE)
    simulation.submit(Copy("RayCluster/n/a", "b"))
    simulation.advance(simulation.now + MINUTE)
    assert list(simulation.snapshot().pod_groups) == ["n/ray-a-pg", "n/ray-b-pg"]
    assert seats(simulation) == [True] * 6
    simulation.submit(Delete("jobs", "RayCluster/n/a"))
    simulation.advance(simulation.now + MINUTE)
    assert list(simulation.snapshot().pod_groups) == ["n/ray-b-pg"]


def test_the_pod_group_of_a_job_that_ended_asks_for_nothing_any_more() -> None:
    document = ray("RayJob")
    document["metadata"]["annotations"] = {"gpuconsole.io/duration": "2m"}
    simulation = cluster_of(2, ENGINES["Volcano"], document)
    simulation.advance(simulation.now + 10 * MINUTE)
    (made,) = simulation.snapshot().pod_groups.values()
    assert (made.min_member, made.min_resources) == (0, {})


def test_the_annotations_of_yunikorns_task_groups_are_kept() -> None:
    labels = {"yunikorn.apache.org/queue": "q", GANG: ""}
    document = ray("RayCluster", labels)
    document["metadata"]["annotations"] = {"yunikorn.apache.org/task-groups": "[]"}
    job = decode_object(document)
    assert isinstance(job, Job)
    notes = {pods.name: pods.template.annotations for pods in job.pod_sets}
    name, groups = "yunikorn.apache.org/task-group-name", {"yunikorn.apache.org/task-groups": "[]"}
    assert notes == {"head": {**groups, name: "headgroup"}, "gpu": {**groups, name: "gpu"}}


def test_the_pod_group_is_kept_in_a_saved_simulation() -> None:
    simulation = cluster_of(2, ENGINES["Volcano"], ray())
    again = Simulation.load(simulation.save())
    for one in (simulation, again):
        one.advance(one.now + MINUTE)
    groups = [list(one.snapshot().pod_groups.values()) for one in (simulation, again)]
    assert groups[0] == groups[1]
    assert isinstance(groups[0][0], PodGroup)
