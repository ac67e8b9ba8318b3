"""Services and the other kinds of jobs: what is read of them, and what the API server would refuse, with its place."""

import json
from typing import Any

import pytest

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, parse_cron, parse_time
from gpuconsole.model.job import (
    BatchRules,
    Concurrency,
    CronRules,
    FailureRule,
    GroupRules,
    Job,
    LaunchRules,
    PodPatch,
    ReplicaRules,
    SuccessRule,
    TrainingRuntime,
    TrainRules,
)
from gpuconsole.model.jobs.kubeflow import with_runtime_pods
from gpuconsole.model.manifests import load_text

Manifest = dict[str, Any]
GPU = "nvidia.com/gpu"


def pod(gpus: int = 1, **meta: Any) -> Manifest:
    container = {"name": "node", "image": "x", "resources": {"limits": {GPU: str(gpus)}} if gpus else {}}
    return {"metadata": meta, "spec": {"containers": [container]}}


def never(gpus: int = 1, **meta: Any) -> Manifest:
    template = pod(gpus, **meta)
    template["spec"]["restartPolicy"] = "Never"
    return template


def manifest(api: str, kind: str, spec: Manifest, **meta: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "a", "namespace": "n", **meta}, "spec": spec}


def one(document: Manifest) -> Job:
    """The job of a document that nothing is wrong with."""
    loaded = load_text(json.dumps(document), "a.json", strict=True)
    assert [f.path for f in loaded.findings if f.severity.value == "error"] == []
    (found,) = loaded.objects
    assert isinstance(found, Job)
    return found


def wrong(document: Manifest) -> list[tuple[str, str]]:
    """Path and code of what would be refused."""
    findings = load_text(json.dumps(document), "a.json", strict=True).findings
    return [(f.path, f.code) for f in findings if f.severity.value == "error"]


def sizes(job: Job) -> list[tuple[str, int]]:
    return [(part.name, part.count) for part in job.pod_sets]


def deployment(**spec: Any) -> Manifest:
    labels = {"app": "a"}
    whole = {"replicas": 3, "selector": {"matchLabels": labels}, "template": pod(labels=labels), **spec}
    return manifest("apps/v1", "Deployment", whole)


def test_services() -> None:
    web = one(deployment())
    assert (web.key, sizes(web), web.rules, web.endless, web.solo) == (
        *("Deployment/n/a", [("main", 3)], ReplicaRules(), True, True),
    )
    db = one({**deployment(serviceName="a"), "kind": "StatefulSet"})
    assert (db.key, db.rules) == ("StatefulSet/n/a", ReplicaRules(ordered=True))
    group = {"size": 3, "leaderTemplate": pod(0), "workerTemplate": pod(), "restartPolicy": "None"}
    api = "leaderworkerset.x-k8s.io/v1"
    llm = one(manifest(api, "LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": group}))
    assert (sizes(llm), llm.rules) == ([("leader", 1), ("worker", 2)], GroupRules(replicas=2, recreate=False))
    group.pop("leaderTemplate")
    alone = one(manifest(api, "LeaderWorkerSet", {"leaderWorkerTemplate": group}))
    assert (sizes(alone), alone.rules) == ([("main", 3)], GroupRules(recreate=False))


