"""Names that controllers generate: Kueue's names of Workloads, and stable names of pods."""

from hashlib import sha1

from gpuconsole.model.job import Job
from gpuconsole.model.text import MAX_NAME

HASH = 5
GROUPS = {
    "Job": "batch",
    "JobSet": "jobset.x-k8s.io",
    **dict.fromkeys(("RayJob", "RayCluster", "RayService"), "ray.io"),
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), "kubeflow.org"),
    "TrainJob": "trainer.kubeflow.org",
    **dict.fromkeys(("Deployment", "StatefulSet"), "apps"),
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "VolcanoJob": "batch.volcano.sh",
    **dict.fromkeys(("SparkApplication", "ScheduledSparkApplication"), "sparkoperator.k8s.io"),
    "AppWrapper": "workload.codeflare.dev",
    "Pod": "",
}
"""Kind → API group, which is part of the hash in the name."""

OWNER_KINDS = {("batch.volcano.sh", "Job"): "VolcanoJob", ("batch.volcano.sh", "CronJob"): "VolcanoCronJob"}
"""(group, kind) → kind of the job here, where Kubernetes has a kind of the same name."""
CRON_KINDS = ("CronJob", "RayCronJob", "VolcanoCronJob", "ScheduledSparkApplication")
"""Kinds that create jobs on a schedule; VolcanoCronJob is the CronJob of batch.volcano.sh."""
MAKERS = (*CRON_KINDS, "JobFlow")
"""Kinds whose jobs count on their own, not as parts of the object that created them."""
_SUSPENDABLE = ("Job", "JobSet", "RayJob", "RayCluster", "TrainJob", *CRON_KINDS, "SparkApplication", "AppWrapper")
SUSPENDED_BY = {
    **dict.fromkeys(_SUSPENDABLE, ("suspend",)),
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), ("runPolicy", "suspend")),
}
"""Kind → path below `spec` of the field that suspends a job which no queue manages."""

POD_GROUP = "PodGroup"
LWS_GROUP = "LeaderWorkerSetGroup"
"""One group of a LeaderWorkerSet; Kueue names its Workload as one of the LeaderWorkerSet."""
POD = "Pod"
MAIN = "main"


def workload_name(kind: str, name: str, uid: str, generation: int = 0) -> str:
    """Name the Workload of a job: `job-NAME-HASH`, cut to 253 characters, with 5 hex digits of a SHA-1.

    A pod group's Workload has the group's name (Kueue 0.19 jobframework GetWorkloadNameForOwnerWithGVK, pod
    integration workloadName). A later slice of an elastic job has the generation of the job in its hash.
    """
    if kind == POD_GROUP:
        return name
    if kind == LWS_GROUP:
        kind = "LeaderWorkerSet"
    parts = (kind, GROUPS.get(kind, ""), name, uid, *((str(generation),) if generation else ()))
    digest = sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()
    prefix = f"{kind.lower()}-{name}"[: MAX_NAME - 1 - HASH]
    return f"{prefix}-{digest[:HASH]}"


def pod_name(job: Job, pod_set: str, index: int) -> str:
    """Name a job's pod: `NAME-INDEX`, or `NAME-PODSET-INDEX` if the pod set is not named `main`.

    The same pod of a job always has the same name (Kubernetes adds a random suffix). Plain pods keep their own names.
    """
    if job.kind == POD:
        return job.name
    names = next((pods.pod_names for pods in job.pod_sets if pods.name == pod_set), ())
    if index < len(names):
        return names[index]
    middle = "" if pod_set == MAIN else f"-{pod_set}"
    suffix = f"{middle}-{index}"
    return f"{job.name[: MAX_NAME - len(suffix)]}{suffix}"
