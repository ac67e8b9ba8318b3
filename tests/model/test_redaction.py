"""Snapshot files without names: what people chose is replaced everywhere, what decides is left."""

from collections.abc import Mapping
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
import pytest

from gpuconsole.model.cluster import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.labels import Taint, Toleration
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    Cohort,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ResourceFlavor,
)
from gpuconsole.model.redaction import KEPT, TEXTS, redact
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import SnapshotFile, decode
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.model.workloads import Admission, CheckState, Condition, PodSetAssignment, Workload

PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def file(*objects: Object, lines: tuple[HistoryEvent, ...] = ()) -> SnapshotFile:
    return SnapshotFile(time=1_000_000, objects=objects, recent=lines)


def redacted(snapshot: SnapshotFile) -> tuple[str, SnapshotFile]:
    """The text and what it decodes to."""
    data = redact(msgspec.json.encode(snapshot))
    return data.decode(), decode(data)


def waiting(**more: object) -> Workload:
    template = PodTemplate(containers=(Container(requests={GPU: 8}),))
    given = {
        "name": "acme-llm",
        "namespace": "acme-team",
        "queue": "acme-door",
        "pod_sets": (PodSet(count=2, template=template),),
    }
    return Workload(**{**given, **more})  # type: ignore[arg-type]


ODD: dict[str, SnapshotFile] = {
    "an owner that is not there any more": file(waiting(owner="Job/acme-team/acme-train")),
    "a queue that nobody made": file(waiting(queue="acme-nowhere")),
    "a federation": file(
        MultiKueueCluster(name="acme-east", location="acme-kubeconfig"),
        MultiKueueConfig(name="acme-all", clusters=("acme-east", "acme-gone")),
        waiting(cluster="acme-east", nominated_clusters=("acme-gone",)),
    ),
    "labels by keys of their own": file(Node(name="n1", labels={"acme.example/rack": "acme-r1", "team": "acme"})),
    "labels of the vocabulary that hold names": file(
        Node(name="n1", labels={"kubernetes.io/hostname": "n1.acme.example", "karpenter.sh/nodepool": "acme-pool"}),
        Namespace(name="acme-team", labels={"kubernetes.io/metadata.name": "acme-team"}),
    ),
    "annotations": file(Node(name="n1", annotations={"acme.example/owner": "Ann of acme", "note": "acme"})),
    "a condition that tells names": file(
        waiting(conditions=(Condition("QuotaReserved", False, "Pending", "acme-llm waits for acme-door"),))
    ),
    "taints and who bears them": file(
        Node(name="n1", taints=(Taint("acme.example/only", "acme-llm", "NoSchedule"),)),
        waiting(
            pod_sets=(PodSet(template=PodTemplate(tolerations=(Toleration("acme.example/only", value="acme-x"),))),)
        ),
    ),
    "images, commands and host names": file(
        waiting(
            pod_sets=(
                PodSet(template=PodTemplate(containers=(Container(image="acme.example/llm:1"),), hostname="acme")),
            )
        )
    ),
    "a priority class that was deleted": file(waiting(priority_class="acme-urgent")),
    "history of what is gone": file(
        lines=(
            HistoryEvent(
                time=1,
                what=HistoryEventKind.PREEMPTED,
                workload="acme-team/acme-old",
                by="acme-other/acme-new",
                queue="acme-cq",
                by_queue="acme-boss",
                node="acme-node",
                message="acme-other/acme-new took acme-old's place on acme-node",
            ),
        )
    ),
    "cohorts whose parents are elsewhere": file(Cohort(name="acme-a", parent="acme-root")),
}


@pytest.mark.parametrize("snapshot", ODD.values(), ids=list(ODD))
def test_no_name_is_left(snapshot: SnapshotFile) -> None:
    text, again = redacted(snapshot)
    assert "acme" not in text.lower()
    assert [type(thing) for thing in again.objects] == [type(thing) for thing in snapshot.objects]


def test_what_decides_is_left() -> None:
    node = Node(name="acme-1", labels={**PRODUCT, "team": "acme"}, capacity={GPU: 8}, allocatable={GPU: 8})
    text, again = redacted(file(node, waiting(priority=7)))
    assert again.objects == (
        Node(name="node-1", labels={**PRODUCT, "key-1": "value-1"}, capacity={GPU: 8}, allocatable={GPU: 8}),
        waiting(name="workload-1", namespace="namespace-1", queue="queue-1", priority=7),
    ), text


