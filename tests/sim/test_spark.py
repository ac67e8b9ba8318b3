"""SparkApplications (sparkoperator.k8s.io): what Kueue counts of them, what its webhook refuses, and how they run."""

from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import SetActive
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.manifests import Severity
from gpuconsole.model.manifests.loading import load_text
from gpuconsole.sim.engine import Simulation
from gpuconsole.ui.yaml_view import as_manifest
from tests.support import job_manifests
from tests.support.sim_cluster import START, UNQUEUED, key_of, nodes, run, start, submit, two_teams


def spark(queue: str = "lq", driver: dict[str, Any] | None = None, **executor: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": job_manifests.meta("pi", queue=queue, duration="10m"),
        "spec": {
            "type": "Scala",
            "mode": "cluster",
            "sparkVersion": "4.0.0",
            "driver": driver or {"coreRequest": "1", "memory": "1g"},
            "executor": {"instances": 2, **executor},
        },
    }


def the_job(document: dict[str, Any]) -> Job:
    (job,) = job_manifests.read(document)
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
    queued = load_text(job_manifests.dumps(document), "s.yaml", strict=True).findings
    refused = [finding for finding in queued if finding.severity is Severity.ERROR]
    assert [f"{finding.path}: {finding.problem}" for finding in refused] == [problem]
    del document["metadata"]["labels"]
    assert load_text(job_manifests.dumps(document), "s.yaml", strict=True).findings == ()


def test_an_application_is_admitted_as_a_whole_and_ends_with_its_driver() -> None:
    simulation = start(two_teams())
    gpu = {"name": "nvidia.com/gpu", "quantity": 2}
    free = {"labels": {"app": "pi"}}
    submit(simulation, *job_manifests.read(spark(driver=free, gpu=gpu)))
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
    submit(simulation, *job_manifests.read(document))
    assert len(simulation.snapshot().pods) == 3
    document["metadata"]["name"], document["spec"]["suspend"] = "later", True
    submit(simulation, *job_manifests.read(document))
    assert simulation.snapshot().jobs["SparkApplication/red/later"].phase is JobPhase.SUSPENDED


def unqueued(**executor: Any) -> dict[str, Any]:
    document = spark(queue="", **executor)
    if "instances" not in executor:
        del document["spec"]["executor"]["instances"]
    return document


@pytest.mark.parametrize(
    ("spec", "instances", "started"),
    [
        (
            {"dynamicAllocation": {"enabled": True, "initialExecutors": 3, "minExecutors": 1, "maxExecutors": 9}},
            None,
            3,
        ),
        ({"dynamicAllocation": {"enabled": True, "initialExecutors": 1, "minExecutors": 4}}, None, 4),
        ({"dynamicAllocation": {"enabled": True, "initialExecutors": 2}}, 5, 5),
        ({"dynamicAllocation": {"enabled": True, "initialExecutors": 8, "maxExecutors": 6}}, None, 6),
        ({"dynamicAllocation": {"enabled": True}}, None, 0),
        ({"dynamicAllocation": {"enabled": False, "initialExecutors": 3}}, 1, 1),
        (
            {
                "sparkConf": {
                    "spark.dynamicAllocation.enabled": "true",
                    "spark.dynamicAllocation.minExecutors": "2",
                    "spark.executor.instances": "3",
                }
            },
            None,
            3,
        ),
        ({"sparkConf": {"spark.executor.instances": "7"}}, None, 7),
        ({"sparkConf": {"spark.executor.instances": "7"}}, 4, 4),
        ({"sparkConf": {"spark.eventLog.enabled": "true"}}, None, 1),
        ({}, None, 2),
    ],
)
def test_without_kueue_as_many_executors_start_as_spark_asks_for_first(
    spec: dict[str, Any], instances: int | None, started: int
) -> None:
    """Spark: the most of instances, initial and minimum, where it allocates dynamically; two where nothing is said."""
    document = unqueued(**({} if instances is None else {"instances": instances}))
    document["spec"].update(spec)
    assert [part.count for part in the_job(document).pod_sets] == [1, started]


