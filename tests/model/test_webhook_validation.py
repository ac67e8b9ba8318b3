"""Manifests are read as Kueue's API server would store them, and everything that it would refuse is told at once."""

import json
from typing import Any

from gpuconsole.model.manifests import Finding, load_text
from gpuconsole.model.queues import ClusterQueue, Cohort, LocalQueue
from gpuconsole.model.workloads import Workload

QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: f
      resources:
      - name: cpu
        nominalQuota: 4
        borrowingLimit: 2
      - {name: memory, nominalQuota: 4Gi, lendingLimit: 8Gi}
"""


def told(text: str, *, strict: bool = True, **options: Any) -> list[Finding]:
    findings = load_text(text, "a.yaml", strict=strict, **options).findings
    return [f for f in findings if not f.code.startswith("undefined")]


def test_what_the_server_says_first_and_what_it_would_say_next_are_told_together() -> None:
    found = told(QUEUE.replace("namespaceSelector: {}", "stopPolicy: Stop\n  namespaceSelector: {}"))
    assert [(f.line, f.path, f.code) for f in found] == [
        (6, "spec.stopPolicy", "bad-value"),
        (15, "spec", "borrowing-without-cohort"),
        (16, "spec.resourceGroups[0].flavors[0].resources[1].lendingLimit", "lending-without-cohort"),
        (16, "spec.resourceGroups[0].flavors[0].resources[1].lendingLimit", "lending-over-nominal"),
    ]
    assert {f.severity.value for f in found} == {"error"}
    assert {f.severity.value for f in told(QUEUE, strict=False)} == {"warning"}


def test_a_finding_has_the_field_of_the_server_and_the_line_of_the_part_that_breaks_it() -> None:
    found = told(QUEUE)[0]
    assert (found.path, found.line, found.problem) == (
        "spec",
        14,
        "Invalid value: borrowingLimit must be nil when cohort is empty",
    )


def test_the_defaults_of_the_server_are_read() -> None:
    pods = {"template": {"spec": {"containers": [{"name": "c"}]}}}
    text = json.dumps(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": "w"},
            "spec": {"queueName": "q", "podSets": [pods]},
            "status": {"clusterName": "a"},
        }
    )
    loaded = load_text(text, "a.json", strict=True)
    (workload,) = loaded.objects
    assert isinstance(workload, Workload)
    assert (workload.namespace, workload.pod_sets[0].name, workload.pod_sets[0].count) == ("default", "main", 1)
    assert workload.cluster == "a"


def test_what_stands_wrong_in_a_status_is_a_warning_as_no_server_takes_it_from_a_file() -> None:
    text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q}\nspec: {clusterQueue: c}\n"
    found = told(text + "status:\n  conditions: [{type: Active}]\n")
    assert {(f.severity.value, f.path) for f in found} == {
        ("warning", f"status.conditions[0].{key}") for key in ("lastTransitionTime", "message", "reason", "status")
    }


def test_an_object_that_is_given_again_is_judged_as_an_update() -> None:
    text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: q}}\nspec: {{clusterQueue: {}}}\n"
    found = told("---\n".join((text.format("a"), text.format("b"))))
    assert [(f.line, f.path, f.code) for f in found] == [
        (8, "metadata.name", "given-twice"),
        (9, "spec.clusterQueue", "immutable"),
    ]
    steps = json.dumps({"objects": [_local_queue("a")], "steps": [{"create": [_local_queue("b")]}]})
    assert [f.code for f in told(steps)] == []


def _local_queue(target: str) -> dict[str, Any]:
    meta = {"name": "q", "namespace": "n"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": meta,
        "spec": {"clusterQueue": target},
    }


def test_gates_change_what_is_refused() -> None:
    text = QUEUE.replace("  resourceGroups", "  cohortName: c\n  resourceGroups").replace(
        "lendingLimit: 8Gi", "lendingLimit: 1Gi"
    )
    text += "  queueingStrategy: StrictFIFO\n  concurrentAdmissionPolicy: {migration: {mode: RetainFirstAdmission}}\n"
    assert told(text) == []
    assert [f.path for f in told(text, gates={"ConcurrentAdmission": True})] == ["spec.queueingStrategy"]


def test_an_older_version_is_judged_by_its_own_names() -> None:
    text = QUEUE.replace("v1beta2", "v1beta1").replace(
        "  namespaceSelector: {}",
        "  cohort: Team\n  namespaceSelector: {}\n  admissionChecks: ['']\n"
        "  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}",
    )
    found = told(text)
    assert [(f.line, f.path) for f in found if f.code == "bad-name"] == [(6, "spec.cohort")]
    assert [(f.line, f.path) for f in found if f.code == "required"] == [(8, "spec.admissionChecks[0]")]
    (queue,) = load_text(text, "a.yaml").objects
    assert isinstance(queue, ClusterQueue)
    assert (queue.cohort, [check.name for check in queue.checks]) == ("Team", [""])
    assert (queue.fungibility.when_can_borrow.value, queue.fungibility.when_can_preempt.value) == ("MayStopSearch",) * 2


def test_an_old_name_in_the_newest_version_is_dropped_and_the_new_one_offered() -> None:
    text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: c}\nspec: {parent: root}\n"
    loaded = load_text(text, "a.yaml", strict=True)
    assert [(f.path, f.code, f.remedy) for f in loaded.findings] == [
        ("spec.parent", "unknown-field", "did you mean parentName?")
    ]
    assert [thing.parent for thing in loaded.objects if isinstance(thing, Cohort)] == [""]
    older = load_text(text.replace("v1beta2", "v1beta1"), "a.yaml", strict=True)
    assert [thing.parent for thing in older.objects if isinstance(thing, Cohort)] == ["root"]
    assert older.findings == ()


def test_classes_and_clusters_of_an_older_version_find_their_places() -> None:
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {
            "queueName": "q",
            "priority": 3,
            "priorityClassName": "No Name",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}],
        },
    }
    assert [(f.path, f.code) for f in told(json.dumps(workload))] == [("spec.priorityClassName", "bad-name")]
    cluster = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "MultiKueueCluster",
        "metadata": {"name": "c"},
        "spec": {"kubeConfig": {"location": "", "locationType": "Secret"}},
    }
    assert [(f.path, f.code) for f in told(json.dumps(cluster))] == [("spec.kubeConfig.location", "bad-value")]


def test_a_queue_without_a_target_says_so() -> None:
    document = _local_queue("")
    del document["spec"]["clusterQueue"]
    loaded = load_text(json.dumps(document), "a.json", strict=True)
    assert [(f.severity.value, f.code) for f in loaded.findings] == [("warning", "no-cluster-queue")]
    assert [thing.cluster_queue for thing in loaded.objects if isinstance(thing, LocalQueue)] == [""]
