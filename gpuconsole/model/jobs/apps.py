"""Manifests of services: apps/v1 Deployment and StatefulSet, and LeaderWorkerSet."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.documents.selectors import selector
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import GroupRules, ReplicaRules
from gpuconsole.model.jobs.common import job, pod_set, pods
from gpuconsole.model.jobs.labels import DURATION
from gpuconsole.model.pod_sets import PodSet

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
