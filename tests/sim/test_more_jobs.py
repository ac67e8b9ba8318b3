"""ReplicaSets, and the cron jobs of Volcano and KubeRay: read, checked, shown and simulated."""

import json
from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import load_text
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.ui.yaml_view import as_manifest
from tests.support.sample_manifests import errors_and_warnings

Manifest = dict[str, Any]
NODE: Manifest = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}},
}


def pod(gpus: int = 1, policy: str = "", **labels: str) -> Manifest:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    said = {"restartPolicy": policy} if policy else {}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container], **said}}


def replica_set(replicas: int = 3, **spec: Any) -> Manifest:
    whole = {"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": pod(app="a"), **spec}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"}, "spec": whole}


def volcano_cron(**spec: Any) -> Manifest:
    task = {"name": "t", "replicas": 2, "template": pod(policy="Never")}
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    meta = {"labels": {"team": "x"}, "annotations": {"gpuconsole.io/duration": "10m"}}
    template = {
        "metadata": meta,
        "spec": {"minAvailable": 2, "queue": "default", "tasks": [task], "policies": policies},
    }
    whole = {"schedule": "*/30 * * * *", "jobTemplate": template, **spec}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": "a"}, "spec": whole}


def ray_cron(**spec: Any) -> Manifest:
    cluster = {"headGroupSpec": {"template": pod()}, "workerGroupSpecs": []}
    template = {"entrypoint": "python x.py", "submissionMode": "HTTPMode", "rayClusterSpec": cluster}
    whole = {"schedule": "*/30 * * * *", "jobTemplate": template, **spec}
    meta = {"name": "a", "annotations": {"gpuconsole.io/duration": "10m"}}
    return {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": meta, "spec": whole}


def run(document: Manifest, minutes: int, engine: str = "kube-scheduler") -> Simulation:
    engines = {"admission": "none", "placement": {"engine": engine}}
    scenario = load_scenario([{"engine": engines, "objects": [NODE, document]}])
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start + minutes * MINUTE)
    return simulation


def made(simulation: Simulation, kind: str) -> list[tuple[str, str]]:
    """Owner and phase of the jobs of a kind, in the order of their names."""
    jobs = sorted(simulation.snapshot().jobs.values(), key=lambda job: job.name)
    return [(job.owner, job.phase.value) for job in jobs if job.kind == kind]


EACH = {"a ReplicaSet": replica_set(), "Volcano's CronJob": volcano_cron(), "a RayCronJob": ray_cron()}


@pytest.mark.parametrize("document", EACH.values(), ids=EACH)
def test_each_is_read_without_a_word_and_shown_as_a_manifest_that_says_the_same(document: Manifest) -> None:
    text = json.dumps(document)
    (thing,) = load_text(text, strict=True).objects
    shown = as_manifest(thing)
    assert errors_and_warnings(text) == []
    assert (shown["apiVersion"], shown["kind"]) == (document["apiVersion"], document["kind"])
    assert errors_and_warnings(json.dumps(shown)) == []
    (again,) = load_text(json.dumps(shown), strict=True).objects
    assert isinstance(thing, Job)
    assert isinstance(again, Job)
    assert (again.rules, again.pod_sets, again.key) == (thing.rules, thing.pod_sets, thing.key)


REFUSED = {
    "a ReplicaSet without a selector": (replica_set(selector=None), ("spec.selector", "required")),
    "a ReplicaSet that selects others": (
        replica_set(selector={"matchLabels": {"app": "b"}}),
        ("spec.template.metadata.labels", "selector"),
    ),
    "a field that ReplicaSets lack": (replica_set(strategy={}), ("spec.strategy", "unknown-field")),
    "a schedule that is none (Volcano)": (volcano_cron(schedule="often"), ("spec.schedule", "bad-schedule")),
    "a schedule that is none (Ray)": (ray_cron(schedule="often"), ("spec.schedule", "bad-schedule")),
    "a zone that is none": (ray_cron(timeZone="Mars/Base"), ("spec.timeZone", "bad-time-zone")),
    "a field of CronJobs that RayCronJobs lack": (
        ray_cron(concurrencyPolicy="Forbid"),
        ("spec.concurrencyPolicy", "unknown-field"),
    ),
    "a RayCronJob without a cluster": (ray_cron(jobTemplate={}), ("spec.jobTemplate.rayClusterSpec", "required")),
    "a field that Volcano Jobs lack": (
        volcano_cron(jobTemplate={"spec": {"tasks": [], "shape": 1}}),
        ("spec.jobTemplate.spec.shape", "unknown-field"),
    ),
}


@pytest.mark.parametrize(("document", "wanted"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_told_at_its_field(document: Manifest, wanted: tuple[str, str]) -> None:
    assert wanted in [(path, code) for _, path, code in errors_and_warnings(json.dumps(document))]


def test_a_replica_set_makes_its_pods_and_replaces_those_that_go() -> None:
    pods = run(replica_set(3), 1).snapshot().pods.values()
    assert sorted((pod.name, pod.node, pod.job) for pod in pods) == [
        (f"a-{number}", "n", "ReplicaSet/default/a") for number in range(3)
    ]


def test_volcanos_cron_job_makes_volcano_jobs_on_its_schedule() -> None:
    simulation = run(volcano_cron(), 65, "Volcano")
    owner = "VolcanoCronJob/default/a"
    assert made(simulation, "VolcanoJob") == [(owner, "Succeeded"), (owner, "Running")]
    assert [dict(job.labels) for job in simulation.snapshot().jobs.values() if job.kind == "VolcanoJob"] == [
        {"team": "x"}
    ] * 2


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [({"successfulJobsHistoryLimit": 1}, 1), ({"suspend": True}, 0), ({}, 3)],
)
def test_volcanos_cron_job_keeps_as_many_as_it_says(spec: Manifest, wanted: int) -> None:
    assert len(made(run(volcano_cron(**spec), 119, "Volcano"), "VolcanoJob")) == wanted


def test_a_ray_cron_job_makes_ray_jobs_and_deletes_none() -> None:
    simulation = run(ray_cron(), 175)
    assert made(simulation, "RayJob") == [("RayCronJob/default/a", "Succeeded")] * 5
    jobs = [job for job in simulation.snapshot().jobs.values() if job.kind == "RayJob"]
    assert {tuple(job.labels.items()) for job in jobs} == {(("ray.io/cronjob-name", "a"),)}
