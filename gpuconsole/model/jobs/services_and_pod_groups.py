"""Services (Deployment, ReplicaSet, StatefulSet, LeaderWorkerSet), and plain pods that Kueue manages.

Kueue's pod integration manages single pods with a queue, and pod groups by name and total count.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.pods_and_selectors import pod_template, selector
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.job import GroupRules, Job, ReplicaRules
from gpuconsole.model.jobs.common import MOST_POD_SETS, MOST_PODS, job, pod_set, pods, topology_request, whole
from gpuconsole.model.jobs.workloads import DURATION, POD, POD_GROUP, QUEUE
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.pod_template import PodSet, PodTemplate

POD_INDEX = "apps.kubernetes.io/pod-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER, WORKER, MAIN = "leader", "worker", "main"
_RECREATE = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default")
_DEPLOYMENT_FIELDS = (
    *("minReadySeconds", "paused", "progressDeadlineSeconds", "replicas", "revisionHistoryLimit", "selector"),
    *("strategy", "template"),
)
_STATEFUL_SET_FIELDS = (
    *("minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "podManagementPolicy", "replicas"),
    *("revisionHistoryLimit", "selector", "serviceName", "template", "updateStrategy", "volumeClaimTemplates"),
)
_LWS_FIELDS = ("leaderWorkerTemplate", "networkConfig", "replicas", "rolloutStrategy", "startupPolicy")
_GROUP_FIELDS = (
    *("leaderTemplate", "resizePolicy", "restartPolicy", "size", "subGroupPolicy", "volumeClaimTemplates"),
    *("persistentVolumeClaimRetentionPolicy", "workerTemplate"),
)


def deployment(reader: Reader, now: Time) -> Job:
    """Read a Deployment: independent pods; Kueue admits each with its own Workload."""
    spec = reader.mapping("spec")
    spec.only(*_DEPLOYMENT_FIELDS)
    return _served(reader, now, "Deployment", _replicas(spec), ReplicaRules())


def replica_set(reader: Reader, now: Time) -> Job:
    """Read a ReplicaSet: independent pods; Kueue has no integration for it."""
    spec = reader.mapping("spec")
    spec.only("minReadySeconds", "replicas", "selector", "template")
    return replace(_served(reader, now, "ReplicaSet", _replicas(spec), ReplicaRules()), queue="")


def stateful_set(reader: Reader, now: Time) -> Job:
    """Read a StatefulSet: pods started in order; Kueue admits all of them with one Workload."""
    spec = reader.mapping("spec")
    spec.only(*_STATEFUL_SET_FIELDS)
    policy = spec.one_of("podManagementPolicy", "OrderedReady", ("OrderedReady", "Parallel"))
    return _served(reader, now, "StatefulSet", _replicas(spec, POD_INDEX), ReplicaRules(ordered=policy != "Parallel"))


def leader_worker_set(reader: Reader, now: Time) -> Job:
    """Read a LeaderWorkerSet: its pod sets are those of one group; Kueue admits each group with its own Workload."""
    spec = reader.mapping("spec")
    spec.only(*_LWS_FIELDS)
    spec.one_of("startupPolicy", "LeaderCreated", ("LeaderCreated", "LeaderReady"))
    group = spec.mapping("leaderWorkerTemplate")
    group.only(*_GROUP_FIELDS)
    size = pods(group, "size")
    if size < 1:
        group.report.refused(group.at("size"), "must be greater than or equal to 1", "write 1 or more", "bad-replicas")
    restart = group.one_of("restartPolicy", _RECREATE[0], _RECREATE)
    rules = GroupRules(replicas=pods(spec, "replicas"), recreate=restart.startswith("RecreateGroup"))
    return _served(reader, now, "LeaderWorkerSet", _group(group, max(1, size)), rules)


def _group(place: Reader, size: int) -> tuple[PodSet, ...]:
    """Return the pod sets of one group (Kueue 0.19 leaderworkerset podSets)."""
    if "workerTemplate" not in place:
        problem = "workerTemplate is missing"
        place.report.refused(place.at("workerTemplate"), problem, "describe the workers", "required")
        return ()
    if "leaderTemplate" not in place:
        return (pod_set(place, MAIN, size, index=WORKER_INDEX, key="workerTemplate"),)
    leader = pod_set(place, LEADER, 1, key="leaderTemplate")
    return (leader, pod_set(place, WORKER, size - 1, index=WORKER_INDEX, key="workerTemplate"))


def _served(
    reader: Reader, now: Time, kind: str, pod_sets: tuple[PodSet, ...], rules: ReplicaRules | GroupRules
) -> Job:
    notes = reader.down("metadata", "annotations")
    if DURATION in notes:
        problem = f"a {kind} never ends: how long it takes is not read"
        notes.report.note(notes.at(DURATION), problem, "drop it; to stop it, scale it or delete it", "never-ends")
    return job(reader, now, kind, pod_sets, rules=rules)


def _replicas(spec: Reader, index: str = "") -> tuple[PodSet, ...]:
    """Pods of a Deployment or StatefulSet; reports a selector that does not match them."""
    template = spec.mapping("template")
    policy = template.mapping("spec").raw("restartPolicy")
    if policy not in (None, "Always"):
        spec.report.refused(
            spec.at("template", "spec", "restartPolicy"),
            f'Unsupported value: {shown(policy)}: supported values: "Always"',
            "write restartPolicy: Always, or leave it out",
            "restart-policy",
        )
    pod_sets = (pod_set(spec, MAIN, pods(spec, "replicas"), index=index),)
    chosen = selector(spec, "selector")
    if chosen is None:
        spec.report.refused(spec.at("selector"), "selector is missing", "select the labels of the template", "required")
    elif not chosen.matches(pod_sets[0].template.labels):
        problem = "`selector` does not match template `labels`"
        remedy = "give the template the labels that the selector asks for"
        spec.report.refused(spec.at("template", "metadata", "labels"), problem, remedy, "selector")
    return pod_sets


GROUP = "kueue.x-k8s.io/pod-group-name"
"""Label of a pod: its pod group."""
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
"""Annotation of a pod: number of pods in its group."""
FAST = "kueue.x-k8s.io/pod-group-fast-admission"
"""Annotation of a pod: Kueue admits its group before all its pods exist."""
ROLE = "kueue.x-k8s.io/role-hash"
POD_GROUP_POD_INDEX = "kueue.x-k8s.io/pod-group-pod-index"
ROLE_HASH = 8
"""Number of hex digits in the hash of a pod group's role."""


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
    """Return the name of a pod's pod group; empty if it has none."""
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
    """Return eight hex digits, equal for templates that differ only in labels, annotations and containers' images."""
    bare = tuple(replace(container, image="") for container in template.containers)
    shape = replace(template, labels=NO_LABELS, annotations=NO_LABELS, containers=bare)
    return sha256(msgspec.json.encode(shape, order="deterministic")).hexdigest()[:ROLE_HASH]
