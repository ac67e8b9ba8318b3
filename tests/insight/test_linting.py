"""What lint finds in manifests that cannot work, and that it finds nothing where they can."""

from typing import Any

import pytest
import yaml

from gpuconsole.insight.linting import LintEngines, LintFacts, LintLevel, lint
from gpuconsole.insight.linting import schedulers as comments
from gpuconsole.model.manifests import decode_objects
from gpuconsole.scheduling.kueue.config import KueueConfig, Transformation
from gpuconsole.scheduling.volcano.config import HELM_CONF
from gpuconsole.scheduling.volcano.scheduler_conf import read_configuration
from gpuconsole.sim.policy import KarpenterPolicy
from tests.support.autoscaled_clusters import CATALOGUE

FLAVOR = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {gpu: a100}}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {gpu: a100}}
status: {allocatable: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", pods: "110"}}
"""
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
"""
DOOR = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: ml}
spec: {clusterQueue: team}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  parallelism: 2
  completions: 2
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: "4"}}}]
"""
RIGHT = [FLAVOR, NODE, QUEUE, DOOR, JOB]
VOLCANO_JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: gang, namespace: ml}
spec:
  schedulerName: volcano
  queue: default
  minAvailable: 2
  tasks:
    - name: w
      replicas: 2
      template:
        spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: "4"}}}]}
"""
POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec:
  limits: {nvidia.com/gpu: 4}
  template: {spec: {nodeClassRef: {group: g, kind: K, name: n}, requirements: []}}
