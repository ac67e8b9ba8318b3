"""`gpuconsole whatif --engine`: the same load under Kueue and under other schedulers, in numbers that are known."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Line

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", pods: "110"}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: red}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu, cpu, memory]
      flavors:
        - name: any
          resources:
            - {name: nvidia.com/gpu, nominalQuota: 4}
            - {name: cpu, nominalQuota: 64}
            - {name: memory, nominalQuota: 512Gi}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: red}
spec: {clusterQueue: red}
"""
JOB = """
---
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
  namespace: red
  labels: {kueue.x-k8s.io/queue-name: lq}
  annotations: {gpuconsole.io/duration: 1h}
spec:
  suspend: true
  parallelism: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example.com/work:1, resources: {limits: {nvidia.com/gpu: "4"}}}]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Eight GPUs of which Kueue gives away four: two jobs of four follow each other, and run at once without it."""
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER + JOB.replace("NAME", "a") + JOB.replace("NAME", "b"))
    return file


def compared(gpuconsole: Line, *arguments: str | Path) -> dict[str, Any]:
    result = gpuconsole("whatif", *arguments, "-o", "json")
    assert result.status == 0
    document = json.loads(result.out)
    assert (document["kind"], document["version"]) == ("EngineComparison", 1)
    answer = document["answer"]
    assert isinstance(answer, dict)
    return answer


def test_the_same_jobs_under_kueue_and_under_kube_scheduler_alone(gpuconsole: Line, cluster: Path) -> None:
    answer = compared(gpuconsole, cluster, "--engine", "kube-scheduler", "--horizon", "4h")
    assert answer["engines"] == [
        {
            "engine": "Kueue 0.19, kube-scheduler",
            "started": 2,
            "finished": 2,
            "wait_median_seconds": 1800.5,
            "wait_p95_seconds": 3420.95,
            "wait_longest_seconds": 3601.0,
            "gpu_hours": 8.0,
            "capacity_hours": 32.0,
            "utilization": 0.25,
            "preemptions": 0,
            "evictions": 0,
            "lost_gpu_hours": 0.0,
            "lost_cost": 0.0,
        },
        {
            "engine": "kube-scheduler",
            "started": 2,
            "finished": 2,
            "wait_median_seconds": 0.0,
            "wait_p95_seconds": 0.0,
            "wait_longest_seconds": 0.0,
            "gpu_hours": 8.0,
            "capacity_hours": 32.0,
            "utilization": 0.25,
            "preemptions": 0,
            "evictions": 0,
            "lost_gpu_hours": 0.0,
            "lost_cost": 0.0,
        },
    ]
    assert [(job["job"], job["queue"], [course["started"] for course in job["courses"]]) for job in answer["jobs"]] == [
        ("Job/red/a", "red", ["2026-01-05T08:00:00Z", "2026-01-05T08:00:00Z"]),
        ("Job/red/b", "red", ["2026-01-05T09:00:01Z", "2026-01-05T08:00:00Z"]),
    ]
    assert answer["queues"] == [
        {
            "queue": "red",
            "jobs": 2,
            "started": [2, 2],
            "wait_median_seconds": [1800.5, 0.0],
            "gpu_hours": [8.0, 8.0],
        }
    ]


@pytest.mark.parametrize("engine", ["volcano", "kai"])
def test_the_quota_of_a_cluster_queue_without_a_cohort_bounds_the_queue_of_another_engine(
    gpuconsole: Line, cluster: Path, engine: str
) -> None:
    answer = compared(gpuconsole, cluster, "--engine", engine, "--horizon", "4h")
    starts = [job["courses"][1]["started"] for job in answer["jobs"]]
    assert starts[0].startswith("2026-01-05T08:00:0")
    assert starts[1].startswith("2026-01-05T09:00:0")


