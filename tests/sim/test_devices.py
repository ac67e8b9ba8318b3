"""Claims of devices in the simulation: refused until they can be charged, then admitted like any other work."""

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import Delete
from gpuconsole.model.devices import Device, DeviceClass, DeviceRequest, ResourceClaimTemplate, ResourceSlice
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodClaim
from gpuconsole.model.queues import FlavorQuotas, Quota, ResourceGroup
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import DeviceClassMapping, KueueConfig
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import START, job, node, queue, start, submit, two_teams

PAID = KueueConfig(device_class_mappings=(DeviceClassMapping(name="claimed", device_class_names=("gpu.example.com",)),))
TWO = ResourceClaimTemplate(
    namespace="red", name="two", requests=(DeviceRequest(name="r", device_class="gpu.example.com", count=2),)
)


def cluster() -> Simulation:
    """Red may have 4 claimed devices."""
    flavor, (red, door) = two_teams()[0], queue("red", 4, cohort="")
    groups = (ResourceGroup(("claimed",), (FlavorQuotas("a100", {"claimed": Quota(4)}),)),)
    red = replace(red, resource_groups=groups)
    devices = tuple(Device(name=f"gpu-{number}") for number in range(8))
    offered = ResourceSlice(name="n1", driver="gpu.example.com", pool="n1", node="n1", devices=devices)
    things = [flavor, red, door, node("n1"), DeviceClass(name="gpu.example.com"), offered]
    return start(things, policy=SimPolicy(kueue=PAID))


def claiming(name: str, pods: int = 1) -> Job:
    made = job(name, gpus=0, pods=pods, duration=10 * MINUTE)
    claimed = replace(made.pod_sets[0].template, resource_claims=(PodClaim("gpu", "two"),))
    return replace(made, pod_sets=(replace(made.pod_sets[0], template=claimed),))


def states(simulation: Simulation) -> dict[str, str]:
    """Job → admitted, finished, or the reason why it waits."""
    everything: list[Workload] = list(simulation.snapshot().workloads.all())
    return {workload.owner.rpartition("/")[2]: _state(workload) for workload in everything}


def _state(workload: Workload) -> str:
    if workload.finished or workload.admitted:
        return "finished" if workload.finished else "admitted"
    refused = workload.condition("QuotaReserved")
    return refused.reason if refused is not None else ""


def test_claims_wait_for_quota_like_any_other_request() -> None:
    simulation = cluster()
    submit(simulation, TWO, claiming("one", pods=2), claiming("next"))
    assert states(simulation) == {"one": "admitted", "next": "Pending"}
    simulation.advance(START + 12 * MINUTE)
    assert states(simulation) == {"one": "finished", "next": "admitted"}


def test_a_claim_that_cannot_be_charged_is_told_once_and_tried_again_when_it_can() -> None:
    simulation = cluster()
    submit(simulation, claiming("early"))
    simulation.advance(START + MINUTE)
    told = [e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.PENDING]
    assert [(line.reason, line.message) for line in told] == [
        (
            "Inadmissible",
            "spec.podSets[0].template.spec.resourceClaims[0]: Internal error: failed to get claim spec for"
            " ResourceClaimTemplate two in podset main: resourceclaimtemplates.resource.k8s.io"
            ' "two" not found',
        )
    ]
    assert states(simulation) == {"early": "Inadmissible"}
    submit(simulation, TWO)
    assert states(simulation) == {"early": "admitted"}


def test_a_template_that_goes_takes_waiting_work_out_of_the_queue() -> None:
    simulation = cluster()
    submit(simulation, TWO, claiming("one", pods=2), claiming("next"))
    simulation.submit(Delete("resource_claim_templates", "red/two"))
    simulation.advance(START + 12 * MINUTE)
    assert states(simulation) == {"one": "finished", "next": "Inadmissible"}


def test_a_refusal_outlives_saving() -> None:
    simulation = cluster()
    submit(simulation, claiming("early"))
    twin = Simulation.load(simulation.save())
    twin.drain()
    submit(twin, TWO)
    twin.advance(START + 12 * MINUTE)
    assert (states(simulation), states(twin)) == ({"early": "Inadmissible"}, {"early": "finished"})
