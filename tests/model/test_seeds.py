"""The five texts that the project began with give exactly the findings that a person who knows Kueue would give."""

from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.manifests import LoadedManifests, Severity, load
from gpuconsole.model.queues import ClusterQueue, Quota
from tests.support.shared_material import SHARED, needs_shared

pytestmark = needs_shared


def seeds(*, strict: bool = False, admit_all_namespaces: bool = False) -> LoadedManifests:
    assert SHARED is not None
    files = sorted((SHARED / "seeds").glob("*.txt"))
    return load(files, strict=strict, admit_all_namespaces=admit_all_namespaces)


GROUP = "spec.resourceGroups[0]"
WARNINGS = [
    ("Job/gpt-finetune-v3", "spec.template.spec.restartPolicy", "no-restart-policy"),
    ("NodePool/gpu-nodepool", "spec.template.spec.nodeClassRef", "no-node-class"),
    ("NodePool/gpu-nodepool", "spec.disruption.consolidationPolicy", "renamed-policy"),
    ("ClusterQueue/gpu-cluster", "spec", "borrowing-without-cohort"),
    ("ClusterQueue/ml-training-cluster", "spec.namespaceSelector", "no-namespace-selector"),
    *(
        ("ClusterQueue/ml-training-cluster", f"{GROUP}.flavors[0].resources[{n}].name", "resource-order")
        for n in range(3)
    ),
    ("ClusterQueue/ml-training-cluster", GROUP, "resource-number"),
    (
        "Job/team-a/llama-finetune-v3",
        "metadata.labels[kueue.x-k8s.io/priority-class]",
        "undefined-workloadpriorityclass",
    ),
    ("Job/ml-training/distributed-training-v5", "spec.queue", "undefined-volcano-queue"),
    ("Job/ml-training/distributed-training-v5", "spec.policies[1].timeout", "no-unit"),
    ("Job/ml-training/distributed-training-v5", "spec.plugins.sla", "unknown-plugin"),
    ("Job/ml-training/distributed-training-v5", "spec.plugins.sla[0]", "plugin-arguments"),
]
NOT_REFUSED = ("no-namespace-selector", "undefined-workloadpriorityclass")


def test_the_seeds_give_exactly_these_warnings() -> None:
    found = [(f.object, f.path, f.code) for f in seeds().findings if f.severity != Severity.NOTE]
    assert found == WARNINGS
    assert not seeds().has_errors


def test_each_warning_names_its_line() -> None:
    assert SHARED is not None
    words = (
        *("    spec:", "spec:", "consolidationPolicy:", "borrowingLimit:", "spec:"),
        *("nvidia.com/gpu", "cpu", "memory", "resources:"),
        *("priority-class:", "queue:", "timeout:", "sla:", "- jobWaitingTime:"),
    )
    warnings = [f for f in seeds().findings if f.severity == Severity.WARNING]
    for finding, word in zip(warnings, words, strict=True):
        with open(finding.file, encoding="utf-8") as file:
            assert word in file.read().split("\n")[finding.line - 1], finding


def test_what_the_api_server_would_refuse_is_an_error_in_strict_mode() -> None:
    found = {f.code: f.severity for f in seeds(strict=True).findings if f.severity != Severity.NOTE}
    wanted = {code: Severity.WARNING if code in NOT_REFUSED else Severity.ERROR for _, _, code in WARNINGS}
    assert found == wanted


def test_the_texts_say_what_would_be_right() -> None:
    texts = {f.code: f"{f.problem} | {f.remedy}" for f in seeds().findings}
    assert "borrowingLimit must be nil when cohort is empty" in texts["borrowing-without-cohort"]
    assert "lacks cpu and memory, whose quota is 0" in texts["resource-number"]
    assert "admits no workloads" in texts["no-namespace-selector"]
    assert "--admit-all-namespaces" in texts["no-namespace-selector"]
    assert "WhenEmptyOrUnderutilized" in texts["renamed-policy"]
    assert "300 has no unit; it is read as 300 seconds | write 300s" in texts["no-unit"]
    assert "a list of maps" in texts["plugin-arguments"]


