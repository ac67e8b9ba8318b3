"""Which pod templates may leave restartPolicy out: those that a webhook completes (JobSet's writes OnFailure)."""

import json
from typing import Any

import pytest

from gpuconsole.model.job import Job, TrainingRuntime
from gpuconsole.model.manifests import load_text
from tests.support.sample_manifests import errors_and_warnings

Manifest = dict[str, Any]
JOBSET, TRAINER = "jobset.x-k8s.io/v1alpha2", "trainer.kubeflow.org/v1alpha1"


def replicated(name: str, **policy: str) -> Manifest:
    container = {"name": "node", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"name": name, "template": {"spec": {"template": {"spec": {"containers": [container], **policy}}}}}


def document(kind: str, *jobs: Manifest) -> str:
    spec: Manifest = {"replicatedJobs": list(jobs)}
    meta = {"name": "a"} if kind == "ClusterTrainingRuntime" else {"name": "a", "namespace": "n"}
    if kind == "JobSet":
        return json.dumps({"apiVersion": JOBSET, "kind": kind, "metadata": meta, "spec": spec})
    runtime = {"mlPolicy": {"numNodes": 1}, "template": {"spec": spec}}
    return json.dumps({"apiVersion": TRAINER, "kind": kind, "metadata": meta, "spec": runtime})


def policies(text: str) -> dict[str, str]:
    (thing,) = load_text(text, "a.json", strict=True).objects
    assert isinstance(thing, (Job, TrainingRuntime))
    return {pods.name: pods.template.restart_policy for pods in thing.pod_sets}


@pytest.mark.parametrize("kind", ["JobSet", "TrainingRuntime", "ClusterTrainingRuntime"])
def test_every_replicated_job_without_a_restart_policy_restarts_on_failure(kind: str) -> None:
    text = document(
        kind, replicated("init"), replicated("loader", restartPolicy=""), replicated("node", restartPolicy="Never")
    )
    assert errors_and_warnings(text) == []
    assert policies(text) == {"init": "OnFailure", "loader": "OnFailure", "node": "Never"}


@pytest.mark.parametrize("kind", ["JobSet", "TrainingRuntime", "ClusterTrainingRuntime"])
def test_a_restart_policy_that_no_job_takes_is_refused_where_it_stands(kind: str) -> None:
    text = document(kind, replicated("init"), replicated("node", restartPolicy="Always"))
    above = "spec" if kind == "JobSet" else "spec.template.spec"
    path = f"{above}.replicatedJobs[1].template.spec.template.spec.restartPolicy"
    assert errors_and_warnings(text) == [("error", path, "no-restart-policy")]


def test_a_job_without_a_restart_policy_is_refused_as_nothing_completes_it() -> None:
    template = {"spec": {"containers": [{"name": "node", "image": "x"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": template}}
    assert errors_and_warnings(json.dumps(job)) == [("error", "spec.template.spec.restartPolicy", "no-restart-policy")]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"completionMode": "Indexed"}, []),
        ({"completionMode": "Indexed", "parallelism": 2, "completions": 2}, []),
        ({"completionMode": "Indexed", "parallelism": 2}, [("error", "spec.completions", "required")]),
    ],
)
def test_an_indexed_job_needs_completions_only_where_it_says_its_parallelism(
    spec: Manifest, wanted: list[tuple[str, str, str]]
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "x"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": template, **spec}}
    assert errors_and_warnings(json.dumps(job)) == wanted