def test_several_engines_stand_side_by_side_in_a_table(gpuconsole: Line, cluster: Path) -> None:
    engines = ("--engine", "volcano", "--engine", "kai", "--engine", "kube-scheduler")
    lines = gpuconsole("whatif", cluster, *engines, "--horizon", "4h").lines
    assert lines[0] == "2 jobs from 2026-01-05T08:00:00Z to +4h, seed 0"
    assert lines[2].split() == ["KUEUE", "0.19,", "KUBE-SCHEDULER", "VOLCANO", "KAI", "KUBE-SCHEDULER"]
    assert [line.split("  ")[0] for line in lines[3:14]] == [
        "jobs started",
        "jobs finished",
        "jobs not started",
        "wait p50",
        "wait p95",
        "wait max",
        "mean GPU utilization",
        "preemptions",
        "evictions",
        "GPU-hours used",
        "GPU-hours lost",
    ]


def test_jobs_of_steps_and_streams_come_under_every_engine(gpuconsole: Line, tmp_path: Path, cluster: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "files: [cluster.yaml]\n"
        "arrivals: [{name: load, namespace: red, queue: lq, perHour: 6, shapes: [{gpus: 1}], duration: 10m}]\n"
    )
    answer = compared(gpuconsole, scenario, "--engine", "volcano", "--horizon", "6h")
    kueue, volcano = answer["engines"]
    assert len(answer["jobs"]) > 20
    assert kueue["started"] > 20
    assert volcano["started"] > 20
    assert len({job["job"] for job in answer["jobs"]}) == len(answer["jobs"])


def test_work_of_higher_priority_keeps_its_priority(gpuconsole: Line, tmp_path: Path, cluster: Path) -> None:
    """Of two jobs that come while four GPUs are used, the one of the higher class starts first."""
    high = "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: 90\n"
    urgent = JOB.replace("NAME", "urgent").replace(
        "queue-name: lq", "queue-name: lq, kueue.x-k8s.io/priority-class: high"
    )
    cluster.write_text(cluster.read_text() + "\n" + high + urgent)
    answer = compared(gpuconsole, cluster, "--engine", "volcano", "--horizon", "4h")
    started = {job["job"]: job["courses"][1]["started"] for job in answer["jobs"]}
    assert min(started, key=lambda job: started[job]) == "Job/red/urgent"


def test_a_saved_cluster_is_compared_by_its_unfinished_jobs(gpuconsole: Line, tmp_path: Path, cluster: Path) -> None:
    saved = tmp_path / "s.json"
    gpuconsole("simulate", cluster, "--until", "30m", "--save", saved)
    answer = compared(gpuconsole, "--snapshot", saved, "--engine", "kube-scheduler", "--horizon", "4h")
    assert [[course["started"] for course in job["courses"]] for job in answer["jobs"]] == [
        ["2026-01-05T08:30:00Z", "2026-01-05T08:30:00Z"],
        ["2026-01-05T09:30:01Z", "2026-01-05T08:30:00Z"],
    ]


def test_changes_and_engines_are_two_questions(gpuconsole: Line, cluster: Path) -> None:
    both = gpuconsole("whatif", cluster, "--engine", "kai", "-f", cluster)
    assert (both.status, both.err) == (2, "gpuconsole: give changes (--file) or engines (--engine), not both\n")
    neither = gpuconsole("whatif", cluster)
    assert neither.status == 2
    assert "give changes (--file) or engines (--engine)" in neither.err


def test_a_cluster_that_runs_volcano_is_compared_with_kueue(gpuconsole: Line, tmp_path: Path, cluster: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("engine: {admission: none, placement: {engine: Volcano}}\nfiles: [cluster.yaml]\n")
    answer = compared(gpuconsole, scenario, "--engine", "kueue", "--horizon", "4h")
    assert [totals["engine"] for totals in answer["engines"]] == ["Volcano", "Kueue 0.19, kube-scheduler"]
    assert [totals["finished"] for totals in answer["engines"]] == [0, 2]
