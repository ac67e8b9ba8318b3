"""predicates: filters that concern what pods ask for beside resources: ports, volumes, devices."""

from gpuconsole.model.cluster import Node, PersistentVolume, PersistentVolumeClaim, StorageClass
from gpuconsole.model.devices import Device, DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice
from gpuconsole.model.labels import NodeTerm, Requirement
from gpuconsole.model.pod_template import Container, HostPort, PodClaim, PodTemplate, PodVolume
from gpuconsole.scheduling.devices.allocator import DraInventory
from gpuconsole.scheduling.kube.volumes import Storage
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, VolcanoPluginOption, tier_of
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import ClusterInfo, VolcanoSession
from tests.support.volcano_clusters import cluster, job, node, task

GI = 1024**3
LOCAL = StorageClass(name="local", provisioner="kubernetes.io/no-provisioner", waits=True)
ON_B = (NodeTerm((Requirement("kubernetes.io/hostname", "In", ("b",)),)),)
A, B = (node(name, labels={"kubernetes.io/hostname": name}) for name in "ab")


def template(*volumes: str, ports: tuple[HostPort, ...] = (), claims: tuple[str, ...] = ()) -> PodTemplate:
    return PodTemplate(
        containers=(Container(requests={"cpu": 1000}, ports=ports),),
        volumes=tuple(PodVolume(name=name, claim=name) for name in volumes),
        resource_claims=tuple(PodClaim(name, claim=name) for name in claims),
    )


def opened(made: ClusterInfo, arguments: dict[str, object] | None = None) -> VolcanoSession:
    option = VolcanoPluginOption(name="predicates", arguments=VolcanoArguments(arguments))
    return VolcanoSession(
        VolcanoConfiguration(actions=("allocate",), tiers=(tier_of("gang"), (option,))), made, plugins=PLUGINS
    )


def storage(*volumes: PersistentVolume) -> Storage:
    claims = {f"default/{n}": PersistentVolumeClaim(name=n, storage_class="local", storage=GI) for n in ("one", "two")}
    return Storage(claims=claims, volumes={one.name: one for one in volumes}, classes={"local": LOCAL})


def volume(name: str, size: int, where: tuple[NodeTerm, ...] | None = None) -> PersistentVolume:
    return PersistentVolume(name=name, storage=size * GI, storage_class="local", node_affinity=where)


def reasons(session: VolcanoSession, waiting: TaskInfo, where: Node) -> list[str]:
    error = session.predicate(waiting, session.nodes[where.name])
    return [] if error is None else error.reasons


def test_a_port_of_a_node_is_for_one_pod() -> None:
    there = task("there", on="a", template=template(ports=(HostPort(80),)))
    waiting = task("waiting", template=template(ports=(HostPort(80),)))
    session = opened(cluster([A, B], [job([there, waiting])]))
    assert reasons(session, waiting, A) == ["node(s) didn't have free ports for the requested pod ports"]
    assert reasons(session, waiting, B) == []
    off = opened(cluster([A, B], [job([there, waiting])]), {"predicate.NodePortsEnable": False})
    assert reasons(off, waiting, A) == []


def test_a_gang_whose_claims_find_too_few_volumes_does_not_start_and_promises_are_taken_back() -> None:
    tasks = [task(name, template=template(name)) for name in ("one", "two")]
    made = cluster([A, B], [job(tasks, min_member=2)])
    made.storage = storage(volume("pv", 2))
    session = opened(made)
    ACTIONS["allocate"](session)
    assert (session.binds, session.assumed_volumes, made.storage.assumed_volumes) == ([], {}, {})


def test_a_gang_is_promised_a_volume_for_each_claim_near_its_pods() -> None:
    tasks = [task(name, template=template(name)) for name in ("one", "two")]
    made = cluster([A, B], [job(tasks, min_member=2)])
    made.storage = storage(volume("pv-1", 2, ON_B), volume("pv-2", 3, ON_B))
    session = opened(made)
    ACTIONS["allocate"](session)
    assert {one.key: one.node_name for one in session.binds} == {"default/one": "b", "default/two": "b"}
    assert {key: plan.volumes for key, plan in session.assumed_volumes.items()} == {
        "default/one": (("default/one", "pv-1"),),
        "default/two": (("default/two", "pv-2"),),
    }


def test_a_missing_claim_is_told_before_any_node_is_looked_at() -> None:
    waiting = task("waiting", template=template("gone"))
    session = opened(cluster([A], [job([waiting])]))
    error = session.pre_predicate(waiting)
    assert error is not None
    assert error.reasons == ['plugin VolumeZone pre-predicates failed persistentvolumeclaim "gone" not found']


def test_volumes_are_scored_by_how_full_they_would_be_only_with_the_gate() -> None:
    waiting = task("waiting", template=template("one"))
    made = cluster([A, B], [job([waiting])])
    made.storage = storage(volume("loose", 4), volume("tight", 1, ON_B))
    assert opened(made).node_scores(waiting, list(made.nodes.values())) == {"a": 0.0, "b": 0.0}
    made.feature_gates = {"StorageCapacityScoring": True}
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    session = opened(made, {"volumebinding.shape": shape, "volumebinding.weight": 2})
    assert session.node_scores(waiting, list(made.nodes.values())) == {"a": 50.0, "b": 200.0}


def test_devices_are_claimed_unless_the_gate_is_off() -> None:
    waiting = task("waiting", template=template(claims=("c",)))
    made = cluster([A, B], [job([waiting])])
    part = ResourceSlice(name="s", driver="d", pool="p", node="b", devices=(Device(name="gpu"),))
    asked = ResourceClaim(namespace="default", name="c", requests=(DeviceRequest(name="r", device_class="gpu"),))
    made.inventory = DraInventory(
        classes={"gpu": DeviceClass(name="gpu")}, slices={"s": part}, claims={asked.key: asked}
    )
    assert (reasons(opened(made), waiting, A), reasons(opened(made), waiting, B)) == (
        ["cannot allocate all claims"],
        [],
    )
    made.feature_gates = {"DynamicResourceAllocation": False}
    assert reasons(opened(made), waiting, A) == []


def test_terms_that_name_no_common_node_suit_nobody() -> None:
    names = (Requirement("metadata.name", "In", ("a",)), Requirement("metadata.name", "In", ("b",)))
    picky = PodTemplate(containers=(Container(),), affinity=(NodeTerm(fields=names),))
    waiting = task("waiting", template=picky)
    error = opened(cluster([A], [job([waiting])])).pre_predicate(waiting)
    assert error is not None
    assert error.reasons == ["plugin NodeAffinity pre-predicates failed pod affinity terms conflict"]