def test_a_name_has_one_pseudonym_wherever_it_stands() -> None:
    message = "acme-llm: LocalQueue acme-door"
    lines = (HistoryEvent(time=1, what=HistoryEventKind.PREEMPTED, workload="acme-team/acme-llm", message=message),)
    pods = Pod(name="p", namespace="acme-team", workload="acme-team/acme-llm", node="acme-1")
    door = LocalQueue(name="acme-door", namespace="acme-team", cluster_queue="acme-cq")
    _, again = redacted(file(door, waiting(), pods, lines=lines))
    made, workload, pod = again.objects
    assert isinstance(made, LocalQueue)
    assert isinstance(workload, Workload)
    assert isinstance(pod, Pod)
    assert workload.queue == made.name
    assert pod.workload == workload.key == again.recent[0].workload
    assert again.recent[0].message == f"{workload.name}: LocalQueue {made.name}"


def test_labels_with_the_vocabulary_of_hardware_stay_although_others_go() -> None:
    labels = {**PRODUCT, "topology.kubernetes.io/zone": "eu-1a", "kubernetes.io/arch": "arm64"}
    _, again = redacted(file(Node(name="acme-1", labels=labels)))
    assert again.objects == (Node(name="node-1", labels=labels),)


def test_how_a_simulation_goes_on_is_left_out() -> None:
    policy = msgspec.Raw(b'{"streams":["acme"]}')
    text, again = redacted(SnapshotFile(time=1, policy=policy, seed=4))
    assert "acme" not in text
    assert (bytes(again.policy), again.seed, again.time) == (b"null", 4, 1)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff"])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        redact(data)


def test_measurements_name_neither_their_source_nor_a_container() -> None:
    told = NodeTelemetry(
        name="acme-1",
        time=1,
        source="http://prometheus.acme.example:9090",
        devices=(MeasuredDevice(gpu=0, uuid="GPU-acme", model="NVIDIA H100", pod="acme/train", container="acme-main"),),
        columns={GpuMetric.UTILISATION: (97.0,)},
    )
    text, snapshot = redacted(file(Node(name="acme-1"), told))
    assert "acme" not in text
    (node, telemetry) = snapshot.objects
    assert isinstance(telemetry, NodeTelemetry)
    assert telemetry.key == node.key
    assert telemetry.columns == told.columns
    assert telemetry.devices[0].model == "NVIDIA H100"


NAME, TEXT = "acme-thing", "acme-thing waits, says ann@acme.example (https://acme.example/1) at 10.11.12.13"


def filled(type: Any, field: str = "", depth: int = 0) -> Any:
    """A value of this type in which every text is a name of acme's, but for the words of an API."""
    if isinstance(type, TypeVar) or type is Any:
        return NAME
    origin, args = get_origin(type), get_args(type)
    if origin in (Union, UnionType):
        return filled(next(one for one in args if one is not NoneType), field, depth)
    if origin is tuple:
        return tuple(filled(one, field, depth + 1) for one in args if one is not ...) if depth < 7 else ()
    if origin is not None and issubclass(origin, Mapping):
        return {filled(args[0], field, depth + 1): filled(args[1], field, depth + 1)} if depth < 7 else {}
    if isinstance(type, type_of_types) and issubclass(type, msgspec.Struct):
        return type(**{one.name: filled(one.type, one.name, depth + 1) for one in msgspec.structs.fields(type)})
    if isinstance(type, type_of_types) and issubclass(type, Enum):
        return next(iter(type))
    if type is str:
        return TEXT if field in TEXTS else "Word" if field in KEPT else NAME
    return type(1)


type_of_types = type
NoneType = type(None)


@pytest.mark.parametrize("kind", get_args(Object), ids=lambda kind: kind.__name__)
def test_no_text_of_any_object_is_left_whatever_field_it_is_in(kind: type) -> None:
    text, again = redacted(file(filled(kind)))
    for trace in ("acme", "ann", "10.11"):
        assert trace not in text
    assert [type(thing) for thing in again.objects] == [kind]