REFUSED = {
    "a selector that selects other pods": (
        deployment(selector={"matchLabels": {"app": "b"}}),
        [("spec.template.metadata.labels", "selector")],
    ),
    "no selector": (deployment(selector=None), [("spec.selector", "required")]),
    "pods of a service that end": (
        deployment(template={**never(labels={"app": "a"})}),
        [("spec.template.spec.restartPolicy", "restart-policy")],
    ),
    "an unknown field": (deployment(replica=3), [("spec.replica", "unknown-field")]),
    "a text for a number": (deployment(replicas="3"), [("spec.replicas", "quoted")]),
    "another policy": (
        {**deployment(podManagementPolicy="Random"), "kind": "StatefulSet"},
        [("spec.podManagementPolicy", "bad-value")],
    ),
    "a group without workers": (
        manifest("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 2}}),
        [("spec.leaderWorkerTemplate.workerTemplate", "required")],
    ),
    "a schedule of four fields": (
        manifest("batch/v1", "CronJob", {"schedule": "0 2 * *", "jobTemplate": {"spec": {"template": never()}}}),
        [("spec.schedule", "bad-schedule")],
    ),
    "a time zone that is none": (
        manifest(
            "batch/v1",
            "CronJob",
            {"schedule": "0 2 * * *", "timeZone": "Berlin", "jobTemplate": {"spec": {"template": never()}}},
        ),
        [("spec.timeZone", "bad-time-zone")],
    ),
    "a name that leaves no room for its Jobs'": (
        manifest(
            "batch/v1",
            "CronJob",
            {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": never()}}},
            name="a" * 53,
        ),
        [("metadata.name", "too-long")],
    ),
    "two launchers": (
        manifest(
            "kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Launcher": {"replicas": 2, "template": pod(0)}}}
        ),
        [("spec.mpiReplicaSpecs.Launcher.replicas", "bad-replicas")],
    ),
    "workers without a launcher": (
        manifest("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Worker": {"template": pod()}}}),
        [("spec.mpiReplicaSpecs.Launcher", "required")],
    ),
    "a replica of another kind": (
        manifest("kubeflow.org/v1", "JAXJob", {"jaxReplicaSpecs": {"Master": {}, "Worker": {"template": pod()}}}),
        [("spec.jaxReplicaSpecs.Master", "unknown-field")],
    ),
    "no replicas at all": (
        manifest("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": {}}),
        [("spec.tfReplicaSpecs", "required")],
    ),
    "a TrainJob of nothing": (
        manifest("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {}}),
        [("spec.runtimeRef.name", "required")],
    ),
    "a service of Ray without a cluster": (
        manifest("ray.io/v1", "RayService", {}),
        [("spec.rayClusterConfig", "required"), ("spec.rayClusterConfig.headGroupSpec", "required")],
    ),
    "a cluster of Ray that keeps its state in Redis, without a head": (
        manifest("ray.io/v1", "RayCluster", {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}),
        [
            ("spec.headGroupSpec.template.spec.containers", "required"),
            ("spec.headGroupSpec.template.spec.containers", "required"),
        ],
    ),
    "limits of indexes without indexes": (
        manifest("batch/v1", "Job", {"backoffLimitPerIndex": 1, "template": never()}),
        [("spec.backoffLimitPerIndex", "not-indexed")],
    ),
    "a failure rule that asks for nothing": (
        manifest("batch/v1", "Job", {"podFailurePolicy": {"rules": [{"action": "Ignore"}]}, "template": never()}),
        [("spec.podFailurePolicy.rules[0]", "one-of")],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    document, want = REFUSED[name]
    assert wrong(document) == want


def test_the_rules_of_a_job() -> None:
    spec = {
        "parallelism": 2,
        "completions": 6,
        "completionMode": "Indexed",
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 30,
        "backoffLimitPerIndex": 1,
        "maxFailedIndexes": 2,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
            ]
        },
        "successPolicy": {"rules": [{"succeededIndexes": "0-2", "succeededCount": 2}]},
        "template": never(annotations={"gpuconsole.io/duration": "5m"}),
    }
    found = one(manifest("batch/v1", "Job", spec))
    assert found.rules == BatchRules(
        completions=6,
        indexed=True,
        deadline=MINUTE,
        ttl=30 * SECOND,
        limit_per_index=1,
        most_failed=2,
        failure_rules=(
            FailureRule(action="Ignore", conditions=("DisruptionTarget",)),
            FailureRule(action="FailIndex", exit_codes=(1, 2), excluded=True),
        ),
        success_rules=(SuccessRule(indexes="0-2", count=2),),
        pod_duration=5 * MINUTE,
        replaces_failed=True,
    )
    assert (found.backoff_limit, sizes(found)) == (2**31 - 1, [("main", 2)])


