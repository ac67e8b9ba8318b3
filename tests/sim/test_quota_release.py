"""Quota release after an eviction: each kind of job frees its quota when its integration no longer calls it active.

The rules are those of docs/explanation/quota-release.md. A terminating pod keeps its GPUs until its grace period ends.
"""

from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import pytest
from msgspec import Struct

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import FailNode
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED, LatencyStep
from tests.support import job_manifests
from tests.support.job_manifests import Manifest, meta
from tests.support.random_simulations import contents
from tests.support.sim_cluster import A100, START, USUAL, classes, nodes, queue, run, start, submit

LATENT = SimPolicy(latencies=MEASURED)


def pod(grace: int, gpus: int = 2, *, restart: str = "Never", labels: dict[str, str] | None = None) -> Manifest:
    template = job_manifests.pod(gpus, restart=restart, labels=labels)
    template["spec"]["terminationGracePeriodSeconds"] = grace
    return template


def typed(api: str, kind: str, spec: Manifest) -> Manifest:
    found = meta("victim", queue="lq", duration="1h")
    return {"apiVersion": api, "kind": kind, "metadata": found, "spec": spec}


def batch(grace: int, **more: Any) -> list[Manifest]:
    return [job_manifests.job("victim", 2, 2, queue="lq", template=pod(grace), **more)]


def job_set(grace: int) -> list[Manifest]:
    template = {"spec": {"parallelism": 2, "completions": 2, "template": pod(grace)}}
    spec = {"replicatedJobs": [{"name": "w", "replicas": 1, "template": template}]}
    return [typed("jobset.x-k8s.io/v1alpha2", "JobSet", spec)]


def pytorch(grace: int) -> list[Manifest]:
    replicas = {name: {"replicas": 1, "template": pod(grace)} for name in ("Master", "Worker")}
    return [typed("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas})]


def mpi(grace: int) -> list[Manifest]:
    replicas = {
        "Launcher": {"replicas": 1, "template": pod(grace, 0)},
        "Worker": {"replicas": 2, "template": pod(2 * grace)},
    }
    return [typed("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": replicas})]


def ray_spec(grace: int) -> Manifest:
    group = {"groupName": "gpu", "replicas": 2, "template": pod(grace, restart=""), "rayStartParams": {}}
    head = {"rayStartParams": {}, "template": pod(grace, 0, restart="")}
    return {"headGroupSpec": head, "workerGroupSpecs": [group]}


def ray_job(grace: int) -> list[Manifest]:
    spec = {"entrypoint": "python x.py", "submissionMode": "HTTPMode", "rayClusterSpec": ray_spec(grace)}
    return [typed("ray.io/v1", "RayJob", spec | {"shutdownAfterJobFinishes": True})]


def ray_cluster(grace: int) -> list[Manifest]:
    return [typed("ray.io/v1", "RayCluster", ray_spec(grace))]


def app_wrapper(grace: int) -> list[Manifest]:
    inner = job_manifests.job("inner", 2, 2, template=pod(grace))
    return [typed("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": inner}]})]


