"""Job templates of the submit form: default sizes, and one function per kind from the request to its manifest.

To add a template, write such a function, and add one line to `TEMPLATES`.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

import yaml
from msgspec import Struct

from gpuconsole.model.clock import HOUR, MINUTE, Span, format_exactly
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit
from gpuconsole.model.gpus.mig_reconfiguration import part_of_gpu
from gpuconsole.model.resources import CPU, GPU, MEMORY, is_mig

Manifest = dict[str, Any]

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
DURATION = "gpuconsole.io/duration"
CHECKPOINT = "gpuconsole.io/checkpoint-interval"

CPU_PER_GPU = 8
MEMORY_PER_GPU = 64
CLAIM = "devices"
"""Name of the device claim in the pod spec and of its request."""
_RAY = "rayproject/ray:latest"
_MPI = "mpioperator/mpi-pi:latest"


class JobTemplateRequest(Struct, frozen=True, kw_only=True):
    """What the operator requests in the submit form. `covered` are the resources for which the queue has quota."""

    namespace: str
    name: str
    queue: str = ""
    """LocalQueue; empty for a job that no queue manages."""
    priority_class: str = ""
    """A WorkloadPriorityClass, or a PriorityClass where there is no queue."""
    gpus: int = 1
    """Devices of one pod: GPUs, or whatever `resource` or `device_class` stands for."""
    pods: int = 1
    duration: Span | None = None
    checkpoint: Span | None = None
    resource: str = GPU
    """Extended resource that is requested; empty where devices of a class are claimed."""
    device_class: str = ""
    """DeviceClass whose devices each pod claims by a ResourceClaimTemplate (resource.k8s.io/v1)."""
    covered: frozenset[str] = frozenset()


def _metadata(request: JobTemplateRequest) -> Manifest:
    labels = {}
    if request.queue:
        labels[QUEUE_LABEL] = request.queue
        if request.priority_class:
            labels[PRIORITY_LABEL] = request.priority_class
    annotations = {}
    if request.duration is not None:
        annotations[DURATION] = format_exactly(request.duration)
    if request.checkpoint is not None:
        annotations[CHECKPOINT] = format_exactly(request.checkpoint)
    metadata: Manifest = {"name": request.name, "namespace": request.namespace}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return metadata


def _container(request: JobTemplateRequest, name: str, image: str) -> Manifest:
    requests: dict[str, str] = {}
    units = float(max(1, request.gpus))
    if is_mig(request.resource):
        units *= part_of_gpu(request.resource, {})
    if CPU in request.covered:
        requests[CPU] = str(ceil(CPU_PER_GPU * units))
    if MEMORY in request.covered:
        requests[MEMORY] = f"{ceil(MEMORY_PER_GPU * units)}Gi"
    limits = {request.resource: str(request.gpus)} if request.gpus and request.resource else {}
    requests.update(limits)
    resources: Manifest = {"requests": requests, "limits": limits}
    if claims_devices(request):
        resources["claims"] = [{"name": CLAIM}]
    return {"name": name, "image": image, "resources": resources}


def claims_devices(request: JobTemplateRequest) -> bool:
    """True if pods claim devices of a class (DRA) instead of requesting an extended resource."""
    return bool(request.device_class and request.gpus)


def claim_template(request: JobTemplateRequest) -> Manifest:
    """The ResourceClaimTemplate by which each pod of the job claims its devices."""
    exactly = {"deviceClassName": request.device_class, "count": request.gpus}
    devices = {"requests": [{"name": CLAIM, "exactly": exactly}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": request.name, "namespace": request.namespace},
        "spec": {"spec": {"devices": devices}},
    }


def _pod(request: JobTemplateRequest, name: str, image: str, restart: str = "Never") -> Manifest:
    spec: Manifest = {"restartPolicy": restart}
    if not request.queue and request.priority_class:
        spec["priorityClassName"] = request.priority_class
    # GPU nodes are commonly tainted so that only GPU pods land there.
    spec["tolerations"] = [{"key": _taint(request.resource), "operator": "Exists", "effect": "NoSchedule"}]
    if claims_devices(request):
        spec["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": request.name}]
    spec["containers"] = [_container(request, name, image)]
    return {"spec": spec}


def _taint(resource: str) -> str:
    """The key of the taint that keeps other pods off: NVIDIA's is `nvidia.com/gpu`, however GPUs are offered."""
    return resource if resource and not resource.startswith(GPU.removesuffix("gpu")) else GPU


def _job(request: JobTemplateRequest, name: str, image: str) -> Manifest:
    spec: Manifest = {"parallelism": request.pods, "completions": request.pods}
    if request.pods > 1:
        spec["completionMode"] = "Indexed"
    if request.queue:
        spec["suspend"] = True
    spec["template"] = _pod(request, name, image)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(request), "spec": spec}


def notebook(request: JobTemplateRequest) -> Manifest:
    """A Job of one interactive pod, a Jupyter notebook."""
    return _job(request, "notebook", "jupyter/pytorch-notebook:latest")


