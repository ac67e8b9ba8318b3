"""A cluster that somebody else began goes on with the pods that it has: none is made that no job asks for."""

from collections.abc import Callable, Iterable

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.commands import FailPod, Requeue
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs.batch import COMPLETION_INDEX
from gpuconsole.model.jobs.services_and_pod_groups import POD_INDEX
from gpuconsole.model.jobs.workloads import DURATION
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.adopted_clusters import as_live, member, shown
from tests.support.job_manifests import Manifest, job, meta, pod, read, service, worker_set
from tests.support.sim_cluster import START, UNQUEUED, USUAL, start, submit, two_teams


def kubeflow(kind: str, field: str, queue: str = "", **types: int) -> Manifest:
    parts = {type: {"replicas": n, "restartPolicy": "Never", "template": pod()} for type, n in types.items()}
    api = "kubeflow.org/v2beta1" if kind == "MPIJob" else "kubeflow.org/v1"
    return {"apiVersion": api, "kind": kind, "metadata": meta("j", queue=queue, duration="1h"), "spec": {field: parts}}


def jobset(queue: str = "", restarts: int = 0) -> Manifest:
    def part(name: str, replicas: int, parallelism: int) -> Manifest:
        spec = {"parallelism": parallelism, "completions": parallelism, "template": pod(restart="Never")}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    parts = [part("driver", 1, 1), part("workers", 2, 2)]
    spec = {"replicatedJobs": parts, "failurePolicy": {"maxRestarts": restarts}}
    meta_ = meta("j", queue=queue, duration="1h")
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta_, "spec": spec}


def ray(kind: str, queue: str = "") -> Manifest:
    group = {"groupName": "gpu", "replicas": 3, "template": pod(), "rayStartParams": {}}
    cluster = {"headGroupSpec": {"rayStartParams": {}, "template": pod(0)}, "workerGroupSpecs": [group]}
    notes = {"duration": "1h"} if kind == "RayJob" else {}
    spec: Manifest = {"rayClusterSpec": cluster, "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True}
    if kind != "RayJob":
        spec = cluster if kind == "RayCluster" else {"rayClusterConfig": cluster}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta("j", queue=queue, **notes), "spec": spec}


def volcano() -> Manifest:
    tasks = [{"name": name, "replicas": 2, "template": pod()} for name in ("a", "b")]
    spec = {"minAvailable": 2, "tasks": tasks}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": meta("j", duration="1h"),
        "spec": spec,
    }


def plain(name: str, gpus: int, group: str = "") -> Manifest:
    labels = {"kueue.x-k8s.io/queue-name": "lq"} | ({"kueue.x-k8s.io/pod-group-name": group} if group else {})
    notes = {DURATION: "1h"} | ({"kueue.x-k8s.io/pod-group-total-count": "3"} if group else {})
    place = {"name": name, "namespace": "red", "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": place, **pod(gpus, restart="Never")}


KINDS: dict[str, Callable[[str], tuple[Manifest, ...]]] = {
    "a Job": lambda queue: (job("j", 3, 3, queue=queue),),
    "an Indexed Job": lambda queue: (job("j", 3, 3, queue=queue, completionMode="Indexed"),),
    "a Job that runs in waves": lambda queue: (job("j", 2, 8, queue=queue, notes={"duration": "4h"}),),
    "a Job that is a gang": lambda queue: (job("j", 3, 3, queue=queue, notes={"duration": "1h", "gang": "true"}),),
    "a Deployment": lambda queue: (service("Deployment", "j", 3, queue=queue),),
    "a StatefulSet": lambda queue: (service("StatefulSet", "j", 3, queue=queue),),
    "a StatefulSet, all at once": lambda q: (service("StatefulSet", "j", 3, queue=q, podManagementPolicy="Parallel"),),
    "a LeaderWorkerSet": lambda queue: (worker_set("j", 2, 3, queue=queue),),
    "one without a leader": lambda queue: (worker_set("j", 2, 2, queue=queue, led=False),),
    "a JobSet": lambda queue: (jobset(queue),),
    "a PyTorchJob": lambda queue: (kubeflow("PyTorchJob", "pytorchReplicaSpecs", queue, Master=1, Worker=3),),
    "an MPIJob": lambda queue: (kubeflow("MPIJob", "mpiReplicaSpecs", queue, Launcher=1, Worker=2),),
    "a RayJob": lambda queue: (ray("RayJob", queue),),
    "a RayCluster": lambda queue: (ray("RayCluster", queue),),
    "a RayService": lambda queue: (ray("RayService", queue),),
}
UNQUEUED_ONLY = {"a Volcano Job": (volcano(),)}
QUEUED_ONLY = {
    "a pod group": (plain("x", 1, "j"), plain("y", 1, "j"), plain("z", 2, "j")),
    "a plain pod": (plain("x", 1),),
}