def test_an_elastic_application_of_kueue_starts_with_its_initial_executors() -> None:
    document = spark()
    document["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = "true"
    document["spec"]["dynamicAllocation"] = {"enabled": True, "initialExecutors": 4, "maxExecutors": 8}
    assert [part.count for part in the_job(document).pod_sets] == [1, 4]


def scheduled(schedule: str, *, queue: str = "", duration: str = "10m", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "ScheduledSparkApplication",
        "metadata": job_manifests.meta("etl", queue=queue, duration=duration),
        "spec": {"schedule": schedule, "template": spark()["spec"], **more},
    }


def runs(simulation: Simulation, span: int) -> list[str]:
    """What started and ended, with the run's number by the order of their times (minutes since the start)."""
    lines = run(simulation, span)
    for minute in range(200):
        lines = [line.replace(f"etl-{(START + minute * MINUTE) * 1000}", f"etl@{minute}") for line in lines]
    return lines


def test_a_scheduled_application_makes_an_application_at_each_time() -> None:
    """The operator's own example has @every; each run is named by its nanosecond, and one of each kind is kept."""
    simulation = start(nodes(2), UNQUEUED)
    submit(simulation, *job_manifests.read(scheduled("@every 30m")))
    assert runs(simulation, 65 * MINUTE) == [
        "30:00 started SparkApplication/red/etl@30",
        "40:00 finished SparkApplication/red/etl@30",
        "60:00 started SparkApplication/red/etl@60",
    ]
    (first, second) = [job for job in simulation.snapshot().jobs.all() if job.kind == "SparkApplication"]
    assert (first.owner, first.labels["sparkoperator.k8s.io/scheduled-app-name"]) == (
        "ScheduledSparkApplication/red/etl",
        "etl",
    )
    assert second.phase is JobPhase.RUNNING


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        ("Allow", ["30:00 started SparkApplication/red/etl@30", "60:00 started SparkApplication/red/etl@60"]),
        # The run of minute 60 is left out; what is due while another one runs waits for the next time.
        ("Forbid", ["30:00 started SparkApplication/red/etl@30", "75:00 finished SparkApplication/red/etl@30"]),
        (
            "Replace",
            [
                "30:00 started SparkApplication/red/etl@30",
                "60:00 deleted SparkApplication/red/etl@30",
                "60:00 started SparkApplication/red/etl@60",
            ],
        ),
    ],
)
def test_what_a_scheduled_application_does_while_its_last_run_goes_on(policy: str, lines: list[str]) -> None:
    simulation = start(nodes(4), UNQUEUED)
    document = scheduled("*/30 * * * *", duration="45m", concurrencyPolicy=policy)
    submit(simulation, *job_manifests.read(document))
    until = 80 if policy == "Forbid" else 62
    assert [line for line in runs(simulation, until * MINUTE) if "POD" not in line] == lines


def test_a_suspended_scheduled_application_makes_none_until_it_is_resumed() -> None:
    simulation = start(nodes(2), UNQUEUED)
    submit(simulation, *job_manifests.read(scheduled("*/30 * * * *", suspend=True)))
    assert runs(simulation, 65 * MINUTE) == []
    simulation.submit(SetActive("ScheduledSparkApplication/red/etl", True))
    simulation.advance(START + 66 * MINUTE)
    assert [job.phase for job in simulation.snapshot().jobs.all() if job.kind == "SparkApplication"] == [
        JobPhase.RUNNING
    ]


def test_the_runs_of_a_scheduled_application_go_through_its_queue() -> None:
    simulation = start(two_teams())
    document = scheduled("@every 30m", queue="lq")
    gpu = {"name": "nvidia.com/gpu", "quantity": 2}
    document["spec"]["template"] |= {"driver": {"labels": {"app": "etl"}}, "executor": {"instances": 2, "gpu": gpu}}
    submit(simulation, *job_manifests.read(document))
    simulation.advance(START + 31 * MINUTE)
    (workload,) = simulation.snapshot().workloads.all()
    assert (workload.queue, workload.admitted, [part.count for part in workload.pod_sets]) == ("lq", True, [1, 2])


def test_a_scheduled_application_is_written_as_it_is_read() -> None:
    document = scheduled("@every 30m", queue="lq", concurrencyPolicy="Forbid", successfulRunHistoryLimit=3)
    (note,) = load_text(job_manifests.dumps(document), "s.yaml", strict=True).findings
    assert (note.code, note.path) == ("undefined-localqueue", "metadata.labels[kueue.x-k8s.io/queue-name]")
    made = the_job(document)
    assert the_job(as_manifest(made)) == made