def test_names_still_join() -> None:
    check = CheckState(name="acme-budget", message="Ann of acme said yes")
    assignment = PodSetAssignment(name="acme-part", flavors={GPU: "acme-fast"}, usage={GPU: 8})
    container = Container(name="acme-cont", requests={GPU: 8, "acme.example/nic": 2})
    workload = waiting(
        pod_sets=(PodSet(name="acme-part", template=PodTemplate(containers=(container,))),),
        admission=Admission(cluster_queue="acme-cq", pod_sets=(assignment,)),
        checks=(check,),
        conditions=(Condition("QuotaReserved", False, "Pending", "couldn't assign flavors to pod set acme-part"),),
    )
    node = Node(name="acme-1", capacity={GPU: 8, "acme.example/nic": 8}, labels={"node-role.kubernetes.io/acme": ""})
    text, again = redacted(
        file(
            node,
            AdmissionCheck(name="acme-budget", controller="acme.example/budget"),
            ResourceFlavor(name="acme-fast"),
            ClusterQueue(name="acme-cq", checks=(CheckRule("acme-budget", on_flavors=("acme-fast",)),)),
            PersistentVolume(name="acme-disk", claim="acme-team/acme-data"),
            PersistentVolumeClaim(name="acme-data", namespace="acme-team", volume="acme-disk"),
            workload,
        )
    )
    assert "acme" not in text
    a_node, a_check, flavor, queue, volume, claim, told = again.objects
    assert isinstance(told, Workload)
    assert isinstance(queue, ClusterQueue)
    assert isinstance(volume, PersistentVolume)
    assert isinstance(claim, PersistentVolumeClaim)
    assert isinstance(a_node, Node)
    assert told.admission is not None
    [part] = told.admission.pod_sets
    assert (told.admission.cluster_queue, part.flavors, part.name) == (
        queue.name,
        {GPU: flavor.key},
        told.pod_sets[0].name,
    )
    assert (told.checks[0].name, told.checks[0].message) == (a_check.key, "")
    assert (queue.checks[0].name, queue.checks[0].on_flavors) == (a_check.key, (flavor.key,))
    assert (volume.claim, claim.volume) == (claim.key, volume.name)
    asked = told.pod_sets[0].template.containers[0].requests
    assert list(asked) == list(a_node.capacity)
    assert told.conditions[0].message == f"couldn't assign flavors to pod set {part.name}"


CHECKED: dict[str, tuple[str, str]] = {
    "a check that wants to be asked again": (
        'Evicted due to AdmissionCheck in Retry state: "acme-budget" (no money (says "Ann"): ask later)',
        'Evicted due to AdmissionCheck in Retry state: "name-1"',
    ),
    "what was said before the workload was admitted again": (
        'Previously: The workload is deactivated due to AdmissionCheck in Rejected state: "acme-budget" (no\nmoney)',
        'Previously: The workload is deactivated due to AdmissionCheck in Rejected state: "name-1"',
    ),
    "several, of which one says nothing and one tells of another": (
        'Deactivated due to AdmissionChecks in Rejected state: "acme-budget"; "acme-legal" (as "acme-budget" says; no)',
        'Deactivated due to AdmissionChecks in Rejected state: "name-1"; "name-2"',
    ),
    "a check that is not in the file": (
        'Evicted due to AdmissionCheck in Retry state: "gone" (no money)',
        "Evicted due to AdmissionCheck in Retry state: …",
    ),
    "an update": (
        "Admission check acme-budget updated state from Pending to Ready with message: 8 nodes of Ann's",
        "Admission check name-1 updated state from Pending to Ready with message: …",
    ),
}
"""What → what conditions and events tell of a check, and what is kept of it."""


@pytest.mark.parametrize(("said", "kept"), CHECKED.values(), ids=list(CHECKED))
def test_what_a_check_said_is_left_out_wherever_it_is_told_again(said: str, kept: str) -> None:
    checks = (AdmissionCheck(name="acme-budget"), AdmissionCheck(name="acme-legal"))
    evicted = waiting(conditions=(Condition("Evicted", True, "AdmissionCheck", said),))
    line = HistoryEvent(time=1, what=HistoryEventKind.EVICTED, workload="acme-team/acme-llm", message=said)
    _, again = redacted(file(*checks, evicted, lines=(line,)))
    told = again.objects[2]
    assert isinstance(told, Workload)
    assert (told.conditions[0].message, again.recent[0].message) == (kept, kept)


def test_of_the_policy_admission_stays_and_names_nobody() -> None:
    kueue = '{"fair_sharing":true,"gates":{"PartialAdmission":false},"exclude_resource_prefixes":["acme.example/"]}'
    node = Node(name="n1", capacity={"acme.example/nic": 1, "other.example/nic": 1})
    policy = msgspec.Raw(f'{{"kueue":{kueue},"arrivals":[{{"name":"acme"}}]}}'.encode())
    text, again = redacted(SnapshotFile(time=1, objects=(node,), policy=policy))
    assert "acme" not in text
    (other,) = again.objects
    assert isinstance(other, Node)
    assert list(other.capacity) == ["resource-001", "resource-002"]
    assert msgspec.json.decode(again.policy) == {
        "kueue": {
            "fair_sharing": True,
            "gates": {"PartialAdmission": False},
            "exclude_resource_prefixes": ["resource-001", "resource-003"],
        }
    }
