"""What is wrong with a manifest is named with its field path, and told from what only the API server minds."""

import json

import pytest
from msgspec import Struct

from gpuconsole.model.documents.findings import Key
from gpuconsole.model.manifests import Severity, load_text
from tests.support.sample_manifests import ABSENT, DOCUMENTS, edited

ERROR, REFUSED, WARNING = "error", "refused", "warning"
"""An error always; a warning that strict mode makes an error; a warning always."""

GPU = "nvidia.com/gpu"
GROUP = ("spec", "resourceGroups", 0)
FLAVOR = (*GROUP, "flavors", 0)
GPUS = (*FLAVOR, "resources", 1)
POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)
NEEDS = (*CONTAINER, "resources")
QUEUE_PATH = "spec.resourceGroups[0].flavors[0]"
JOB_NEEDS = "spec.template.spec.containers[0].resources"


class Case(Struct, frozen=True):
    """A sample with one edit, the finding that follows, and the codes of those that follow from it in turn."""

    sample: str
    path: tuple[Key, ...]
    value: object
    severity: str
    code: str
    where: str
    says: str = ""
    also: tuple[str, ...] = ()


BUDGETS = ("spec", "disruption", "budgets")
CQ, JOB = "ClusterQueue cq", "Job train"

CASES = {
    "a policy that only other fields take is not offered": Case(
        CQ,
        ("spec", "preemption"),
        {"reclaimWithinCohort": "Always"},
        ERROR,
        "bad-value",
        "spec.preemption.reclaimWithinCohort",
        "it takes Never, LowerPriority, Any",
    ),
    "a flavor that nothing defines keeps the queue inactive": Case(
        CQ,
        (*FLAVOR, "name"),
        "h100",
        WARNING,
        "undefined-resourceflavor",
        f"{QUEUE_PATH}.name",
        "ResourceFlavor h100",
        also=("unknown-flavor",),
    ),
    "a quota below zero": Case(
        CQ,
        (*GPUS, "nominalQuota"),
        -1,
        ERROR,
        "negative",
        f"{QUEUE_PATH}.resources[1].nominalQuota",
        "greater than",
        also=("lending-over-nominal",),
    ),
    "a quota of half a GPU names MIG and time-slicing": Case(
        CQ, (*GPUS, "borrowingLimit"), 0.5, ERROR, "fractional-device", f"{QUEUE_PATH}.resources[1].borrowingLimit"
    ),
    "a quota that is not a quantity": Case(
        CQ,
        (*GPUS, "nominalQuota"),
        "lots",
        ERROR,
        "bad-quantity",
        f"{QUEUE_PATH}.resources[1].nominalQuota",
        "500m",
    ),
    "a quota beyond what Kubernetes can hold": Case(
        CQ, (*GPUS, "nominalQuota"), 10**30, WARNING, "huge-quantity", f"{QUEUE_PATH}.resources[1].nominalQuota"
    ),
    "more lent than owned": Case(
        CQ,
        (*GPUS, "lendingLimit"),
        9,
        REFUSED,
        "lending-over-nominal",
        f"{QUEUE_PATH}.resources[1].lendingLimit",
        "must be less than or equal to the nominalQuota",
    ),
    "limits of a queue without a cohort are ignored": Case(
        CQ,
        ("spec", "cohortName"),
        None,
        REFUSED,
        "borrowing-without-cohort",
        "spec",
        "borrowingLimit must be nil when cohort is empty",
        also=("lending-without-cohort",),
    ),
    "a resource that the group covers but the flavor lacks": Case(
        CQ,
        (*GROUP, "coveredResources"),
        ["cpu", GPU, "memory"],
        REFUSED,
        "resource-number",
        "spec.resourceGroups[0]",
        "lacks memory, whose quota is 0",
    ),
    "a resource that the group does not cover": Case(
        CQ,
        (*GROUP, "coveredResources"),
        ["cpu"],
        REFUSED,
        "resource-number",
        "spec.resourceGroups[0]",
        "which the group does not cover",
    ),
    "resources in another order than the group's": Case(
        CQ,
        (*GROUP, "coveredResources"),
        [GPU, "cpu"],
        REFUSED,
        "resource-order",
        f"{QUEUE_PATH}.resources[0].name",
        "must match the name in coveredResources",
        also=("resource-order",),
    ),
    "an unknown word in an enum": Case(
        CQ, ("spec", "queueingStrategy"), "LIFO", ERROR, "bad-value", "spec.queueingStrategy", "BestEffortFIFO"
    ),
    "a word that another policy takes": Case(
        CQ,
        ("spec", "preemption", "reclaimWithinCohort"),
        "LowerOrNewerEqualPriority",
        ERROR,
        "bad-value",
        "spec.preemption.reclaimWithinCohort",
        "Never, LowerPriority, Any",
    ),
    "borrowing preemption without reclaim": Case(
        CQ,
        ("spec", "preemption", "reclaimWithinCohort"),
        "Never",
        REFUSED,
        "borrow-without-reclaim",
        "spec.preemption",
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
    ),
    "a fungibility preference needs both searches to go on": Case(
        CQ,
        ("spec", "flavorFungibility", "whenCanBorrow"),
        "MayStopSearch",
        REFUSED,
        "needless-preference",
        "spec.flavorFungibility",
    ),
    "a misspelled field is named with the right one": Case(
        CQ, ("spec", "cohortNam"), "x", REFUSED, "unknown-field", "spec.cohortNam", "cohortName"
    ),
    "no namespaceSelector admits nobody": Case(
        CQ, ("spec", "namespaceSelector"), ABSENT, WARNING, "no-namespace-selector", "spec.namespaceSelector"
    ),
    "a check for a flavor that the queue does not have": Case(
        CQ,
        ("spec", "admissionChecksStrategy", "admissionChecks", 0, "onFlavors"),
        ["b200"],
        REFUSED,
        "unknown-flavor",
        "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]",
    ),
    "a check that nothing defines": Case(
        CQ,
        ("spec", "admissionChecksStrategy", "admissionChecks", 0, "name"),
        "budget",
        WARNING,
        "undefined-admissioncheck",
        "spec.admissionChecksStrategy.admissionChecks[0]",
    ),
    "too many flavors": Case(
        CQ,
        (*GROUP, "flavors"),
        [{"name": "a100", "resources": [{"name": "cpu", "nominalQuota": 1}, {"name": GPU, "nominalQuota": 1}]}] * 65,
        REFUSED,
        "too-many",
        "spec.resourceGroups[0].flavors",
        "64 are allowed",
        also=("duplicate",),
    ),
    "a list where a mapping belongs": Case(
        CQ, ("spec", "preemption"), [], ERROR, "wrong-type", "spec.preemption", "must be of type object"
    ),
    "a weight below zero": Case(CQ, ("spec", "fairSharing", "weight"), -1, ERROR, "negative", "spec.fairSharing"),
    "an impossible name": Case(CQ, ("metadata", "name"), "C Q", REFUSED, "bad-name", "metadata.name"),
    "no name": Case("Namespace team", ("metadata", "name"), ABSENT, ERROR, "no-name", "metadata.name"),
    "a label that is no text": Case(
        "Namespace team", ("metadata", "labels", "tier"), True, REFUSED, "not-a-text", "metadata.labels.tier", "quotes"
    ),
    "a label value that is too long": Case(
        "Namespace team", ("metadata", "labels", "x"), "y" * 64, REFUSED, "bad-label", "metadata.labels.x"
    ),
    "a LocalQueue to a queue that nothing defines": Case(
        "LocalQueue lq", ("spec", "clusterQueue"), "other", WARNING, "undefined-clusterqueue", "spec.clusterQueue"
    ),
    "a LocalQueue in a namespace that its queue does not select": Case(
        "LocalQueue lq", ("metadata", "namespace"), "sales", WARNING, "namespace-not-selected", "metadata.namespace"
    ),
    "a topology that nothing defines": Case(
        "ResourceFlavor a100", ("spec", "topologyName"), "blocks", WARNING, "undefined-topology", "spec.topologyName"
    ),
    "a flavor with a topology but without labels": Case(
        "ResourceFlavor a100",
        ("spec", "nodeLabels"),
        ABSENT,
        REFUSED,
        "required",
        "spec",
        "at least one nodeLabel is required when topology is set",
    ),
    "a toleration of everything with a value": Case(
        "ResourceFlavor a100",
        ("spec", "tolerations", 0, "value"),
        "x",
        REFUSED,
        "bad-value",
        "spec.tolerations",
    ),
    "the host name above another level": Case(
        "Topology racks",
        ("spec", "levels"),
        [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "cloud/rack"}],
        REFUSED,
        "level-order",
        "spec.levels",
    ),
    "a priority beyond 32 bits": Case(
        "WorkloadPriorityClass urgent", ("value",), 2**40, ERROR, "out-of-range", "value", "2147483647"
    ),
    "a priority that only the system may have": Case(
        "PriorityClass training", ("value",), 1_500_000_000, REFUSED, "out-of-range", "value"
    ),
    "a node that offers nothing": Case("Node node-0", ("status",), {}, WARNING, "empty-node", "status.allocatable"),
    "a job for a queue that nothing defines": Case(
        JOB,
        ("metadata", "labels", "kueue.x-k8s.io/queue-name"),
        "other",
        WARNING,
        "undefined-localqueue",
        "metadata.labels[kueue.x-k8s.io/queue-name]",
        "name one of: team/lq",
    ),
    "a priority class that nothing defines, at the field that names it": Case(
        JOB,
        (*POD, "priorityClassName"),
        "gold",
        WARNING,
        "undefined-priorityclass",
        "spec.template.spec.priorityClassName",
    ),
    "a job without a restart policy": Case(
        JOB,
        (*POD, "restartPolicy"),
        ABSENT,
        REFUSED,
        "no-restart-policy",
        "spec.template.spec.restartPolicy",
        '"OnFailure", "Never"',
    ),
    "a job that restarts for ever": Case(
        JOB, (*POD, "restartPolicy"), "Always", REFUSED, "no-restart-policy", "spec.template.spec.restartPolicy"
    ),
    "half a GPU names MIG and time-slicing": Case(
        JOB,
        (*NEEDS, "limits", GPU),
        0.5,
        ERROR,
        "fractional-device",
        f"{JOB_NEEDS}.limits[{GPU}]",
        "nvidia.com/mig-1g.10gb: 1, or let the device plugin share GPUs by time-slicing",
    ),
    "fewer GPUs requested than the limit": Case(
        JOB, (*NEEDS, "requests", GPU), 0, REFUSED, "device-limit", f"{JOB_NEEDS}.requests[{GPU}]", "equal to limits"
    ),
    "more CPU requested than the limit": Case(
        JOB, (*NEEDS, "requests", "cpu"), 4, REFUSED, "request-over-limit", f"{JOB_NEEDS}.requests.cpu"
    ),
    "a pod without containers": Case(
        JOB, (*POD, "containers"), [], REFUSED, "required", "spec.template.spec.containers"
    ),
    "a duration without a unit": Case(
        JOB,
        ("metadata", "annotations", "gpuconsole.io/duration"),
        300,
        REFUSED,
        "no-unit",
        "metadata.annotations[gpuconsole.io/duration]",
        "write 300s",
        also=("not-a-text",),
    ),
    "a duration that is none": Case(
        JOB,
        ("metadata", "annotations", "gpuconsole.io/checkpoint-interval"),
        "soon",
        ERROR,
        "bad-span",
        "metadata.annotations[gpuconsole.io/checkpoint-interval]",
    ),
    "a duration of nothing": Case(
        JOB,
        ("metadata", "annotations", "gpuconsole.io/duration"),
        "0s",
        ERROR,
        "bad-span",
        "metadata.annotations[gpuconsole.io/duration]",
    ),
    "a time limit that is no number": Case(
        JOB,
        ("metadata", "labels", "kueue.x-k8s.io/max-exec-time-seconds"),
        "1h",
        REFUSED,
        "bad-number",
        "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]",
    ),
    "no less parallelism than the job has": Case(
        JOB,
        ("metadata", "annotations", "kueue.x-k8s.io/job-min-parallelism"),
        "4",
        REFUSED,
        "bad-number",
        "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]",
        "should be between 0 and 3",
    ),
    "two topology annotations": Case(
        JOB,
        ("spec", "template", "metadata"),
        {
            "annotations": {
                "kueue.x-k8s.io/podset-required-topology": "cloud/rack",
                "kueue.x-k8s.io/podset-preferred-topology": "cloud/rack",
            }
        },
        REFUSED,
        "bad-topology",
        "spec.template.metadata.annotations",
        "must not contain more than one topology annotation",
    ),
    "a slice larger than the job": Case(
        JOB,
        ("spec", "template", "metadata"),
        {
            "annotations": {
                "kueue.x-k8s.io/podset-slice-required-topology": "cloud/rack",
                "kueue.x-k8s.io/podset-slice-size": "5",
            }
        },
        REFUSED,
        "bad-number",
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]",
        "must not be greater than pod set count 4",
    ),
    "more pods than can be simulated": Case(
        JOB, ("spec", "parallelism"), 2_000_000_000, ERROR, "too-many-pods", "spec.parallelism"
    ),
    "a number in quotes": Case(
        JOB, ("spec", "parallelism"), "4", REFUSED, "quoted", "spec.parallelism", "write 4 without quotes"
    ),
    "two masters": Case(
        "PyTorchJob torch",
        ("spec", "pytorchReplicaSpecs", "Master", "replicas"),
        2,
        REFUSED,
        "bad-replicas",
        "spec.pytorchReplicaSpecs.Master.replicas",
    ),
    "a ray cluster that stays": Case(
        "RayJob ray",
        ("spec", "shutdownAfterJobFinishes"),
        False,
        REFUSED,
        "ray-shutdown",
        "spec.shutdownAfterJobFinishes",
    ),
    "a gang larger than the job": Case(
        "Job volcano", ("spec", "minAvailable"), 5, REFUSED, "bad-min-available", "spec.minAvailable", "(4)"
    ),
    "an event that Volcano does not know": Case(
        "Job volcano",
        ("spec", "policies", 0, "event"),
        "PodLost",
        REFUSED,
        "bad-value",
        "spec.policies[0].event",
        "PodEvicted",
    ),
    "a plugin's arguments as a mapping": Case(
        "Job volcano", ("spec", "plugins", "env"), {}, REFUSED, "plugin-arguments", "spec.plugins.env"
    ),
    "a queue that deserves more than it may have": Case(
        "Queue ml", ("spec", "deserved", GPU), 17, REFUSED, "bad-queue", "spec.deserved[nvidia.com/gpu]"
    ),
    "a version that is not served any more": Case(
        "NodePool gpus",
        ("apiVersion",),
        "karpenter.sh/v1beta1",
        REFUSED,
        "old-version",
        "apiVersion",
        "karpenter.sh/v1",
    ),
    "a budget of no number": Case(
        "NodePool gpus", (*BUDGETS, 0, "nodes"), "some", ERROR, "bad-value", "spec.disruption.budgets[0].nodes"
    ),
    "a budget of more than all": Case(
        "NodePool gpus", (*BUDGETS, 0, "nodes"), "101%", ERROR, "bad-value", "spec.disruption.budgets[0].nodes"
    ),
    "a budget for a reason that there is not": Case(
        "NodePool gpus", (*BUDGETS, 1, "reasons"), ["Old"], REFUSED, "bad-value", "spec.disruption.budgets[1].reasons"
    ),
    "half a window": Case(
        "NodePool gpus",
        (*BUDGETS, 1, "duration"),
        ABSENT,
        REFUSED,
        "half-a-window",
        "spec.disruption.budgets[1].schedule",
        "'schedule' must be set with 'duration'",
    ),
    "a window that never opens": Case(
        "NodePool gpus",
        (*BUDGETS, 1, "schedule"),
        "at nine",
        ERROR,
        "bad-schedule",
        "spec.disruption.budgets[1].schedule",
    ),
    "a budget of pods with two bounds": Case(
        "PodDisruptionBudget keep", ("spec", "maxUnavailable"), 1, REFUSED, "both-set", "spec.maxUnavailable"
    ),
    "a budget of pods below none": Case(
        "PodDisruptionBudget keep", ("spec", "minAvailable"), -1, ERROR, "bad-value", "spec.minAvailable"
    ),
    "an operator without values": Case(
        "NodePool gpus",
        ("spec", "template", "spec", "requirements", 0, "values"),
        [],
        REFUSED,
        "no-values",
        "spec.template.spec.requirements[0].values",
    ),
    "a minimum above the count": Case(
        "Workload work",
        ("spec", "podSets", 0, "minCount"),
        5,
        REFUSED,
        "bad-min-count",
        "spec.podSets[0]",
        "minCount should be positive and less or equal to count",
    ),
    "a time that is none": Case(
        "Workload work",
        ("metadata", "creationTimestamp"),
        "yesterday",
        ERROR,
        "bad-time",
        "metadata.creationTimestamp",
    ),
    "a kind that is known but not played": Case(
        "Pod alone", ("kind",), "ReplicationController", WARNING, "not-simulated", "kind"
    ),
    "a kind that is nearly known": Case(
        CQ, ("kind",), "ClusterQueu", WARNING, "unknown-kind", "kind", "did you mean ClusterQueue?"
    ),
    "a pod's duration that is none": Case(
        "Pod alone",
        ("metadata", "annotations"),
        {"gpuconsole.io/duration": "soon"},
        ERROR,
        "bad-span",
        "metadata.annotations[gpuconsole.io/duration]",
    ),
    "a Workload's checkpoint interval of nothing": Case(
        "Workload work",
        ("metadata", "annotations"),
        {"gpuconsole.io/checkpoint-interval": "0s"},
        ERROR,
        "bad-span",
        "metadata.annotations[gpuconsole.io/checkpoint-interval]",
    ),
    "a duration where nothing reads it": Case(
        "JobSet set",
        ("spec", "replicatedJobs", 0, "template", "spec", "template", "metadata"),
        {"annotations": {"gpuconsole.io/duration": "1h"}},
        WARNING,
        "misplaced-annotation",
        "metadata.annotations[gpuconsole.io/duration]",
    ),
    "a kind in the wrong case": Case(JOB, ("kind",), "job", WARNING, "unknown-kind", "kind", "did you mean Job?"),
    "two containers of one name": Case(
        JOB,
        (*POD, "containers"),
        [{"name": "c"}, {"name": "c"}],
        REFUSED,
        "duplicate",
        "spec.template.spec.containers[1].name",
        "'c' stands twice",
    ),
    "two pod sets of one name would be the same pods": Case(
        "Workload work",
        ("spec", "podSets"),
        [{"name": "main", "count": 1, "template": {}}] * 2,
        ERROR,
        "duplicate",
        "spec.podSets[1]",
        "Duplicate value",
    ),
    "two tasks of one name would be the same pods": Case(
        "Job volcano",
        ("spec", "tasks"),
        [{"name": "w", "replicas": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}] * 2,
        ERROR,
        "duplicate",
        "spec.tasks[1].name",
    ),
    "more GPUs than a machine has": Case(
        "Node node-0",
        ("status", "allocatable", GPU),
        10**9,
        ERROR,
        "too-many-devices",
        "status.allocatable[nvidia.com/gpu]",
        "write 4096 or less",
    ),
    "more of Volcano's cards than a machine has": Case(
        "Node node-0",
        ("status", "allocatable", "volcano.sh/gpu-number"),
        10**9,
        ERROR,
        "too-many-devices",
        "status.allocatable[volcano.sh/gpu-number]",
        "write 4096 or less",
    ),
    "a kind in the wrong group": Case(
        "LocalQueue lq", ("apiVersion",), "v1", WARNING, "unknown-kind", "kind", "LocalQueue of kueue.x-k8s.io"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wrong_field_is_named(case: Case) -> None:
    document = edited(case.sample, case.path, case.value)
    # It stands in the place of the sample, and all that it names is there.
    others = [json.dumps(known) for name, known in DOCUMENTS.items() if name != case.sample]
    text = "\n---\n".join([*others, json.dumps(document)])
    for strict in (False, True):
        findings = [f for f in load_text(text, "all.yaml", strict=strict).findings if f.document == len(DOCUMENTS)]
        loud = [f for f in findings if f.severity != Severity.NOTE]
        want = {ERROR: Severity.ERROR, WARNING: Severity.WARNING}.get(
            case.severity, Severity.ERROR if strict else Severity.WARNING
        )
        first, *further = sorted(loud, key=lambda f: f.code in case.also)
        assert (first.severity, first.code, first.path) == (want, case.code, case.where)
        assert case.says in f"{first.problem} | {first.remedy}"
        assert {f.code for f in further} == set(case.also)


def test_all_findings_of_a_file_are_told_at_once_with_their_lines() -> None:
    text = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  namespaceSelector: {}
  queueingStrategy: LIFO
  stopPolicy: Never
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  name: b
  labels:
    x: 5
spec: {}
---
{broken
---
apiVersion: v1
kind: Widget
metadata: {name: c}
"""
    found = load_text(text, "four.yaml")
    assert [(f.line, f.document, f.path, f.code) for f in found.findings] == [
        (7, 1, "spec.queueingStrategy", "bad-value"),
        (8, 1, "spec.stopPolicy", "bad-value"),
        (15, 2, "metadata.labels.x", "not-a-text"),
        (16, 2, "spec.clusterQueue", "no-cluster-queue"),
        (19, 3, "", "syntax"),
        (21, 4, "kind", "unknown-kind"),
    ]
    assert found.unknown == {"Widget": 1}
    assert found.has_errors


def test_cohorts_that_lie_too_deep_in_each_other_are_refused_at_the_first_that_does() -> None:
    """Schedulers go through them level by level, and end at a thousand."""
    chain = "\n---\n".join(
        f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: c{n}}}\nspec: {{parentName: c{n + 1}}}"
        for n in range(3_000)
    )
    problem = "more than 100 levels of cohorts lie above cohort c0"
    found = [one for one in load_text(chain, "deep.yaml").findings if one.code == "cohorts-too-deep"]
    assert [(one.severity, one.path, one.problem, one.remedy) for one in found] == [
        (Severity.ERROR, "spec.parentName", problem, "nest fewer in each other")
    ]


def test_a_cycle_of_cohorts_is_named_once() -> None:
    cohorts = "\n---\n".join(
        f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: {name}}}\nspec: {{parentName: {parent}}}"
        for name, parent in (("leaf", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("alone", "alone"))
    )
    found = [(f.severity, f.object, f.path, f.problem) for f in load_text(cohorts, "cohorts.yaml").findings]
    below = "nothing below it can be admitted"
    assert found == [
        ("error", "Cohort/a", "spec.parentName", f"cohort a is its own ancestor: a → b → c → a; {below}"),
        ("error", "Cohort/alone", "spec.parentName", f"cohort alone is its own ancestor: alone → alone; {below}"),
    ]


def test_an_object_that_is_given_twice_counts_as_its_last_version() -> None:
    text = "\n---\n".join(
        f"apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {{name: a}}\nvalue: {value}"
        for value in (1, 2)
    )
    loaded = load_text(text, "two.yaml")
    assert [getattr(thing, "value", None) for thing in loaded.objects] == [2]
    assert [(f.code, f.line) for f in loaded.findings] == [("given-twice", 8)]
    assert "two.yaml line 1" in loaded.findings[0].problem


def test_lists_are_unfolded_and_their_items_named() -> None:
    item = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k"}]}, "status": {"allocatable": {"cpu": 1}}}
    typed = {"apiVersion": "v1", "kind": "NodeList", "items": [item]}
    loaded = load_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [typed, "nonsense"]}), "nodes.json")
    assert [thing.key for thing in loaded.objects] == ["n"]
    assert [(f.path, f.code, f.object) for f in loaded.findings] == [
        ("items[1]", "wrong-type", ""),
        ("items[0].items[0].spec.taints[0].effect", "required", "Node/n"),
    ]


def test_a_scenario_is_kept_as_it_stands_and_its_objects_are_checked() -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"}, "spec": {}}
    scenario = {"name": "s", "objects": [queue], "steps": [{"create": [queue | {"metadata": {}}]}]}
    loaded = load_text(json.dumps(scenario), "scenario.json")
    assert loaded.scenario == (scenario,)
    assert loaded.objects == ()
    assert [(f.path, f.code) for f in loaded.findings] == [
        ("objects[0].spec.clusterQueue", "no-cluster-queue"),
        ("steps[0].create[0].metadata.name", "no-name"),
        ("steps[0].create[0].spec.clusterQueue", "no-cluster-queue"),
    ]


def test_kinds_that_are_not_played_are_counted_by_name() -> None:
    text = "\n---\n".join(
        f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}"
        for version, kind in (
            *(("v1", "ReplicationController"), ("v1", "ReplicationController"), ("argoproj.io/v1", "Workflow")),
            ("karpenter.sh/v1", "NodeClaim"),
            *(("v1", "ConfigMap"), ("apps/v1", "DaemonSet"), ("example.com/v1", "Widget")),
        )
    )
    loaded = load_text(text, "zoo.yaml")
    assert loaded.known_unsimulated == {
        "NodeClaim (karpenter.sh)": 1,
        "ReplicationController": 2,
        "Workflow (argoproj.io)": 1,
    }
    assert loaded.unknown == {"Widget (example.com)": 1}
    assert not loaded.has_errors
