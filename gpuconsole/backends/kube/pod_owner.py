"""Owner of a pod from its labels and ownerReferences, and the filter for pods and jobs that the console keeps.

These functions look at documents before they are decoded: in a cluster with 100,000 pods most are not needed, and never
become objects.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gpuconsole.model.jobs.services_and_pod_groups import GROUP
from gpuconsole.model.jobs.workloads import OWNER_KINDS, QUEUE, WORKLOAD
from gpuconsole.model.resources import is_gpu, is_mig

Document = Mapping[str, Any]

_BY_LABEL = (
    ("workload.codeflare.dev/appwrapper", "AppWrapper"),
    ("sparkoperator.k8s.io/app-name", "SparkApplication"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("volcano.sh/job-name", "VolcanoJob"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
)
"""Label with the name of a pod's job → kind of the job; kinds that contain others come first."""
_TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods: the suffix in the name of its ReplicaSet."""
_RAY_NAME, _RAY_KIND = "ray.io/originated-from-cr-name", "ray.io/originated-from-crd"
_NO_OWNERS = ("CronJob",)
"""Controllers that do not replace their Jobs on screens."""
_pod_owner_MARKS = (
    *(WORKLOAD, QUEUE, GROUP, "gpu-fraction", "gpu-memory", "kai.scheduler/queue", "runai/queue"),
    *("scheduling.k8s.io/group-name", "scheduling.x-k8s.io/pod-group", "pod-group-name"),
)
"""Labels and annotations of pods that are queued or gang-scheduled."""


def job_of(document: Document) -> str:
    """Return `Kind/namespace/name` of the job that a pod belongs to; empty if there is none.

    The pods of a JobSet are owned by its Jobs, those of a RayJob by its RayCluster, but labels name the job itself.
    """
    meta = _mapping(document, "metadata")
    labels = _mapping(meta, "labels")
    namespace = meta.get("namespace") or "default"
    for label, kind in _BY_LABEL:
        if isinstance(labels.get(label), str):
            return f"{kind}/{namespace}/{labels[label]}"
    if labels.get(_RAY_KIND) == "RayJob" and isinstance(labels.get(_RAY_NAME), str):
        return f"RayJob/{namespace}/{labels[_RAY_NAME]}"
    kind, name = controller(document) or ("", "")
    suffix = f"-{labels.get(_TEMPLATE_HASH)}"
    if kind == "ReplicaSet" and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return f"{kind}/{namespace}/{name}" if name else ""


def controller(document: Document) -> tuple[str, str] | None:
    """Return (kind, name) of the controlling owner, or of the first owner; None if there is none."""
    owners = [owner for owner in _list(_mapping(document, "metadata"), "ownerReferences") if isinstance(owner, dict)]
    owner = next((owner for owner in owners if owner.get("controller")), owners[0] if owners else None)
    if owner is None:
        return None
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    kind = str(owner.get("kind", ""))
    return OWNER_KINDS.get((group, kind), kind), str(owner.get("name", ""))


def is_part(document: Document) -> bool:
    """True for a Job or ReplicaSet whose owner is shown instead."""
    owner = controller(document)
    return owner is not None and owner[0] not in _NO_OWNERS


def wants_gpus(spec: Document) -> bool:
    """True for a pod spec that requests devices of any kind."""
    if spec.get("resourceClaims"):
        return True
    return any(_is_device(name) for name in _asked(spec))


def concerns_us(document: Document, known: Collection[str]) -> bool:
    """True for a pod that requests GPUs, is queued or gang-scheduled, or belongs to a job in `known`."""
    meta = _mapping(document, "metadata")
    marks = (_mapping(meta, "labels"), _mapping(meta, "annotations"))
    return (
        any(mark in place for place in marks for mark in _pod_owner_MARKS)
        or wants_gpus(_mapping(document, "spec"))
        or job_of(document) in known
    )


def _asked(spec: Document) -> Iterator[str]:
    """Yield the names of the resources that a pod spec requests."""
    containers = (container for key in ("containers", "initContainers") for container in _list(spec, key))
    for place in (*containers, spec):
        needs = _mapping(place, "resources")
        for part in ("limits", "requests"):
            yield from (name for name, amount in _mapping(needs, part).items() if amount not in (0, "0"))


def _is_device(resource: str) -> bool:
    return is_gpu(resource) or is_mig(resource) or "gpu" in resource


def _mapping(document: Any, key: str) -> Document:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def _list(document: Document, key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []
