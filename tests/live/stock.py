"""What the throw-away cluster is filled with: GPU nodes, queues, jobs, and, in bulk, pods and Workloads.

`fill` writes past the API server, straight into etcd: thousands of objects a second, which its watches then see.
"""

import base64
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
import msgspec
import yaml

from tests.live.api import Api, Manifest, path_of, until

BATCH = 512
"""Objects that are written at once."""
BORN = "2026-11-02T08:00:00Z"
GPU = "nvidia.com/gpu"
MODELS = {
    "h100": ("NVIDIA-H100-80GB-HBM3", 81559),
    "a100": ("NVIDIA-A100-SXM4-80GB", 81920),
}
"""Short name → gpu.product and gpu.memory, as GPU feature discovery labels nodes."""
FOREVER = 24 * 3600 * 1000
_REGISTRY = {
    "Node": "minions",
    "Pod": "pods",
    "Namespace": "namespaces",
    "Workload": "kueue.x-k8s.io/workloads",
}


def namespace(api: Api, name: str) -> None:
    """A namespace in which pods can be made: its default service account exists."""
    if not api.exists(f"/api/v1/namespaces/{name}"):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    until(lambda: api.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"))


def node(name: str, *, model: str = "h100", gpus: int = 8, zone: str = "zone-a", kubelet: int = 0) -> Manifest:
    """A node that KWOK keeps alive; `kubelet` is the port at which KWOK tells what its pods print."""
    product, memory = MODELS[model]
    offers = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: str(gpus), "ephemeral-storage": "1Ti"}
    condition = {"lastHeartbeatTime": BORN, "lastTransitionTime": BORN, "type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(
            "",
            name,
            {
                "type": "kwok",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": zone,
                "gpu": model,
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.memory": str(memory),
                "nvidia.com/gpu.count": str(gpus),
            },
        ),
        "spec": {},
        "status": {
            "phase": "Running",
            "capacity": offers,
            "allocatable": offers,
            "conditions": [condition | {"reason": "KubeletReady", "message": "kubelet is posting ready status"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "6.8",
                "osImage": "fake",
                "containerRuntimeVersion": "containerd://2.1",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def gpu_nodes(count: int, *, model: str = "h100", gpus: int = 8, kubelet: int = 0) -> Iterator[Manifest]:
    """Nodes `h100-0000` and so on."""
    for number in range(count):
        zone = f"zone-{'abc'[number % 3]}"
        yield node(f"{model}-{number:04}", model=model, gpus=gpus, zone=zone, kubelet=kubelet)


def pod_template(
    gpus: int, *, seconds: float | None = None, grace: int | None = None, labels: dict[str, str] | None = None
) -> Manifest:
    """Pods that ask for GPUs and work for so long; without a time they work until somebody stops them.

    With a grace period, in seconds, they terminate at its end; without one they terminate within a second.
    """
    annotations = {}
    if seconds is not None:
        annotations = {
            f"pod-complete.stage.kwok.x-k8s.io/{name}": f"{int(seconds * 1000)}ms" for name in ("delay", "jitter-delay")
        }
    if grace is not None:
        # KWOK waits for this long, but not beyond `deletionTimestamp`, which is the end of the grace period.
        annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = f"{grace}s"
    amounts = {"cpu": "1", "memory": "1Gi"} | ({GPU: str(gpus)} if gpus else {})
    container = {"name": "main", "image": "train:1", "resources": {"requests": amounts, "limits": {**amounts}}}
    return {
        "metadata": {"annotations": annotations, "labels": labels or {}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "terminationGracePeriodSeconds": 1 if grace is None else grace,
        },
    }


def job(
    name: str,
    queue: str = "",
    *,
    namespace: str = "team-a",
    pods: int = 1,
    gpus: int = 1,
    seconds: float | None = None,
    grace: int | None = None,
    priority_class: str = "",
) -> Manifest:
    """A Job, suspended and in a LocalQueue where one is named; `seconds` and `grace` as for `pod_template`."""
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    if priority_class:
        labels["kueue.x-k8s.io/priority-class"] = priority_class
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "suspend": bool(queue),
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": pod_template(gpus, seconds=seconds, grace=grace),
        },
    }


def cron_job(name: str, schedule: str, queue: str, *, gpus: int) -> Manifest:
    """A CronJob whose Jobs are queued."""
    made = job(name, queue, gpus=gpus)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
    spec = {"schedule": schedule, "timeZone": "Etc/UTC", "jobTemplate": template}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": _metadata("team-a", name, {}), "spec": spec}


KUEUE = "kueue.x-k8s.io/v1beta2"


def flavor(name: str, labels: dict[str, str] | None = None) -> Manifest:
    """A flavor of the nodes with these labels; without any, of the nodes of the GPU model that it is named after."""
    return {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels or {"gpu": name}},
    }


