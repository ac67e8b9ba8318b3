"""Small clusters of every make: who admits, who places, who provides nodes, how GPUs are shared; and random lives."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.commands import (
    Command,
    Cordon,
    Delete,
    Drain,
    FailNode,
    FailPod,
    Finish,
    InterruptSpot,
    Requeue,
    RestoreNode,
    SetPriority,
    SetQuota,
    Submit,
)
from gpuconsole.model.manifests import decode_objects
from gpuconsole.model.objects import Object
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import Scenario, build_simulation, load_scenario

Deed = Callable[[Simulation], None]
Life = list[tuple[Span, Deed]]
GPU, SLICE, HALF = "nvidia.com/gpu", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
_PRODUCT = "NVIDIA-A100-SXM4-40GB"
_CATALOGUE = {
    "zones": ["a", "b"],
    "gpus": {"a100": {"product": _PRODUCT, "memory": "40Gi"}},
    "types": {
        f"{family}.{gpus}": {
            "cpu": 16 * gpus,
            "memory": f"{64 * gpus}Gi",
            "gpus": gpus,
            "gpu": "a100",
            "onDemand": 2.5 * gpus,
            "spot": {"a": 1.0 * gpus, "b": 1.1 * gpus},
            "interrupted": 20,
        }
        for family, gpus in (("p", 2), ("p", 4))
    },
}
_SPOT = {"interruptions": 500, "criticalPriority": 900}
PREEMPTING = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
    arguments: {overcommit-factor: 3.0}
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
PLACEMENTS: Mapping[str, Mapping[str, Any]] = {
    "kube-scheduler": {},
    "a profile of kube-scheduler": {"profile": "default-scheduler"},
    "Volcano": {"engine": "Volcano", "conf": PREEMPTING},
    "KAI": {"engine": "KAI"},
}
CAPACITIES: Mapping[str, Mapping[str, Any]] = {
    "fixed": {},
    "karpenter": {"kind": "karpenter", "catalogue": _CATALOGUE, "spot": _SPOT, "unavailable": ["p.4/b/spot"]},
    "cluster-autoscaler": {
        "kind": "cluster-autoscaler",
        "catalogue": _CATALOGUE,
        "spot": _SPOT,
        "groups": [
            {"name": "spot", "instanceType": "p.4", "capacityType": "spot", "max": 2},
            {"name": "sure", "instanceType": "p.2", "max": 3, "size": 1},
        ],
    },
}
SHARINGS: Mapping[str, Any] = {
    "whole": [],
    "MIG": {"mig": {"config": "all-balanced"}},
    "time-slicing": {"timeSlicing": {"resources": [{"replicas": 3}]}},
}


class Make(Struct, frozen=True):
    """Which engines a cluster has."""

    admission: str
    placement: str
    capacity: str
    sharing: str
    latencies: str = "none"

    def __str__(self) -> str:
        engines = f"{self.admission}, {self.placement}, {self.capacity}, {self.sharing}"
        return engines if self.latencies == "none" else f"{engines}, {self.latencies} latencies"


EVERY = [Make(*names) for names in product(("none", "Kueue"), PLACEMENTS, CAPACITIES, SHARINGS)]
EVERY_WITH_LATENCIES = [replace(make, latencies="measured") for make in EVERY]
MAKES = st.sampled_from([*EVERY, *EVERY_WITH_LATENCIES])


def _class(name: str, value: int) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": _PRODUCT, "kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", GPU: "4", "pods": "110"}},
    }


def _kai_queue(name: str, parent: str = "") -> dict[str, Any]:
    free = {"quota": -1, "overQuotaWeight": 1, "limit": -1}
    resources = {"gpu": {"quota": 4 if parent else 8, "overQuotaWeight": 1, "limit": -1}, "cpu": free, "memory": free}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _team(name: str) -> list[dict[str, Any]]:
    quotas = [{"name": resource, "nominalQuota": 4} for resource in (GPU, SLICE, HALF)]
    flavor = {"name": "a100", "resources": quotas}
    return [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "cohortName": "org",
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
                "resourceGroups": [{"coveredResources": [GPU, SLICE, HALF], "flavors": [flavor]}],
            },
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": name},
            "spec": {"clusterQueue": name},
        },
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1, "reclaimable": True},
            "status": {"state": "Open"},
        },
        _kai_queue(name, "org"),
    ]


_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "pool"},
    "spec": {
        "limits": {GPU: 12},
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
                ],
            }
        },
        "disruption": {"consolidateAfter": "2m", "budgets": [{"nodes": "100%"}]},
    },
}


def scenario(make: Make) -> Scenario:
    """A cluster of this make: two teams in a cohort, three classes of priority, three nodes where they are fixed."""
    objects: list[dict[str, Any]] = [
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "a100"}},
        *_team("red"),
        *_team("blue"),
        _kai_queue("org"),
        *(_class(name, value) for name, value in (("high", 1000), ("middle", 100), ("low", 10))),
    ]
    if make.capacity == "fixed":
        objects += [_node(name) for name in ("n1", "n2", "n3")]
    elif make.capacity == "karpenter":
        objects.append(_POOL)
    engine = {
        "admission": make.admission,
        "placement": PLACEMENTS[make.placement],
        "capacity": CAPACITIES[make.capacity],
        "sharing": SHARINGS[make.sharing],
    }
    document = {"engine": engine, "objects": objects, "durations": "15m", "latencies": make.latencies}
    return load_scenario([document])


_SCENARIOS: dict[Make, Scenario] = {}


def fresh(make: Make, seed: int = 3) -> Simulation:
    """A simulation of this make, at its beginning."""
    return build_simulation(_known(make), seed=seed)


def _known(make: Make) -> Scenario:
    if make not in _SCENARIOS:
        _SCENARIOS[make] = scenario(make)
    return _SCENARIOS[make]


class Asked(Struct, frozen=True, kw_only=True):
    """A job that somebody sends, whatever the engines are called that look at it."""

    name: str
    team: str
    kind: str
    gpus: int
    pods: int
    minutes: int
    checkpoint: int
    priority: str
    least: int

    def document(self, make: Make) -> dict[str, Any]:
        """The manifest of the job in a cluster of this make."""
        notes = {"gpuconsole.io/duration": f"{self.minutes}m"}
        if self.checkpoint:
            notes["gpuconsole.io/checkpoint-interval"] = f"{self.checkpoint}m"
        labels = {"kai.scheduler/queue": self.team}
        if make.admission == "Kueue":
            labels["kueue.x-k8s.io/queue-name"] = "lq"
        meta = {"name": self.name, "namespace": self.team, "labels": labels, "annotations": notes}
        template = {"metadata": {"labels": labels}, "spec": self._pod(make)}
        match self.kind:
            case "PyTorchJob":
                replicas = {"Worker": {"replicas": self.pods, "template": template}}
                spec: dict[str, Any] = {"pytorchReplicaSpecs": replicas}
                return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
            case "VolcanoJob":
                spec = {
                    "schedulerName": "volcano",
                    "queue": self.team,
                    "minAvailable": min(self.least, self.pods),
                    "priorityClassName": self.priority,
                    "policies": [
                        {"event": "PodEvicted", "action": "RestartJob", "timeout": "90s"},
                        {"event": "PodFailed", "action": "RestartTask", "timeout": "300s"},
                    ],
                    "tasks": [{"name": "w", "replicas": self.pods, "template": template}],
                }
                return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta, "spec": spec}
            case _:
                spec = {"parallelism": self.pods, "completions": self.pods, "template": template}
                return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}

    def _pod(self, make: Make) -> dict[str, Any]:
        resource = GPU
        if make.sharing == "MIG":
            resource = SLICE if self.gpus % 2 else HALF
        count = 1 if make.sharing == "MIG" else self.gpus
        limits = {resource: str(count)}
        return {
            "restartPolicy": "Never",
            "priorityClassName": self.priority,
            "terminationGracePeriodSeconds": 20,
            "containers": [{"name": "main", "image": "example.com/work:1", "resources": {"limits": limits}}],
        }

    def objects(self, make: Make) -> tuple[Object, ...]:
        found, wrong = decode_objects([self.document(make)], now=0)
        assert not wrong
        return found


NUMBERS = st.integers(0, 9)
JOBS = st.builds(
    Asked,
    name=st.sampled_from("abcdefgh"),
    team=st.sampled_from(["red", "blue"]),
    kind=st.sampled_from(["Job", "PyTorchJob", "VolcanoJob"]),
    gpus=st.sampled_from([1, 1, 2, 4]),
    pods=st.integers(1, 4),
    minutes=st.sampled_from([3, 20, 70]),
    checkpoint=st.sampled_from([0, 0, 4]),
    priority=st.sampled_from(["low", "low", "middle", "high"]),
    least=st.integers(1, 4),
)
SPANS = st.sampled_from([0, SECOND // 3, SECOND, 20 * SECOND, 90 * SECOND, 5 * MINUTE, 16 * MINUTE])


def send(make: Make, job: Asked) -> Deed:
    """Submit a job. Volcano's jobs only go where Volcano is."""
    fitting = job if job.kind != "VolcanoJob" or make.placement == "Volcano" else _plain(job)
    return lambda simulation: simulation.submit(Submit(fitting.objects(make)))