"""
PACKING = "  - name: binpack\n    arguments: {binpack.resources: nvidia.com/gpu}\n"
EVICTING = HELM_CONF.replace("allocate,", "allocate, preempt, reclaim,").replace("  - name: binpack\n", PACKING)


def objects(*texts: str) -> list[Any]:
    documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
    found, wrong = decode_objects(documents, now=0)
    assert not wrong
    return list(found)


def found(*texts: str, **engines: Any) -> list[str]:
    """Findings in short: level, code, object."""
    return [f"{f.level} {f.code} {f.object}" for f in lint(LintFacts(objects(*texts), LintEngines(**engines)))]


def conf(text: str) -> dict[str, Any]:
    return {"volcano": read_configuration(text), "placement": "Volcano"}


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_nothing_is_said_of_what_is_right() -> None:
    assert found(*RIGHT) == []
    assert found(*RIGHT, placement="kube-scheduler") == []
    assert found(NODE, VOLCANO_JOB, **conf(EVICTING)) == []


NEVER = "warning volcano-never-preempts volcano-scheduler.conf"
CONFIGURATIONS: dict[str, tuple[str, list[str], list[str]]] = {
    "Volcano's default never preempts, and its bin-pack does not score GPUs": (
        HELM_CONF,
        [],
        ["warning binpack-without-gpus volcano-scheduler.conf", NEVER],
    ),
    "nobody counts on evictions where all work is equal": (
        HELM_CONF.replace("  - name: binpack\n", ""),
        [VOLCANO_JOB],
        [],
    ),
    "somebody does where there are two queues": (
        HELM_CONF.replace("  - name: binpack\n", ""),
        [VOLCANO_JOB, changed(VOLCANO_JOB, ("name: gang", "name: other"), ("queue: default", "queue: b"))],
        [NEVER],
    ),
    "preempt beside gangpreempt": (
        EVICTING.replace("reclaim,", "gangreclaim,"),
        [],
        ["error two-ways-of-evicting volcano-scheduler.conf"],
    ),
    "proportion beside capacity": (
        EVICTING.replace("  - name: proportion\n", "  - name: proportion\n  - name: capacity\n"),
        [],
        ["error proportion-and-capacity volcano-scheduler.conf"],
    ),
    "bin-packing of cpu only, in another way": (
        EVICTING.replace("binpack.resources: nvidia.com/gpu", "binpack.resources: example.com/fpga"),
        [],
        ["warning binpack-without-gpus volcano-scheduler.conf"],
    ),
    "gangs without the plugin": (
        EVICTING.replace("  - name: gang\n    enablePreemptable: false\n", ""),
        [VOLCANO_JOB],
        ["warning no-gang-plugin volcano-scheduler.conf"],
    ),
    "an action that there is not": (
        EVICTING.replace("reclaim,", "reclaim, dance,"),
        [],
        ["error unknown-action volcano-scheduler.conf"],
    ),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_of_volcano(name: str) -> None:
    text, things, want = CONFIGURATIONS[name]
    assert found(*things, **conf(text)) == want


SLA = "metadata: {name: gang, namespace: ml, annotations: {sla-waiting-time: 30m}}"


def test_sla_is_a_plugin_of_the_scheduler_and_cancels_nothing() -> None:
    inside = changed(VOLCANO_JOB, ("  tasks:", "  plugins: {sla: ['30m']}\n  tasks:"))
    assert found(NODE, inside, **conf(EVICTING)) == ["error sla-is-no-job-plugin Job/ml/gang"]
    noted = changed(VOLCANO_JOB, ("metadata: {name: gang, namespace: ml}", SLA))
    assert found(NODE, noted, **conf(EVICTING)) == ["warning sla-without-plugin Job/ml/gang"]
    with_plugin = EVICTING.replace("tiers:\n", "tiers:\n- plugins:\n  - name: sla\n", 1)
    assert found(NODE, noted, **conf(with_plugin)) == []
    assert found(NODE, noted) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("sla:\n  - jobWaitingTime: 30m  # Cancel if not scheduled within 30 min\n", [2]),
        ("sla-waiting-time: 30m  # after it the job is killed", [1]),
        ("sla-waiting-time: 30m  # it is never cancelled", []),
        ("sla-waiting-time: 30m  # then it is let in", []),
        ("# sla cancels nothing\nreplicas: 2  # cancel this", []),
        ("The sla: it cancels # 1 job", []),
        ("preemptionPolicy: Never  # Dev workloads are never preempted", [1]),
        ("preemptionPolicy: Never  # it preempts nobody", []),
        ("preemptionPolicy: PreemptLowerPriority  # never preempted", []),
        ("  timeout: 300  # Restart individual pod if it fails within 5 min", [1]),
        ("  timeout: 300s  # so long after a failure it is restarted", []),
    ],
)
def test_a_comment_that_promises_what_its_field_does_not_do_is_misread(text: str, lines: list[int]) -> None:
    assert [finding.line for finding in comments.lint_comments(text, "f.yaml")] == lines


KAI_POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml, labels: {kai.scheduler/queue: team}}
spec: {containers: [{name: main, image: i}]}
"""
VOLCANO_POD = changed(
    KAI_POD, ("labels: {kai.scheduler/queue: team}", "annotations: {scheduling.volcano.sh/queue-name: team}")
)
FOREIGN = "warning queue-of-another-scheduler"


@pytest.mark.parametrize(
    ("text", "engines", "want"),
    [
        (KAI_POD, {}, [f"{FOREIGN} Pod/ml/p"]),
        (changed(KAI_POD, ("spec: {", "spec: {schedulerName: kai-scheduler, ")), {}, []),
        (KAI_POD, {"placement": "KAI"}, []),
        (KAI_POD, {"placement": "Volcano"}, [f"{FOREIGN} Pod/ml/p"]),
        (VOLCANO_POD, {}, [f"{FOREIGN} Pod/ml/p"]),
        (changed(VOLCANO_POD, ("spec: {", "spec: {schedulerName: volcano, ")), {}, []),
        (VOLCANO_JOB, {}, []),
        (changed(VOLCANO_JOB, ("schedulerName: volcano", "schedulerName: mine")), {}, [f"{FOREIGN} Job/ml/gang"]),
        (VOLCANO_JOB, {"placement": "kube-scheduler"}, [f"{FOREIGN} Job/ml/gang"]),
        (
            changed(VOLCANO_JOB, ("namespace: ml}", "namespace: ml, labels: {kueue.x-k8s.io/queue-name: main}}")),
            {},
            [f"{FOREIGN} Job/ml/gang"],
        ),
        (JOB, {"unqueued": True}, [f"{FOREIGN} Job/ml/train"]),
        (JOB, {}, []),
    ],
)
def test_a_queue_counts_only_for_its_own_scheduler(text: str, engines: dict[str, Any], want: list[str]) -> None:
    assert found(text, **engines) == want