def cluster_queue(name: str, quotas: dict[str, int], *, cohort: str = "", **spec: Any) -> Manifest:
    """A ClusterQueue with GPUs (and more CPU and memory than anybody wants) of each flavor."""
    flavors = [
        {
            "name": flavor,
            "resources": [
                {"name": "cpu", "nominalQuota": "100k"},
                {"name": "memory", "nominalQuota": "1Pi"},
                {"name": GPU, "nominalQuota": str(gpus)},
            ],
        }
        for flavor, gpus in quotas.items()
    ]
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu", "memory", GPU], "flavors": flavors}],
            **({"cohortName": cohort} if cohort else {}),
            **spec,
        },
    }


def local_queue(name: str, cluster_queue: str, *, namespace: str = "team-a") -> Manifest:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    }


def priority_class(name: str, value: int) -> Manifest:
    return {
        "apiVersion": KUEUE,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": "",
    }


def running_pod(name: str, node: str, *, namespace: str, gpus: int, labels: dict[str, str]) -> Manifest:
    """A pod that runs on a node already."""
    template = pod_template(gpus)
    spec = {**template["spec"], "nodeName": node, "schedulerName": "default-scheduler", "dnsPolicy": "ClusterFirst"}
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": BORN}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    state = {"running": {"startedAt": BORN}}
    status = {
        "phase": "Running",
        "conditions": ready,
        "startTime": BORN,
        "podIP": "10.0.0.9",
        "hostIP": "127.0.0.1",
        "qosClass": "Guaranteed",
        "containerStatuses": [
            {"name": "main", "image": "train:1", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(namespace, name, labels),
        "spec": spec,
        "status": status,
    }


def workload(
    name: str, queue: str, *, namespace: str, gpus: int, priority: int = 0, admitted: tuple[str, str] | None = None
) -> Manifest:
    """A Workload of one pod, waiting, or admitted by (ClusterQueue, flavor)."""
    template = pod_template(gpus)
    conditions: list[Manifest] = []
    status: Manifest = {"conditions": conditions}
    if admitted is not None:
        cluster_queue, flavor = admitted
        told = {"lastTransitionTime": BORN, "status": "True", "observedGeneration": 1}
        conditions.append(
            told
            | {
                "type": "QuotaReserved",
                "reason": "QuotaReserved",
                "message": f"Quota reserved in ClusterQueue {cluster_queue}",
            }
        )
        conditions.append(told | {"type": "Admitted", "reason": "Admitted", "message": "The workload is admitted"})
        status["admission"] = {
            "clusterQueue": cluster_queue,
            "podSetAssignments": [
                {
                    "name": "main",
                    "count": 1,
                    "flavors": {"cpu": flavor, "memory": flavor, GPU: flavor},
                    "resourceUsage": {"cpu": "1", "memory": "1Gi", GPU: str(gpus)},
                }
            ],
        }
    else:
        message = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100"
        conditions.append(
            {
                "lastTransitionTime": BORN,
                "status": "False",
                "observedGeneration": 1,
                "type": "QuotaReserved",
                "reason": "Pending",
                "message": f"{message}, {gpus} more needed",
            }
        )
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": _metadata(namespace, name, {}) | {"generation": 1},
        "spec": {
            "active": True,
            "priority": priority,
            "queueName": queue,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": template["spec"]}}],
        },
        "status": status,
    }


def fill(etcd: str, manifests: Iterable[Manifest]) -> int:
    """Write objects into etcd as the API server would have stored them; the number of them."""
    written = 0
    with httpx.Client(base_url=etcd, timeout=60, trust_env=False) as client:
        for batch in _batched(manifests):
            puts = [{"requestPut": {"key": _key(one), "value": _encoded(msgspec.json.encode(one))}} for one in batch]
            client.post("/v3/kv/txn", content=msgspec.json.encode({"success": puts})).raise_for_status()
            written += len(batch)
    return written


def kwok_configuration(stages: Path, folder: Path) -> str:
    """KWOK's stages without their delays: a pod runs at once, and ends only when it says so itself.

    As its kubelet, KWOK tells logs, runs what is executed in a pod in a folder of ours, and sends back what comes to
    the port of one.
    """
    documents = []
    for path in sorted(stages.glob("*.yaml")):
        stage = yaml.safe_load(path.read_text())
        delay = stage["spec"].get("delay", {})
        if stage["metadata"]["name"] == "pod-complete":
            delay |= {"durationMilliseconds": FOREVER, "jitterDurationMilliseconds": FOREVER}
        elif stage["spec"]["resourceRef"]["kind"] == "Pod":
            delay |= {"durationMilliseconds": 0}
            delay.pop("jitterDurationMilliseconds", None)
        documents.append(stage)
    log = folder / "pod-output.log"
    log.write_text(_output())
    inside = folder / "inside-a-pod"
    inside.mkdir()
    documents += [
        _kubelet("ClusterLogs", logs=[{"logsFile": str(log)}]),
        _kubelet("ClusterExec", execs=[{"local": {"workDir": str(inside)}}]),
        _kubelet("ClusterPortForward", forwards=[{"command": ["cat"]}]),
    ]
    return yaml.safe_dump_all(documents)


def _kubelet(kind: str, **spec: Any) -> Manifest:
    """How KWOK answers as the kubelet of all its nodes."""
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "all"}, "spec": spec}


