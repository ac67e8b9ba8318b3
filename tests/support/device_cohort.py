"""A cohort of two teams on a node whose four GPUs are divided, shared or claimed: a scenario for tests of answers."""

from typing import Any

import yaml

from gpuconsole.model.clock import MINUTE, Span
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.insight.test_device_units import GPU, KINDS, QUEUE, Kind

Manifest = dict[str, Any]
EIGHT = "all-3g.40gb"
"""Two instances on each of four GPUs of 80 GB."""
API = "kueue.x-k8s.io/v1beta2"
DRIVER = "gpu.example.com"


def job(team: str, name: str, kind: Kind, pods: int = 1, *, each: int = 1, priority: str = "") -> Manifest:
    """A Job of a team with so many pods, each of which wants one unit, or `each` of them."""
    container: Manifest = {"name": "main", "image": "example.com/work:1", "resources": {"requests": {"cpu": "1"}}}
    spec: Manifest = {"restartPolicy": "Never", "containers": [container]}
    if kind.sharing:
        container["resources"]["limits"] = {kind.resource: str(each)}
    else:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    labels = {QUEUE: "lq"} | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": team,
            "labels": labels,
            "annotations": {"gpuconsole.io/duration": "10h"},
        },
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }


def _queues(team: str, kind: Kind) -> list[Manifest]:
    resources = [{"name": kind.resource, "nominalQuota": "4"}, {"name": "cpu", "nominalQuota": "32"}]
    group = {
        "coveredResources": [kind.resource, "cpu"],
        "flavors": [{"name": "a100", "resources": resources}],
    }
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    spec = {
        "namespaceSelector": {},
        "cohortName": "org",
        "resourceGroups": [group],
        "preemption": preemption,
    }
    door = {"name": "lq", "namespace": team}
    return [
        {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": f"cq-{team}"}, "spec": spec},
        {"apiVersion": API, "kind": "LocalQueue", "metadata": door, "spec": {"clusterQueue": f"cq-{team}"}},
    ]


def _node(kind: Kind) -> Manifest:
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"} | ({GPU: "4"} if kind.sharing else {})
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "kubernetes.io/hostname": "n1"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": labels},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def _claims() -> list[Manifest]:
    api = "resource.k8s.io/v1"
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(8)]
    return [
        {"apiVersion": api, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}},
        *(
            {
                "apiVersion": api,
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "one", "namespace": team},
                "spec": {"spec": {"devices": {"requests": [request]}}},
            }
            for team in ("a", "b")
        ),
        {
            "apiVersion": api,
            "kind": "ResourceSlice",
            "metadata": {"name": "n1-gpus"},
            "spec": {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices},
        },
    ]


def document(name: str, *steps: Manifest) -> Manifest:
    """A scenario: team b runs `wide` on eight units, four of which a lends, before the steps."""
    kind = KINDS[name]
    engine: Manifest = {"admission": "Kueue"}
    if kind.sharing:
        engine["sharing"] = kind.sharing
    else:
        mapping = {"name": kind.resource, "deviceClassNames": [DRIVER]}
        engine["kueueConfig"] = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "resources": {"deviceClassMappings": [mapping]},
        }
    flavor = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": {}}
    high = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000}
    claims = [] if kind.sharing else _claims()
    objects = [_node(kind), flavor, high, *_queues("a", kind), *_queues("b", kind), *claims]
    return {"engine": engine, "objects": objects, "steps": [{"create": [job("b", "wide", kind, 8)]}, *steps]}


def lent(name: str, *steps: Manifest, after: Span = 60 * MINUTE) -> Simulation:
    """The scenario run for an hour, or for `after`."""
    simulation = build_simulation(load_scenario([document(name, *steps)]))
    simulation.advance(simulation.now + after)
    return simulation


def as_yaml(name: str, *steps: Manifest) -> str:
    """The scenario as a file."""
    return yaml.safe_dump(document(name, *steps))