def lived(documents: Iterable[Manifest], policy: SimPolicy) -> Simulation:
    simulation = start(two_teams(16), policy)
    submit(simulation, *read(*documents))
    simulation.advance(START + 5 * MINUTE)
    assert any(pod.node for pod in simulation.snapshot().pods.all())
    return simulation


def going(snapshot: Snapshot) -> list[str]:
    return sorted(pod.key for pod in snapshot.pods.all() if not pod.done)


QUEUED = {name: make("lq") for name, make in KINDS.items()} | QUEUED_ONLY
ALONE = {name: make("") for name, make in KINDS.items()} | UNQUEUED_ONLY


@pytest.mark.parametrize("name", ALONE)
def test_no_pod_is_made_that_is_there_already(name: str) -> None:
    check(lived(ALONE[name], UNQUEUED), UNQUEUED)


@pytest.mark.parametrize("name", QUEUED)
def test_no_pod_is_made_that_is_there_already_of_what_kueue_admitted(name: str) -> None:
    check(lived(QUEUED[name], USUAL), USUAL)


def check(simulation: Simulation, policy: SimPolicy) -> None:
    for snapshot in (simulation.snapshot(), as_live(simulation)):
        twin = adopted(snapshot, policy)
        assert going(twin.snapshot()) == going(snapshot)
        places = [(pod.workload or pod.job, pod.pod_set, pod.index) for pod in twin.snapshot().pods.all()]
        assert len(set(places)) == len(places)


def adopted(snapshot: Snapshot, policy: SimPolicy = UNQUEUED) -> Simulation:
    """A simulation that went on from a Snapshot for ten minutes."""
    twin = Simulation.from_snapshot(snapshot, policy=policy, seed=1)
    twin.advance(twin.now + 10 * MINUTE)
    return twin


def places(simulation: Simulation) -> dict[str, tuple[str, int]]:
    """Pod that is not done → its pod set and index."""
    return {pod.name: (pod.pod_set, pod.index) for pod in simulation.snapshot().pods.all() if not pod.done}


def test_an_indexed_job_goes_on_with_the_indexes_that_its_pods_have() -> None:
    (indexed,) = read(job("j", 2, 4, completionMode="Indexed"))
    one = member(indexed, "j-2-abcde", labels={COMPLETION_INDEX: "2"})
    assert places(adopted(shown(indexed, one))) == {"j-2-abcde": ("main", 2), "j-0": ("main", 0)}


def test_a_stateful_set_is_numbered_by_the_names_of_its_pods() -> None:
    (stateful,) = read(service("StatefulSet", "db", 3))
    pods = (member(stateful, "db-2"), member(stateful, "db-0"))
    wanted = {"db-0": ("main", 0), "db-1": ("main", 1), "db-2": ("main", 2)}
    assert places(adopted(shown(stateful, *pods))) == wanted


def test_ordinals_that_begin_elsewhere_are_numbers_all_the_same() -> None:
    (stateful,) = read(service("StatefulSet", "db", 3, ordinals={"start": 5}))
    pods = [member(stateful, f"db-{n}", labels={POD_INDEX: str(n)}) for n in (5, 6, 7)]
    assert places(adopted(shown(stateful, *pods))) == {"db-5": ("main", 0), "db-6": ("main", 1), "db-7": ("main", 2)}


def test_what_succeeded_is_done_also_where_the_job_has_not_counted_it() -> None:
    (work,) = read(job("j", 2, 4, notes={"duration": "1h"}))
    ended = member(work, "j-aaaaa", phase=PodPhase.SUCCEEDED)
    pods = (ended, member(work, "j-bbbbb"), member(work, "j-ccccc"))
    twin = adopted(shown(work, *pods))
    assert places(twin) == {"j-bbbbb": ("main", 1), "j-ccccc": ("main", 2)}
    assert [found.batch.completed for found in twin.snapshot().jobs.all()] == ["0"]


def test_the_index_of_a_pod_that_succeeded_is_the_one_that_is_done() -> None:
    (work,) = read(job("j", 1, 2, completionMode="Indexed", notes={"duration": "1h"}))
    ended = member(work, "j-1-x", phase=PodPhase.SUCCEEDED, labels={COMPLETION_INDEX: "1"})
    twin = adopted(shown(work, ended))
    assert [found.batch.completed for found in twin.snapshot().jobs.all()] == ["1"]
    assert places(twin) == {"j-0": ("main", 0)}


