"""ResourceQuotas of objects that are no pods: claims for devices and volumes, Workloads; what is used at any time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.cluster import PersistentVolumeClaim, Pod, ResourceQuota, StorageClass
from gpuconsole.model.commands import Delete, Submit
from gpuconsole.model.devices import Device, DeviceClass, DeviceRequest, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import BatchRules, Job, JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodClaim, PodSet, PodTemplate, PodVolume
from gpuconsole.model.resource_quota import COUNTED, Counted, counted
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from tests.sim.test_engine_laws import DATA, drawn, law
from tests.support import job_manifests
from tests.support.engine_clusters import GPU, MAKES, Make, fresh
from tests.support.sim_cluster import START, UNQUEUED, key_of, node, start, submit, two_teams

GI = 1024**3
CLASS = "gpu.nvidia.com"
DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"


def quota(**hard: int) -> ResourceQuota:
    return ResourceQuota(name="q", hard=hard)


def used(simulation: Simulation, key: str = "default/q") -> dict[str, int]:
    return dict(simulation.snapshot().resource_quotas[key].used)


def placed(simulation: Simulation) -> list[str]:
    return sorted(pod.name for pod in simulation.snapshot().pods.all() if pod.node)


def told(simulation: Simulation, what: HistoryEventKind) -> list[str]:
    lines = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    return [line.message for line in lines if line.what is what]


def claiming(name: str, template: str = "one") -> Pod:
    spec = PodTemplate(
        containers=(Container(requests={"cpu": 1000}),), resource_claims=(PodClaim("gpu", template=template),)
    )
    return Pod(name=name, template=spec)


def devices(*things: Object) -> Simulation:
    """A node with four GPUs that DRA gives out, one to a claim of template `one`, all to one of `all`."""
    offered = ResourceSlice(
        name="s", driver=CLASS, pool="n1", node="n1", devices=tuple(Device(name=f"gpu-{n}") for n in range(4))
    )
    bare = replace(node("n1"), allocatable={"cpu": 8000, "pods": 10})
    asked = {
        "one": DeviceRequest(name="gpu", device_class=CLASS),
        "all": DeviceRequest(name="gpu", device_class=CLASS, mode="All"),
        "either": DeviceRequest(
            name="gpu",
            alternatives=True,
            options=(
                DeviceRequest(name="a", device_class="other", count=4),
                DeviceRequest(name="b", device_class=CLASS, count=2),
            ),
        ),
    }
    templates = [ResourceClaimTemplate(namespace="default", name=name, requests=(one,)) for name, one in asked.items()]
    classes = [DeviceClass(name=CLASS), DeviceClass(name="other")]
    return start([bare, offered, *classes, *templates, *things], UNQUEUED)


def test_a_quota_of_devices_refuses_claims_and_their_pods_wait_until_others_end() -> None:
    simulation = devices(quota(**{DEVICES: 2, "count/resourceclaims.resource.k8s.io": 9}))
    submit(simulation, *map(claiming, "abc"))
    assert (placed(simulation), used(simulation)) == (
        ["a", "b"],
        {DEVICES: 2, "count/resourceclaims.resource.k8s.io": 2},
    )
    assert sorted(simulation.snapshot().resource_claims) == ["default/a-gpu", "default/b-gpu"]
    assert "ResourceClaim not created yet" in simulation.snapshot().pods["default/c"].message
    assert told(simulation, HistoryEventKind.PENDING)[0] == (
        'PodResourceClaim gpu: create ResourceClaim: resourceclaims.resource.k8s.io "c-gpu" is forbidden:'
        f" exceeded quota: q, requested: {DEVICES}=1, used: {DEVICES}=2, limited: {DEVICES}=2"
    )
    answer = explain(simulation.snapshot(), "default/c")
    assert (answer.code, answer.headline, [remedy.text for remedy in answer.remedies]) == (
        PendingReason.RESOURCE_QUOTA,
        "1 of 1 pods have no ResourceClaim: ResourceQuota q of namespace default would be exceeded.",
        [f"raise {DEVICES} of ResourceQuota default/q to 3 or more, or wait for pods of default to end"],
    )
    simulation.submit(Delete("pods", "default/a"))
    simulation.advance(START + 2 * MINUTE)
    assert (placed(simulation), used(simulation)[DEVICES]) == (["b", "c"], 2)


def test_the_claim_of_a_pod_goes_when_the_pod_has_ended_so_that_the_next_one_is_made() -> None:
    """Kubernetes' claim controller deletes the claim that was made for a pod when that is done."""
    simulation = devices(quota(**{DEVICES: 2}))
    template = claiming("x").template
    batch = Job(
        kind="Job",
        namespace="default",
        name="train",
        pod_sets=(PodSet(name="main", count=3, template=template),),
        rules=BatchRules(completions=3),
        duration=10 * MINUTE,
    )
    submit(simulation, batch)
    assert placed(simulation) == ["train-0", "train-1"]
    simulation.advance(START + 11 * MINUTE)
    assert sorted(simulation.snapshot().resource_claims) == ["default/train-2-gpu"]
    simulation.advance(START + 21 * MINUTE)
    assert simulation.snapshot().jobs["Job/default/train"].phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize(("template", "devices_counted"), [("one", 1), ("all", 32), ("either", 2)])
