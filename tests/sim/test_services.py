"""Services: Deployments, StatefulSets, LeaderWorkerSets and clusters of Ray serve until they are deleted."""

from typing import Any

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Delete, FailNode, FailPod, Requeue, RestoreNode, Scale
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.queues import LocalQueue
from gpuconsole.sim.engine import Simulation
from tests.support.job_manifests import Manifest, job, meta, pod, read, service, worker_set
from tests.support.sim_cluster import START, UNQUEUED, log, nodes, run, start, submit, two_teams


def served(*documents: Any, count: int = 2, queued: bool = False) -> Simulation:
    simulation = start(two_teams()) if queued else start(nodes(count), UNQUEUED)
    submit(simulation, *read(*documents))
    return simulation


def where(simulation: Simulation) -> dict[str, str]:
    """Pod → its node, or nothing while it waits."""
    return {pod.name: pod.node for pod in simulation.snapshot().pods.all() if not pod.done}


def refusals(simulation: Simulation) -> list[str]:
    return [
        e.message
        for e in simulation.drain()
        if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.COMMAND_REFUSED
    ]


def waiting(simulation: Simulation) -> list[str]:
    """Workloads that hold no quota."""
    return sorted(w.name for w in simulation.snapshot().workloads.all() if not w.reserved and not w.finished)


def ray(name: str, workers: int, *, queue: str = "", **notes: str) -> Manifest:
    group = {"groupName": "gpu", "replicas": workers, "template": pod(), "rayStartParams": {}}
    spec = {"headGroupSpec": {"rayStartParams": {}, "template": pod(0)}, "workerGroupSpecs": [group]}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta(name, queue=queue), "spec": spec}


def test_a_deployment_never_ends() -> None:
    simulation = served(service("Deployment", "web", 2))
    assert run(simulation, 10_000 * HOUR) == ["0:00 started Deployment/red/web"]
    assert sorted(where(simulation)) == ["web-0", "web-1"]


def test_a_lost_replica_is_replaced_while_the_others_serve() -> None:
    simulation = served(service("Deployment", "web", 4), count=2)
    simulation.advance(START + MINUTE)
    assert set(where(simulation).values()) == {"n1"}
    simulation.submit(FailNode("n1"))
    simulation.advance(START + 2 * MINUTE)
    assert where(simulation) == {"web-0": "n2", "web-1": "n2", "web-2": "n2", "web-3": "n2"}
    assert simulation.snapshot().jobs["Deployment/red/web"].failures == 0
    lost = [
        event
        for event in simulation.drain()
        if isinstance(event, HistoryEvent) and event.what is HistoryEventKind.POD_FAILED
    ]
    assert [event.lost_gpu_seconds for event in lost] == [0.0] * 4


def test_a_deployment_is_scaled_by_command() -> None:
    simulation = served(service("Deployment", "web", 2))
    simulation.submit(Scale("red/web", 4))
    assert sorted(where(simulation)) == ["web-0", "web-1", "web-2", "web-3"]
    simulation.submit(Scale("Deployment/red/web", 1))
    simulation.advance(simulation.now + 30 * SECOND)
    assert sorted(where(simulation)) == ["web-0"]
    simulation.submit(Scale("Deployment/red/web", 0))
    simulation.advance(simulation.now + 30 * SECOND)
    assert where(simulation) == {}
    simulation.submit(Scale("Deployment/red/web", 1))
    assert sorted(where(simulation)) == ["web-0"]


def test_kueue_admits_each_replica_of_a_deployment_by_itself() -> None:
    simulation = served(service("Deployment", "web", 9, queue="lq"), queued=True)
    simulation.advance(START + MINUTE)
    assert sorted(where(simulation)) == [f"web-{number}" for number in range(8)]
    assert [name.rpartition("-")[0] for name in waiting(simulation)] == ["pod-web-8"]
    simulation.submit(Scale("Deployment/red/web", 7))
    simulation.advance(START + 2 * MINUTE)
    assert sorted(where(simulation)) == [f"web-{number}" for number in range(7)]
    assert waiting(simulation) == []


def test_a_lost_replica_has_to_stand_in_the_queue_anew() -> None:
    simulation = served(service("Deployment", "web", 2, queue="lq"), queued=True)
    before = set(simulation.snapshot().workloads)
    simulation.schedule_commands(START + MINUTE, Delete("pods", "red/web-0"))
    simulation.advance(START + 2 * MINUTE)
    after = set(simulation.snapshot().workloads)
    assert len(after) == 2
    assert len(after & before) == 1
    assert sorted(where(simulation)) == ["web-0", "web-1"]