def test_a_class_of_priority_has_to_be_there() -> None:
    urgent = changed(JOB, ("restartPolicy: Never", "restartPolicy: Never\n      priorityClassName: urgent"))
    other = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: other}, value: 1}"
    assert found(urgent) == ["warning missing-priority-class Job/ml/train"]
    assert found(urgent, other) == ["error missing-priority-class Job/ml/train"]
    assert found(urgent, other.replace("name: other", "name: urgent")) == []
    built_in = changed(urgent, ("urgent", "system-node-critical"))
    assert found(built_in, other) == []
    labelled = changed(JOB, ("queue-name: main}", "queue-name: main, kueue.x-k8s.io/priority-class: high}"))
    assert found(labelled) == ["warning missing-priority-class Job/ml/train"]
    assert found(labelled, unqueued=True) == [f"{FOREIGN} Job/ml/train"]


def cohort(name: str, parent: str, quota: int = 0) -> str:
    flavors = f"[{{name: a100, resources: [{{name: nvidia.com/gpu, nominalQuota: {quota}}}]}}]"
    groups = f", resourceGroups: [{{coveredResources: [nvidia.com/gpu], flavors: {flavors}}}]" if quota else ""
    return f"""
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {{name: {name}}}
spec: {{parentName: {parent or "''"}{groups}}}
"""


def test_a_circle_of_cohorts_is_named_once() -> None:
    circle = [cohort("a", "b"), cohort("b", "c"), cohort("c", "a"), cohort("below", "a")]
    (finding,) = lint(LintFacts(objects(*circle)))
    assert (finding.level, finding.code, finding.object) == (LintLevel.ERROR, "cohort-cycle", "Cohort/a")
    assert finding.evidence == {"cycle": "a → b → c → a"}
    assert found(cohort("a", "b"), cohort("b", "")) == []