@pytest.mark.parametrize(("policy", "replaces_failed"), [("", False), ("TerminatingOrFailed", False), ("Failed", True)])
def test_a_job_says_whether_terminating_pods_are_replaced(policy: str, replaces_failed: bool) -> None:
    spec = {"template": never()} | ({"podReplacementPolicy": policy} if policy else {})
    rules = one(manifest("batch/v1", "Job", spec)).rules
    assert isinstance(rules, BatchRules)
    assert rules.replaces_failed is replaces_failed


GANGS: dict[str, tuple[Manifest, Manifest]] = {
    "it says so": ({"annotations": {"gpuconsole.io/gang": "true"}}, {}),
    "Volcano starts two together": ({"annotations": {"scheduling.volcano.sh/group-min-member": "2"}}, {}),
    "its pods name a PodGroup": ({}, {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}),
    "its pods name Volcano's": ({}, {"annotations": {"scheduling.k8s.io/group-name": "g"}}),
    "it is elastic": ({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}, {}),
}


@pytest.mark.parametrize("name", GANGS)
def test_jobs_that_are_gangs_after_all(name: str) -> None:
    own, pods = GANGS[name]
    assert not one(manifest("batch/v1", "Job", {"parallelism": 2, "template": never(**pods)}, **own)).solo
    assert one(manifest("batch/v1", "Job", {"parallelism": 2, "template": never()})).solo


def test_a_cron_job_keeps_what_its_jobs_are() -> None:
    notes = {"gpuconsole.io/duration": "2h"}
    inner = {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": notes},
        "spec": {"parallelism": 2, "template": never()},
    }
    spec = {"schedule": "@daily", "concurrencyPolicy": "Replace", "startingDeadlineSeconds": 60, "jobTemplate": inner}
    found = one(manifest("batch/v1", "CronJob", spec))
    assert (found.queue, found.duration, sizes(found)) == ("", 2 * HOUR, [("main", 2)])
    assert found.rules == CronRules(
        schedule="@daily",
        concurrency=Concurrency.REPLACE,
        starting_deadline=MINUTE,
        queue="lq",
        labels={"kueue.x-k8s.io/queue-name": "lq"},
        annotations=notes,
    )


KUBEFLOW: dict[str, tuple[str, str, list[str], list[str], LaunchRules | None]] = {
    "TFJob": (
        "v1",
        "tfReplicaSpecs",
        ["PS", "Worker", "Chief"],
        ["chief", "ps", "worker"],
        LaunchRules(deciders=("chief",)),
    ),
    "MPIJob": (
        "v2beta1",
        "mpiReplicaSpecs",
        ["Worker", "Launcher"],
        ["launcher", "worker"],
        LaunchRules(deciders=("launcher",)),
    ),
    "XGBoostJob": ("v1", "xgbReplicaSpecs", ["Worker", "Master"], ["master", "worker"], None),
    "PaddleJob": ("v1", "paddleReplicaSpecs", ["Worker"], ["worker"], None),
    "JAXJob": ("v1", "jaxReplicaSpecs", ["Worker"], ["worker"], None),
    "PyTorchJob": ("v1", "pytorchReplicaSpecs", ["Worker", "Master"], ["master", "worker"], None),
}


@pytest.mark.parametrize("kind", KUBEFLOW)
def test_replicas_come_in_the_order_of_their_kind(kind: str) -> None:
    version, field, given, names, rules = KUBEFLOW[kind]
    spec = {field: {type: {"template": pod()} for type in given}}
    found = one(manifest(f"kubeflow.org/{version}", kind, spec))
    assert ([part.name for part in found.pod_sets], found.rules) == (names, rules)


