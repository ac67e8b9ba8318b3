"""Pods that claim ports, volumes and devices: where they go, what they are told, what comes with their node."""

from gpuconsole.model.cluster import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from gpuconsole.model.devices import Device, DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice
from gpuconsole.model.events import Bind
from gpuconsole.model.labels import NodeTerm, Requirement
from gpuconsole.model.pod_template import Container, HostPort, PodClaim, PodTemplate, PodVolume
from tests.support.kube_cluster import Cluster, node, pod

NOWHERE = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


def listening(name: str, port: int = 80) -> Pod:
    container = Container(requests={"cpu": 100}, ports=(HostPort(port),))
    return pod(name, template=PodTemplate(containers=(container,)))


def mounting(name: str, claim: str) -> Pod:
    containers = (Container(requests={"cpu": 100}),)
    return pod(name, template=PodTemplate(containers=containers, volumes=(PodVolume(name="data", claim=claim),)))


def claiming(name: str, claim: str) -> Pod:
    containers = (Container(requests={"cpu": 100}),)
    claims = (PodClaim(name="gpu", claim=claim),)
    return pod(name, template=PodTemplate(containers=containers, resource_claims=claims))


def test_a_port_of_a_node_is_one_pods() -> None:
    made = Cluster(node("a"), node("b")).add([listening("p"), listening("q"), listening("r"), listening("s", 443)])
    made.run()
    assert made.where() == {"a": ["p", "s"], "b": ["q"]}
    assert made.told("r") == (
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports. preemption: 0/2 nodes "
        "are available: 2 No preemption victims found for incoming pod."
    )


def test_a_port_that_is_taken_is_told_before_what_else_the_node_lacks() -> None:
    made = Cluster(node("a", allocatable={"cpu": 150})).add([listening("p"), listening("q")])
    made.run()
    assert made.told("q").startswith(
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption:"
    )


def test_a_pod_that_has_the_port_is_evicted_for_one_of_higher_priority() -> None:
    made = Cluster(node("a")).add(listening("p"))
    made.run()
    made.add(pod("q", template=listening("q").template, priority=1)).run()
    assert made.evicted() == ["p"]


def test_volumes_keep_pods_near_and_are_bound_with_them() -> None:
    made = Cluster(node("a"), node("b", labels={"disk": "here"}))
    where = (NodeTerm((Requirement("disk", "In", ("here",)),)),)
    waits = StorageClass(name="local", provisioner="kubernetes.io/no-provisioner", waits=True)
    volume = PersistentVolume(name="v", storage=10, storage_class="local", node_affinity=where, phase="Available")
    for thing in (waits, volume, PersistentVolumeClaim(name="data", storage=5, storage_class="local")):
        made.placement.apply(thing, 0)
    made.add([mounting("p", "data"), mounting("q", "other")]).run()
    assert made.log[0] == Bind("default/p", "b", volumes=(("default/data", "v"),))
    assert made.told("q") == f'0/2 nodes are available: persistentvolumeclaim "other" not found. {NOWHERE}'


def test_devices_are_given_with_the_node_that_has_them() -> None:
    made = Cluster(node("a"), node("b"))
    device = ResourceSlice(name="s", driver="gpu", pool="b", node="b", pool_slices=1, devices=(Device(name="gpu-0"),))
    made.placement.apply(DeviceClass(name="gpu"), 0)
    made.placement.apply(device, 0)
    for name in ("one", "two"):
        request = DeviceRequest(name="r", device_class="gpu")
        made.placement.apply(ResourceClaim(namespace="default", name=name, requests=(request,)), 0)
    made.add([claiming("p", "one"), claiming("q", "two"), claiming("r", "three")]).run()
    (bound,) = (each for each in made.log if isinstance(each, Bind))
    assert (bound.pod, bound.node) == ("default/p", "b")
    assert [(key, [one.device for one in given.devices]) for key, given in bound.devices] == [
        ("default/one", ["gpu-0"])
    ]
    assert made.told("q") == f"0/2 nodes are available: 2 cannot allocate all claims. {NOWHERE}"
    assert made.told("r") == f'0/2 nodes are available: resourceclaim.resource.k8s.io "three" not found. {NOWHERE}'
