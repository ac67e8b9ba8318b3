"""Claims in a simulation: bound at once, or with the node of a pod; made for pods, and gone with them."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from gpuconsole.model.commands import Delete, Submit
from gpuconsole.model.events import HistoryEvent
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodTemplate, PodVolume
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube import volumes
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import GPU, START, node

GI = 1024**3
ZONE = "topology.kubernetes.io/zone"
LATE = StorageClass(name="late", provisioner="ebs.csi.aws.com", waits=True)
SOON = StorageClass(name="soon", provisioner="efs.csi.aws.com")
POLICY = SimPolicy(kueue=None, placement=VolcanoPolicy())


def pod(name: str, *volumes: PodVolume, gpus: int = 1) -> Pod:
    template = PodTemplate(containers=(Container(requests={GPU: gpus}),), volumes=volumes, scheduler_name="volcano")
    return Pod(name=name, template=template)


def claim(name: str, kind: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(name=name, uid=f"u-{name}", storage_class=kind, storage=GI)


def simulation(*things: Object) -> Simulation:
    nodes = [replace(node(name, 2), labels={ZONE: zone}) for name, zone in (("a1", "a"), ("b1", "b"))]
    made = Simulation.from_objects([*nodes, LATE, SOON, *things], policy=POLICY, seed=1, start=START)
    made.advance(START + MINUTE)
    return made


def test_a_claim_that_waits_gets_a_volume_near_the_first_pod_and_keeps_the_next_one_there() -> None:
    data = PodVolume(name="data", claim="data")
    made = simulation(
        claim("data", "late"), pod("filler", gpus=2), pod("one", data), pod("two", data), pod("six", data)
    )
    snapshot = made.snapshot()
    bound = snapshot.persistent_volume_claims["default/data"]
    volume = snapshot.persistent_volumes[bound.volume]
    assert (bound.phase, volume.claim, volume.phase) == ("Bound", "default/data", "Bound")
    assert {name: snapshot.pods[f"default/{name}"].node for name in ("filler", "one", "two", "six")} == {
        "filler": "a1",
        "one": "b1",
        "six": "b1",
        "two": "",
    }


def test_a_claim_that_does_not_wait_is_bound_before_any_pod() -> None:
    made = simulation(claim("data", "soon"))
    assert made.snapshot().persistent_volume_claims["default/data"].volume == "pvc-u-data"


def test_a_pod_without_its_claim_waits_and_is_told_why() -> None:
    made = simulation(pod("one", PodVolume(name="data", claim="data")))
    told = made.snapshot().pods["default/one"]
    assert told.node == ""
    assert 'persistentvolumeclaim "data" not found' in told.message


def test_a_claim_of_a_pods_own_goes_with_it_and_its_volume_too() -> None:
    made = simulation(pod("one", PodVolume(name="tmp", storage_class="late", storage=GI)))
    snapshot = made.snapshot()
    assert snapshot.persistent_volume_claims["default/one-tmp"].bound
    assert len(snapshot.persistent_volumes) == 1
    made.submit(Delete("pods", "default/one"))
    made.advance(START + 3 * MINUTE)
    assert not made.snapshot().persistent_volume_claims
    assert not made.snapshot().persistent_volumes


def test_a_volume_that_is_kept_outlives_its_claim() -> None:
    kept = PersistentVolume(name="pv", storage=GI, storage_class="soon", claim="default/data", phase="Bound")
    made = simulation(kept)
    assert made.snapshot().persistent_volumes["pv"].phase == "Released"


def _job(**volume: object) -> Job:
    container = {"name": "c", "resources": {"limits": {GPU: 1}}}
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "annotations": {"gpuconsole.io/duration": "1h"}},
        "spec": {
            "minAvailable": 2,
            "tasks": [{"name": "w", "replicas": 2, "template": {"spec": {"containers": [container]}}}],
            "volumes": [{"mountPath": "/data", **volume}],
        },
    }
    found = decode_object(document)
    assert isinstance(found, Job)
    return found


def test_a_volcano_job_makes_its_claim_which_all_its_pods_share_and_which_goes_with_it() -> None:
    asked = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "late",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    made = simulation(_job(volumeClaim=asked))
    snapshot = made.snapshot()
    (one,) = snapshot.persistent_volume_claims.values()
    assert (one.bound, one.storage, one.job) == (True, GI, "VolcanoJob/default/train")
    assert {pod.template.volumes for pod in snapshot.pods.values()} == {(PodVolume(name="train-0", claim=one.name),)}
    # The volume that is made for the first worker keeps the other one in its zone.
    assert {pod.node for pod in snapshot.pods.values()} == {"a1"}
    made.submit(Delete("jobs", "VolcanoJob/default/train"))
    made.advance(START + 3 * MINUTE)
    assert not made.snapshot().persistent_volume_claims


def test_a_volcano_job_waits_for_a_claim_that_it_names() -> None:
    made = simulation(_job(volumeClaimName="data"))
    told = [event for event in made.drain() if isinstance(event, HistoryEvent) and event.reason == "PVCError"]
    text = "pvc data is not found, the job will be in the Pending state until the PVC is created"
    assert [event.message for event in told] == [f"Failed to create PVC, err: {text}"]
    assert made.snapshot().jobs["VolcanoJob/default/train"].volcano_status.phase == "Pending"
    assert not made.snapshot().pods
    made.submit(Submit((claim("data", "soon"),)))
    made.advance(START + 2 * MINUTE)
    assert sorted(pod.node for pod in made.snapshot().pods.values()) == ["a1", "b1"]


def test_volumes_are_shared_out_among_claims_and_one_that_was_left_behind_is_nobodys() -> None:
    hand_made = StorageClass(name="made", provisioner="kubernetes.io/no-provisioner")
    volumes = [PersistentVolume(name=f"pv-{size}", storage=size * GI, storage_class="made") for size in (3, 1, 2)]
    left = PersistentVolume(name="a", storage=GI, storage_class="made", claim="default/one", phase="Released")
    asked = [claim(name, "made") for name in ("one", "two", "six", "ten")]
    snapshot = simulation(hand_made, left, *volumes, *asked).snapshot()
    assert {key.partition("/")[2]: one.volume for key, one in snapshot.persistent_volume_claims.items()} == {
        "one": "pv-1",
        "two": "pv-2",
        "six": "pv-3",
        "ten": "",
    }


@pytest.mark.parametrize("placement", [PlacementPolicy(), VolcanoPolicy(), KaiPolicy()], ids=["kube", "Volcano", "KAI"])
def test_under_every_engine_a_claim_gets_its_volume_with_the_node_of_its_pod(
    placement: PlacementPolicy | VolcanoPolicy | KaiPolicy,
) -> None:
    nodes = [replace(node(name, 2), labels={ZONE: zone}) for name, zone in (("a1", "a"), ("b1", "b"))]
    data = PodVolume(name="data", claim="data")
    things: list[Object] = [
        *nodes,
        LATE,
        claim("data", "late"),
        pod("filler", gpus=2),
        pod("one", data),
        pod("two", data),
    ]
    policy = SimPolicy(kueue=None, placement=placement)
    made = Simulation.from_objects(things, policy=policy, seed=1, start=START)
    made.advance(START + MINUTE)
    snapshot = made.snapshot()
    bound = snapshot.persistent_volume_claims["default/data"]
    homes = {name: snapshot.pods[f"default/{name}"].node for name in ("one", "two")}
    assert len(set(homes.values())) == 1
    assert "" not in homes.values()
    reached = snapshot.persistent_volumes[bound.volume].node_affinity
    assert reached is not None
    assert [volumes.is_reachable_from(snapshot.persistent_volumes[bound.volume], one) for one in nodes] == [
        one.name == homes["one"] for one in nodes
    ]