def _plain(job: Asked) -> Asked:
    fields = {name: getattr(job, name) for name in Asked.__struct_fields__}
    return Asked(**{**fields, "kind": "Job"})


def about(table: str, number: int, order: Callable[[str], Command]) -> Deed:
    """A command about one of the objects that are there when it is given."""

    def deed(simulation: Simulation) -> None:
        keys = list(getattr(simulation.snapshot(), table))
        if keys:
            simulation.submit(order(keys[number % len(keys)]))

    return deed


def _chosen(table: str, *orders: Callable[[str], Command]) -> st.SearchStrategy[Deed]:
    return st.builds(about, st.just(table), NUMBERS, st.sampled_from(orders))


def trouble() -> st.SearchStrategy[Deed]:
    """What happens to a cluster without anybody ending work by order."""
    return st.one_of(
        _chosen("nodes", FailNode, RestoreNode, InterruptSpot, Drain, lambda name: Cordon(name, False)),
        _chosen("pods", FailPod, lambda key: Delete("pods", key)),
        _chosen("workloads", Requeue, lambda key: SetPriority(key, 700)),
        _chosen("cluster_queues", lambda name: SetQuota(name, "a100", GPU, 2)),
    )


def deeds(make: Make, *, forced: bool = True) -> st.SearchStrategy[Deed]:
    """Anything that may be done; `forced` also ends and deletes jobs."""
    sent = JOBS.map(lambda job: send(make, job))
    ended = _chosen("jobs", Finish, lambda key: Delete("jobs", key))
    return st.one_of(sent, sent, sent, trouble(), *([ended] if forced else []))


def lives(make: Make, *, forced: bool = True, most: int = 8) -> st.SearchStrategy[Life]:
    """What happens in a cluster of this make, with the time that passes before each deed."""
    return st.lists(st.tuples(SPANS, deeds(make, forced=forced)), min_size=1, max_size=most)


def live(simulation: Simulation, life: Life) -> None:
    """Let time pass and do each deed."""
    for span, deed in life:
        simulation.advance(simulation.now + span)
        deed(simulation)
