"""GPUs that pods claim (DRA): counted as GPUs of the queue, picked by class and selector, named in the binding."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import Device, DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice
from gpuconsole.model.events import Bind, Unschedulable
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodClaim, PodTemplate
from gpuconsole.scheduling.kai.engine import KaiPlacement
from tests.scheduling.kai.test_engine import binds, engine, pod, queue

CLASS = DeviceClass(name="gpu.nvidia.com")
LARGE = """device.attributes["gpu.nvidia.com"].model == "H200\""""


def node(name: str, *models: str) -> list[Object]:
    devices = tuple(Device(name=f"gpu-{n}", attributes={"model": model}) for n, model in enumerate(models))
    part = ResourceSlice(name=f"{name}-gpus", driver="gpu.nvidia.com", pool=name, node=name, devices=devices)
    return [Node(name=name, allocatable={"cpu": 64_000, "memory": 10**12, "pods": 110}), part]


def claim(name: str, count: int = 1, *selectors: str, labels: dict[str, str] | None = None) -> ResourceClaim:
    request = DeviceRequest(name="gpu", device_class="gpu.nvidia.com", count=count, selectors=selectors)
    return ResourceClaim(namespace="default", name=name, labels=labels or {}, requests=(request,))


def claiming(name: str, *claims: PodClaim, made: int = 0) -> Pod:
    template = PodTemplate(containers=(Container(requests={"cpu": 1000}),), resource_claims=claims)
    return replace(pod(name, 0, created=made), template=template)


def own(name: str, made: int = 0) -> Pod:
    """A pod with a claim that is made for it."""
    return claiming(name, PodClaim(name="gpu", template="one"), made=made)


def devices(made: KaiPlacement) -> dict[str, list[str]]:
    return {
        decision.pod: [
            f"{given.pool}/{given.device}" for _, allocation in decision.devices for given in allocation.devices
        ]
        for decision in made.schedule(1)
        if isinstance(decision, Bind)
    }


def test_claims_get_devices_of_their_pods_node_and_count_as_gpus() -> None:
    made = engine(
        [*node("n1", "A100", "A100"), CLASS, queue("a", 2), claim("p0-gpu"), claim("p1-gpu"), own("p0"), own("p1", 1)]
    )
    assert devices(made) == {"default/p0": ["n1/gpu-0"], "default/p1": ["n1/gpu-1"]}


def test_selectors_choose_the_device_and_so_the_node() -> None:
    made = engine(
        [*node("n1", "A100"), *node("n2", "A100", "H200"), CLASS, queue("a", 4), claim("p0-gpu", 1, LARGE), own("p0")]
    )
    assert devices(made) == {"default/p0": ["n2/gpu-1"]}


def test_a_pod_waits_until_its_claim_is_made() -> None:
    made = engine([*node("n1", "A100"), CLASS, queue("a", 4), own("p0")])
    (said,) = made.schedule(1)
    assert isinstance(said, Unschedulable)
    assert 'waiting for resource claim "p0-gpu" to be created' in said.message
    made.apply(claim("p0-gpu"), 2)
    assert binds(made.schedule(2)) == {"default/p0": ("n1", ())}


def test_what_is_allocated_is_not_given_twice() -> None:
    made = engine(
        [*node("n1", "A100"), CLASS, queue("a", 4), claim("p0-gpu"), claim("p1-gpu"), own("p0"), own("p1", 1)]
    )
    assert devices(made) == {"default/p0": ["n1/gpu-0"]}


def test_a_shared_claim_names_the_queue_of_its_pods() -> None:
    shared = PodClaim(name="gpu", claim="team")
    # Every pod counts the claim's GPU as its own, so the node needs room for two.
    cluster = [
        *node("n1", "A100", "A100"),
        CLASS,
        queue("a", 4),
        claiming("p0", shared),
        claiming("p1", shared, made=1),
    ]
    (said, _) = engine([*cluster, claim("team")]).schedule(1)
    assert isinstance(said, Unschedulable)
    assert "DRA claim team is a shared GPU claim but does not have a queue label (kai.scheduler/queue)" in said.message
    made = engine([*cluster, claim("team", labels={"kai.scheduler/queue": "a"})])
    assert devices(made) == {"default/p0": ["n1/gpu-0"], "default/p1": ["n1/gpu-0"]}
