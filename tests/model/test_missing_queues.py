"""A LocalQueue that a job names and no file defines: a note where no queue is among the files, else a warning."""

from pathlib import Path

import pytest

from gpuconsole.model.manifests import load, load_text

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: x}]}
"""
CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: team}
spec:
  schedule: 0 3 * * *
  jobTemplate:
    metadata: {labels: {kueue.x-k8s.io/queue-name: lq}}
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: c, image: x}]}
"""
WORKLOAD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: team}
spec:
  queueName: lq
  podSets: [{name: main, count: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}]
"""
OTHER_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: other, namespace: elsewhere}
spec: {clusterQueue: cq}
"""
CLUSTER_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {namespaceSelector: {}}
"""


def found(*texts: str) -> list[str]:
    """Severities of what is said of the missing LocalQueue, strictly read."""
    findings = load_text("---".join(texts), strict=True).findings
    return [f.severity.value for f in findings if f.code == "undefined-localqueue"]


@pytest.mark.parametrize("work", [JOB, CRON_JOB, WORKLOAD], ids=["a Job", "a CronJob", "a Workload"])
def test_work_alone_gets_a_note_and_beside_queues_a_warning(work: str) -> None:
    assert found(work) == ["note"]
    assert found(work, OTHER_QUEUE, CLUSTER_QUEUE) == ["warning"]
    assert found(work, CLUSTER_QUEUE) == ["warning"]


def test_a_note_says_what_the_warning_says() -> None:
    (finding,) = load_text(JOB, strict=True).findings
    assert finding.problem == "LocalQueue lq is not defined: the job waits until it exists"
    assert finding.path == "metadata.labels[kueue.x-k8s.io/queue-name]"


def test_queues_that_are_there_already_count(tmp_path: Path) -> None:
    there, change = tmp_path / "queues.yaml", tmp_path / "job.yaml"
    there.write_text(CLUSTER_QUEUE)
    change.write_text(JOB)
    assert [f.severity.value for f in load([change], over=[there]).findings] == ["warning"]
    assert [f.severity.value for f in load([change]).findings] == ["note"]
