"""KubeRay's own configuration, where it is among the manifests, says which scheduler the pods of Ray go to."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuconsole.model.job import Job
from gpuconsole.model.manifests import load, load_text
from tests.model.test_ray_schedulers import KAI, VOLCANO, document

CONFIG = {"apiVersion": "config.ray.io/v1alpha1", "kind": "Configuration"}


def configuration(**fields: Any) -> dict[str, Any]:
    return {**CONFIG, **fields}


def config_map(**fields: Any) -> dict[str, Any]:
    data = {"config.yaml": yaml.safe_dump(configuration(**fields))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kuberay"}, "data": data}


def deployment(*args: str) -> dict[str, Any]:
    container = {"name": "operator", "image": "quay.io/kuberay/operator:v1.6.0", "args": list(args)}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    meta = {"name": "kuberay-operator", "namespace": "ray"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def documents(given: list[dict[str, Any]]) -> str:
    return "\n---\n".join(map(json.dumps, given))


GIVEN: dict[str, tuple[list[dict[str, Any]], str]] = {
    "Volcano": ([configuration(batchScheduler="volcano")], "volcano"),
    "Volcano by the old field": ([configuration(enableBatchScheduler=True)], "volcano"),
    "KAI": ([configuration(batchScheduler="kai-scheduler")], "kai-scheduler"),
    "YuniKorn": ([configuration(batchScheduler="yunikorn")], "yunikorn"),
    "scheduler-plugins": ([configuration(batchScheduler="scheduler-plugins")], "scheduler-plugins-scheduler"),
    "none": ([configuration()], "mine"),
    "the default": ([configuration(batchScheduler="default")], "mine"),
    "a ConfigMap": ([config_map(batchScheduler="kai-scheduler")], "kai-scheduler"),
    "arguments": ([deployment("--batch-scheduler=volcano")], "volcano"),
    "old arguments": ([deployment("--enable-batch-scheduler")], "volcano"),
    "no arguments": ([deployment()], "mine"),
    "a Configuration over arguments": (
        [config_map(batchScheduler="kai-scheduler"), deployment("--config=/etc/config.yaml")],
        "kai-scheduler",
    ),
    "values": ([{"batchScheduler": {"enabled": False, "name": "volcano"}}], "volcano"),
    "values of a chart around it": (
        [{"kuberay-operator": {"batchScheduler": {"enabled": True, "name": ""}}}],
        "volcano",
    ),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
@pytest.mark.parametrize("name", GIVEN)
def test_the_operator_writes_the_scheduler_that_it_is_configured_for(name: str, kind: str, first: bool) -> None:
    given, scheduler = GIVEN[name]
    ray = json.loads(
        document(kind, {}, "mine", submissionMode="HTTPMode") if kind == "RayJob" else document(kind, {}, "mine")
    )
    loaded = load_text(documents([*given, ray] if first else [ray, *given]), "ray.yaml")
    (job,) = (one for one in loaded.objects if isinstance(one, Job) and one.kind == kind)
    assert {pods.template.scheduler_name for pods in job.pod_sets} == {scheduler}
    assert (job.ray_group is not None) == (scheduler == "volcano")
    assert not loaded.has_errors


def test_the_configuration_wins_over_what_labels_show() -> None:
    text = documents(
        [json.loads(document("RayJob", {KAI: "q", VOLCANO: "v"})), configuration(batchScheduler="volcano")]
    )
    loaded = load_text(text)
    (job,) = loaded.objects
    assert isinstance(job, Job)
    assert [(one.template.scheduler_name, one.template.labels.get(VOLCANO)) for one in job.pod_sets] == [
        ("volcano", "v")
    ] * 3
    assert [one.code for one in loaded.findings if one.code == "ray-submission-mode"] == []


def test_what_the_configured_scheduler_refuses_is_said_of_jobs_without_its_label() -> None:
    text = documents([json.loads(document("RayJob", {})), configuration(batchScheduler="kai-scheduler")])
    assert [one.code for one in load_text(text).findings] == ["ray-submission-mode"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"batchScheduler": "slurm"}, "scheduler is not supported, name=slurm: KubeRay's operator does not start"),
        (
            {"batchScheduler": "volcano", "enableBatchScheduler": True},
            "do not use both options together: batch-scheduler and enable-batch-scheduler",
        ),
    ],
)
def test_a_configuration_that_the_operator_refuses_is_an_error(fields: dict[str, Any], problem: str) -> None:
    (found,) = load_text(yaml.safe_dump(configuration(**fields))).findings
    assert (found.problem, found.path, found.line, found.code) == (problem, "batchScheduler", 2, "kuberay-scheduler")


def test_values_of_the_chart_in_a_folder_count_though_the_file_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "ray.yaml").write_text(document("RayCluster", {}))
    (tmp_path / "values.yaml").write_text("batchScheduler:\n  name: volcano\n")
    loaded = load([tmp_path])
    (job,) = loaded.objects
    assert isinstance(job, Job)
    assert {pods.template.scheduler_name for pods in job.pod_sets} == {"volcano"}
    assert [one.code for one in loaded.findings] == ["ignored-files"]
