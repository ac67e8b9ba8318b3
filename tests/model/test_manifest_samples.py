"""Every kind that is read arrives in its struct, complete, and valid manifests give no findings."""

from datetime import UTC, datetime

import pytest

from gpuconsole.model.autoscaling import NodePool, NodePoolBudget
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cluster import (
    LimitRange,
    LimitRangeItem,
    Namespace,
    Node,
    PodDisruptionBudget,
    PriorityClass,
    RuntimeClass,
)
from gpuconsole.model.labels import LabelSelector, Taint, Toleration
from gpuconsole.model.manifests import decode_object, load_text
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import (
    AdmissionCheck,
    BorrowWithinCohort,
    CheckRule,
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    FungibilityPreference,
    LocalQueue,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Topology,
    WorkloadPriorityClass,
)
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from tests.support.sample_manifests import DOCUMENTS, TEXT

GI = 1024**3
GPU = "nvidia.com/gpu"
CREATED = int(datetime(2026, 1, 5, 8, tzinfo=UTC).timestamp()) * SECOND

WANTED: dict[str, Object] = {
    "Namespace team": Namespace(name="team", labels={"tier": "research", "kubernetes.io/metadata.name": "team"}),
    "LimitRange limits": LimitRange(
        namespace="team",
        name="limits",
        items=(LimitRangeItem(default={"cpu": 2000}, default_request={"cpu": 1000}, max={"cpu": 64000}),),
    ),
    "RuntimeClass sandboxed": RuntimeClass(
        name="sandboxed", handler="kata", overhead={"cpu": 250, "memory": 160 * 2**20}
    ),
    "PriorityClass training": PriorityClass(
        name="training", value=1000, preemption_policy="Never", description="training"
    ),
    "WorkloadPriorityClass urgent": WorkloadPriorityClass(name="urgent", value=10000),
    "Topology racks": Topology(name="racks", levels=("cloud/rack", "kubernetes.io/hostname")),
    "Node node-0": Node(
        name="node-0",
        labels={"pool": "a100", "cloud/rack": "r0"},
        taints=(Taint(GPU, "present"),),
        capacity={"cpu": 96000, "memory": 1024 * GI, "pods": 110, GPU: 8, "nvidia.com/mig-1g.10gb": 7},
        allocatable={"cpu": 96000, "memory": 1024 * GI, "pods": 110, GPU: 8, "nvidia.com/mig-1g.10gb": 7},
        unschedulable=True,
        ready=False,
        not_ready_since=0,
    ),
    "ResourceFlavor a100": ResourceFlavor(
        name="a100",
        node_labels={"pool": "a100"},
        node_taints=(Taint(GPU, "present"),),
        tolerations=(Toleration(GPU, "Exists"),),
        topology="racks",
    ),
    "AdmissionCheck provision": AdmissionCheck(
        name="provision",
        controller="kueue.x-k8s.io/provisioning-request",
        parameters="kueue.x-k8s.io/ProvisioningRequestConfig/config",
    ),
    "Cohort org": Cohort(
        name="org",
        fair_weight=2.0,
        resource_groups=(ResourceGroup((GPU,), (FlavorQuotas("a100", {GPU: Quota(4)}),)),),
    ),
    "Cohort research": Cohort(name="research", parent="org"),
    "ClusterQueue cq": ClusterQueue(
        name="cq",
        cohort="research",
        namespace_selector=LabelSelector({"tier": "research"}),
        queueing_strategy=QueueingStrategy.STRICT_FIFO,
        resource_groups=(
            ResourceGroup(("cpu", GPU), (FlavorQuotas("a100", {"cpu": Quota(1500), GPU: Quota(8, 4, 2)}),)),
        ),
        fungibility=FlavorFungibility(
            Fungibility.TRY_NEXT_FLAVOR,
            Fungibility.TRY_NEXT_FLAVOR,
            FungibilityPreference.PREEMPTION_OVER_BORROWING,
        ),
        preemption=ClusterQueuePreemption(
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            PreemptionPolicy.ANY,
            BorrowWithinCohort(PreemptionPolicy.LOWER_PRIORITY, 100),
        ),
        checks=(CheckRule("provision", ("a100",)),),
        stop_policy=StopPolicy.HOLD,
        fair_weight=0.5,
        admission_mode="UsageBasedAdmissionFairSharing",
    ),
    "LocalQueue lq": LocalQueue(
        namespace="team", name="lq", cluster_queue="cq", stop_policy=StopPolicy.HOLD_AND_DRAIN, fair_weight=3.0
    ),
    "Queue ml": VolcanoQueue(
        name="ml", weight=4, parent="root", capability={GPU: 16}, deserved={GPU: 8}, reclaimable=False
    ),
    "PodGroup gang": PodGroup(
        namespace="team", name="gang", min_member=4, queue="ml", priority_class="training", min_resources={GPU: 4}
    ),
    "PodGroup crew": PodGroup(namespace="team", name="crew", min_member=2),
    "NodePool gpus": NodePool(
        name="gpus",
        labels={"pool": "a100"},
        requirements=(("karpenter.sh/capacity-type", "In", ("spot",)),),
        taints=(Taint("nvidia.com/gpu", "present"),),
        limits={GPU: 16},
        weight=10,
        consolidation_policy="WhenEmpty",
        consolidate_after="30s",
        expire_after=48 * HOUR,
        budgets=(NodePoolBudget("20%"), NodePoolBudget("0", ("Drifted",), "0 9 * * mon-fri", 8 * HOUR)),
    ),
    "PodDisruptionBudget keep": PodDisruptionBudget(
        namespace="team", name="keep", selector=LabelSelector({"app": "serve"}), min_available="50%"
    ),
}