def training(request: JobTemplateRequest) -> Manifest:
    """A Job of one pod with the GPUs of a whole node."""
    return _job(request, "train", "pytorch/pytorch:latest")


def sweep(request: JobTemplateRequest) -> Manifest:
    """An indexed Job of many small pods."""
    return _job(request, "trial", "pytorch/pytorch:latest")


def inference(request: JobTemplateRequest) -> Manifest:
    """Replicas of a server, as a long-running Job."""
    return _job(request, "server", "vllm/vllm-openai:latest")


def _labelled(request: JobTemplateRequest, name: str, image: str) -> Manifest:
    """The pod of a service, which a selector finds by its name."""
    pod = _pod(request, name, image, "Always")
    return {"metadata": {"labels": {"app": request.name}}, **pod}


def deployment(request: JobTemplateRequest) -> Manifest:
    """Replicas of a server, spread over nodes, until they are deleted."""
    labels = {"matchLabels": {"app": request.name}}
    template = _labelled(request, "server", "vllm/vllm-openai:latest")
    apart = {"weight": 100, "podAffinityTerm": {"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}}
    template["spec"]["affinity"] = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]},
    }
    spec: Manifest = {"replicas": request.pods, "selector": labels, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(request), "spec": spec}


def stateful_set(request: JobTemplateRequest) -> Manifest:
    """Numbered servers that start one after the other and stay until they are deleted."""
    spec: Manifest = {
        "replicas": request.pods,
        "serviceName": request.name,
        "selector": {"matchLabels": {"app": request.name}},
        "template": _labelled(request, "server", "vllm/vllm-openai:latest"),
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": _metadata(request), "spec": spec}


def worker_set(request: JobTemplateRequest) -> Manifest:
    """One leader-worker group that serves a model too large for one node."""
    group: Manifest = {
        "size": request.pods,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "workerTemplate": _pod(request, "server", "vllm/vllm-openai:latest", "Always"),
    }
    spec: Manifest = {"replicas": 1, "leaderWorkerTemplate": group}
    api = "leaderworkerset.x-k8s.io/v1"
    return {"apiVersion": api, "kind": "LeaderWorkerSet", "metadata": _metadata(request), "spec": spec}


def cron_job(request: JobTemplateRequest) -> Manifest:
    """A Job that is created each night at 02:00."""
    job = _job(request, "train", "pytorch/pytorch:latest")
    meta = {key: value for key, value in job["metadata"].items() if key in ("labels", "annotations")}
    job["spec"].pop("suspend", None)
    spec: Manifest = {
        "schedule": "0 2 * * *",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"metadata": meta, "spec": job["spec"]},
    }
    own = {key: value for key, value in job["metadata"].items() if key in ("name", "namespace")}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": own, "spec": spec}


def mpi(request: JobTemplateRequest) -> Manifest:
    """An MPIJob: workers, and a launcher without GPUs that starts them and whose exit decides the job's result."""
    bare = JobTemplateRequest(namespace=request.namespace, name=request.name, gpus=0, covered=request.covered)
    replicas: Manifest = {
        "Launcher": {"replicas": 1, "template": _pod(bare, "launcher", _MPI)},
        "Worker": {"replicas": request.pods, "template": _pod(request, "worker", _MPI)},
    }
    spec: Manifest = {"mpiReplicaSpecs": replicas}
    if request.queue:
        spec = {"runPolicy": {"suspend": True}, **spec}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": _metadata(request), "spec": spec}


def train_job(request: JobTemplateRequest) -> Manifest:
    """A TrainJob that uses the Kubeflow Trainer's PyTorch runtime `torch-distributed`."""
    resources = _container(request, "node", "")["resources"]
    spec: Manifest = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": request.pods, "resourcesPerNode": resources},
    }
    if request.queue:
        spec = {"suspend": True, **spec}
    api = "trainer.kubeflow.org/v1alpha1"
    return {"apiVersion": api, "kind": "TrainJob", "metadata": _metadata(request), "spec": spec}


def ray_cluster(request: JobTemplateRequest) -> Manifest:
    """A RayCluster, which runs until it is deleted."""
    job = rayjob(request)
    spec: Manifest = {"suspend": True} if request.queue else {}
    spec |= job["spec"]["rayClusterSpec"]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": _metadata(request), "spec": spec}


def pytorch(request: JobTemplateRequest) -> Manifest:
    """A PyTorchJob with a master and workers (Kubeflow Trainer v1)."""
    pod = _pod(request, "pytorch", "pytorch/pytorch:latest")
    replicas: Manifest = {"Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": pod}}
    if request.pods > 1:
        worker = _pod(request, "pytorch", "pytorch/pytorch:latest")
        replicas["Worker"] = {"replicas": request.pods - 1, "restartPolicy": "OnFailure", "template": worker}
    spec: Manifest = {"pytorchReplicaSpecs": replicas}
    if request.queue:
        spec = {"runPolicy": {"suspend": True}, **spec}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": _metadata(request), "spec": spec}


