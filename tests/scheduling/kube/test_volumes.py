"""Volumes: which nodes reach them, which of them a pod's claims get, how many a node takes."""

import pytest

from gpuconsole.model.cluster import (
    LOST,
    ONE_POD,
    CSINode,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from gpuconsole.model.labels import NodeTerm, Requirement
from gpuconsole.model.pod_template import Container, HostPort, PodTemplate, PodVolume
from gpuconsole.scheduling.kube import volumes
from gpuconsole.scheduling.kube import volumes as volume_filters
from gpuconsole.scheduling.kube.plugins import framework as ports
from gpuconsole.scheduling.kube.volumes import Storage, VolumeBindingPlan

GI = 1024**3
ZONE = "topology.kubernetes.io/zone"
A, B = Node(name="a1", labels={ZONE: "a"}), Node(name="b1", labels={ZONE: "b"})
IN_A = (NodeTerm((Requirement(ZONE, "In", ("a",)),)),)
LATE = StorageClass(name="late", provisioner="ebs.csi.aws.com", waits=True)
LOCAL = StorageClass(name="local", provisioner="kubernetes.io/no-provisioner", waits=True)
SOON = StorageClass(name="soon", provisioner="ebs.csi.aws.com")


def pod(*names: str, name: str = "p", own: bool = False) -> Pod:
    mounted = tuple(PodVolume(name=one, claim="" if own else one) for one in names)
    return Pod(name=name, template=PodTemplate(containers=(Container(),), volumes=mounted))


def claim(name: str = "data", kind: str | None = "late", **facts: object) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(**{"name": name, "storage_class": kind, "storage": GI, **facts})  # type: ignore[arg-type]


def volume(name: str = "pv", size: int = 2, kind: str = "local", **facts: object) -> PersistentVolume:
    return PersistentVolume(**{"name": name, "storage": size * GI, "storage_class": kind, **facts})  # type: ignore[arg-type]


def storage(*things: PersistentVolume | PersistentVolumeClaim | StorageClass | CSINode) -> Storage:
    def of(kind: type) -> dict[str, object]:
        return {one.key: one for one in things if isinstance(one, kind)}

    tables = {
        "claims": of(PersistentVolumeClaim),
        "volumes": of(PersistentVolume),
        "classes": {one.key: one for one in (LATE, LOCAL, SOON)} | of(StorageClass),
        "limits": of(CSINode),
    }
    return Storage(**tables)  # type: ignore[arg-type]


TROUBLES: dict[str, tuple[Pod, Storage, str]] = {
    "a claim that is not there": (pod("data"), storage(), 'persistentvolumeclaim "data" not found'),
    "a claim of its own that nobody made yet": (
        pod("tmp", own=True),
        storage(),
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"',
    ),
    "a claim whose volume was lost": (
        pod("data"),
        storage(claim(volume="pv", phase=LOST)),
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
    ),
    "a claim that goes": (pod("data"), storage(claim(deleted=1)), 'persistentvolumeclaim "data" is being deleted'),
    "a claim that should be bound already": (pod("data"), storage(claim(kind="soon")), volumes.UNBOUND),
    "a claim of no class": (pod("data"), storage(claim(kind="")), volumes.UNBOUND),
    "a class that is not there": (
        pod("data"),
        storage(claim(kind="gone")),
        'storageclass.storage.k8s.io "gone" not found',
    ),
    "a claim that waits for a node": (pod("data"), storage(claim()), ""),
    "a claim of the default class, which waits": (
        pod("data"),
        storage(claim(kind=None), StorageClass(name="usual", provisioner="x", waits=True, default=True)),
        "",
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_claims_keep_a_pod_from_every_node(name: str) -> None:
    mounting, stored, text = TROUBLES[name]
    assert volumes.prefilter_rejection(mounting, stored) == text


def test_a_bound_claim_keeps_its_pod_where_its_volume_is() -> None:
    stored = storage(claim(volume="pv", bound=True), volume(node_affinity=IN_A))
    assert volumes.plan_volumes(pod("data"), A, stored) == VolumeBindingPlan("a1")
    assert volumes.plan_volumes(pod("data"), B, stored) == VolumeBindingPlan(
        "b1", reasons=(volumes.VOLUME_NODE_AFFINITY,)
    )
    gone = storage(claim(volume="pv", bound=True))
    assert volumes.plan_volumes(pod("data"), A, gone) == VolumeBindingPlan("a1", reasons=(volumes.VOLUME_GONE,))


def test_a_claim_gets_the_smallest_volume_that_suits_it_and_none_twice() -> None:
    stored = storage(
        claim("small", "local"),
        claim("large", "local", storage=3 * GI),
        *(volume(f"pv-{size}", size) for size in (5, 2, 4)),
    )
    assert volumes.plan_volumes(pod("large", "small"), A, stored) == VolumeBindingPlan(
        "a1", bindings=(("default/small", "pv-2"), ("default/large", "pv-4"))
    )
    assert volumes.plan_volumes(
        pod("large"), A, storage(claim("large", "local", storage=9 * GI), volume())
    ) == VolumeBindingPlan("a1", reasons=(volumes.NO_VOLUMES,))


def test_a_volume_is_made_where_the_class_allows_it() -> None:
    zonal = StorageClass(name="late", provisioner="x", waits=True, topologies=((Requirement(ZONE, "In", ("a",)),),))
    stored = storage(claim(), zonal)
    assert volumes.plan_volumes(pod("data"), A, stored) == VolumeBindingPlan("a1", provisions=("default/data",))
    assert volumes.plan_volumes(pod("data"), B, stored).reasons == (volumes.NO_VOLUMES,)


def test_what_one_pod_was_promised_another_one_does_not_get() -> None:
    stored = storage(claim("one", "local"), claim("two", "local"), claim("new"), volume())
    first = volumes.plan_volumes(pod("one", "new"), A, stored)
    stored.assume(first)
    assert volumes.plan_volumes(pod("two"), A, stored).reasons == (volumes.NO_VOLUMES,)
    assert volumes.plan_volumes(pod("new", name="q"), B, stored).reasons == (volumes.NO_VOLUMES,)
    assert volumes.plan_volumes(pod("new", name="q"), A, stored).provisions == ("default/new",)
    stored.forget_assumed(first)
    assert volumes.plan_volumes(pod("two"), A, stored).bindings == (("default/two", "pv"),)


def test_a_volume_kept_for_a_claim_is_its_alone() -> None:
    stored = storage(claim("one", "local"), claim("two", "local"), volume(claim="default/one", node_affinity=IN_A))
    assert volumes.plan_volumes(pod("one"), A, stored).bindings == (("default/one", "pv"),)
    assert volumes.plan_volumes(pod("one"), B, stored).reasons == (volumes.NO_VOLUMES,)
    assert volumes.plan_volumes(pod("two"), A, stored).reasons == (volumes.NO_VOLUMES,)


def test_of_volumes_of_several_places_the_smallest_that_is_reached_is_taken() -> None:
    def reached(operator: str, *zones: str) -> tuple[NodeTerm, ...]:
        return (NodeTerm((Requirement(ZONE, operator, zones),)),)

    stored = storage(
        claim("one", "local"),
        volume("a-only", 1, node_affinity=reached("In", "a")),
        volume("both", 2, node_affinity=reached("In", "a", "b", "a")),
        volume("not-a", 3, node_affinity=reached("NotIn", "a")),
        volume("anywhere", 4),
    )
    nowhere = Node(name="nowhere")
    taken = {node.name: volumes.plan_volumes(pod("one"), node, stored).bindings[0][1] for node in (A, B, nowhere)}
    assert taken == {"a1": "a-only", "b1": "both", "nowhere": "not-a"}
    found = volumes.match_volume(stored.claims["default/one"], None, stored)
    assert found is not None
    assert found.name == "a-only"


def test_a_volume_whose_claim_is_gone_is_nobodys_though_a_claim_has_that_name_again() -> None:
    left = volume(claim="default/one", phase="Released")
    assert volumes.plan_volumes(pod("one"), A, storage(claim("one", "local"), left)).reasons == (volumes.NO_VOLUMES,)
    again = volumes.plan_volumes(pod("one"), A, storage(claim("one", "local"), left, volume("z")))
    assert again.bindings == (("default/one", "z"),)


def test_old_labels_of_a_volume_mean_the_new_ones_of_a_node_and_not_the_other_way_round() -> None:
    old = "failure-domain.beta.kubernetes.io/zone"
    stored = storage(claim(volume="pv", bound=True), volume(labels={old: "a"}))
    assert volume_filters.zone_refusal(pod("data"), A, stored) == ""
    assert volume_filters.zone_refusal(pod("data"), B, stored) == volume_filters.OTHER_ZONE
    stored = storage(claim(volume="pv", bound=True), volume(labels={ZONE: "a"}))
    assert volume_filters.zone_refusal(pod("data"), Node(name="old", labels={old: "a"}), stored) != ""


def test_labels_of_a_bound_volume_name_its_zones() -> None:
    stored = storage(claim(volume="pv", bound=True), volume(labels={ZONE: "a__c"}))
    assert volume_filters.zone_refusal(pod("data"), A, stored) == ""
    assert volume_filters.zone_refusal(pod("data"), B, stored) == volume_filters.OTHER_ZONE
    assert volume_filters.zone_refusal(pod("data"), Node(name="nowhere"), stored) == ""


def test_a_driver_attaches_so_many_volumes_to_a_node_each_counted_once() -> None:
    stored = storage(claim("one"), claim("two"), claim("three"), CSINode(name="a1", limits={"ebs.csi.aws.com": 2}))
    there = [pod("one", name="x"), pod("one", name="y")]
    assert volume_filters.volume_limit_refusal(pod("one", "two"), A, there, stored) == ""
    assert volume_filters.volume_limit_refusal(pod("two", "three"), A, there, stored) == volume_filters.TOO_MANY
    assert volume_filters.volume_limit_refusal(pod("two", "three"), B, there, stored) == ""


def test_a_claim_for_one_pod_is_in_use_while_another_pod_has_it() -> None:
    stored = storage(claim(access_modes=(ONE_POD,)))
    assert (
        volume_filters.read_write_once_pod_refusal(pod("data"), [pod("data", name="q")], stored)
        == volume_filters.IN_USE
    )
    assert volume_filters.read_write_once_pod_refusal(pod("data"), [pod("data"), pod("other", name="q")], stored) == ""


def test_only_one_pod_has_a_port_of_its_node() -> None:
    def serving(name: str, *taken: HostPort) -> Pod:
        return Pod(name=name, template=PodTemplate(containers=(Container(ports=taken),)))

    anywhere, here, there = HostPort(80), HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2")
    assert ports.host_port_conflict(serving("p", anywhere), [serving("q", here)]) == ports.PORTS_IN_USE
    assert ports.host_port_conflict(serving("p", here), [serving("q", there)]) == ""
    assert ports.host_port_conflict(serving("p", here), [serving("q", HostPort(80, "UDP"))]) == ""
    assert ports.host_port_conflict(serving("p"), [serving("q", anywhere)]) == ""