def test_a_pod_that_leaves_does_not_keep_the_place_of_its_successor() -> None:
    (web,) = read(service("Deployment", "web", 2))
    pods = (member(web, "web-a", deleted=True), member(web, "web-b"), member(web, "web-c"))
    assert places(adopted(shown(web, *pods))) == {"web-b": ("main", 0), "web-c": ("main", 1)}


def test_a_gang_works_on_when_one_of_its_pods_has_ended_well() -> None:
    twin = gang_with_one_done()
    assert places(twin) == {f"j-workers-{n}-x": ("workers", n) for n in range(4)}
    twin.advance(twin.now + HOUR)
    assert [found.phase for found in twin.snapshot().jobs.all()] == [JobPhase.SUCCEEDED]


def gang_with_one_done() -> Simulation:
    """A JobSet whose driver has ended well, and which goes on for ten minutes."""
    (whole,) = read(jobset(restarts=3))
    mark = "jobset.sigs.k8s.io/replicatedjob-name"
    driver = member(whole, "j-driver-0-0-x", phase=PodPhase.SUCCEEDED, labels={mark: "driver"})
    workers = [member(whole, f"j-workers-{n}-x", labels={mark: "workers"}) for n in range(4)]
    return adopted(shown(whole, driver, *workers))


def test_a_pod_of_a_gang_that_fails_is_made_again_and_one_that_ended_well_is_not() -> None:
    twin = gang_with_one_done()
    twin.submit(FailPod("red/j-workers-2-x"))
    twin.advance(twin.now + 10 * MINUTE)
    assert places(twin) == {f"j-workers-{n}-x": ("workers", n) for n in range(4)}


def test_an_evicted_gang_begins_with_all_its_pods_also_with_those_that_had_ended_well() -> None:
    before = lived((jobset("lq"),), USUAL).snapshot()
    (key,) = before.workloads
    ended = [
        replace(thing, phase=PodPhase.SUCCEEDED) if isinstance(thing, Pod) and thing.pod_set == "driver" else thing
        for thing in before.objects()
    ]
    twin = adopted(shown(*ended), USUAL)
    assert set(places(twin).values()) == {("workers", n) for n in range(4)}
    twin.submit(Requeue(key))
    twin.advance(twin.now + MINUTE)
    assert set(places(twin).values()) == {("driver", 0), *(("workers", n) for n in range(4))}


def test_what_a_gang_lost_and_replaced_is_not_waited_for() -> None:
    (whole,) = read(kubeflow("PyTorchJob", "pytorchReplicaSpecs", Worker=2))
    old = member(whole, "old", phase=PodPhase.FAILED)
    leaves = member(whole, "leaves", deleted=True)
    twin = adopted(shown(whole, old, leaves, member(whole, "j-worker-0"), member(whole, "j-worker-1")))
    assert places(twin) == {"j-worker-0": ("worker", 0), "j-worker-1": ("worker", 1)}
    twin.advance(twin.now + HOUR)
    assert [found.phase for found in twin.snapshot().jobs.all()] == [JobPhase.SUCCEEDED]


def test_a_launcher_that_ended_well_ends_its_job() -> None:
    (whole,) = read(kubeflow("MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=1))
    ended = member(whole, "j-launcher-0", phase=PodPhase.SUCCEEDED)
    twin = adopted(shown(whole, ended, member(whole, "j-worker-0")))
    assert [found.phase for found in twin.snapshot().jobs.all()] == [JobPhase.SUCCEEDED]
    assert places(twin) == {}


PARTS = {
    "a RayService's cluster": (ray("RayService"), ray("RayCluster")),
    "a JobSet of something that is not known here": (None, jobset()),
    "a LeaderWorkerSet's StatefulSet": (worker_set("j", 1, 3, led=False), service("StatefulSet", "j", 3)),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_a_jobs_controller_made_of_it_is_not_run_beside_it(name: str) -> None:
    whole, part = PARTS[name]
    objects = () if whole is None else read(whole)
    owner = objects[0].key if objects else "AppWrapper/red/j"
    (made,) = read(part)
    assert isinstance(made, Job)
    made = replace(made, owner=owner)
    pods = [
        replace(member(made, f"j-{part.name}-{n}"), template=part.template, pod_set=part.name)
        for part in made.pod_sets
        for n in range(part.count)
    ]
    snapshot = shown(*objects, made, *pods)
    assert going(adopted(snapshot).snapshot()) == going(snapshot)


def test_owners_in_a_circle_are_no_endless_chain() -> None:
    one, other = read(service("Deployment", "one", 1), service("Deployment", "two", 1))
    assert isinstance(one, Job)
    assert isinstance(other, Job)
    circle = replace(one, owner=other.key), replace(other, owner=one.key)
    assert going(adopted(shown(*circle, member(one, "one-a"))).snapshot()) == ["red/one-a", "red/two-0"]
