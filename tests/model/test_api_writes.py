"""What Kueue's API server stores: defaults, canonical amounts, what it drops; and what an update may not change."""

from copy import deepcopy
from typing import Any

import pytest
from msgspec import Struct

from gpuconsole.model.apiserver import KINDS, create, update
from gpuconsole.model.apiserver.common_validation import DEFAULTS
from gpuconsole.model.resources import canonical
from tests.support.sample_manifests import DOCUMENTS, edited

IN_USE = "kueue.x-k8s.io/resource-in-use"
ELASTIC = "kueue.x-k8s.io/elastic-job"
GATED = "kueue.x-k8s.io/admission-gated-by"
REPLACEMENT = "kueue.x-k8s.io/workload-slice-replacement-for"
SINCE = "2026-01-05T08:00:00Z"


def kueue(kind: str, name: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def stored(document: dict[str, Any]) -> Any:
    verdict = create(KINDS[document["kind"]], document)
    assert verdict.accepted, verdict.refusals
    return verdict.stored


def test_a_cluster_queue_gets_its_defaults_and_a_finalizer() -> None:
    found = stored(kueue("ClusterQueue", "cq", {"fairSharing": {}, "queueingStrategy": "", "nonsense": 1}))
    assert found["metadata"] == {"name": "cq", "finalizers": [IN_USE]}
    assert found["spec"] == {
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "withinClusterQueue": "Never",
            "reclaimWithinCohort": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
        "stopPolicy": "None",
        "fairSharing": {"weight": "1"},
    }


def test_amounts_of_a_cluster_queue_become_canonical_and_a_missing_one_is_zero() -> None:
    quotas = [{"name": "cpu", "nominalQuota": 0.5, "borrowingLimit": "1000m"}, {"name": "memory"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": quotas}]}
    found = stored(kueue("ClusterQueue", "cq", {"cohortName": "c", "resourceGroups": [group]}))
    assert found["spec"]["resourceGroups"][0]["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "500m", "borrowingLimit": "1"},
        {"name": "memory", "nominalQuota": "0"},
    ]


def test_a_cohort_is_stored_as_it_was_written() -> None:
    quotas = [{"name": "cpu", "nominalQuota": "1000m"}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": quotas}]}
    document = kueue("Cohort", "c", {"resourceGroups": [group], "parentName": "root"})
    assert stored(document) == document


DEFAULTED = {
    "a flavor of nothing": (kueue("ResourceFlavor", "f", {"tolerations": []}), {}),
    "a LocalQueue": (
        kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="ns"),
        {"clusterQueue": "cq", "stopPolicy": "None"},
    ),
    "retries of a ProvisioningRequestConfig": (
        kueue(
            "ProvisioningRequestConfig", "p", {"provisioningClassName": "c", "retryStrategy": {"backoffLimitCount": 1}}
        ),
        {
            "provisioningClassName": "c",
            "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
        },
    ),
    "where a cluster's secret is": (
        kueue("MultiKueueCluster", "m", {"clusterSource": {"kubeConfig": {"location": "x"}}}),
        {"clusterSource": {"kubeConfig": {"location": "x", "locationType": "Secret"}}},
    ),
    "one pod set without a word": (
        kueue(
            "Workload",
            "w",
            {"podSets": [{"template": {"spec": {"containers": [{"name": "c", "x": 1}]}}}]},
            namespace="n",
        ),
        {
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}],
        },
    ),
}


@pytest.mark.parametrize(("document", "spec"), DEFAULTED.values(), ids=DEFAULTED)
def test_defaults_are_filled_in_and_unknown_fields_dropped(document: dict[str, Any], spec: dict[str, Any]) -> None:
    before = deepcopy(document)
    assert stored(document)["spec"] == spec
    assert document == before


def test_a_generated_name_ends_in_what_chance_gives() -> None:
    document = kueue("Cohort", "", {}, generateName="team-")
    assert create(KINDS["Cohort"], document, suffix="x7k2p").stored["metadata"]["name"] == "team-x7k2p"


def test_without_partial_admission_a_minimum_is_dropped() -> None:
    verdict = create(KINDS["Workload"], DOCUMENTS["Workload work"], gates={"PartialAdmission": False})
    assert [sorted(pods) for pods in verdict.stored["spec"]["podSets"]] == [
        ["count", "name", "template", "topologyRequest"]
    ]


def test_a_new_object_has_no_status_and_an_update_keeps_it() -> None:
    queue = DOCUMENTS["LocalQueue lq"]
    assert "status" not in stored({**queue, "status": {"pendingWorkloads": 3}})
    old = {**queue, "status": {"pendingWorkloads": 3}}
    spec, status = {**queue["spec"], "stopPolicy": "None"}, {"pendingWorkloads": 4}
    kept = update(KINDS["LocalQueue"], {**queue, "spec": spec, "status": status}, old).stored
    assert (kept["spec"]["stopPolicy"], kept["status"]) == ("None", {"pendingWorkloads": 3})
    kept = update(KINDS["LocalQueue"], {**queue, "spec": spec, "status": status}, old, status=True).stored
    assert (kept["spec"]["stopPolicy"], kept["status"]) == ("HoldAndDrain", {"pendingWorkloads": 4})


CANONICAL = {
    "0.5": "500m",
    "1000m": "1",
    "1024Mi": "1Gi",
    "1000": "1k",
    "1.5Gi": "1536Mi",
    "0.5Ki": "512",
    "-1": "-1",
    "1e3": "1e3",
    "12e1": "120",
    "0.0000000001": "1n",
    "0": "0",
    "1000E": "1",
    "9" * 19: str(2**63 - 1),
}


@pytest.mark.parametrize(("text", "want"), CANONICAL.items())
def test_amounts_are_written_back_in_one_form(text: str, want: str) -> None:
    assert canonical(text) == want


class Change(Struct, frozen=True):
    """An update of a sample, in the state that it has, and the fields that it is refused for."""

    sample: str
    old: dict[str, Any]
    """What is merged into the sample first, part by part."""
    new: dict[str, Any]
    """What is merged into that by the update."""
    errors: tuple[str, ...] = ()
    says: str = ""
    status: bool = False
    gates: dict[str, bool] = {}


def merged(document: Any, change: Any) -> Any:
    if not isinstance(document, dict) or not isinstance(change, dict):
        return change
    whole = {key: merged(document.get(key), value) for key, value in change.items()}
    return {key: value for key, value in {**document, **whole}.items() if value is not None}


def condition(kind: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "lastTransitionTime": SINCE, "reason": "R", "message": ""}


def holding(*kinds: str, count: int = 4, **status: Any) -> dict[str, Any]:
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": count}]}
    return {"status": {"conditions": [condition(kind) for kind in kinds], "admission": admission, **status}}


WORK, FLAVOR, CQ = "Workload work", "ResourceFlavor a100", "ClusterQueue cq"
RESERVED, ADMITTED = holding("QuotaReserved"), holding("QuotaReserved", "Admitted")
POD_SET = DOCUMENTS[WORK]["spec"]["podSets"][0]
ANOTHER = {"spec": {"priorityClassRef": {"name": "other"}}}
PLAIN = {"spec": {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass"}}}
RECLAIMED = holding("QuotaReserved", reclaimablePods=[{"name": "main", "count": 2}])
CHECKED = {
    "name": "c",
    "state": "Ready",
    "lastTransitionTime": SINCE,
    "message": "",
    "podSetUpdates": [{"name": "main"}],
}
LABELLED = {**CHECKED, "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}
LEGACY = {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "provision", "onFlavors": ["gone"]}]}}}
ON_FLAVORS = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"

