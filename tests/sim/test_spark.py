"""SparkApplications (sparkoperator.k8s.io): what Kueue counts of them, what its webhook refuses, and how they run."""

from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.manifests import Severity
from gpuconsole.model.manifests.loading import load_text
from tests.sim import manifests
from tests.sim.cluster import START, UNQUEUED, key_of, nodes, start, submit, two_teams


def spark(queue: str = "lq", driver: dict[str, Any] | None = None, **executor: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": manifests.meta("pi", queue=queue, duration="10m"),
        "spec": {
            "type": "Scala",
            "mode": "cluster",
            "sparkVersion": "4.0.0",
            "driver": driver or {"coreRequest": "1", "memory": "1g"},
            "executor": {"instances": 2, **executor},
        },
    }


def the_job(document: dict[str, Any]) -> Job:
    (job,) = manifests.read(document)
    assert isinstance(job, Job)
    return job


def test_driver_and_executors_are_pod_sets_with_what_the_operator_requests_for_them() -> None:
    gpu = {"name": "nvidia.com/gpu", "quantity": 2}
    sidecar = {"name": "log", "image": "l", "resources": {"requests": {"cpu": "500m"}}}
    job = the_job(
        spark(
            coreRequest="1500m",
            coreLimit="2",
            memory="512m",
            memoryLimit="2G",
            gpu=gpu,
            sidecars=[sidecar],
            nodeSelector={"zone": "a"},
            tolerations=[{"key": "gpu", "operator": "Exists"}],
            priorityClassName="batch",
            labels={"team": "red"},
        )
    )
    driver, executor = job.pod_sets
    assert [(part.name, part.count, part.template.requests) for part in job.pod_sets] == [
        ("driver", 1, {"cpu": 1000, "memory": 2**30}),
        ("executor", 2, {"cpu": 2000, "memory": 512 * 2**20, "nvidia.com/gpu": 2}),
    ]
    template = executor.template
    assert template.containers[0].limits == {"cpu": 2000, "memory": 2 * 2**30, "nvidia.com/gpu": 2}
    assert (template.node_selector, template.priority_class, template.labels) == (
        {"zone": "a"},
        "batch",
        {"team": "red"},
    )
    assert [toleration.key for toleration in template.tolerations] == ["gpu"]
    assert driver.template.containers[0].name == "spark-kubernetes-driver"


@pytest.mark.parametrize(
    ("text", "amount"), [("1g", 2**30), ("1gb", 2**30), ("2048k", 2**21), ("3T", 3 * 2**40), ("100Mi", 100 * 2**20)]
)
def test_memory_is_read_as_java_writes_it(text: str, amount: int) -> None:
    job = the_job(spark(driver={"memory": text}))
    assert job.pod_sets[0].template.requests == {"memory": amount}


def test_executors_that_are_not_numbered_are_none() -> None:
    document = spark()
    del document["spec"]["executor"]["instances"]
    assert [part.count for part in the_job(document).pod_sets] == [1, 0]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"mode": "client"},
            'spec.mode: Invalid value: "client": only Cluster mode is supported for a kueue managed job',
        ),
        (
            {"dynamicAllocation": {"enabled": True}},
            "spec.dynamicAllocation.enabled: Invalid value: true: a kueue managed job can use dynamicAllocation only"
            " when the ElasticJobsViaWorkloadSlices feature gate is on and the job is an elastic job",
        ),
    ],
)
def test_what_kueue_refuses_of_a_queued_application(spec: dict[str, Any], problem: str) -> None:
    document = spark()
    document["spec"].update(spec)
    queued = load_text(manifests.dumps(document), "s.yaml", strict=True).findings
    refused = [finding for finding in queued if finding.severity is Severity.ERROR]
    assert [f"{finding.path}: {finding.problem}" for finding in refused] == [problem]
    del document["metadata"]["labels"]
    assert load_text(manifests.dumps(document), "s.yaml", strict=True).findings == ()


def test_an_application_is_admitted_as_a_whole_and_ends_with_its_driver() -> None:
    simulation = start(two_teams())
    gpu = {"name": "nvidia.com/gpu", "quantity": 2}
    free = {"labels": {"app": "pi"}}
    submit(simulation, *manifests.read(spark(driver=free, gpu=gpu)))
    workload = simulation.snapshot().workloads[key_of(simulation, "red/pi")]
    assert (workload.gpus, workload.admitted) == (4, True)
    assert sorted(pod.name for pod in simulation.snapshot().pods.all()) == [
        "pi-driver-0",
        "pi-executor-0",
        "pi-executor-1",
    ]
    simulation.advance(START + 11 * MINUTE)
    assert simulation.snapshot().jobs["SparkApplication/red/pi"].phase is JobPhase.SUCCEEDED


def test_without_a_queue_it_starts_at_once_unless_it_is_suspended() -> None:
    simulation = start(nodes(2), UNQUEUED)
    document = spark(queue="")
    submit(simulation, *manifests.read(document))
    assert len(simulation.snapshot().pods) == 3
    document["metadata"]["name"], document["spec"]["suspend"] = "later", True
    submit(simulation, *manifests.read(document))
    assert simulation.snapshot().jobs["SparkApplication/red/later"].phase is JobPhase.SUSPENDED
