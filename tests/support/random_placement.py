"""Random clusters in which pods wait for nodes: gangs by kube-scheduler, Volcano and KAI, and nobody who queues."""

from random import Random
from typing import Any

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.support.engine_clusters import GPU

MAKES: tuple[dict[str, Any], ...] = ({}, {"engine": "Volcano"}, {"engine": "KAI"})


def random_places(seed: int) -> Simulation:
    """A few jobs of all sizes, some of which wait."""
    random = Random(seed)
    placement = random.choice(MAKES)
    engine = placement.get("engine", "")
    things = [_node(random, f"n{number}") for number in range(random.randint(1, 4))]
    things += _queues(engine)
    things += [_job(random, f"j{number}", engine) for number in range(random.randint(3, 6))]
    document = {"engine": {"admission": "none", "placement": placement}, "seed": 1, "objects": things}
    simulation = build_simulation(load_scenario([document]))
    simulation.advance(simulation.now + 2 * MINUTE)
    return simulation


def waiting(simulation: Simulation) -> list[str]:
    """The jobs none of whose pods has a node."""
    snapshot = simulation.snapshot()
    placed = {pod.job for pod in snapshot.pods.all() if pod.node}
    return sorted(job.key for job in snapshot.jobs.all() if job.key not in placed and not job.ended)


def _node(random: Random, name: str) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "256Gi", GPU: str(random.choice((2, 4))), "pods": "110"}
    taints = [{"key": "spare", "effect": "NoSchedule"}] if random.random() < 0.2 else []
    spec = {"taints": taints, "unschedulable": random.random() < 0.15}
    labels = {"kubernetes.io/hostname": name, "model": random.choice("ab")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": room},
    }


def _queues(engine: str) -> list[dict[str, Any]]:
    if engine == "Volcano":
        group, names = "scheduling.volcano.sh/v1beta1", {"default": {"weight": 1}}
        return [_queue(group, name, spec) for name, spec in names.items()]
    if engine == "KAI":
        unbound = {"quota": -1, "overQuotaWeight": 1, "limit": -1}
        endless = {resource: unbound for resource in ("gpu", "cpu", "memory")}
        specs: dict[str, dict[str, Any]] = {
            "org": {"resources": endless},
            "team": {"resources": endless, "parentQueue": "org"},
        }
        return [_queue("scheduling.run.ai/v2", name, spec) for name, spec in specs.items()]
    return []


def _queue(version: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _job(random: Random, name: str, engine: str) -> dict[str, Any]:
    count, each = random.choice((1, 2, 3, 5)), random.choice((1, 1, 2, 3))
    container = {"name": "main", "image": "a/b:1", "resources": {"limits": {GPU: str(each)}}}
    selector = {"nodeSelector": {"model": "b"}} if random.random() < 0.2 else {}
    pod = {"spec": {"containers": [container], **selector}, "metadata": {"labels": {"kai.scheduler/queue": "team"}}}
    meta = {"name": name, "annotations": {"gpuconsole.io/duration": f"{5 * HOUR // MINUTE}m"}}
    if engine == "Volcano":
        task = {"name": "w", "replicas": count, "template": pod}
        spec = {"schedulerName": "volcano", "queue": "default", "minAvailable": count, "tasks": [task]}
        return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta, "spec": spec}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": count, "template": pod}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