SPACE = "{apiVersion: v1, kind: Namespace, metadata: {name: ml}}"
UNREACHABLE = "warning unreachable-quota"
QUOTAS: dict[str, tuple[list[str], list[str]]] = {
    "no namespace is selected": (
        [FLAVOR, changed(QUEUE, ("  namespaceSelector: {}\n", "")), DOOR],
        [f"{UNREACHABLE} ClusterQueue/team"],
    ),
    "a selector that takes none of its namespaces": (
        [FLAVOR, changed(QUEUE, ("Selector: {}", "Selector: {matchLabels: {team: a}}")), DOOR, SPACE],
        [f"{UNREACHABLE} ClusterQueue/team"],
    ),
    "a selector that takes one of its namespaces": (
        [
            FLAVOR,
            changed(QUEUE, ("Selector: {}", "Selector: {matchLabels: {team: a}}")),
            DOOR,
            changed(DOOR, ("namespace: ml", "namespace: other")),
            changed(SPACE, ("name: ml", "name: ml, labels: {team: a}")),
            changed(SPACE, ("name: ml", "name: other")),
        ],
        [],
    ),
    "a selector where a namespace is not known": (
        [FLAVOR, changed(QUEUE, ("Selector: {}", "Selector: {matchLabels: {team: a}}")), DOOR],
        [],
    ),
    "no LocalQueue leads to it, and nobody may borrow": (
        [FLAVOR, QUEUE, changed(QUEUE, ("name: team", "name: lonely")), DOOR],
        [f"{UNREACHABLE} ClusterQueue/lonely"],
    ),
    "no LocalQueue leads to it, but it lends": (
        [FLAVOR, QUEUE, changed(QUEUE, ("name: team", "name: pool"), ("spec:\n", "spec:\n  cohortName: org\n")), DOOR],
        [],
    ),
    "it would lend, and its lending limit is 0": (
        [
            FLAVOR,
            QUEUE,
            changed(
                QUEUE,
                ("name: team", "name: pool"),
                ("spec:\n", "spec:\n  cohortName: org\n"),
                ("nominalQuota: 8", "nominalQuota: 8, lendingLimit: 0"),
            ),
            DOOR,
        ],
        [f"{UNREACHABLE} ClusterQueue/pool"],
    ),
    "a cohort with quota and without queues": ([cohort("empty", "", 4)], [f"{UNREACHABLE} Cohort/empty"]),
    "more quota than nodes": (
        [FLAVOR, NODE, changed(QUEUE, ("nominalQuota: 8", "nominalQuota: 9")), DOOR],
        ["warning quota-beyond-nodes ResourceFlavor/a100"],
    ),
    "a flavor that no node has": (
        [changed(FLAVOR, ("gpu: a100", "gpu: h100")), NODE, QUEUE, DOOR],
        ["warning quota-beyond-nodes ResourceFlavor/a100"],
    ),
    "nodes that Karpenter makes": ([changed(FLAVOR, ("gpu: a100", "gpu: h100")), NODE, QUEUE, DOOR, POOL], []),
    "GPUs that are shared by turns": (
        [
            FLAVOR,
            changed(NODE, ("gpu: a100", "gpu: a100, nvidia.com/gpu.replicas: '4'")),
            QUEUE,
            DOOR,
        ],
        ["warning shared-gpus-as-whole ClusterQueue/team"],
    ),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_quota_that_nobody_can_reach(name: str) -> None:
    texts, want = QUOTAS[name]
    assert found(*texts) == want


SLICED_NODE = changed(NODE, ('nvidia.com/gpu: "8"', 'nvidia.com/gpu: "8", nvidia.com/mig-1g.10gb: "7"'))
SLICED_JOB = changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/mig-1g.10gb: "1"'))
TWO_SETS = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: two, namespace: ml, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  suspend: true
  replicatedJobs:
    - {name: a, replicas: 1, template: &t {spec: {parallelism: 1, completions: 1, template: {spec: {
        restartPolicy: Never, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: "5"}}}]}}}}}
    - {name: b, replicas: 1, template: *t}
"""
RACKS = [
    """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
""",
    changed(FLAVOR, ("spec: {", "spec: {topologyName: racks, ")),
    changed(NODE, ("gpu: a100", "gpu: a100, rack: r1, kubernetes.io/hostname: n1")),
    changed(NODE, ("gpu: a100", "gpu: a100, rack: r2, kubernetes.io/hostname: n2"), ("name: n1,", "name: n2,")),
]
IN_A_RACK = changed(
    JOB,
    (
        "  template:\n    spec:",
        "  template:\n    metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack}}\n    spec:",
    ),
)
IN_SLICES = changed(
    JOB,
    (
        "  template:\n    spec:",
        "  template:\n    metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack,\n"
        "      kueue.x-k8s.io/podset-slice-required-topology: kubernetes.io/hostname,\n"
        '      kueue.x-k8s.io/podset-slice-size: "2"}}\n    spec:',
    ),
    ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "2"'),
)
KAI_QUEUES = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: org}
spec:
  resources: {gpu: {quota: 4, overQuotaWeight: 1, limit: 8}, cpu: &all {quota: -1, limit: -1}, memory: *all}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: org
  resources: {gpu: {quota: 4, limit: -1}, cpu: &all {quota: -1, limit: -1}, memory: *all}
"""
KAI_JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train, namespace: ml}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 3
      template:
        metadata: {labels: {kai.scheduler/queue: team}}
        spec:
          schedulerName: kai-scheduler
          containers: [{name: pytorch, image: i, resources: {limits: {nvidia.com/gpu: "4"}}}]