def test_a_claim_counts_the_most_devices_that_it_may_get(template: str, devices_counted: int) -> None:
    simulation = devices(quota(**{DEVICES: 100}))
    submit(simulation, claiming("a", template))
    assert used(simulation) == {DEVICES: devices_counted}


def test_a_larger_quota_of_devices_lets_claims_be_made() -> None:
    simulation = devices(quota(**{DEVICES: 1}))
    submit(simulation, *map(claiming, "ab"))
    assert placed(simulation) == ["a"]
    submit(simulation, quota(**{DEVICES: 4}))
    simulation.advance(START + MINUTE)
    assert placed(simulation) == ["a", "b"]


def volume(name: str, storage: int, kind: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(name=name, storage_class=kind, storage=storage * GI)


@pytest.mark.parametrize(
    ("hard", "text"),
    [
        (
            {"requests.storage": 15 * GI},
            "requested: requests.storage=10Gi, used: requests.storage=10Gi, limited: requests.storage=15Gi",
        ),
        (
            {"persistentvolumeclaims": 1},
            "requested: persistentvolumeclaims=1, used: persistentvolumeclaims=1, limited: persistentvolumeclaims=1",
        ),
        (
            {"fast.storageclass.storage.k8s.io/requests.storage": 15 * GI},
            "requested: fast.storageclass.storage.k8s.io/requests.storage=10Gi,"
            " used: fast.storageclass.storage.k8s.io/requests.storage=10Gi,"
            " limited: fast.storageclass.storage.k8s.io/requests.storage=15Gi",
        ),
        ({"slow.storageclass.storage.k8s.io/persistentvolumeclaims": 0}, ""),
        ({"count/persistentvolumeclaims": 2}, ""),
    ],
)
def test_a_claim_for_a_volume_is_refused_where_storage_is_counted(hard: dict[str, int], text: str) -> None:
    simulation = start([node("n1"), StorageClass(name="fast"), quota(**hard)], UNQUEUED)
    submit(simulation, volume("one", 10, "fast"), volume("two", 10, "fast"))
    refused = [f'persistentvolumeclaims "two" is forbidden: exceeded quota: q, {text}'] if text else []
    assert told(simulation, HistoryEventKind.COMMAND_REFUSED) == refused
    assert len(simulation.snapshot().persistent_volume_claims) == 2 - len(refused)


def test_the_volume_of_a_pod_is_refused_and_its_pod_waits() -> None:
    kind = StorageClass(name="fast", provisioner="efs.csi.aws.com")
    simulation = start([node("n1"), kind, quota(persistentvolumeclaims=1)], UNQUEUED)
    scratch = PodVolume(name="scratch", storage_class="fast", storage=GI)
    template = PodTemplate(containers=(Container(requests={GPU: 1}),), volumes=(scratch,))
    submit(simulation, *(Pod(name=name, template=template) for name in "ab"))
    assert (placed(simulation), used(simulation)) == (["a"], {"persistentvolumeclaims": 1})
    simulation.submit(Delete("pods", "default/a"))
    simulation.advance(START + 2 * MINUTE)
    assert (placed(simulation), used(simulation)) == (["b"], {"persistentvolumeclaims": 1})


def test_workloads_of_kueue_are_counted() -> None:
    simulation = start(
        [*two_teams(), ResourceQuota(namespace="red", name="q", hard={"count/workloads.kueue.x-k8s.io": 5})]
    )
    submit(simulation, *job_manifests.read(job_manifests.job("train", 1, queue="lq")))
    assert key_of(simulation, "red/train")
    assert used(simulation, "red/q") == {"count/workloads.kueue.x-k8s.io": 1}


WORKLOADS = "count/workloads.kueue.x-k8s.io"
NO_ROOM = (
    "is forbidden: exceeded quota: q, requested: count/workloads.kueue.x-k8s.io=1,"
    " used: count/workloads.kueue.x-k8s.io=1, limited: count/workloads.kueue.x-k8s.io=1"
)


def two_jobs() -> Simulation:
    """A namespace that may have one Workload, with two jobs of a pod, the first of which works for ten minutes."""
    simulation = start([*two_teams(), ResourceQuota(namespace="red", name="q", hard={WORKLOADS: 1})])
    submit(simulation, *job_manifests.read(job_manifests.job("one", 1, queue="lq", notes={"duration": "10m"})))
    submit(simulation, *job_manifests.read(job_manifests.job("two", 1, queue="lq", notes={"duration": "10m"})))
    return simulation


def test_a_workload_that_a_quota_refuses_is_not_created_and_its_job_stays_suspended() -> None:
    simulation = two_jobs()
    snapshot = simulation.snapshot()
    assert [workload.owner for workload in snapshot.workloads.all()] == ["Job/red/one"]
    assert (snapshot.jobs["Job/red/two"].suspended, used(simulation, "red/q")) == (True, {WORKLOADS: 1})
    told = [
        event for event in simulation.drain() if isinstance(event, HistoryEvent) and event.workload == "Job/red/two"
    ]
    (line,) = [line for line in told if line.reason == "Forbidden"]
    assert line.what is HistoryEventKind.PENDING
    assert line.message.startswith('workloads.kueue.x-k8s.io "job-two-')
    assert line.message.endswith(NO_ROOM)
    answer = explain(snapshot, "Job/red/two")
    assert (answer.code, answer.headline, answer.text) == (
        PendingReason.RESOURCE_QUOTA,
        "Kueue cannot create its Workload: ResourceQuota q of namespace red would be exceeded.",
        line.message,
    )
    assert [remedy.text for remedy in answer.remedies] == [
        f"raise {WORKLOADS} of ResourceQuota red/q to 2 or more, or delete ended jobs of red"
    ]


def test_kueue_creates_the_workload_at_its_next_attempt_after_another_one_is_gone() -> None:
    """Attempts 5 ms, 10 ms, 20 ms … apart: after 100 s the next one is at 163.835 s."""
    one, two = two_jobs(), two_jobs()
    for simulation in (one, two):
        simulation.advance(START + 100 * SECOND)
        simulation.submit(Delete("jobs", "Job/red/one"))
        simulation.advance(START + 163 * SECOND)
        assert [workload.owner for workload in simulation.snapshot().workloads.all()] == []
    saved = Simulation.load(two.save())
    for simulation in (one, two.fork(), saved):
        simulation.advance(START + 164 * SECOND)
        (workload,) = simulation.snapshot().workloads.all()
        assert (workload.owner, workload.admitted) == ("Job/red/two", True)


def test_a_larger_quota_lets_the_workload_be_created() -> None:
    simulation = two_jobs()
    submit(simulation, ResourceQuota(namespace="red", name="q", hard={WORKLOADS: 2}))
    simulation.advance(START + 2 * SECOND)
    assert sorted(workload.owner for workload in simulation.snapshot().workloads.all()) == [
        "Job/red/one",
        "Job/red/two",
    ]


def test_a_workload_that_somebody_creates_is_refused_as_the_api_server_does() -> None:
    simulation = start([*two_teams(), ResourceQuota(namespace="red", name="q", hard={WORKLOADS: 1})])
    made = job_manifests.read(job_manifests.job("one", 1, queue="lq"))
    submit(simulation, *made)
    submit(simulation, Workload(namespace="red", name="own", queue="lq", pod_sets=(PodSet(name="main"),)))
    assert [one for one in told(simulation, HistoryEventKind.COMMAND_REFUSED)] == [
        f'workloads.kueue.x-k8s.io "own" {NO_ROOM}'
    ]


HARD = {"pods": 4, "requests.nvidia.com/gpu": 6, "count/jobs.batch": 3, "count/workloads.kueue.x-k8s.io": 9}


def _recounted(snapshot: Snapshot, one: ResourceQuota) -> dict[str, int]:
    things: dict[type[Counted], list[Counted]] = {kind: [] for kind in COUNTED}
    for thing in snapshot.objects():
        if isinstance(thing, COUNTED) and thing.namespace == one.namespace:
            things[type(thing)].append(thing)
    return counted(one, things, "")


@law
@given(MAKES, DATA, st.sampled_from(["red", "blue"]))
def test_what_is_used_of_a_quota_is_what_a_new_count_of_all_objects_gives(
    make: Make, data: st.DataObject, namespace: str
) -> None:
    simulation = fresh(make)
    scopes = data.draw(st.sampled_from([(), ("NotTerminating",), ("BestEffort",)]))
    asked = job_manifests.read(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": namespace},
            "spec": {"hard": {"pods": 4} if scopes else HARD, "scopes": list(scopes)},
        }
    )
    simulation.submit(Submit(asked))
    for span, deed in drawn(data, make):
        simulation.advance(simulation.now + span)
        deed(simulation)
        simulation.advance(simulation.now + 1)
        snapshot = simulation.snapshot()
        known = snapshot.resource_quotas[f"{namespace}/q"]
        assert dict(known.used) == _recounted(snapshot, known)