def test_how_long_jobs_of_kubeflow_may_run_and_are_kept() -> None:
    policy = {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 30, "schedulingPolicy": {"minAvailable": 2}}
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pod()}}}
    found = one(manifest("kubeflow.org/v1", "PyTorchJob", spec))
    assert (found.rules, found.min_available) == (LaunchRules(ttl=30 * SECOND, deadline=MINUTE), 2)


def runtime(**policy: Any) -> TrainingRuntime:
    def replicated(name: str, step: str = "") -> Manifest:
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
        return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": never(0)}}}

    trainer, other = ("launcher", "node") if "mpi" in policy else ("node", "data")
    jobs = [replicated(trainer, "trainer"), replicated(other)]
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "mine"},
        "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}},
    }
    (found,) = load_text(json.dumps(document), "a.json", strict=True).objects
    assert isinstance(found, TrainingRuntime)
    return found


def training(**spec: Any) -> Job:
    reference = {"runtimeRef": {"name": "mine"}}
    return one(manifest("trainer.kubeflow.org/v1alpha1", "TrainJob", {**reference, **spec}))


def test_nodes_and_resources_of_a_train_job() -> None:
    plain = with_runtime_pods(training(), runtime(numNodes=2))
    assert (sizes(plain), plain.pod_sets[0].requests) == ([("node", 2), ("data", 1)], {})
    needs = {"limits": {GPU: "8"}}
    large = with_runtime_pods(
        training(trainer={"numNodes": 4, "image": "y", "resourcesPerNode": needs}), runtime(numNodes=2)
    )
    assert (sizes(large), large.pod_sets[0].requests) == ([("node", 4), ("data", 1)], {GPU: 32})
    assert [part.template.containers[0].image for part in large.pod_sets] == ["y", "x"]


def test_nodes_of_a_train_job_with_a_launcher() -> None:
    needs = {"limits": {GPU: "8"}}
    job = training(trainer={"numNodes": 4, "resourcesPerNode": needs})
    apart = with_runtime_pods(job, runtime(mpi={}))
    assert (sizes(apart), [part.requests for part in apart.pod_sets]) == (
        *([("launcher", 1), ("node", 4)], [{GPU: 8}, {}]),
    )
    within = with_runtime_pods(job, runtime(mpi={"runLauncherAsNode": True}))
    assert (sizes(within), [part.requests for part in within.pod_sets]) == (
        *([("launcher", 1), ("node", 3)], [{GPU: 8}, {GPU: 24}]),
    )


def test_a_train_job_changes_the_pods_of_some_jobs() -> None:
    change = {"metadata": {"annotations": {"k": "v"}}, "spec": {"nodeSelector": {"zone": "a"}}}
    patch = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": change}}}]}
    job = training(runtimePatches=[{"manager": "me", "trainingRuntimeSpec": {"template": {"spec": patch}}}])
    assert isinstance(job.rules, TrainRules)
    assert job.rules.patches == (PodPatch(jobs=("node",), annotations={"k": "v"}, node_selector={"zone": "a"}),)
    found = with_runtime_pods(job, runtime(numNodes=1))
    assert [(part.template.annotations, part.template.node_selector) for part in found.pod_sets] == [
        ({"k": "v"}, {"zone": "a"}),
        ({}, {}),
    ]


def test_times_by_the_clocks_of_a_zone() -> None:
    half_past_two = parse_cron("30 2 * * *")
    before = parse_time("2026-03-28T12:00:00Z")
    # The clocks leave this half hour out on the 29th: it is taken as if they had not changed yet.
    first = half_past_two.next_in(before, "Europe/Berlin")
    assert first == parse_time("2026-03-29T01:30:00Z")
    assert half_past_two.next_in(first or 0, "Europe/Berlin") == parse_time("2026-03-30T00:30:00Z")
    assert half_past_two.next_in(before, "") == parse_time("2026-03-29T02:30:00Z")