@pytest.mark.parametrize(("name", "want"), WANTED.items())
def test_each_kind_arrives_complete(name: str, want: Object) -> None:
    assert decode_object(DOCUMENTS[name]) == want


def test_valid_manifests_give_no_findings_even_in_strict_mode() -> None:
    loaded = load_text(TEXT, "all.yaml", strict=True)
    assert loaded.findings == ()
    assert len(loaded.objects) == len(DOCUMENTS)


def test_objects_come_in_the_order_in_which_a_cluster_would_create_them() -> None:
    text = "\n---\n".join(reversed(TEXT.split("\n---\n")))
    kinds = [type(thing).__name__ for thing in load_text(text, "all.yaml").objects]
    assert list(dict.fromkeys(kinds)) == [
        *(
            "Namespace",
            "LimitRange",
            "PodDisruptionBudget",
            "RuntimeClass",
            "PriorityClass",
            "WorkloadPriorityClass",
            "Topology",
            "Node",
        ),
        "ResourceFlavor",
        *("AdmissionCheck", "Cohort", "ClusterQueue", "LocalQueue", "VolcanoQueue", "PodGroup", "NodePool", "Job"),
        *("Workload", "Pod"),
    ]


def test_the_first_version_of_kueue_spelled_some_fields_differently() -> None:
    document = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "old"},
        "spec": {
            "cohort": "org",
            "namespaceSelector": {},
            "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
            "admissionChecks": ["provision"],
        },
    }
    assert decode_object(document) == ClusterQueue(
        name="old",
        cohort="org",
        namespace_selector=LabelSelector(),
        fungibility=FlavorFungibility(Fungibility.MAY_STOP_SEARCH, Fungibility.MAY_STOP_SEARCH),
        checks=(CheckRule("provision"),),
    )


def test_an_absent_selector_selects_nobody_and_an_empty_one_everybody() -> None:
    def selector(spec: dict[str, object]) -> LabelSelector | None:
        document = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"}}
        thing = decode_object({**document, "spec": spec})
        assert isinstance(thing, ClusterQueue)
        return thing.namespace_selector

    assert selector({}) is None
    assert selector({"namespaceSelector": None}) is None
    assert selector({"namespaceSelector": {}}) == LabelSelector()


def test_a_document_of_an_unknown_kind_or_without_a_name_is_nothing() -> None:
    assert decode_object({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "w"}}) is None
    assert decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": {}}) is None
    assert decode_object({}) is None


def test_times_are_read_to_the_second_and_now_stands_in_for_missing_ones() -> None:
    work = decode_object(DOCUMENTS["Workload work"], now=MINUTE)
    pod = decode_object(DOCUMENTS["Pod alone"], now=MINUTE)
    assert getattr(work, "created", None) == CREATED
    assert getattr(pod, "created", None) == MINUTE
