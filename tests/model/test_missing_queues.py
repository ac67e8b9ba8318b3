"""What a job names and no file defines, such as its LocalQueue: a note where none of that kind is among the files."""

from pathlib import Path

import pytest

from gpuconsole.model.job import Job
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


HEAD = "metadata: {name: a, namespace: team}"
VOLCANO_JOB = f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
{HEAD}
spec:
  queue: research
  minAvailable: 1
  policies: [{{event: PodFailed, action: RestartJob}}]
  tasks:
  - {{name: w, replicas: 1, template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: x}}]}}}}}}
"""
FLOW = f"apiVersion: flow.volcano.sh/v1alpha1\nkind: JobFlow\n{HEAD}\nspec: {{flows: [{{name: t}}]}}\n"
TEMPLATE = (
    VOLCANO_JOB.replace("batch.volcano.sh", "flow.volcano.sh")
    .replace("kind: Job", "kind: JobTemplate")
    .replace("  queue: research\n", "")
)
KAI_GROUP = f"apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\n{HEAD}\nspec: {{queue: q, minMember: 1}}\n"
KAI_QUEUE = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: other}\nspec: {resources: {}}\n"
TRAIN = f"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n{HEAD}\nspec: {{runtimeRef: {{name: RUNTIME}}}}\n"
RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: other}
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template: {spec: {template: {spec: {containers: [{name: node, image: x}]}}}}
"""
MISSING = {
    "a template of a JobFlow": (FLOW, TEMPLATE, "undefined-jobtemplate", "warning"),
    "a queue of a KAI PodGroup": (KAI_GROUP, KAI_QUEUE, "undefined-kai", "warning"),
    "a runtime": (TRAIN.replace("RUNTIME", "mine"), RUNTIME, "undefined-clustertrainingruntime", "warning"),
    "a runtime of the namespace": (
        TRAIN.replace("{name: RUNTIME}", "{name: mine, kind: TrainingRuntime}"),
        RUNTIME,
        "undefined-trainingruntime",
        "warning",
    ),
}


@pytest.mark.parametrize(("work", "other", "code", "severity"), MISSING.values(), ids=MISSING)
def test_what_a_lone_file_names_is_a_note_and_more_beside_others_of_its_kind(
    work: str, other: str, code: str, severity: str
) -> None:
    def told(*texts: str) -> list[str]:
        findings = load_text("---\n".join(texts), strict=True).findings
        return [finding.severity.value for finding in findings if finding.code == code]

    assert told(work) == ["note"]
    assert told(work, other.replace("name: a,", "name: b,")) == [severity]


SHIPPED = (
    *("torch-distributed", "torch-distributed-with-cache", "jax-distributed", "xgboost-distributed"),
    *("deepspeed-distributed", "mlx-distributed", "torchtune-llama3.2-1b", "torchtune-qwen2.5-1.5b"),
)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_runtime_that_the_trainer_installs_needs_no_file(name: str) -> None:
    loaded = load_text(TRAIN.replace("RUNTIME", name), strict=True)
    assert loaded.findings == ()
    (job,) = loaded.objects
    assert isinstance(job, Job)
    assert sum(pods.count for pods in job.pod_sets) >= 1
    assert job.pod_sets[-1].template.containers[0].name == "node"