def test_a_deleted_deployment_takes_its_replicas_along() -> None:
    for queued in (False, True):
        simulation = served(service("Deployment", "web", 2, queue="lq" if queued else ""), queued=queued)
        simulation.submit(Delete("jobs", "Deployment/red/web"))
        simulation.advance(START + MINUTE)
        snapshot = simulation.snapshot()
        assert (list(snapshot.jobs), list(snapshot.workloads), list(snapshot.pods)) == ([], [], [])


def test_a_stateful_set_makes_one_pod_after_the_other() -> None:
    simulation = served(service("StatefulSet", "db", 6), count=1)
    simulation.advance(START + MINUTE)
    # The fifth one waits for a GPU, so nobody makes the sixth.
    assert sorted(where(simulation)) == ["db-0", "db-1", "db-2", "db-3", "db-4"]
    parallel = served(service("StatefulSet", "db", 6, podManagementPolicy="Parallel"), count=1)
    assert sorted(where(parallel)) == ["db-0", "db-1", "db-2", "db-3", "db-4", "db-5"]


def test_a_stateful_set_in_a_queue_goes_only_to_zero_and_back() -> None:
    simulation = served(service("StatefulSet", "db", 3, queue="lq"), queued=True)
    (key,) = simulation.snapshot().workloads
    assert (key.startswith("red/statefulset-db-"), sorted(where(simulation))) == (True, ["db-0", "db-1", "db-2"])
    simulation.drain()
    simulation.submit(Scale("StatefulSet/red/db", 2))
    assert refusals(simulation) == ["spec.replicas: Invalid value: 2: field is immutable"]
    simulation.submit(Scale("StatefulSet/red/db", 0))
    held = simulation.snapshot().workloads[key].condition("QuotaReserved")
    assert held is not None
    assert (held.status, held.reason, held.message) == (
        False,
        "OnHold",
        "StatefulSet scaled to zero; workload on hold",
    )
    simulation.submit(Scale("StatefulSet/red/db", 3))
    assert refusals(simulation) == ["spec.replicas: Forbidden: scaling down is still in progress"]
    simulation.advance(START + MINUTE)
    simulation.submit(Scale("StatefulSet/red/db", 3))
    simulation.advance(START + 2 * MINUTE)
    assert sorted(where(simulation)) == ["db-0", "db-1", "db-2"]


def test_groups_of_leader_and_workers_are_admitted_one_by_one() -> None:
    simulation = served(worker_set("llm", 3, 5, queue="lq"), queued=True)
    assert sorted(where(simulation)) == [
        *("llm-0", "llm-0-1", "llm-0-2", "llm-0-3", "llm-0-4"),
        *("llm-1", "llm-1-1", "llm-1-2", "llm-1-3", "llm-1-4"),
    ]
    assert [name.rpartition("-")[0] for name in waiting(simulation)] == ["leaderworkerset-llm-2"]
    notes = simulation.snapshot().workloads[key_of_group(simulation, 1)].annotations
    assert notes == {
        "kueue.x-k8s.io/job-owner-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        "kueue.x-k8s.io/job-owner-name": "llm",
        "kueue.x-k8s.io/component-workload-index": "1",
    }


def key_of_group(simulation: Simulation, index: int) -> str:
    return next(key for key in simulation.snapshot().workloads if key.startswith(f"red/leaderworkerset-llm-{index}-"))


def test_a_group_is_made_again_as_a_whole() -> None:
    simulation = served(worker_set("llm", 1, 3))
    simulation.advance(START + MINUTE)
    simulation.drain()
    simulation.submit(FailPod("red/llm-0-1"))
    assert {pod.name for pod in simulation.snapshot().pods.all() if pod.deleted} == {"llm-0", "llm-0-2"}
    assert run(simulation, 2 * MINUTE) == [
        "1:00 pod-failed red/llm-0-1 Error",
        "1:30 started LeaderWorkerSetGroup/red/llm-0",
    ]