def _output() -> str:
    """What every pod prints, as a container runtime keeps it."""
    return "".join(f"2026-11-02T08:00:{second:02}.000000000Z stdout F step {second}\n" for second in range(20))


def _metadata(namespace: str, name: str, labels: dict[str, str]) -> Manifest:
    uid = str(uuid5(NAMESPACE_URL, f"{namespace}/{name}"))
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, "uid": uid, "creationTimestamp": BORN, "labels": labels}


def _key(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    place = [part for part in (metadata.get("namespace"), metadata["name"]) if part]
    return _encoded("/".join(["/registry", _REGISTRY[manifest["kind"]], *place]).encode())


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _batched(manifests: Iterable[Manifest]) -> Iterator[tuple[Manifest, ...]]:
    iterator = iter(manifests)
    while batch := tuple(itertools.islice(iterator, BATCH)):
        yield batch


@contextmanager
def queues(api: Api, namespace: str = "team-a") -> Iterator[Api]:
    """Two ClusterQueues of a cohort, cq-a with 16 GPUs and cq-b with 8, and a LocalQueue of each; gone afterwards."""
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    things = [
        flavor("h100"),
        priority_class("high", 1000),
        priority_class("low", 10),
        cluster_queue("cq-a", {"h100": 16}, cohort="research", preemption=preemption),
        cluster_queue("cq-b", {"h100": 8}, cohort="research", preemption=preemption),
        local_queue("lq-a", "cq-a", namespace=namespace),
        local_queue("lq-b", "cq-b", namespace=namespace),
    ]
    api.apply(*things)
    try:
        yield api
    finally:
        sweep(api, namespace)
        for thing in reversed(things):
            api.delete(path_of(thing))


def sweep(api: Api, namespace: str) -> None:
    """Delete all jobs, Workloads and pods of a namespace, and wait until they are gone."""
    kinds = {
        "jobs": f"/apis/batch/v1/namespaces/{namespace}/jobs",
        "workloads": f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads",
        "pods": f"/api/v1/namespaces/{namespace}/pods",
    }
    for path in kinds.values():
        api.call("DELETE", f"{path}?propagationPolicy=Background")
    until(lambda: not any(api.items(path) for path in kinds.values()))