def pod_group(grace: int) -> list[Manifest]:
    found = []
    for name in ("victim-0", "victim-1"):
        member = meta(name, queue="lq", duration="1h")
        member["labels"]["kueue.x-k8s.io/pod-group-name"] = "victim"
        member["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2"
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": member, **pod(grace)})
    return found


def deployment(grace: int) -> list[Manifest]:
    template = pod(grace, restart="", labels={"app": "victim"})
    return [job_manifests.service("Deployment", "victim", 2, queue="lq", template=template)]


def stateful_set(grace: int) -> list[Manifest]:
    template = pod(grace, restart="", labels={"app": "victim"})
    spec = {"template": template, "podManagementPolicy": "Parallel"}
    return [job_manifests.service("StatefulSet", "victim", 2, queue="lq", **spec)]


KINDS: dict[str, Callable[[int], list[Manifest]]] = {
    "Job": batch,
    "JobSet": job_set,
    "PyTorchJob": pytorch,
    "RayJob": ray_job,
    "Deployment": deployment,
    "PodGroup": pod_group,
    "StatefulSet": stateful_set,
    "MPIJob": mpi,
    "RayCluster": ray_cluster,
    "AppWrapper": app_wrapper,
    "a Job that replaces only failed pods": lambda grace: batch(grace, podReplacementPolicy="Failed"),
}


def cluster(kind: str, grace: int, *, nodes_count: int = 1, policy: SimPolicy = USUAL, seed: int = 1) -> Simulation:
    """A victim that has run for a minute, fills the first node and uses all the quota there is."""
    flavor = ResourceFlavor(name="a100", node_labels=A100)
    simulation = start([flavor, *queue("red", 4), *nodes(nodes_count), *classes()], policy, seed)
    submit(simulation, *job_manifests.read(*KINDS[kind](grace)))
    simulation.advance(START + MINUTE)
    assert {pod.node for pod in victims(simulation.snapshot())} == {"n1"}
    return simulation


def preempt(simulation: Simulation, seconds: int = 3600) -> None:
    """A batch/v1 Job of higher priority that takes the whole quota for so long."""
    document = job_manifests.job("preemptor", 2, 2, queue="lq", template=pod(30), notes={"duration": f"{seconds}s"})
    document["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    submit(simulation, *job_manifests.read(document))


def is_preemptor(thing: Workload | Pod) -> bool:
    return thing.name.startswith(("job-preemptor", "preemptor"))


def victims(snapshot: Snapshot) -> list[Pod]:
    return [pod for pod in snapshot.pods.all() if not is_preemptor(pod)]


class Seen(Struct):
    """What was seen, in seconds after the eviction; None if it was not."""

    released: float | None = None
    """No Workload of the victim has quota."""
    admitted: float | None = None
    running: float | None = None
    """All pods of the preemptor have started."""
    gone: float | None = None
    """No pod that ran at the eviction is left."""
    again: float | None = None
    """All pods of the victim have started again."""


def watch(simulation: Simulation, span: Span) -> Seen:
    """Let time pass, event by event."""
    seen, end = Seen(), simulation.now + span
    old = {pod.uid for pod in victims(simulation.snapshot())}
    while True:
        _note(seen, simulation.snapshot(), old, (simulation.now - START - MINUTE) / SECOND)
        due = simulation.next_time
        if due is None or due > end:
            return seen
        simulation.advance(due)


def _note(seen: Seen, snapshot: Snapshot, old: set[str], now: float) -> None:
    workloads, pods = list(snapshot.workloads.all()), list(snapshot.pods.all())
    if seen.released is None and not any(one.reserved for one in workloads if not is_preemptor(one)):
        seen.released = now
    if seen.admitted is None and any(one.admitted for one in workloads if is_preemptor(one)):
        seen.admitted = now
    if seen.running is None and sum(pod.started > 0 for pod in pods if is_preemptor(pod)) == 2:
        seen.running = now
    if seen.gone is None and not any(pod.uid in old for pod in pods):
        seen.gone = now
    new = [pod for pod in pods if not is_preemptor(pod) and pod.uid not in old]
    if seen.again is None and len(new) == len(old) and all(pod.started for pod in new):
        seen.again = now


class Times(NamedTuple):
    """Seconds after the eviction."""

    released: int
    """The victim's quota is free, and the preemptor is admitted."""
    running: int
    """The preemptor's pods run on the victim's node."""


GRACE_PERIODS = (0, 5, 30)
RELEASES: dict[str, tuple[Times, Times, Times]] = {
    # Grace period of:   0 s           5 s            30 s
    "Job": (Times(1, 1), Times(1, 5), Times(1, 30)),
    "JobSet": (Times(1, 1), Times(1, 5), Times(1, 30)),
    "PyTorchJob": (Times(1, 1), Times(1, 5), Times(1, 30)),
    "RayJob": (Times(1, 1), Times(1, 5), Times(1, 30)),
    "Deployment": (Times(1, 1), Times(1, 5), Times(1, 30)),
    "PodGroup": (Times(1, 1), Times(5, 5), Times(30, 30)),
    "StatefulSet": (Times(1, 1), Times(5, 5), Times(30, 30)),
    # Its workers have twice the grace period of its launcher.
    "MPIJob": (Times(1, 1), Times(5, 10), Times(30, 60)),
    # KubeRay deletes the pods after 2 s.
    "RayCluster": (Times(2, 2), Times(7, 7), Times(32, 32)),
    # The AppWrapper controller looks every 5 s.
    "AppWrapper": (Times(5, 5), Times(5, 5), Times(30, 30)),
}


@pytest.mark.parametrize("grace", GRACE_PERIODS)
@pytest.mark.parametrize("kind", RELEASES)
def test_quota_is_released_by_the_rule_of_the_kind_and_nodes_when_the_pods_have_ended(kind: str, grace: int) -> None:
    simulation = cluster(kind, grace)
    preempt(simulation)
    seen = watch(simulation, 2 * MINUTE)
    released, running = RELEASES[kind][GRACE_PERIODS.index(grace)]
    assert (seen.released, seen.admitted, seen.running) == (released, released, running)


class Return(NamedTuple):
    """Seconds after the eviction."""

    admitted: int
    """The preemptor, for 5 s on the other node."""
    again: int
    """The victim runs again."""
    node: str


RETURNS = {
    # Beside the old pods, which are on n1 for 30 s.
    "Job": Return(1, 7, "n2"),
    "JobSet": Return(1, 7, "n2"),
    "RayJob": Return(1, 7, "n2"),
    "Deployment": Return(1, 7, "n2"),
    # After the old pods, whose names the new ones have.
    "PyTorchJob": Return(1, 30, "n1"),
    "a Job that replaces only failed pods": Return(1, 30, "n1"),
    "MPIJob": Return(30, 60, "n1"),
    # After the old pods, as the quota is released.
    "PodGroup": Return(30, 36, "n1"),
    "StatefulSet": Return(30, 36, "n1"),
    "RayCluster": Return(32, 38, "n1"),
    "AppWrapper": Return(30, 36, "n1"),
}


@pytest.mark.parametrize("kind", RETURNS)
def test_a_victim_starts_again_beside_its_old_pods_or_after_them(kind: str) -> None:
    simulation = cluster(kind, 30, nodes_count=2)
    preempt(simulation, 5)
    seen = watch(simulation, 2 * MINUTE)
    nodes_of_gpus = {pod.node for pod in victims(simulation.snapshot()) if pod.gpus}
    assert nodes_of_gpus == {RETURNS[kind].node}
    assert (seen.admitted, seen.again) == RETURNS[kind][:2]


BESIDE = ("Job", "JobSet", "RayJob", "Deployment")


@pytest.mark.parametrize("policy", [USUAL, LATENT], ids=["no latencies", "measured latencies"])
@pytest.mark.parametrize("kind", BESIDE)
def test_the_end_of_the_old_pods_does_not_disturb_the_new_ones(kind: str, policy: SimPolicy) -> None:
    simulation = cluster(kind, 30, nodes_count=2, policy=policy)
    old = {pod.uid for pod in victims(simulation.snapshot())}
    preempt(simulation, 5)
    simulation.advance(simulation.now + 20 * SECOND)
    before = victims(simulation.snapshot())
    assert {pod.uid for pod in before} > old
    simulation.drain()
    assert run(simulation, MINUTE) == []
    after = victims(simulation.snapshot())
    assert after == [pod for pod in before if pod.uid not in old]
    crews = [crew for key, crew in simulation._world.groups.items() if "preemptor" not in key]
    assert sum(crew.with_started_containers for crew in crews) == len(after) == len(old)
    assert [(crew.terminating, crew.missing, crew.without_node) for crew in crews] == [(0, 0, 0)] * len(crews)
    if kind != "Deployment":
        assert [line.split()[1] for line in run(simulation, 2 * HOUR)] == ["finished"]


def test_an_old_pod_on_a_node_that_fails_is_nobodys_loss() -> None:
    simulation = cluster("Job", 30, nodes_count=2)
    preempt(simulation, 5)
    simulation.advance(simulation.now + 20 * SECOND)
    simulation.drain()
    simulation.submit(FailNode("n1"))
    assert run(simulation, MINUTE) == ["1:20 node-down n1"]
    assert [pod.node for pod in victims(simulation.snapshot())] == ["n2", "n2"]


class Range(NamedTuple):
    """Seconds after the eviction, or after the grace period that the kind waits for."""

    least: float
    most: float


def between(after: float, *steps: LatencyStep) -> Range:
    """So long after the eviction, and then the steps of the controllers, one after the other."""
    return Range(after, after + sum(MEASURED.distribution(step).max for step in steps) / SECOND)


RANGES = {
    # The job is suspended, its status says that no pod is active, Kueue notices.
    **dict.fromkeys(
        ("Job", "JobSet", "PyTorchJob", "RayJob", "Deployment"),
        between(0, "job_suspend", "status_update", "workload_reconcile"),
    ),
    # The job is suspended, its pods are deleted and end, Kueue notices.
    **dict.fromkeys(
        ("PodGroup", "StatefulSet", "MPIJob"), between(30, "job_suspend", "pod_deletion", "workload_reconcile")
    ),
    "RayCluster": between(32, "job_suspend", "pod_deletion", "workload_reconcile"),
    # The AppWrapper controller looks every 5 s.
    "AppWrapper": Range(35, 35),
}


@pytest.mark.parametrize("kind", RANGES)
def test_with_the_measured_latencies_every_time_lies_in_the_range_of_the_rule(kind: str) -> None:
    releases = []
    for seed in range(20):
        simulation = cluster(kind, 30, policy=LATENT, seed=seed)
        preempt(simulation)
        seen = watch(simulation, 2 * MINUTE)
        assert None not in (seen.released, seen.admitted, seen.running, seen.gone), seed
        assert seen.released is not None
        assert seen.admitted is not None
        assert seen.running is not None
        assert seen.gone is not None
        releases.append(seen.released)
        assert RANGES[kind].least <= seen.released <= RANGES[kind].most, seed
        assert seen.admitted == seen.released, seed
        gone = between({"MPIJob": 60, "RayCluster": 32}.get(kind, 30), "job_suspend", "pod_deletion")
        assert gone.least < seen.gone <= gone.most, seed
        # Pods that were made while the old ones terminated are bound when these are gone.
        first = max(seen.gone, seen.admitted)
        makes: tuple[LatencyStep, ...] = () if seen.admitted < seen.gone - 2.1 else ("job_unsuspend", "pod_creation")
        assert first < seen.running <= between(first, *makes, "bind", "start").most, seed
    if RANGES[kind].least == 0:
        assert 0.9 < median(releases) < 2


MOMENTS = (0, SECOND // 2, 3 * SECOND, 9 * SECOND, 31 * SECOND, 33 * SECOND)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment / SECOND:g}s")
@pytest.mark.parametrize("kind", KINDS)
def test_forks_and_saved_simulations_go_on_as_the_original_does(kind: str, moment: Span) -> None:
    original = cluster(kind, 30, nodes_count=2, policy=LATENT)
    preempt(original, 5)
    original.advance(original.now + moment)
    original.drain()
    fork, loaded = original.fork(), Simulation.load(original.save())
    for simulation in (original, fork, loaded):
        simulation.advance(simulation.now + HOUR)
    assert contents(fork.snapshot()) == contents(loaded.snapshot()) == contents(original.snapshot())
    assert fork.drain() == loaded.drain() == original.drain()


@pytest.mark.parametrize("policy", [USUAL, LATENT], ids=["no latencies", "measured latencies"])
@pytest.mark.parametrize("moment", [0, SECOND // 2, 3 * SECOND, 20 * SECOND], ids=lambda at: f"{at / SECOND:g}s")
@pytest.mark.parametrize("kind", KINDS)
def test_a_simulation_of_a_snapshot_releases_the_quota_and_the_nodes_at_the_same_times(
    kind: str, moment: Span, policy: SimPolicy
) -> None:
    original = cluster(kind, 30, policy=policy)
    preempt(original)
    original.advance(original.now + moment)
    twin = Simulation.from_snapshot(original.snapshot(), policy=policy, seed=original.seed)
    wanted, found = watch(original, 2 * MINUTE), watch(twin, 2 * MINUTE)
    assert (found.released, found.gone) == (wanted.released, wanted.gone)
    if policy is USUAL:
        assert found == wanted
