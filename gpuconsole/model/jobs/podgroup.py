"""Plain pods that Kueue manages: single pods with a queue, and pod groups by name and total count."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.pods import pod_template
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.common import MOST_POD_SETS, MOST_PODS, job
from gpuconsole.model.jobs.labels import QUEUE
from gpuconsole.model.jobs.naming import POD, POD_GROUP
from gpuconsole.model.jobs.topology import topology_request, whole
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.pod_template import PodTemplate

GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
FAST = "kueue.x-k8s.io/pod-group-fast-admission"
ROLE = "kueue.x-k8s.io/role-hash"
POD_GROUP_POD_INDEX = "kueue.x-k8s.io/pod-group-pod-index"
ROLE_HASH = 8


def is_managed(document: Reader) -> bool:
    """True for a pod that Kueue's pod integration gates: it has a queue name, but no owner and no node."""
    place = document.mapping("metadata")
    return (
        QUEUE in place.mapping("labels")
        and "ownerReferences" not in place
        and "nodeName" not in document.mapping("spec")
    )


def pod_job(reader: Reader, now: Time) -> Job:
    """Read a plain pod as a job of one pod; `group_of` returns its pod group."""
    template = pod_template(reader)
    request = topology_request(reader, 1, index=POD_GROUP_POD_INDEX)
    found = job(reader, now, POD, (PodSet(template=template, topology=request),))
    if group_of(found) and TOTAL not in reader.down("metadata", "annotations"):
        reader.report.refused(
            reader.at("metadata", "annotations", TOTAL),
            f"both the '{GROUP}' label and the '{TOTAL}' annotation should be set",
            "say how many pods the group has",
            "required",
        )
    return found


def group_of(pod: Job) -> str:
    """Return the pod group of a pod; empty if it has none."""
    return pod.labels.get(GROUP) or pod.annotations.get(GROUP, "")


def total_of(reader: Reader) -> int | None:
    """Return the total count of this pod's group by its annotation."""
    notes = reader.down("metadata", "annotations")
    return whole(notes, TOTAL, 1, MOST_PODS, f"{MOST_PODS} pods are the most") if TOTAL in notes else None


def pod_group(name: str, pods: Sequence[Job], total: int) -> Job:
    """Combine the pods of a group: one pod set per role, sorted by the role's hash (Kueue 0.19 pod integration).

    With fast admission all `total` pods have the template of the first one. Pods beyond `total` are left out.
    """
    first = pods[0]
    if first.annotations.get(FAST) == "true":
        shape = replace(first.pod_sets[0], count=total, pod_names=tuple(pod.name for pod in pods[:total]))
        return replace(first, kind=POD_GROUP, name=name, pod_sets=(replace(shape, name=_role(first)),))
    roles: dict[str, PodSet] = {}
    for pod in pods[:total]:
        role = _role(pod)
        seen = roles.get(role, replace(pod.pod_sets[0], name=role, count=0))
        roles[role] = replace(seen, count=seen.count + 1, pod_names=(*seen.pod_names, pod.name))
    pod_sets = tuple(roles[role] for role in sorted(roles))[:MOST_POD_SETS]
    return replace(first, kind=POD_GROUP, name=name, pod_sets=pod_sets)


def _role(pod: Job) -> str:
    return pod.annotations.get(ROLE) or role_hash(pod.pod_sets[0].template)


def role_hash(template: PodTemplate) -> str:
    """Return eight hex digits, equal for templates that differ only in labels, annotations and images."""
    bare = tuple(replace(container, image="") for container in template.containers)
    shape = replace(template, labels=NO_LABELS, annotations=NO_LABELS, containers=bare)
    return sha256(msgspec.json.encode(shape, order="deterministic")).hexdigest()[:ROLE_HASH]