"""
KAI_PLAIN = changed(
    JOB,
    (", labels: {kueue.x-k8s.io/queue-name: main}", ""),
    ("  suspend: true\n", ""),
    ("parallelism: 2", "parallelism: 3"),
    ("completions: 2", "completions: 3"),
    ("template:\n    spec:", "template:\n    metadata: {labels: {kai.scheduler/queue: team}}\n    spec:"),
    ("restartPolicy: Never", "restartPolicy: Never\n      schedulerName: kai-scheduler"),
)
GROUPED = changed(KAI_PLAIN, ("labels: {kai", "annotations: {pod-group-name: g}, labels: {kai"))


def kai_group(least: int, **spec: str) -> str:
    more = "".join(f", {name}: {value}" for name, value in spec.items())
    return (
        "{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: g, namespace: ml}, "
        f"spec: {{minMember: {least}, queue: team{more}}}}}"
    )


def coscheduled(least: int, pods: int) -> list[str]:
    """A PodGroup of the Coscheduling plugin, and as many pods of four GPUs each that name it."""
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: ml, labels: {scheduling.x-k8s.io/pod-group: g}}, "
        'spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: "4"}}}]}}'
    )
    group = (
        "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g, namespace: ml}, "
        f"spec: {{minMember: {least}}}}}"
    )
    return [group, *(pod % number for number in range(pods))]


FITTING: dict[str, tuple[list[str], dict[str, Any], list[str]]] = {
    "more than the queue can ever have": (
        [FLAVOR, QUEUE, DOOR, changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "5"'))],
        {},
        ["error never-fits-quota Job/ml/train"],
    ),
    "more than the only flavor has that its selector leaves": (
        [
            FLAVOR,
            changed(FLAVOR, ("a100", "h100")),
            changed(
                QUEUE,
                ("resources: [", "resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}, {name: h100, resources: ["),
            ),
            DOOR,
            changed(JOB, ("      restartPolicy", "      nodeSelector: {gpu: a100}\n      restartPolicy")),
        ],
        {},
        ["error never-fits-quota Job/ml/train"],
    ),
    "a selector that no flavor answers": (
        [
            FLAVOR,
            QUEUE,
            DOOR,
            changed(JOB, ("      restartPolicy", "      nodeSelector: {gpu: b200}\n      restartPolicy")),
        ],
        {},
        ["error never-fits-flavor Job/ml/train"],
    ),
    "two pod sets that are too much together": (
        [FLAVOR, QUEUE, DOOR, TWO_SETS],
        {},
        ["error never-fits-quota JobSet/ml/two"],
    ),
    "more pods than a rack holds, and they have to be in one": (
        [
            *RACKS,
            changed(QUEUE, ("Quota: 8", "Quota: 16")),
            DOOR,
            changed(IN_A_RACK, ("ions: 2", "ions: 3"), ("ism: 2", "ism: 3")),
        ],
        {},
        ["error never-fits-topology Job/ml/train"],
    ),
    "as many pods as a rack holds": ([*RACKS, changed(QUEUE, ("Quota: 8", "Quota: 16")), DOOR, IN_A_RACK], {}, []),
    "more than its own quota, less than it may borrow": (
        [
            FLAVOR,
            changed(QUEUE, ("spec:\n", "spec:\n  cohortName: org\n")),
            changed(QUEUE, ("name: team", "name: b"), ("spec:\n", "spec:\n  cohortName: org\n")),
            DOOR,
            changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "5"')),
        ],
        {},
        [],
    ),
    "more than it may borrow": (
        [
            FLAVOR,
            changed(QUEUE, ("spec:\n", "spec:\n  cohortName: org\n"), ("Quota: 8", "Quota: 8, borrowingLimit: 1")),
            changed(QUEUE, ("name: team", "name: b"), ("spec:\n", "spec:\n  cohortName: org\n")),
            DOOR,
            changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "5"')),
        ],
        {},
        ["error never-fits-quota Job/ml/train"],
    ),
    "a pod that no node holds": (
        [NODE, changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "9"'))],
        {},
        ["error never-fits-node Job/ml/train"],
    ),
    "a pod that no node may take": (
        [changed(NODE, ("status:", "spec: {taints: [{key: k, effect: NoSchedule}]}\nstatus:")), JOB],
        {},
        ["error never-fits-node Job/ml/train"],
    ),
    "pods that fit one after the other": (
        [NODE, changed(JOB, ("parallelism: 2", "parallelism: 3"), ("completions: 2", "completions: 3"))],
        {},
        [],
    ),
    "a gang that all nodes together do not hold": (
        [NODE, changed(VOLCANO_JOB, ("replicas: 2", "replicas: 3"), ("minAvailable: 2", "minAvailable: 3"))],
        {},
        ["error never-fits-cluster Job/ml/gang"],
    ),
    "a gang that may start with fewer": ([NODE, changed(VOLCANO_JOB, ("replicas: 2", "replicas: 3"))], {}, []),
    "a queue of Volcano that is too small": (
        [
            changed(VOLCANO_JOB, ("queue: default", "queue: small")),
            "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: small}, "
            "spec: {capability: {nvidia.com/gpu: 7}}}",
        ],
        {},
        ["error never-fits-quota Job/ml/gang"],
    ),
    "a gang above the limit of a queue of KAI, further up": (
        [KAI_QUEUES, KAI_JOB],
        {},
        ["error never-fits-quota PyTorchJob/ml/train"],
    ),
    "a gang below it": ([KAI_QUEUES, changed(KAI_JOB, ("replicas: 3", "replicas: 2"))], {}, []),
    "a gang that nobody may preempt, above the quota": (
        [
            KAI_QUEUES,
            changed(
                KAI_JOB,
                ("replicas: 3", "replicas: 2"),
                ("queue: team}", "queue: team, kai.scheduler/preemptibility: non-preemptible}"),
            ),
        ],
        {},
        ["error never-fits-quota PyTorchJob/ml/train"],
    ),
    "pods of a plain Job, which KAI starts one by one": ([KAI_QUEUES, KAI_PLAIN], {}, []),
    "the same as a gang": ([KAI_QUEUES, GROUPED, kai_group(3)], {}, ["error never-fits-quota Job/ml/train"]),
    "a gang that may start with two of them": ([KAI_QUEUES, GROUPED, kai_group(2)], {}, []),
    "two of them that nobody may preempt": (
        [KAI_QUEUES, GROUPED, kai_group(2, preemptibility="non-preemptible")],
        {},
        ["error never-fits-quota Job/ml/train"],
    ),
    "a plain Job's gang that all nodes together do not hold": (
        [NODE, GROUPED, kai_group(3)],
        {},
        ["error never-fits-cluster Job/ml/train"],
    ),
    "lone pods that start together and do not fit": (
        [NODE, *coscheduled(3, 3)],
        {},
        ["error never-fits-cluster PodGroup/ml/g"],
    ),
    "lone pods of which two start together": ([NODE, *coscheduled(2, 3)], {}, []),
    "a node that is not ready now": (
        [
            changed(
                NODE, ("status:", "spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}\nstatus:")
            ),
            JOB,
        ],
        {},
        [],
    ),
    "a slice that no queue has a quota of": (
        [FLAVOR, QUEUE, DOOR, SLICED_NODE, SLICED_JOB],
        {},
        ["error mig-profile-not-covered Job/ml/train", "warning mig-profile-not-covered Node/n1"],
    ),
    "a slice that is counted as something else": (
        [FLAVOR, QUEUE, DOOR, SLICED_NODE, SLICED_JOB],
        {
            "kueue": KueueConfig(
                transformations={
                    "nvidia.com/mig-1g.10gb": Transformation(
                        input="nvidia.com/mig-1g.10gb", strategy="Replace", outputs={"nvidia.com/gpu": "1"}
                    )
                }
            )
        },
        [],
    ),
    "any other resource without quota": (
        [FLAVOR, QUEUE, DOOR, changed(JOB, ('nvidia.com/gpu: "4"', "example.com/fpga: 1"))],
        {},
        ["error resource-not-covered Job/ml/train"],
    ),
    "limits of a pool below a pod": (
        [POOL, changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "5"'))],
        {},
        ["error pool-limits-below-requests Job/ml/train"],
    ),
    "limits of a pool below a gang": ([POOL, VOLCANO_JOB], {}, ["error pool-limits-below-requests Job/ml/gang"]),
    "limits that are wide enough": ([POOL, JOB], {}, []),
    "limits below the smallest machine that holds the pod": (
        [changed(POOL, ("gpu: 4", "gpu: 3")), changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "2"'))],
        {"capacity": KarpenterPolicy(catalogue=CATALOGUE)},
        ["error pool-limits-below-requests Job/ml/train"],
    ),
    "slices that do not divide the pods": (
        [*RACKS, QUEUE, DOOR, changed(IN_SLICES, ("parallelism: 2", "parallelism: 3"), ("ions: 2", "ions: 3"))],
        {},
        ["error slice-does-not-divide Job/ml/train"],
    ),
    "slices that divide the pods": ([*RACKS, QUEUE, DOOR, IN_SLICES], {}, []),
    "a pod that no machine for sale holds": (
        [POOL, changed(JOB, ('nvidia.com/gpu: "4"', 'nvidia.com/gpu: "2", cpu: "99"'))],
        {"capacity": KarpenterPolicy(catalogue=CATALOGUE)},
        ["error never-fits-node Job/ml/train"],
    ),
}


@pytest.mark.parametrize("name", FITTING)
def test_work_that_can_never_run(name: str) -> None:
    texts, engines, want = FITTING[name]
    assert found(*texts, **engines) == want


def test_a_finding_shows_its_numbers_and_says_what_would_be_right() -> None:
    (finding,) = lint(LintFacts(objects(FLAVOR, QUEUE, DOOR, changed(JOB, ('gpu: "4"', 'gpu: "5"')))))
    assert finding.evidence == {
        "on an empty cluster": "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in "
        "flavor a100, previously considered podsets requests (0) + current podset request (10) > maximum capacity (8)"
    }
    assert finding.problem == "it requests more than the maximum quota of ClusterQueue team, borrowing included"
    assert finding.fix.startswith("request less, raise the nominal quota")


RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: serve, namespace: ml, labels: {LABEL: q}}
spec:
  headGroupSpec:
    template: {spec: {containers: [{name: head, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]}}
"""