CHANGES = {
    "a queue's target": Change(
        "LocalQueue lq", {}, {"spec": {"clusterQueue": "b"}}, ("spec.clusterQueue",), "field is immutable"
    ),
    "a check's controller": Change(
        "AdmissionCheck provision",
        {},
        {"spec": {"controllerName": "b"}},
        ("spec.controllerName",),
        "field is immutable",
    ),
    "levels of a topology": Change("Topology racks", {}, {"spec": {"levels": [{"nodeLabel": "a"}]}}, ("spec.levels",)),
    "labels of a flavor with a topology": Change(
        FLAVOR,
        {},
        {"spec": {"nodeLabels": {"pool": "b"}}},
        ("spec",),
        "nodeLabels are immutable when topologyName is set",
    ),
    "tolerations of a flavor with a topology": Change(
        FLAVOR, {}, {"spec": {"tolerations": None}}, ("spec",), "tolerations are"
    ),
    "the topology of a flavor": Change(
        FLAVOR, {}, {"spec": {"topologyName": None}}, ("spec",), "topologyName is immutable"
    ),
    "labels of a flavor without one": Change(
        FLAVOR, {"spec": {"topologyName": None}}, {"spec": {"nodeLabels": {"pool": "b"}}}
    ),
    "another name": Change(CQ, {}, {"metadata": {"name": "b"}}, ("metadata.name",), "field is immutable"),
    "the migration policy of a queue": Change(
        CQ,
        {},
        {"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}}},
        ("spec.concurrentAdmissionPolicy",),
        "field is immutable",
    ),
    "anything but flavors beside a check that was wrong before": Change(CQ, LEGACY, {"spec": {"stopPolicy": "None"}}),
    "anything beside a check that was wrong before, behind the gate": Change(
        CQ,
        LEGACY,
        {"spec": {"stopPolicy": "None"}},
        (ON_FLAVORS,),
        gates={"RejectUpdatesToCQWithInvalidOnFlavors": True},
    ),
    "a mistake that stood there before stands in nobody's way": Change(
        "LocalQueue lq", {"spec": {"fairSharing": {"weight": "much"}}}, {"spec": {"stopPolicy": "None"}}
    ),
    "the queue of a workload that waits": Change(WORK, {}, {"spec": {"queueName": "b"}}),
    "the queue of a workload with quota": Change(
        WORK, RESERVED, {"spec": {"queueName": "b"}}, ("",), "queueName is immutable while workload quota reserved"
    ),
    "the class of a workload with quota": Change(WORK, RESERVED, ANOTHER),
    "the pod class of a workload with quota": Change(
        WORK, merged(PLAIN, RESERVED), ANOTHER, ("",), "priorityClassRef.name is immutable for scheduling.k8s.io"
    ),
    "the kind of class of a workload with quota": Change(
        WORK, RESERVED, PLAIN, ("", ""), "priorityClassRef.kind is immutable while workload quota reserved"
    ),
    "no class any more with quota": Change(
        WORK, RESERVED, {"spec": {"priorityClassRef": None}}, ("",), "priorityClassRef is immutable while"
    ),
    "the time of a workload that runs": Change(
        WORK, ADMITTED, {"spec": {"maximumExecutionTimeSeconds": 90}}, ("",), "maximumExecutionTimeSeconds is immutable"
    ),
    "the time of a workload that only has quota": Change(WORK, RESERVED, {"spec": {"maximumExecutionTimeSeconds": 90}}),
    "more pods with quota": Change(
        WORK, RESERVED, {"spec": {"podSets": [{**POD_SET, "count": 5}]}}, ("spec.podSets.0",), "field is immutable"
    ),
    "fewer pods with quota": Change(WORK, RESERVED, {"spec": {"podSets": [{**POD_SET, "count": 3}]}}),
    "fewer pods with quota, behind the gate": Change(
        WORK,
        RESERVED,
        {"spec": {"podSets": [{**POD_SET, "count": 3}]}},
        ("spec.podSets.0",),
        gates={"ElasticJobsViaWorkloadSlices": False},
    ),
    "another pod set with quota": Change(
        WORK,
        {"status": {"conditions": [condition("QuotaReserved")]}},
        {"spec": {"podSets": [POD_SET, {**POD_SET, "name": "b", "minCount": None}]}},
        ("spec.podSets",),
    ),
    "the admission of a workload": Change(
        WORK,
        RESERVED,
        {"status": {"admission": {"clusterQueue": "b"}}},
        ("status.admission",),
        "field is immutable",
        True,
    ),
    "the delay of an admission's topology": Change(
        WORK,
        RESERVED,
        {
            "status": {
                "admission": {"podSetAssignments": [{"name": "main", "count": 4, "delayedTopologyRequest": "Pending"}]}
            }
        },
        status=True,
    ),
    "the end of an admission": Change(WORK, RESERVED, {"status": {"admission": None, "conditions": None}}, status=True),
    "quota without an admission": Change(
        WORK,
        {},
        {"status": {"conditions": [condition("QuotaReserved")]}},
        ("status.admission",),
        "must be set while the QuotaReserved condition is true",
        True,
    ),
    "an assignment of a pod set that is none": Change(
        WORK,
        {},
        merged(RESERVED, {"status": {"admission": {"podSetAssignments": [{"name": "b"}]}}}),
        ("status.admission.podSetAssignments[0].name",),
        status=True,
    ),
    "assignments of more pod sets than there are": Change(
        WORK,
        {},
        merged(RESERVED, {"status": {"admission": {"podSetAssignments": [{"name": "main"}, {"name": "b"}]}}}),
        ("",),
        "must have the same number of podSets",
        True,
    ),
    "usage that its pods cannot share": Change(
        WORK,
        {},
        merged(
            RESERVED,
            {
                "status": {
                    "admission": {"podSetAssignments": [{"name": "main", "count": 4, "resourceUsage": {"a/b": 6}}]}
                }
            },
        ),
        ("status.admission.podSetAssignments[0].resourceUsage[a/b]",),
        "is not a multiple of 4",
        True,
    ),
    "more pods given back than there are": Change(
        WORK,
        {},
        {"status": {"reclaimablePods": [{"name": "main", "count": 5}, {"name": "b", "count": 1}]}},
        ("status.reclaimablePods[main].count", "status.reclaimablePods[b].name"),
        "should be less or equal to 4",
        True,
    ),
    "fewer pods given back than before": Change(
        WORK,
        RECLAIMED,
        {"status": {"reclaimablePods": [{"name": "main", "count": 1}]}},
        ("status.reclaimablePods[main].count",),
        "cannot be less than 2",
        True,
    ),
    "pods that are not given back any more": Change(
        WORK,
        RECLAIMED,
        {"status": {"reclaimablePods": None}},
        ("status.reclaimablePods[main]",),
        "cannot be removed",
        True,
    ),
    "fewer pods given back of an elastic job that became smaller": Change(
        WORK,
        merged(
            merged(RECLAIMED, {"metadata": {"annotations": {ELASTIC: "true"}}}),
            {"spec": {"podSets": [{key: value for key, value in POD_SET.items() if key != "minCount"} | {"count": 3}]}},
        ),
        {"status": {"reclaimablePods": [{"name": "main", "count": 1}]}},
        status=True,
    ),
    "what a check that is ready says": Change(
        WORK,
        {"status": {"admissionChecks": [CHECKED]}},
        {"status": {"admissionChecks": [LABELLED]}},
        ("status.admissionChecks[0].podSetUpdates",),
        "field is immutable",
        True,
    ),
    "what a check that retries says": Change(
        WORK,
        {"status": {"admissionChecks": [CHECKED]}},
        {"status": {"admissionChecks": [{**LABELLED, "state": "Retry"}]}},
        status=True,
    ),
    "an update of a pod set that is none": Change(
        WORK,
        {},
        {
            "status": {
                "admissionChecks": [
                    {
                        **CHECKED,
                        "podSetUpdates": [
                            {
                                "name": "b",
                                "nodeSelector": {"a": "x y"},
                                "labels": {"a": "x y"},
                                "annotations": {"a b": ""},
                                "tolerations": [{"key": "a b", "operator": "Exists"}],
                            }
                        ],
                    }
                ]
            }
        },
        tuple(
            f"status.admissionChecks[0].podSetUpdates[0].{field}"
            for field in ("name", "tolerations[0].key", "annotations", "nodeSelector", "labels")
        ),
        status=True,
    ),
    "a condition without a reason": Change(
        WORK,
        {},
        {"status": {"conditions": [{**condition("Evicted"), "reason": "no reason"}]}},
        ("status.conditions[0].reason",),
        status=True,
    ),
    "a cluster that nobody nominated": Change(
        WORK, {}, {"status": {"clusterName": "a"}}, ("status.clusterName",), "one of the nominatedClusterNames", True
    ),
    "a cluster for the slice of a job that runs there": Change(
        WORK, {"metadata": {"annotations": {REPLACEMENT: "x"}}}, {"status": {"clusterName": "a"}}, status=True
    ),
    "a cluster beside those that may still be": Change(
        WORK,
        {"status": {"nominatedClusterNames": ["a"]}},
        {"status": {"clusterName": "a"}},
        ("status",),
        "mutually exclusive",
        True,
    ),
    "another cluster": Change(
        WORK,
        {"status": {"clusterName": "a"}},
        {"status": {"clusterName": "b"}},
        ("status",),
        "immutable once set",
        True,
    ),
    "a gate that was not there": Change(
        WORK,
        {"metadata": {"annotations": {GATED: "a.io/b"}}},
        {"metadata": {"annotations": {GATED: "a.io/b,a.io/c"}}},
        (f"metadata.annotations[{GATED}]",),
        "can only remove gates",
    ),
    "a first gate": Change(
        WORK,
        {},
        {"metadata": {"annotations": {GATED: "a.io/b"}}},
        (f"metadata.annotations[{GATED}]",),
        "cannot add admission gate after creation",
    ),
    "a gate less": Change(
        WORK,
        {"metadata": {"annotations": {GATED: "a.io/b,a.io/c"}}},
        {"metadata": {"annotations": {GATED: "a.io/c"}}},
    ),
}


@pytest.mark.parametrize("case", CHANGES.values(), ids=CHANGES)
def test_a_change_that_breaks_a_rule_is_refused(case: Change) -> None:
    kind = KINDS[case.sample.split()[0]]
    old = merged(deepcopy(DOCUMENTS[case.sample]), case.old)
    verdict = update(kind, merged(old, case.new), old, status=case.status, gates=case.gates)
    assert sorted(refusal.field for refusal in verdict.refusals) == sorted(case.errors)
    assert case.says in " | ".join(refusal.detail for refusal in verdict.refusals)


def test_the_gates_have_the_defaults_that_the_scheduler_knows() -> None:
    from gpuconsole.scheduling.kueue import config

    assert {name: config.GATE_DEFAULTS[name] for name in DEFAULTS} == DEFAULTS


TOPOLOGY_SLICE = {
    "domainCount": 2,
    "valuesPerLevel": [{"universal": "r"}, {"individual": {"roots": ["a", "b"]}}],
    "podCounts": {"universal": 2},
}
SLICES = {
    "as many values as levels": ({"valuesPerLevel": [{"universal": "r"}]}, "", "same length as the number of levels"),
    "a root for each domain": (
        {"valuesPerLevel": [{"universal": "r"}, {"individual": {"roots": ["a"]}}]},
        ".slices[0]",
        "roots of length equal to domainCount",
    ),
    "a count for each domain": ({"podCounts": {"individual": [1]}}, ".slices[0]", "length equal to domainCount"),
    "one kind of count": (
        {"podCounts": {"universal": 1, "individual": [1, 1]}},
        ".slices[0].podCounts",
        "exactly one of the fields in [universal individual]",
    ),
    "one kind of value": (
        {"valuesPerLevel": [{}, {"universal": "a"}]},
        ".slices[0].valuesPerLevel[0]",
        "exactly one of the fields in [universal individual]",
    ),
}


@pytest.mark.parametrize(("change", "where", "says"), SLICES.values(), ids=SLICES)
def test_places_of_pods_are_complete(change: dict[str, Any], where: str, says: str) -> None:
    place = "status.admission.podSetAssignments[0].topologyAssignment"
    old = deepcopy(DOCUMENTS[WORK])
    for piece, wrong in ((TOPOLOGY_SLICE, ()), ({**TOPOLOGY_SLICE, **change}, (place + where,))):
        assignment = {"levels": ["rack", "host"], "slices": [piece]}
        change_to = merged(
            RESERVED,
            {"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}}},
        )
        verdict = update(KINDS["Workload"], merged(old, change_to), old, status=True)
        assert tuple(refusal.field for refusal in verdict.refusals) == wrong
        assert not wrong or says in verdict.refusals[0].detail


def test_clusters_of_a_config_are_unique_and_a_source_is_one() -> None:
    config = create(KINDS["MultiKueueConfig"], kueue("MultiKueueConfig", "m", {"clusters": ["a", "a"]}))
    assert [(r.field, r.detail) for r in config.refusals] == [("spec.clusters", "must be unique")]
    source = {"clusterSource": {"kubeConfig": {"location": "a"}, "clusterProfileRef": {"name": "b"}}}
    cluster = create(KINDS["MultiKueueCluster"], kueue("MultiKueueCluster", "m", source))
    assert [(r.field, r.detail) for r in cluster.refusals] == [
        ("spec.clusterSource", "exactly one of the fields in [kubeConfig clusterProfileRef] must be set")
    ]


def test_an_unchanged_object_is_accepted_again() -> None:
    for name in (
        "ClusterQueue cq",
        "Cohort org",
        "LocalQueue lq",
        "Topology racks",
        "ResourceFlavor a100",
        "Workload work",
    ):
        kind = KINDS[name.split()[0]]
        once = create(kind, edited(name, ("metadata", "uid"), "u"))
        again = update(kind, once.stored, once.stored)
        assert (once.accepted, again.accepted, again.stored) == (True, True, once.stored)


def test_the_webhook_looks_at_conditions_and_slices_that_no_schema_has_seen() -> None:
    webhook = KINDS["Workload"].validate
    assert webhook is not None
    layers = [{"topology": "rack", "size": 0}]
    pods = {"name": "main", "topologyRequest": {"podsetSliceRequiredTopologyConstraints": layers}}
    conditions = [
        {**condition("A"), "status": "Maybe", "reason": "", "message": "x" * 40000, "observedGeneration": -1},
        {"type": "A", "status": "True", "reason": "R"},
        {**condition("a b"), "reason": "R" * 2000},
        {**condition("B"), "reason": "no reason"},
    ]
    found = list(webhook({"spec": {"podSets": [pods]}, "status": {"conditions": conditions}}, None, {}))
    assert [refusal.field for refusal in found] == [
        "spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[0].size",
        "status.conditions[0].status",
        "status.conditions[0].observedGeneration",
        "status.conditions[0].reason",
        "status.conditions[0].message",
        "status.conditions[1].type",
        "status.conditions[1].lastTransitionTime",
        "status.conditions[2].type",
        "status.conditions[2].reason",
        "status.conditions[3].reason",
    ]


def test_the_webhook_of_queues_repeats_what_the_schema_asks_in_its_own_words() -> None:
    webhook = KINDS["ClusterQueue"].validate
    assert webhook is not None
    spec = {
        "preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}},
        "flavorFungibility": {"preference": "BorrowingOverPreemption"},
    }
    assert [(refusal.field, refusal.detail) for refusal in webhook({"spec": spec}, None, {})] == [
        ("spec.preemption", "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"),
        (
            "spec.flavorFungibility.preference",
            'preference "BorrowingOverPreemption" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor',
        ),
    ]