def test_parts_of_manifests_code_and_tables_are_notes_at_most() -> None:
    notes = [(f.code, f.object or f.file[-10:]) for f in seeds().findings if f.severity == Severity.NOTE]
    assert notes == [
        ("no-queue", "Job/gpt-finetune-v3"),
        ("fragment", "1de80c.txt"),
        ("no-failure-policy", "Job/ml-research/pytorch-distributed"),
        ("no-effect", "DaemonSet/kube-system/nvidia-device-plugin"),
        ("no-manifest", "bb5be8.txt"),
        ("no-manifest", "c0b3ad.txt"),
    ]


def test_everything_that_the_seeds_declare_is_read() -> None:
    loaded = seeds()
    assert sorted(f"{type(thing).__name__}/{thing.key}" for thing in loaded.objects) == [
        "ClusterQueue/gpu-cluster",
        "ClusterQueue/ml-training-cluster",
        "Job/Job/default/gpt-finetune-v3",
        "Job/Job/ml-research/distributed-training",
        "Job/Job/team-a/llama-finetune-v3",
        "Job/VolcanoJob/ml-research/pytorch-distributed",
        "Job/VolcanoJob/ml-training/distributed-training-v5",
        "LocalQueue/ml-production/ml-production-queue",
        "LocalQueue/ml-research/ml-research-queue",
        "LocalQueue/team-a/team-a-training",
        "NodePool/gpu-nodepool",
        "PriorityClass/development",
        "PriorityClass/experiment-high",
        "PriorityClass/experiment-normal",
        "PriorityClass/production-retrain",
        "PriorityClass/training-high",
        "ResourceFlavor/a100-80gb",
        "ResourceFlavor/h100-80gb",
        "ResourceFlavor/nvidia-a100",
        "ResourceFlavor/nvidia-h100",
        "ResourceFlavor/nvidia-l4",
    ]
    assert (loaded.unknown, loaded.known_unsimulated, loaded.scenario) == ({}, {}, ())


def test_missing_quotas_are_zero_and_stand_in_the_order_of_the_group() -> None:
    queue = next(thing for thing in seeds().objects if thing.key == "ml-training-cluster")
    assert isinstance(queue, ClusterQueue)
    assert queue.namespace_selector is None
    assert list(queue.quotas().items()) == [
        (("a100-80gb", "cpu"), Quota(512_000)),
        (("a100-80gb", "memory"), Quota(4 * 1024**4)),
        (("a100-80gb", "nvidia.com/gpu"), Quota(64, 16, 16)),
        (("h100-80gb", "cpu"), Quota()),
        (("h100-80gb", "memory"), Quota()),
        (("h100-80gb", "nvidia.com/gpu"), Quota(32)),
    ]


def test_all_namespaces_are_admitted_where_that_is_asked_for() -> None:
    loaded = seeds(admit_all_namespaces=True)
    queues = [thing for thing in loaded.objects if isinstance(thing, ClusterQueue)]
    assert [queue.namespace_selector for queue in queues] == [LabelSelector(), LabelSelector()]
    severities = [f.severity for f in loaded.findings if f.code == "no-namespace-selector"]
    assert severities == [Severity.NOTE]


def test_the_volcano_job_is_a_gang_in_its_volcano_queue() -> None:
    job = next(thing for thing in seeds().objects if thing.key.endswith("distributed-training-v5"))
    assert isinstance(job, Job)
    assert (job.solo, job.min_available, job.queue) == (False, 2, "")
    assert [(pods.name, pods.count, pods.requests["nvidia.com/gpu"]) for pods in job.pod_sets] == [("worker", 2, 16)]
    assert job.volcano is not None
    assert job.volcano.queue == "team-a-queue"