@pytest.mark.parametrize("label", ["volcano.sh/queue-name", "kai.scheduler/queue", "kueue.x-k8s.io/queue-name"])
def test_a_ray_cluster_needs_no_scheduler_beside_its_queue(label: str) -> None:
    codes = [line.split()[1] for line in found(NODE, RAY.replace("LABEL", label))]
    assert "queue-of-another-scheduler" not in codes


OFFERED_NOT = "warning selector-without-flavor Job/ml/train"
SELECTORS = {
    "a label that no flavor has": ("nodeSelector: {disk: ssd}", [OFFERED_NOT]),
    "a label that a flavor has": ("nodeSelector: {gpu: a100}", []),
    "one of each": ("nodeSelector: {gpu: a100, disk: ssd}", [OFFERED_NOT]),
    "a label that every node has": ("nodeSelector: {kubernetes.io/os: linux, topology.kubernetes.io/zone: z1}", []),
    "a required affinity that no flavor meets": ("AFFINITY: [[disk In ssd]]", [OFFERED_NOT]),
    "one of several terms met": ("AFFINITY: [[disk In ssd], [gpu In a100]]", []),
    "a term of which one part is not met": ("AFFINITY: [[gpu In a100, disk Exists ssd]]", [OFFERED_NOT]),
    "a label that must not be there": ("AFFINITY: [[disk NotIn ssd]]", []),
    "a preference": ("PREFERRED: disk", []),
}


