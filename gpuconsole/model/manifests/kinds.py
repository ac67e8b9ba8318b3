"""Registry of the kinds that are read: their reader functions and versions."""

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import Silence
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job
from gpuconsole.model.jobs import applications, batch, cronjob, kubeflow, ray, services_and_pod_groups
from gpuconsole.model.jobs.volcano import job_flow, job_template, volcano_job
from gpuconsole.model.jobs.workloads import CRON_KINDS, POD_GROUP
from gpuconsole.model.manifests import core, devices, kai, karpenter, kueue, volcano, workload
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.snapshot import Snapshot

Decoder = Callable[[Reader, Time], Object]

KUEUE = "kueue.x-k8s.io"
DEVICES = "resource.k8s.io"
TRAINER = "trainer.kubeflow.org"

JOBS: Mapping[tuple[str, str], Decoder] = {
    ("batch", "Job"): batch.batch_job,
    ("jobset.x-k8s.io", "JobSet"): batch.jobset,
    ("batch", "CronJob"): cronjob.cron_job,
    ("batch.volcano.sh", "CronJob"): cronjob.volcano_cron_job,
    ("ray.io", "RayCronJob"): cronjob.ray_cron_job,
    ("flow.volcano.sh", "JobTemplate"): job_template,
    ("flow.volcano.sh", "JobFlow"): job_flow,
    ("apps", "Deployment"): services_and_pod_groups.deployment,
    ("apps", "ReplicaSet"): services_and_pod_groups.replica_set,
    ("apps", "StatefulSet"): services_and_pod_groups.stateful_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): services_and_pod_groups.leader_worker_set,
    ("ray.io", "RayJob"): ray.ray_job,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("ray.io", "RayService"): ray.ray_service,
    **{("kubeflow.org", replicas.kind): kubeflow.decoder(replicas) for replicas in kubeflow.ALL},
    **{(group, "TrainJob"): kubeflow.train_job for group in (TRAINER, "kubeflow.org")},
    ("batch.volcano.sh", "Job"): volcano_job,
    ("sparkoperator.k8s.io", "SparkApplication"): applications.spark_application,
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): cronjob.scheduled_spark_application,
    ("workload.codeflare.dev", "AppWrapper"): applications.app_wrapper,
}
"""Kinds that become jobs of the table `jobs`."""

JOB_NAMES = frozenset({"VolcanoJob", POD_GROUP, *CRON_KINDS, *(kind for _, kind in JOBS)})
"""Kinds that occur in the keys of jobs, except plain pods and the groups of a LeaderWorkerSet."""

DECODERS: Mapping[tuple[str, str], Decoder] = {
    **JOBS,
    ("", "Namespace"): core.namespace,
    ("", "Node"): core.node,
    ("", "Pod"): core.pod,
    ("", "LimitRange"): core.limit_range,
    ("", "ResourceQuota"): core.resource_quota,
    ("", "PersistentVolume"): core.volume,
    ("", "PersistentVolumeClaim"): core.claim,
    ("storage.k8s.io", "StorageClass"): core.storage_class,
    ("storage.k8s.io", "CSINode"): core.csi_node,
    ("node.k8s.io", "RuntimeClass"): core.runtime_class,
    ("scheduling.k8s.io", "PriorityClass"): core.priority_class,
    (KUEUE, "ResourceFlavor"): kueue.resource_flavor,
    (KUEUE, "ClusterQueue"): kueue.cluster_queue,
    (KUEUE, "Cohort"): kueue.cohort,
    (KUEUE, "LocalQueue"): kueue.local_queue,
    (KUEUE, "WorkloadPriorityClass"): kueue.workload_priority_class,
    (KUEUE, "Topology"): kueue.topology,
    (KUEUE, "AdmissionCheck"): kueue.admission_check,
    (KUEUE, "ProvisioningRequestConfig"): workload.config,
    (KUEUE, "MultiKueueConfig"): kueue.config,
    (KUEUE, "MultiKueueCluster"): kueue.cluster,
    (KUEUE, "Workload"): workload.workload,
    ("", "PodTemplate"): workload.stored_template,
    ("autoscaling.x-k8s.io", "ProvisioningRequest"): workload.request,
    (DEVICES, "DeviceClass"): devices.device_class,
    (DEVICES, "ResourceSlice"): devices.resource_slice,
    (DEVICES, "ResourceClaimTemplate"): devices.claim_template,
    (DEVICES, "ResourceClaim"): devices.claim,
    **{(group, "TrainingRuntime"): kubeflow.training_runtime for group in (TRAINER, "kubeflow.org")},
    **{(group, "ClusterTrainingRuntime"): kubeflow.cluster_training_runtime for group in (TRAINER, "kubeflow.org")},
    ("scheduling.volcano.sh", "Queue"): volcano.volcano_queue,
    ("topology.volcano.sh", "HyperNode"): volcano.hyper_node,
    ("nodeinfo.volcano.sh", "Numatopology"): volcano.numatopology,
    ("scheduling.volcano.sh", "PodGroup"): volcano.pod_group,
    ("scheduling.run.ai", "Queue"): kai.queue,
    ("scheduling.run.ai", "PodGroup"): kai.pod_group,
    ("kai.scheduler", "Topology"): kueue.topology,
    ("kai.scheduler", "SchedulingShard"): kai.scheduling_shard,
    ("scheduling.x-k8s.io", "PodGroup"): volcano.coscheduling_group,
    ("scheduling.k8s.io", "PodGroup"): workload.pod_group,
    ("scheduling.k8s.io", "CompositePodGroup"): workload.composite_pod_group,
    ("scheduling.k8s.io", "Workload"): workload.kubernetes_workload,
    ("karpenter.sh", "NodePool"): karpenter.node_pool,
    ("policy", "PodDisruptionBudget"): core.pod_disruption_budget,
}
"""(group, kind) → decoder."""

