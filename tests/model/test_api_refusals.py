"""Each rule of Kueue's API refuses what breaks it: at the right stage, the right field, with the server's words."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import pytest
from msgspec import Struct

from gpuconsole.model.apiserver import KINDS, WriteStage, create, hidden
from gpuconsole.model.documents.findings import FieldErrorKind, Key
from tests.support.sample_manifests import ABSENT, edited

INVALID, REQUIRED = FieldErrorKind.INVALID, FieldErrorKind.REQUIRED
DUPLICATE, UNSUPPORTED = FieldErrorKind.DUPLICATE, FieldErrorKind.NOT_SUPPORTED
TOO_LONG, TOO_MANY, FORBIDDEN = FieldErrorKind.TOO_LONG, FieldErrorKind.TOO_MANY, FieldErrorKind.FORBIDDEN
WRONG_TYPE = FieldErrorKind.TYPE_INVALID
SCHEMA, WEBHOOK, DECODING = WriteStage.SCHEMA, WriteStage.WEBHOOK, WriteStage.DECODING
CQ, COHORT, LQ, FLAVOR = "ClusterQueue cq", "Cohort org", "LocalQueue lq", "ResourceFlavor a100"
TOPOLOGY, CLASS, CHECK, WORK = (
    "Topology racks",
    "WorkloadPriorityClass urgent",
    "AdmissionCheck provision",
    "Workload work",
)
GROUP = ("spec", "resourceGroups", 0)
QUOTA = (*GROUP, "flavors", 0, "resources", 1)
POD_SET = ("spec", "podSets", 0)
CONTAINER = (*POD_SET, "template", "spec", "containers", 0)
ON: Mapping[str, bool] = {"ConcurrentAdmission": True, "PriorityBoost": True}
BOOST = "kueue.x-k8s.io/priority-boost"
GATED = "kueue.x-k8s.io/admission-gated-by"
ELASTIC = "kueue.x-k8s.io/elastic-job"
NEVER = {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}


class Case(Struct, frozen=True):
    """A valid object with one edit, and what it is refused for; no stage means that it is accepted."""

    sample: str
    path: tuple[Key, ...]
    value: object
    stage: WriteStage | None = None
    errors: tuple[tuple[FieldErrorKind, str], ...] = ()
    says: str = ""
    gates: Mapping[str, bool] = {}


def flavors(count: int) -> list[dict[str, Any]]:
    quotas = [{"name": name, "nominalQuota": "1"} for name in ("cpu", "nvidia.com/gpu")]
    return [{"name": f"f{n}", "resources": quotas} for n in range(count)]


def groups(count: int) -> list[dict[str, Any]]:
    return [
        {
            "coveredResources": [f"r{n}-{m}" for m in range(64)],
            "flavors": [{"name": f"f{n}", "resources": [{"name": f"r{n}-{m}"} for m in range(64)]}],
        }
        for n in range(count)
    ]


SHAPES = {
    "a name that is none": Case(CQ, ("metadata", "name"), "Big", SCHEMA, ((INVALID, "metadata.name"),), "RFC 1123"),
    "no name": Case(CLASS, ("metadata",), {}, SCHEMA, ((REQUIRED, "metadata.name"),), "name or generateName"),
    "no namespace": Case(LQ, ("metadata", "namespace"), ABSENT, SCHEMA, ((REQUIRED, "metadata.namespace"),)),
    "a namespace where there is none": Case(
        CQ, ("metadata", "namespace"), "team", SCHEMA, ((FORBIDDEN, "metadata.namespace"),), "not allowed on this type"
    ),
    "a namespace that is none": Case(
        LQ, ("metadata", "namespace"), "Big", SCHEMA, ((INVALID, "metadata.namespace"),), "RFC 1123 label"
    ),
    "a name's beginning that is none": Case(
        CLASS, ("metadata", "generateName"), "Big-", SCHEMA, ((INVALID, "metadata.generateName"),)
    ),
    "a label whose key is none": Case(
        CHECK, ("metadata", "labels"), {"a b": ""}, SCHEMA, ((INVALID, "metadata.labels"),)
    ),
    "a label that is none": Case(
        CHECK, ("metadata", "labels"), {"a": "x y"}, SCHEMA, ((INVALID, "metadata.labels"),), "a valid label must"
    ),
    "a finalizer that is none": Case(
        CHECK, ("metadata", "finalizers"), ["a b"], SCHEMA, ((INVALID, "metadata.finalizers"),)
    ),
    "more annotations than a quarter of a megabyte": Case(
        CLASS, ("metadata", "annotations"), {"a": "x" * 2**18}, SCHEMA, ((TOO_LONG, "metadata.annotations"),)
    ),
    "a text where a number belongs": Case(
        CLASS, ("value",), "high", SCHEMA, ((WRONG_TYPE, "value"),), 'must be of type integer: "string"'
    ),
    "a number beyond 32 bits": Case(CLASS, ("value",), 2**31, SCHEMA, ((WRONG_TYPE, "value"),), "int32"),
    "a description that is too long": Case(CLASS, ("description",), "x" * 2049, SCHEMA, ((TOO_LONG, "description"),)),
    "a required field": Case(CLASS, ("value",), ABSENT, SCHEMA, ((REQUIRED, "value"),)),
    "a required field that is null": Case(CLASS, ("value",), None, SCHEMA, ((REQUIRED, "value"),)),
    "a word that a field does not take": Case(
        LQ,
        ("spec", "stopPolicy"),
        "Stop",
        SCHEMA,
        ((UNSUPPORTED, "spec.stopPolicy"),),
        '"None", "Hold", "HoldAndDrain"',
    ),
    "a name that does not match": Case(
        LQ,
        ("spec", "clusterQueue"),
        "A",
        SCHEMA,
        ((INVALID, "spec.clusterQueue"),),
        "spec.clusterQueue in body should match",
    ),
    "a name that is too long": Case(
        LQ, ("spec", "clusterQueue"), "a" * 254, SCHEMA, ((TOO_LONG, "spec.clusterQueue"),)
    ),
    "a text that is too short": Case(
        CHECK, ("spec", "controllerName"), "", SCHEMA, ((INVALID, "spec.controllerName"),), "at least 1 chars long"
    ),
    "a list that is too long": Case(
        CQ,
        (*GROUP, "flavors"),
        flavors(65),
        SCHEMA,
        ((TOO_MANY, "spec.resourceGroups[0].flavors"),),
        "at most 64 items",
    ),
    "a list that is too short": Case(
        WORK, ("spec", "podSets"), [], SCHEMA, ((INVALID, "spec.podSets"),), "should have at least 1 items"
    ),
    "a number that is too small": Case(
        WORK,
        ("spec", "maximumExecutionTimeSeconds"),
        0,
        SCHEMA,
        ((INVALID, "spec.maximumExecutionTimeSeconds"),),
        "greater than or equal to 1",
    ),
    "entries that must differ": Case(
        CQ,
        (*GROUP, "flavors"),
        flavors(1) * 2,
        SCHEMA,
        ((DUPLICATE, "spec.resourceGroups[0].flavors[1]"),),
    ),
    "entries of a set": Case(
        CQ,
        ("spec", "admissionChecksStrategy", "admissionChecks", 0, "onFlavors"),
        ["a100", "a100"],
        SCHEMA,
        ((DUPLICATE, "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]"),),
    ),
    "a map that is too large": Case(
        FLAVOR, ("spec", "nodeLabels"), {f"l{n}": "" for n in range(9)}, SCHEMA, ((TOO_MANY, "spec.nodeLabels"),)
    ),
    "an amount that is none where nothing reads it first": Case(
        LQ, ("spec", "fairSharing", "weight"), "much", SCHEMA, ((INVALID, "spec.fairSharing.weight"),)
    ),
    "an amount that Kueue's own types cannot take": Case(
        CQ,
        (*QUOTA, "nominalQuota"),
        "lots",
        DECODING,
        ((INVALID, "spec.resourceGroups[0].flavors[0].resources[1].nominalQuota"),),
        "quantities must match the regular expression",
    ),
    "a container that is listed twice": Case(
        WORK,
        (*POD_SET, "template", "spec", "containers"),
        [{"name": "c"}] * 2,
        SCHEMA,
        ((DUPLICATE, "spec.podSets[0].template.spec.containers[1]"),),
    ),
    "a negative weight of a LocalQueue is nobody's business": Case(LQ, ("spec", "fairSharing", "weight"), "-1"),
    "a field that does not exist is dropped": Case(LQ, ("spec", "queue"), "x"),
}

RULES = {
    "limits without a cohort": Case(
        CQ,
        ("spec", "cohortName"),
        ABSENT,
        SCHEMA,
        ((INVALID, "spec"),),
        "borrowingLimit must be nil when cohort is empty",
    ),
    "flavors that lack a resource": Case(
        CQ, (*GROUP, "coveredResources"), ["cpu"], SCHEMA, ((INVALID, "spec.resourceGroups[0]"),), "the same number"
    ),
    "a preference that the searches never reach": Case(
        CQ, ("spec", "flavorFungibility", "whenCanBorrow"), ABSENT, SCHEMA, ((INVALID, "spec.flavorFungibility"),)
    ),
    "borrowing preemption without reclaim": Case(
        CQ, ("spec", "preemption"), NEVER, SCHEMA, ((INVALID, "spec.preemption"),)
    ),
    "a topology without labels": Case(
        FLAVOR, ("spec", "nodeLabels"), {}, SCHEMA, ((INVALID, "spec"),), "at least one nodeLabel is required"
    ),
    "a topology with no word of labels": Case(
        FLAVOR, ("spec", "nodeLabels"), ABSENT, SCHEMA, ((INVALID, "spec"),), "no such key: nodeLabels"
    ),
    "a taint of an unknown effect": Case(
        FLAVOR,
        ("spec", "nodeTaints", 0, "effect"),
        "Never",
        SCHEMA,
        ((INVALID, "spec.nodeTaints"),),
        "supported taint effect",
    ),
    "a toleration without key": Case(
        FLAVOR,
        ("spec", "tolerations", 0),
        {"operator": "Equal"},
        SCHEMA,
        ((INVALID, "spec.tolerations"),),
        "must be Exists",
    ),
    "a toleration of everything with a value": Case(
        FLAVOR,
        ("spec", "tolerations", 0, "value"),
        "x",
        SCHEMA,
        ((INVALID, "spec.tolerations"),),
        "a value must be empty",
    ),
    "a toleration of an unknown operator": Case(
        FLAVOR,
        ("spec", "tolerations", 0, "operator"),
        "In",
        SCHEMA,
        ((INVALID, "spec.tolerations"),),
        "supported toleration",
    ),
    "a toleration of an unknown effect": Case(
        FLAVOR,
        ("spec", "tolerations", 0, "effect"),
        "No",
        SCHEMA,
        ((INVALID, "spec.tolerations"),),
        "supported taint effect",
    ),
    "seconds of a toleration that never ends": Case(
        FLAVOR,
        ("spec", "tolerations", 0),
        {"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1},
        SCHEMA,
        ((INVALID, "spec.tolerations"),),
        "effect must be 'NoExecute'",
    ),
    "levels that are equal": Case(
        TOPOLOGY, ("spec", "levels"), [{"nodeLabel": "a"}] * 2, SCHEMA, ((INVALID, "spec.levels"),), "must be unique"
    ),
    "the host above another level": Case(
        TOPOLOGY,
        ("spec", "levels"),
        [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "a"}],
        SCHEMA,
        ((INVALID, "spec.levels"),),
        "only be used at the lowest level",
    ),
    "a minimum above the count": Case(WORK, (*POD_SET, "minCount"), 5, SCHEMA, ((INVALID, "spec.podSets[0]"),)),
    "a class without its value": Case(
        WORK, ("spec", "priority"), ABSENT, SCHEMA, ((INVALID, "spec"),), "should not be nil"
    ),
    "a class of Kubernetes in Kueue's group": Case(
        WORK,
        ("spec", "priorityClassRef", "kind"),
        "PriorityClass",
        SCHEMA,
        ((INVALID, "spec.priorityClassRef"),),
        "only the WorkloadPriorityClass kind",
    ),
    "a class of Kueue in Kubernetes' group": Case(
        WORK,
        ("spec", "priorityClassRef", "group"),
        "scheduling.k8s.io",
        SCHEMA,
        ((INVALID, "spec.priorityClassRef"),),
        "only the PriorityClass kind",
    ),
}

WEBHOOKS = {
    "a covered resource that is no resource": Case(
        CQ,
        (*GROUP, "coveredResources", 0),
        "@cpu",
        WEBHOOK,
        (
            (INVALID, "spec.resourceGroups[0].coveredResources[0]"),
            (INVALID, "spec.resourceGroups[0].flavors[0].resources[0].name"),
        ),
    ),
    "resources in another order": Case(
        CQ,
        (*GROUP, "coveredResources"),
        ["nvidia.com/gpu", "cpu"],
        WEBHOOK,
        tuple((INVALID, f"spec.resourceGroups[0].flavors[0].resources[{n}].name") for n in range(2)),
        "must match the name in coveredResources",
    ),
    "a group that stands twice": Case(
        COHORT,
        ("spec", "resourceGroups"),
        [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]}]
        * 2,
        WEBHOOK,
        (
            (DUPLICATE, "spec.resourceGroups[1].coveredResources[0]"),
            (DUPLICATE, "spec.resourceGroups[1].flavors[0].name"),
        ),
    ),
    "a quota below zero": Case(
        COHORT,
        (*GROUP, "flavors", 0, "resources", 0, "nominalQuota"),
        -1,
        WEBHOOK,
        ((INVALID, "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),),
        "greater than or equal to 0",
    ),
    "more lent than owned": Case(
        CQ,
        (*QUOTA, "lendingLimit"),
        9,
        WEBHOOK,
        ((INVALID, "spec.resourceGroups[0].flavors[0].resources[1].lendingLimit"),),
        "less than or equal to the nominalQuota",
    ),
    "limits of a cohort without parent": Case(
        COHORT,
        (*GROUP, "flavors", 0, "resources", 0, "lendingLimit"),
        9,
        WEBHOOK,
        ((INVALID, "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit"),),
        "must be nil when parent is empty",
    ),
    "a weight below zero": Case(CQ, ("spec", "fairSharing", "weight"), "-1", WEBHOOK, ((INVALID, "spec.fairSharing"),)),
    "a weight that rounds to nothing": Case(
        COHORT, ("spec", "fairSharing", "weight"), "1n", WEBHOOK, ((INVALID, "spec.fairSharing"),), "must be > 10e-9"
    ),
    "more resources than a queue may cover": Case(
        CQ,
        ("spec",),
        {"resourceGroups": groups(5)},
        WEBHOOK,
        ((INVALID, "spec.resourceGroups"),),
        "must be ≤ 256, got 320",
    ),
    "more flavors than a queue may have": Case(
        CQ,
        ("spec",),
        {
            "resourceGroups": [
                {
                    "coveredResources": [f"r{g}"],
                    "flavors": [{"name": f"f{g}-{n}", "resources": [{"name": f"r{g}"}]} for n in range(64)],
                }
                for g in range(5)
            ]
        },
        WEBHOOK,
        ((INVALID, "spec.resourceGroups"),),
        "total number of flavors across all resourceGroups must be ≤ 256, got 320",
    ),
    "more combinations than a group may have": Case(
        CQ,
        ("spec",),
        {
            "resourceGroups": [
                {
                    "coveredResources": [f"r{n}" for n in range(64)],
                    "flavors": [
                        {"name": f"f{n}", "resources": [{"name": f"r{m}"} for m in range(64)]} for n in range(9)
                    ],
                }
            ]
        },
        WEBHOOK,
        ((INVALID, "spec.resourceGroups[0]"),),
        "must be ≤ 512, got 576",
    ),
    "limits below zero": Case(
        CQ,
        QUOTA,
        {"name": "nvidia.com/gpu", "nominalQuota": 1, "borrowingLimit": -1, "lendingLimit": -1},
        WEBHOOK,
        tuple(
            (INVALID, f"spec.resourceGroups[0].flavors[0].resources[1].{limit}Limit")
            for limit in ("borrowing", "lending")
        ),
    ),
    "what a cohort without parent may borrow": Case(
        COHORT,
        (*GROUP, "flavors", 0, "resources", 0, "borrowingLimit"),
        9,
        WEBHOOK,
        ((INVALID, "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit"),),
        "must be nil when parent is empty",
    ),
    "a selector of impossible labels": Case(
        CQ,
        ("spec", "namespaceSelector"),
        {"matchLabels": {"a": "x y"}},
        WEBHOOK,
        ((INVALID, "spec.namespaceSelector.matchLabels"),),
    ),
    "a selector without values": Case(
        CQ,
        ("spec", "namespaceSelector"),
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        WEBHOOK,
        ((REQUIRED, "spec.namespaceSelector.matchExpressions[0].values"),),
        "must be specified when `operator` is",
    ),
    "a selector with values that nobody asks": Case(
        CQ,
        ("spec", "namespaceSelector"),
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        WEBHOOK,
        ((FORBIDDEN, "spec.namespaceSelector.matchExpressions[0].values"),),
    ),
    "a selector that knows no key, operator or value": Case(
        CQ,
        ("spec", "namespaceSelector"),
        {"matchExpressions": [{"operator": "Is", "values": ["b c"]}]},
        WEBHOOK,
        (
            (INVALID, "spec.namespaceSelector.matchExpressions[0].operator"),
            (INVALID, "spec.namespaceSelector.matchExpressions[0].key"),
            (INVALID, "spec.namespaceSelector.matchExpressions[0].key"),
            (INVALID, "spec.namespaceSelector.matchExpressions[0].values[0]"),
        ),
    ),
    "a check for a flavor that the queue does not have": Case(
        CQ,
        ("spec", "admissionChecksStrategy", "admissionChecks", 0, "onFlavors"),
        ["h100"],
        WEBHOOK,
        ((UNSUPPORTED, "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"),),
        'supported values: "a100"',
    ),
    "migration under StrictFIFO": Case(
        CQ,
        ("spec", "concurrentAdmissionPolicy"),
        {"migration": {"mode": "TryPreferredFlavors"}},
        WEBHOOK,
        ((INVALID, "spec.queueingStrategy"),),
        "StrictFIFO queueing strategy cannot be used",
        ON,
    ),
    "migration to the end of the world": Case(
        CQ,
        ("spec",),
        {
            "resourceGroups": groups(2),
            "concurrentAdmissionPolicy": {
                "migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "x"}}
            },
        },
        WEBHOOK,
        (
            (INVALID, "spec.resourceGroups"),
            (INVALID, "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName"),
        ),
        "",
        ON,
    ),
    "constraints of a migration that never happens": Case(
        CQ,
        ("spec",),
        {
            "resourceGroups": [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": flavors(17)}],
            "concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission", "constraints": {}}},
        },
        WEBHOOK,
        (
            (INVALID, "spec.resourceGroups[0].flavors"),
            (FORBIDDEN, "spec.concurrentAdmissionPolicy.migration.constraints"),
        ),
        "",
        ON,
    ),
    "migration is nobody's business behind its gate": Case(
        CQ, ("spec", "concurrentAdmissionPolicy"), {"migration": {"mode": "TryPreferredFlavors"}}
    ),
    "a node label that is none": Case(
        FLAVOR, ("spec", "nodeLabels"), {"a": "x y"}, WEBHOOK, ((INVALID, "spec.nodeLabels"),)
    ),
    "a taint that is none": Case(
        FLAVOR,
        ("spec", "nodeTaints", 0),
        {"key": "a b", "value": "x y", "effect": "NoExecute"},
        WEBHOOK,
        ((INVALID, "spec.nodeTaints[0].key"), (INVALID, "spec.nodeTaints[0].value")),
    ),
    "a taint that stands twice": Case(
        FLAVOR,
        ("spec", "nodeTaints"),
        [{"key": "a", "effect": "NoExecute"}] * 2,
        WEBHOOK,
        ((DUPLICATE, "spec.nodeTaints[1]"),),
        "unique by key and effect",
    ),
    "a toleration of an impossible key": Case(
        FLAVOR, ("spec", "tolerations", 0, "key"), "a b", WEBHOOK, ((INVALID, "spec.tolerations[0].key"),)
    ),
    "labels and annotations of pods": Case(
        WORK,
        (*POD_SET, "template", "metadata"),
        {"labels": {"a": "x y"}, "annotations": {"A b": ""}},
        WEBHOOK,
        (
            (INVALID, "spec.podSets[0].template.metadata.labels"),
            (INVALID, "spec.podSets[0].template.metadata.annotations"),
        ),
    ),
    "labels of pods behind their gate": Case(
        WORK,
        (*POD_SET, "template", "metadata"),
        {"labels": {"a": "x y"}},
        None,
        (),
        "",
        {"WorkloadValidationForPodSetMetadata": False},
    ),
    "pods as a resource, and less than nothing": Case(
        WORK,
        (*CONTAINER, "resources"),
        {"requests": {"pods": 1, "cpu": "-1"}},
        WEBHOOK,
        (
            (INVALID, "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]"),
            (INVALID, "spec.podSets[0].template.spec.containers[0].resources.requests[pods]"),
        ),
        "the key is reserved for internal kueue use",
    ),
    "less than nothing behind its gate": Case(
        WORK,
        (*CONTAINER, "resources"),
        {"limits": {"cpu": "-1"}},
        None,
        (),
        "",
        {"WorkloadValidateResourcesAreNonNegative": False},
    ),
    "resources of the pod itself": Case(
        WORK,
        (*POD_SET, "template", "spec", "resources"),
        {"limits": {"memory": "-1"}},
        WEBHOOK,
        ((INVALID, "spec.podSets[0].template.spec.resources.limits[memory]"),),
    ),
    "two pod sets that may shrink": Case(
        WORK,
        ("spec", "podSets"),
        [{"name": name, "count": 2, "minCount": 1, "template": {"spec": {"containers": []}}} for name in ("a", "b")],
        WEBHOOK,
        ((INVALID, "spec.podSets"),),
        "at most one podSet can use minCount",
    ),
    "a job that may shrink in two ways": Case(
        WORK,
        ("metadata", "annotations"),
        {ELASTIC: "true"},
        WEBHOOK,
        ((INVALID, "spec.podSets"),),
        "partial admission and elastic job",
    ),
    "a slice of no size": Case(
        WORK,
        (*POD_SET, "topologyRequest"),
        {"podSetSliceRequiredTopology": "a"},
        WEBHOOK,
        ((REQUIRED, "spec.podSets[0].topologyRequest.podSetSliceSize"),),
    ),
    "a slice of size zero": Case(
        WORK,
        (*POD_SET, "topologyRequest"),
        {"podSetSliceRequiredTopology": "a", "podSetSliceSize": 0},
        WEBHOOK,
        ((INVALID, "spec.podSets[0].topologyRequest.podSetSliceSize"),),
        "must be greater than 0",
    ),
    "a size of no slice": Case(
        WORK,
        (*POD_SET, "topologyRequest"),
        {"podSetSliceSize": 1},
        WEBHOOK,
        ((FORBIDDEN, "spec.podSets[0].topologyRequest.podSetSliceSize"),),
    ),
    "a size of no slice behind its gate": Case(
        WORK,
        (*POD_SET, "topologyRequest"),
        {"podSetSliceSize": 1},
        None,
        (),
        "",
        {"TASValidateWorkloadSliceSize": False},
    ),
    "gates of no name, twice, of no domain, too long": Case(
        WORK,
        ("metadata", "annotations"),
        {GATED: f"a.io/b,,a.io/b, b, c.io/{'d' * 60}"},
        WEBHOOK,
        (
            *((INVALID, f"metadata.annotations[{GATED}]"),) * 3,
            (TOO_LONG, f"metadata.annotations[{GATED}]"),
        ),
        "cannot contain empty gate names",
    ),
    "gates behind their gate": Case(
        WORK, ("metadata", "annotations"), {GATED: "b"}, None, (), "", {"AdmissionGatedBy": False}
    ),
    "a boost that is no number": Case(
        WORK,
        ("metadata", "annotations"),
        {BOOST: "much"},
        WEBHOOK,
        ((INVALID, f"metadata.annotations[{BOOST}]"),),
        "must be a valid signed integer",
        ON,
    ),
    "a boost of nothing": Case(
        WORK,
        ("metadata", "annotations"),
        {BOOST: ""},
        WEBHOOK,
        ((INVALID, f"metadata.annotations[{BOOST}]"),),
        'use "0" explicitly',
        ON,
    ),
    "a boost is nobody's business behind its gate": Case(WORK, ("metadata", "annotations"), {BOOST: "much"}),
}


@pytest.mark.parametrize(
    "case", [*SHAPES.values(), *RULES.values(), *WEBHOOKS.values()], ids=[*SHAPES, *RULES, *WEBHOOKS]
)
def test_an_object_that_breaks_a_rule_is_refused(case: Case) -> None:
    verdict = create(KINDS[case.sample.split()[0]], edited(case.sample, case.path, case.value), gates=case.gates)
    found = [(refusal.kind, refusal.field) for refusal in verdict.refusals if refusal.code != "not-checked"]
    assert (verdict.stage, sorted(found)) == (case.stage, sorted(case.errors))
    assert case.says in " | ".join(refusal.detail for refusal in verdict.refusals)


def test_a_schema_error_ends_the_request_before_the_webhook_sees_it() -> None:
    broken = edited(CQ, ("spec", "stopPolicy"), "Stop")
    broken["spec"]["fairSharing"]["weight"] = "-1"
    verdict = create(KINDS["ClusterQueue"], broken)
    assert (verdict.by, verdict.reason, verdict.code) == ("schema", "Invalid", 422)
    assert [refusal.field for refusal in verdict.refusals] == ["spec.stopPolicy", ""]
    assert "some validation rules were not checked" in verdict.refusals[1].detail
    repaired = edited(CQ, ("spec", "fairSharing", "weight"), "-1")
    verdict = create(KINDS["ClusterQueue"], repaired)
    assert (verdict.by, verdict.reason, verdict.code) == ("webhook vclusterqueue.kb.io", "Forbidden", 403)


def test_what_an_object_with_thousands_of_errors_would_be_refused_for_next_is_told_in_seconds() -> None:
    broken = edited(CQ, ("spec", "stopPolicy"), "Stop")
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "", "resources": []} for _ in range(12_000)]}
    broken["spec"]["resourceGroups"] = [group]
    verdict = create(KINDS["ClusterQueue"], broken)
    assert len(verdict.refusals) > 12_000
    begun = perf_counter()
    hidden(KINDS["ClusterQueue"], verdict)
    assert perf_counter() - begun < 5.0


def test_a_negative_subgroup_count_is_taken_with_a_warning() -> None:
    verdict = create(KINDS["Workload"], edited(WORK, (*POD_SET, "topologyRequest"), {"subGroupCount": -1}))
    assert verdict.accepted
    assert verdict.warnings == (
        "spec.podSets[0].topologyRequest.subGroupCount: negative value -1 is deprecated and will be rejected in a "
        "future release",
    )
