"""The kinds of jobs that Kueue 0.19 manages, by the name of their integration framework."""

from collections.abc import Mapping

Kind = tuple[str, str, str]
"""(kind, version, group)"""

BUILT_IN: Mapping[str, Kind] = {
    "batch/job": ("Job", "v1", "batch"),
    "deployment": ("Deployment", "v1", "apps"),
    "jobset.x-k8s.io/jobset": ("JobSet", "v1alpha2", "jobset.x-k8s.io"),
    "kubeflow.org/jaxjob": ("JAXJob", "v1", "kubeflow.org"),
    "kubeflow.org/mpijob": ("MPIJob", "v2beta1", "kubeflow.org"),
    "kubeflow.org/paddlejob": ("PaddleJob", "v1", "kubeflow.org"),
    "kubeflow.org/pytorchjob": ("PyTorchJob", "v1", "kubeflow.org"),
    "kubeflow.org/tfjob": ("TFJob", "v1", "kubeflow.org"),
    "kubeflow.org/xgboostjob": ("XGBoostJob", "v1", "kubeflow.org"),
    "leaderworkerset.x-k8s.io/leaderworkerset": ("LeaderWorkerSet", "v1", "leaderworkerset.x-k8s.io"),
    "pod": ("Pod", "v1", ""),
    "ray.io/raycluster": ("RayCluster", "v1", "ray.io"),
    "ray.io/rayjob": ("RayJob", "v1", "ray.io"),
    "ray.io/rayservice": ("RayService", "v1", "ray.io"),
    "sparkoperator.k8s.io/sparkapplication": ("SparkApplication", "v1beta2", "sparkoperator.k8s.io"),
    "statefulset": ("StatefulSet", "v1", "apps"),
    "trainer.kubeflow.org/trainjob": ("TrainJob", "v1alpha1", "trainer.kubeflow.org"),
    "workload.codeflare.dev/appwrapper": ("AppWrapper", "v1beta2", "workload.codeflare.dev"),
}
POD = "pod"

LOCAL_ONLY = ("deployment", "sparkoperator.k8s.io/sparkapplication")
"""Frameworks without a MultiKueue adapter."""


def parse_kind(text: str) -> Kind | None:
    """Read `Kind.version.group.com`; None if it has fewer than three parts."""
    parts = text.split(".", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None