VERSIONS: Mapping[str, tuple[str, ...]] = {
    "": ("v1",),
    "node.k8s.io": ("v1",),
    "storage.k8s.io": ("v1",),
    "scheduling.k8s.io": ("v1alpha1", "v1alpha2", "v1alpha3", "v1beta1"),
    KUEUE: ("v1beta1", "v1beta2"),
    DEVICES: ("v1beta1", "v1beta2", "v1"),
    "batch": ("v1",),
    "jobset.x-k8s.io": ("v1alpha2",),
    "ray.io": ("v1alpha1", "v1"),
    "kubeflow.org": ("v1",),
    TRAINER: ("v1alpha1",),
    "apps": ("v1",),
    "sparkoperator.k8s.io": ("v1beta2",),
    "workload.codeflare.dev": ("v1beta2",),
    "leaderworkerset.x-k8s.io": ("v1",),
    "batch.volcano.sh": ("v1alpha1",),
    "flow.volcano.sh": ("v1alpha1",),
    "scheduling.volcano.sh": ("v1beta1",),
    "topology.volcano.sh": ("v1alpha1",),
    "nodeinfo.volcano.sh": ("v1alpha1",),
    "scheduling.x-k8s.io": ("v1alpha1",),
    "scheduling.run.ai": ("v2alpha2",),
    "kai.scheduler": ("v1alpha1",),
    "karpenter.sh": ("v1",),
    "policy": ("v1",),
    "autoscaling.x-k8s.io": ("v1beta1", "v1"),
}
"""API group → versions that are served today, the newest last. Other versions are read, too, and reported."""
_VERSIONS_OF_KINDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("scheduling.k8s.io", "PriorityClass"): ("v1",),
    ("scheduling.run.ai", "Queue"): ("v2",),
    ("kai.scheduler", "SchedulingShard"): ("v1",),
    ("kubeflow.org", "MPIJob"): ("v1", "v2beta1"),
    **{("kubeflow.org", kind): ("v2alpha1",) for kind in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")},
}
"""The same for kinds that are served in other versions than the rest of their group."""
LAST_ALPHA = (DEVICES, "v1alpha3")
"""Version of dynamic resource allocation in the form of v1beta1; Kubernetes 1.34 removed it."""


def versions_of(group: str, kind: str) -> tuple[str, ...]:
    """Return the versions in which a known kind is served, the newest last."""
    return _VERSIONS_OF_KINDS.get((group, kind), VERSIONS[group])


def table_of(source: tuple[str, str]) -> str:
    """Return the table of the objects of a known (group, kind)."""
    return TABLES[Job if source in JOBS else get_type_hints(DECODERS[source])["return"]]


def is_name_taken(snapshot: Snapshot, namespace: str, name: str) -> bool:
    """True if an object of any kind has this name, in this namespace or cluster-wide."""
    key = f"{namespace}/{name}"
    if any(f"{kind}/{key}" in snapshot.jobs for kind in JOB_NAMES):
        return True
    return any(key in getattr(snapshot, table) or name in getattr(snapshot, table) for table in TABLES.values())


def kind_of_document(document: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return (group, version, kind) of a document; empty strings for missing parts."""
    version, kind = document.get("apiVersion"), document.get("kind")
    group, _, number = version.rpartition("/") if isinstance(version, str) else ("", "", "")
    return group, number, kind if isinstance(kind, str) else ""


def decoder_of(place: Reader) -> Decoder | None:
    """Return the decoder of a manifest's kind, or None; a plain pod that Kueue manages is decoded as a job."""
    group, _, kind = kind_of_document(place.value)
    if kind == "Pod" and services_and_pod_groups.is_managed(place):
        return services_and_pod_groups.pod_job
    return DECODERS.get((group, kind))


def decode_object(document: Mapping[str, Any], *, now: Time = 0) -> Object | None:
    """Decode one API object (a JSON dict) into its struct; fields that cannot be read take their defaults.

    None for an unknown kind and for an object without name. Nothing is reported, because an API server has accepted
    these objects. A pod is always decoded as a Pod.
    """
    group, _, kind = kind_of_document(document)
    decoder = DECODERS.get((group, kind))
    if decoder is None:
        return None
    obj = decoder(Reader(document, Silence()), now)
    return obj if obj.name else None
