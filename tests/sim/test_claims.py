"""Claims for devices in a simulation under Volcano: made from templates, shared, and let go."""

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Delete
from gpuconsole.model.devices import Device, DeviceClass, DeviceRequest, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodClaim, PodTemplate
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import START, node

POLICY = SimPolicy(kueue=None, placement=VolcanoPolicy())
ONE = ResourceClaimTemplate(namespace="default", name="one", requests=(DeviceRequest(name="gpu", device_class="gpu"),))


def pod(name: str) -> Pod:
    template = PodTemplate(
        containers=(Container(requests={"cpu": 1000}),),
        resource_claims=(PodClaim("gpu", template="one"),),
        scheduler_name="volcano",
    )
    return Pod(name=name, template=template)


def simulation(*things: Object) -> Simulation:
    devices = tuple(Device(name=f"gpu-{number}") for number in range(2))
    offered = ResourceSlice(name="s", driver="gpu.example.com", pool="n1", node="n1", devices=devices)
    nodes = [replace(node(name), allocatable={"cpu": 8000, "pods": 10}) for name in ("n1", "n2")]
    made = Simulation.from_objects(
        [*nodes, DeviceClass(name="gpu"), offered, ONE, *things], policy=POLICY, seed=1, start=START
    )
    made.advance(START + MINUTE)
    return made


def test_each_pod_gets_a_device_of_its_own_until_there_is_none_and_gives_it_back() -> None:
    made = simulation(pod("a"), pod("b"), pod("c"))
    snapshot = made.snapshot()
    assert [snapshot.pods[f"default/{name}"].node for name in "abc"] == ["n1", "n1", ""]
    assert "cannot allocate all claims" in snapshot.pods["default/c"].message
    claims = snapshot.resource_claims
    devices = {
        key: [one.device for one in claim.allocation.devices] if claim.allocation else []
        for key, claim in claims.items()
    }
    assert devices == {"default/a-gpu": ["gpu-0"], "default/b-gpu": ["gpu-1"], "default/c-gpu": []}
    assert claims["default/a-gpu"].reserved == ("default/a",)
    made.submit(Delete("pods", "default/a"))
    made.advance(START + 3 * MINUTE)
    later = made.snapshot()
    assert later.pods["default/c"].node == "n1"
    assert "default/a-gpu" not in later.resource_claims