def selecting(said: str) -> str:
    """The job with a node selector or an affinity, written short as lists of `key operator value`."""
    kind, _, rest = said.partition(": ")
    spec: dict[str, Any] = yaml.safe_load(JOB)
    pod = spec["spec"]["template"]["spec"]
    if kind == "nodeSelector":
        pod[kind] = yaml.safe_load(rest)
    elif kind == "AFFINITY":
        terms = []
        for term in rest.removeprefix("[[").removesuffix("]]").split("], ["):
            parts = [part.split() for part in term.split(", ")]
            terms.append(
                {
                    "matchExpressions": [
                        {"key": key, "operator": word, "values": [] if word == "Exists" else [value]}
                        for key, word, value in parts
                    ]
                }
            )
        required = {"nodeSelectorTerms": terms}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    else:
        preference = {"matchExpressions": [{"key": rest, "operator": "Exists"}]}
        weighed = [{"weight": 1, "preference": preference}]
        pod["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighed}}
    return yaml.safe_dump(spec)


@pytest.mark.parametrize(("said", "lines"), SELECTORS.values(), ids=SELECTORS)
def test_a_node_selector_that_no_flavor_offers_is_found_where_no_node_is_known(said: str, lines: list[str]) -> None:
    assert found(FLAVOR, QUEUE, DOOR, selecting(said)) == lines


def test_a_selector_names_what_is_missing_and_what_the_flavors_offer() -> None:
    (finding,) = lint(LintFacts(objects(FLAVOR, QUEUE, DOOR, selecting("nodeSelector: {disk: ssd, gpu: a100}"))))
    assert finding.problem == (
        "no flavor of ClusterQueue team offers nodes with disk=ssd: Kueue admits the pods of main anyway, "
        "and they stay unschedulable without such a node"
    )
    assert finding.evidence == {"flavors": "a100 (gpu=a100)"}


def test_nodes_levels_of_a_topology_and_flavors_without_labels_may_offer_any_label() -> None:
    job = selecting("nodeSelector: {disk: ssd}")
    with_label = changed(NODE, ("{gpu: a100}", "{gpu: a100, disk: ssd}"))
    head = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: t}\n"
    topology = head + "spec: {levels: [{nodeLabel: disk}]}"
    levelled = changed(FLAVOR, ("spec: {", "spec: {topologyName: t, "))
    assert found(FLAVOR, with_label, QUEUE, DOOR, job) == []
    assert found(levelled, topology, QUEUE, DOOR, job) == []
    assert found(changed(FLAVOR, ("spec: {nodeLabels: {gpu: a100}}", "spec: {}")), QUEUE, DOOR, job) == []
    # Where nodes are known, and none has the label, that is the finding.
    assert found(FLAVOR, NODE, QUEUE, DOOR, job) == ["error never-fits-node Job/ml/train"]


CRON = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: ml}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    metadata: {labels: {kueue.x-k8s.io/queue-name: main}}
    spec:
      template:
        spec:
          restartPolicy: Never
          nodeSelector: {gpu: SELECTED}
          containers: [{name: main, image: i, resources: {limits: {RESOURCE: "4"}}}]
"""


@pytest.mark.parametrize(
    ("selected", "resource", "lines"),
    [
        ("a100", "nvidia.com/gpu", []),
        ("h100", "nvidia.com/gpu", ["error never-fits-flavor CronJob/ml/nightly"]),
        ("a100", "amd.com/gpu", ["error resource-not-covered CronJob/ml/nightly"]),
    ],
)
def test_the_jobs_of_a_cron_job_are_judged_by_the_queue_that_its_template_names(
    selected: str, resource: str, lines: list[str]
) -> None:
    assert found(FLAVOR, QUEUE, DOOR, changed(CRON, ("SELECTED", selected), ("RESOURCE", resource))) == lines