def test_a_group_may_be_repaired_pod_by_pod() -> None:
    simulation = served(worker_set("llm", 1, 3, restartPolicy="None"))
    simulation.advance(START + MINUTE)
    simulation.drain()
    simulation.submit(FailPod("red/llm-0-1"))
    assert not [pod for pod in simulation.snapshot().pods.all() if pod.deleted]
    assert run(simulation, 2 * MINUTE) == [
        "1:00 pod-failed red/llm-0-1 Error",
        "1:10 started LeaderWorkerSetGroup/red/llm-0",
    ]


def test_groups_are_scaled_by_command() -> None:
    simulation = served(worker_set("llm", 1, 2, led=False))
    simulation.submit(Scale("LeaderWorkerSet/red/llm", 3))
    assert sorted(where(simulation)) == ["llm-0", "llm-0-1", "llm-1", "llm-1-1", "llm-2", "llm-2-1"]
    simulation.submit(Scale("LeaderWorkerSet/red/llm", 1))
    simulation.advance(START + MINUTE)
    assert sorted(where(simulation)) == ["llm-0", "llm-0-1"]


def test_an_evicted_group_goes_back_to_its_queue() -> None:
    simulation = served(worker_set("llm", 1, 3, queue="lq"), queued=True)
    simulation.advance(START + MINUTE)
    simulation.drain()
    key = key_of_group(simulation, 0)
    simulation.submit(Requeue(key))
    simulation.advance(START + 2 * MINUTE)
    assert simulation.snapshot().workloads[key].reserved
    assert sorted(where(simulation)) == ["llm-0", "llm-0-1", "llm-0-2"]


def test_a_cluster_of_ray_works_until_it_is_deleted_and_replaces_lost_workers() -> None:
    simulation = served(ray("r", 2))
    assert run(simulation, 1000 * HOUR) == ["0:00 started RayCluster/red/r"]
    simulation.submit(FailPod("red/r-gpu-1"))
    simulation.advance(simulation.now + MINUTE)
    assert sorted(where(simulation)) == ["r-gpu-0", "r-gpu-1", "r-head-0"]
    simulation.submit(Scale("RayCluster/red/r", 4, "gpu"))
    assert len(where(simulation)) == 5
    simulation.submit(Delete("jobs", "RayCluster/red/r"))
    simulation.advance(simulation.now + MINUTE)
    assert where(simulation) == {}


def test_workers_of_an_elastic_cluster_grow_by_a_slice() -> None:
    document = ray("r", 2, queue="lq")
    document["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    gate = {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}
    for place in (document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]):
        place["template"]["spec"] |= gate
    simulation = served(document, queued=True)
    simulation.advance(START + MINUTE)
    simulation.submit(Scale("RayCluster/red/r", 3, "gpu"))
    simulation.advance(START + 2 * MINUTE)
    assert sorted(where(simulation)) == ["r-gpu-0", "r-gpu-1", "r-gpu-2", "r-head-0"]
    assert sorted(w.finished for w in simulation.snapshot().workloads.all()) == [False, True]


def test_services_live_on_when_they_are_saved_or_taken_over() -> None:
    documents = (service("Deployment", "web", 2), service("StatefulSet", "db", 2), worker_set("llm", 1, 3))
    original = served(*documents, count=3)
    original.advance(START + MINUTE)
    original.drain()
    twins = [
        original.fork(),
        Simulation.load(original.save()),
        Simulation.from_snapshot(original.snapshot(), policy=UNQUEUED, seed=1),
    ]
    for twin in (original, *twins):
        twin.submit(FailNode("n1"))
        twin.submit(RestoreNode("n1"))
        twin.submit(Scale("red/web", 3))
    wanted = run(original, 10 * MINUTE)
    assert [run(twin, 10 * MINUTE) for twin in twins] == [wanted] * 3
    assert [sorted(where(twin)) for twin in twins] == [sorted(where(original))] * 3
    assert log(original.drain()) == []


def test_jobs_that_name_no_queue_go_to_the_default_one_of_their_namespace() -> None:
    simulation = start([*two_teams(), LocalQueue(namespace="red", name="default", cluster_queue="red")])
    submit(simulation, *read(job("train", 2, 2), service("Deployment", "web", 1)))
    snapshot = simulation.snapshot()
    assert {w.owner: w.queue for w in snapshot.workloads.all()} == {
        "Job/red/train": "default",
        "Pod/red/web-0": "default",
    }
    assert snapshot.jobs["Job/red/train"].labels == {"kueue.x-k8s.io/queue-name": "default"}