def jobset(request: JobTemplateRequest) -> Manifest:
    """A JobSet with one replicated job whose replicas have one pod each."""
    job = {
        "parallelism": request.pods,
        "completions": request.pods,
        "backoffLimit": 0,
        "template": _pod(request, "worker", "pytorch/pytorch:latest"),
    }
    spec: Manifest = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}]}
    if request.queue:
        spec = {"suspend": True, **spec}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _metadata(request), "spec": spec}


def rayjob(request: JobTemplateRequest) -> Manifest:
    """A RayJob whose head has no GPU and whose workers do the work."""
    head = _pod(
        JobTemplateRequest(namespace=request.namespace, name=request.name, gpus=0, covered=request.covered),
        "head",
        _RAY,
    )
    group = {
        "groupName": "gpu",
        "replicas": request.pods,
        "minReplicas": request.pods,
        "maxReplicas": request.pods,
        "template": _pod(request, "worker", _RAY),
    }
    cluster = {"headGroupSpec": {"template": head}, "workerGroupSpecs": [group]}
    spec: Manifest = {"entrypoint": "python train.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    if request.queue:
        spec = {"suspend": True, **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": _metadata(request), "spec": spec}


def volcano(request: JobTemplateRequest) -> Manifest:
    """A Volcano Job: a gang, in Volcano's default queue, not in Kueue's."""
    pod = _pod(request, "worker", "pytorch/pytorch:latest", "OnFailure")
    spec: Manifest = {
        "schedulerName": "volcano",
        "minAvailable": request.pods,
        "tasks": [{"name": "worker", "replicas": request.pods, "template": pod}],
    }
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": _metadata(request), "spec": spec}


class JobTemplate(Struct, frozen=True, kw_only=True):
    """A kind of job that the form offers, with its default sizes."""

    id: str
    title: str
    build: Callable[[JobTemplateRequest], Manifest]
    gpus: int
    pods: int
    duration: Span | None = None
    """None for services, which never end."""
    checkpoint: Span | None = None

    def text(self, request: JobTemplateRequest) -> str:
        """The manifest as YAML, after the ResourceClaimTemplate if pods claim devices."""
        manifests = [claim_template(request)] if claims_devices(request) else []
        return yaml.safe_dump_all([*manifests, self.build(request)], sort_keys=False, allow_unicode=True, width=1000)

    def title_in(self, unit: DeviceUnit) -> str:
        """Return the title, with devices counted in `unit` if that is not a whole GPU."""
        return self.title.replace(WHOLE_GPU.noun, unit.noun)


TEMPLATES: tuple[JobTemplate, ...] = (
    JobTemplate(id="notebook", title="Notebook: 1 GPU", build=notebook, gpus=1, pods=1, duration=4 * HOUR),
    JobTemplate(
        id="training",
        title="Training: one pod of 8 GPUs",
        build=training,
        gpus=8,
        pods=1,
        duration=8 * HOUR,
        checkpoint=30 * MINUTE,
    ),
    JobTemplate(
        id="pytorch",
        title="Distributed: PyTorchJob 4 × 8",
        build=pytorch,
        gpus=8,
        pods=4,
        duration=12 * HOUR,
        checkpoint=HOUR,
    ),
    JobTemplate(
        id="jobset",
        title="Distributed: JobSet 2 × 8",
        build=jobset,
        gpus=8,
        pods=2,
        duration=6 * HOUR,
        checkpoint=HOUR,
    ),
    JobTemplate(id="rayjob", title="Ray: head and 4 workers", build=rayjob, gpus=1, pods=4, duration=3 * HOUR),
    JobTemplate(id="sweep", title="Sweep: 8 pods of 1 GPU", build=sweep, gpus=1, pods=8, duration=HOUR),
    JobTemplate(id="inference", title="Inference: 4 replicas", build=inference, gpus=1, pods=4, duration=24 * HOUR),
    JobTemplate(id="deployment", title="Service: Deployment of 4", build=deployment, gpus=1, pods=4),
    JobTemplate(id="statefulset", title="Service: StatefulSet of 2", build=stateful_set, gpus=1, pods=2),
    JobTemplate(id="workerset", title="Service: leader and workers 1 × 4", build=worker_set, gpus=8, pods=4),
    JobTemplate(id="raycluster", title="Ray: cluster of 4 workers", build=ray_cluster, gpus=1, pods=4),
    JobTemplate(id="mpi", title="Distributed: MPIJob 4 × 8", build=mpi, gpus=8, pods=4, duration=6 * HOUR),
    JobTemplate(id="trainjob", title="Distributed: TrainJob 2 × 8", build=train_job, gpus=8, pods=2, duration=6 * HOUR),
    JobTemplate(id="nightly", title="Nightly: CronJob at 02:00", build=cron_job, gpus=8, pods=1, duration=3 * HOUR),
    JobTemplate(id="volcano", title="Volcano: a gang of 4 × 8", build=volcano, gpus=8, pods=4, duration=6 * HOUR),
)
"""In the order in which the form offers them."""

BY_ID = {template.id: template for template in TEMPLATES}
