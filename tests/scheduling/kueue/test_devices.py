"""Devices by claims need quota: what they cost, what is refused, and what a change of the cluster's devices wakes."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.devices import (
    CapacityPolicy,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceRequest,
    ResourceClaimTemplate,
    ResourceSlice,
)
from gpuconsole.model.events import Refuse
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodClaim, PodSet, PodTemplate
from gpuconsole.model.queues import FlavorQuotas, Quota, ResourceGroup
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.config import CapacitySource, CounterSource, DeviceClassMapping, KueueConfig
from tests.support.kueue_cluster import World, queue, workload

DRIVER = "gpu.example.com"
WHOLE = DeviceClassMapping(name="gpus", device_class_names=("whole", "big"))
MEMORY = DeviceClassMapping(
    name="gpu-memory", device_class_names=("part",), counters=(CounterSource(name="memory", driver=DRIVER),)
)
SHARE = DeviceClassMapping(
    name="gpu-share", device_class_names=("shared",), capacities=(CapacitySource(name="memory", driver=DRIVER),)
)
CLASSES = [DeviceClass(name=name) for name in ("whole", "big", "part", "shared", "unpaid")]
LARGE = 'device.attributes["gpu.example.com"].size == "large"'
EXPLICIT = "spec.podSets[0].template.spec.resourceClaims[0]"
REQUEST = f"{EXPLICIT}.devices.requests[0]"


def config(**gates: bool) -> KueueConfig:
    named = {f"KueueDRA{name}": on for name, on in gates.items()}
    return KueueConfig(device_class_mappings=(WHOLE, MEMORY, SHARE), gates=named)


def world(*things: Object, settings: KueueConfig | None = None) -> World:
    """One ClusterQueue with a quota of 8 for each resource that devices are paid in."""
    names = ("gpus", "gpu-memory", "gpu-share", "vendor.example/gpu")
    group = ResourceGroup(names, (FlavorQuotas("f", {name: Quota(8) for name in names}),))
    return World(queue("q", groups=(group,)), *CLASSES, *things, config=settings or config())


def asks(device_class: str, count: int = 1, **more: object) -> DeviceRequest:
    return DeviceRequest(name="r", device_class=device_class, count=count, **more)  # type: ignore[arg-type]


def claims(*requests: DeviceRequest) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(namespace="team", name="t", requests=requests)


def claiming(name: str = "w", pods: int = 1, *, claim: PodClaim | None = None) -> Workload:
    template = PodTemplate(containers=(Container(),), resource_claims=(claim or PodClaim("gpu", "t"),))
    return workload(name, "q", pod_sets=[PodSet(count=pods, template=template)])


def published(*devices: Device, name: str = "s", generation: int = 1, of: int = 1) -> ResourceSlice:
    return ResourceSlice(name=name, driver=DRIVER, pool="p", generation=generation, pool_slices=of, devices=devices)


def device(name: str, memory: int | None = None, size: str = "large", policy: CapacityPolicy | None = None) -> Device:
    """A device of 6 memory to share, which itself consumes `memory` of a counter."""
    counters = ({"memory": memory},) if memory is not None else ()
    capacity = {"memory": DeviceCapacity(6, policy)}
    return Device(name=name, attributes={"size": size}, counters=counters, capacity=capacity)


class Cost(NamedTuple):
    """What a pod's claims ask for, what there is, and what two such pods cost."""

    requests: tuple[DeviceRequest, ...]
    devices: tuple[Device, ...]
    want: Mapping[str, int]


COSTS: dict[str, Cost] = {
    "devices of a class are counted": Cost((asks("whole", 2),), (), {"gpus": 4}),
    "classes that share a resource add up": Cost((asks("whole", 1), asks("big", 2)), (), {"gpus": 6}),
    "devices that are selected have to be there": Cost(
        (asks("whole", 1, selectors=(LARGE,)),), (device("a"),), {"gpus": 2}
    ),
    "a counter charges what the largest of them consumes": Cost(
        (asks("part"),), (device("a", 1), device("b", 3)), {"gpu-memory": 6}
    ),
    "for each of the devices": Cost((asks("part", 2),), (device("a", 1), device("b", 2)), {"gpu-memory": 8}),
    "only those that are selected count": Cost(
        (asks("part", selectors=(LARGE,)),), (device("a", 1), device("b", 3, "small")), {"gpu-memory": 2}
    ),
    "a share costs all there is": Cost((asks("shared"),), (device("a"),), {"gpu-share": 12}),
    "unless the claim asks for less": Cost((asks("shared", capacity={"memory": 2}),), (device("a"),), {"gpu-share": 4}),
    "or the device has a default": Cost(
        (asks("shared"),), (device("a", policy=CapacityPolicy(default=1)),), {"gpu-share": 2}
    ),
    "it is rounded up to what can be had": Cost(
        (asks("shared", capacity={"memory": 2}),),
        (device("a", policy=CapacityPolicy(values=(1, 3, 6))),),
        {"gpu-share": 6},
    ),
    "an amount that can be had stays": Cost(
        (asks("shared", capacity={"memory": 3}),),
        (device("a", policy=CapacityPolicy(values=(1, 3, 6))),),
        {"gpu-share": 6},
    ),
    "or to the next step": Cost(
        (asks("shared", capacity={"memory": 2}),),
        (device("a", policy=CapacityPolicy(least=1, most=6, step=3)),),
        {"gpu-share": 8},
    ),
}


@pytest.mark.parametrize("case", COSTS.values(), ids=COSTS)
def test_what_claims_cost(case: Cost) -> None:
    here = world(claims(*case.requests), published(*case.devices), settings=config(IntegrationConsumableCapacity=True))
    here.apply(claiming(pods=2))
    assert here.session.requests_of("team/w") == {"main": case.want}


class Wrong(NamedTuple):
    """What cannot be charged, and what the workload is told."""

    things: tuple[Object, ...]
    message: str
    workload: Workload = claiming()
    requeued: str = ""
    gates: Mapping[str, bool] = {}


def _refused(request: DeviceRequest, message: str, *devices: Device, **gates: bool) -> Wrong:
    return Wrong((claims(request), published(*devices)), message, gates=gates)


NAMED = "ResourceClaimTemplate t: "
WRONG: dict[str, Wrong] = {
    "a template that is not there": Wrong(
        (),
        f"{EXPLICIT}: Internal error: failed to get claim spec for ResourceClaimTemplate t in podset main:"
        ' resourceclaimtemplates.resource.k8s.io "t" not found',
    ),
    "a claim that several pods share": Wrong(
        (),
        "KueueDRAIntegration feature does not support use of resource claims",
        claiming(claim=PodClaim("gpu", claim="shared")),
        "DRA resource claims not supported",
    ),
    "claims while the gate is off": Wrong(
        (claims(asks("whole")),),
        "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled",
        gates={"Integration": False},
    ),
    "a class that nobody pays for": _refused(
        asks("unpaid"),
        f'{EXPLICIT}.resourceClaimTemplateName: Not found: "DeviceClass unpaid is not mapped in DRA configuration'
        ' for podset main"',
    ),
    "alternatives": _refused(
        asks("", alternatives=True, exactly=False),
        f'{REQUEST}: Invalid value: "null": {NAMED}FirstAvailable device selection is not supported',
    ),
    "all devices": _refused(
        asks("whole", mode="All"),
        f"{REQUEST}.exactly.allocationMode: Invalid value: \"All\": {NAMED}AllocationMode 'All' is not supported",
    ),
    "an administrator's access": _refused(
        asks("whole", admin_access=True),
        f'{REQUEST}.exactly.adminAccess: Invalid value: "null": {NAMED}AdminAccess is not supported',
    ),
    "more devices than are selected": _refused(
        asks("whole", 2, selectors=(LARGE,)),
        f"{REQUEST}.exactly.selectors: Internal error: {NAMED}insufficient matching devices for CEL selector in"
        " DeviceClass whole: 1 device(s) match in the cluster but 2 requested",
        device("a"),
        device("b", size="small"),
    ),
    "a device that another request was given": Wrong(
        (claims(asks("whole", selectors=(LARGE,)), asks("whole", selectors=(LARGE,))), published(device("a"))),
        f"{EXPLICIT}.devices.requests[1].exactly.selectors: Internal error: {NAMED}insufficient matching devices for"
        " CEL selector in DeviceClass whole: 0 device(s) match in the cluster but 1 requested",
    ),
    "a selector of an attribute that a device does not have": _refused(
        asks("whole", selectors=('device.attributes["gpu.example.com"].color == "red"',)),
        f'{REQUEST}.exactly.selectors: Invalid value: "null": {NAMED}CEL evaluation failed for DeviceClass whole:'
        " no such key: color",
        device("a"),
    ),
    "fewer parts than requested": _refused(
        asks("part", 2),
        f"{REQUEST}: Internal error: insufficient matching devices for counter driver: 1 device(s) match but"
        " 2 requested",
        device("a", 1),
    ),
    "parts that consume nothing": _refused(
        asks("part"),
        f'{REQUEST}: Internal error: matched devices have no consumesCounters entry for counter "memory"',
        device("a"),
    ),
    "a share that no device can give": _refused(
        asks("shared", capacity={"memory": 7}),
        f'{REQUEST}: Invalid value: "null": capacity request cannot be satisfied by any matched device\'s'
        ' RequestPolicy for dimension "memory"',
        device("a", policy=CapacityPolicy(values=(1, 6))),
        IntegrationConsumableCapacity=True,
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_cannot_be_charged_is_told_and_not_queued(case: Wrong) -> None:
    here = world(*case.things, settings=config(**case.gates))
    here.apply(case.workload)
    requeued = case.requeued or case.message
    told = [Refuse("team/w", case.message, "Inadmissible", requeued=requeued)]
    assert here.session.rejected_claims() == told
    assert (here.session.pending_workloads("q"), here.session.has_heads) == ([], False)
    here.apply(conditions.apply_refusal(case.workload, told[0], here.now))
    assert here.session.rejected_claims() == []


def test_a_refusal_is_one_word_where_workloads_are_told_so() -> None:
    here = world(settings=KueueConfig(gates={"UnadmittedWorkloadsObservability": True}))
    here.apply(claiming())
    (told,) = here.session.rejected_claims()
    refused = conditions.apply_refusal(claiming(), told, here.now, granular=True)
    assert [(c.type, c.reason) for c in refused.conditions if c.type != "Admitted"] == [
        ("QuotaReserved", "Misconfigured"),
        ("Requeued", "Inadmissible"),
    ]


def test_what_was_refused_is_queued_when_its_template_comes() -> None:
    here = world()
    here.apply(claiming())
    (told,) = here.session.rejected_claims()
    here.apply(conditions.apply_refusal(claiming(), told, here.now))
    here.apply(claims(asks("whole", 3)))
    here.settle()
    assert here.running == {"w"}
    assert here.session.available("q", "f", "gpus") == 5


def test_what_waits_is_charged_anew_when_devices_change() -> None:
    here = world(claims(asks("part")), published(device("a", 3)))
    here.apply(claiming())
    here.apply(published(device("a", 3), device("b", 5)))
    assert here.session.requests_of("team/w") == {"main": {"gpu-memory": 5}}
    here.apply(published())
    assert here.session.requests_of("team/w") == {}
    assert [refusal.workload for refusal in here.session.rejected_claims()] == ["team/w"]


def test_new_devices_wake_what_is_parked_and_an_unknown_driver_wakes_nobody() -> None:
    here = world(claims(asks("part")), published(device("a", 9)))
    here.run(claiming())
    assert here.session.is_inadmissible("team/w")
    here.apply(ResourceSlice(name="other", driver="net.example.com", pool="n"))
    assert not here.session.has_requeue_due
    here.apply(published(device("a", 7)))
    assert here.session.has_requeue_due
    here.session.requeue_inadmissible(here.now)
    here.settle()
    assert here.running == {"w"}


def test_a_pool_counts_only_when_all_of_its_newest_generation_is_there() -> None:
    here = world(claims(asks("part")), published(device("a", 3)))
    here.apply(claiming(), published(device("b", 1), name="n1", generation=2, of=2))
    assert here.session.requests_of("team/w") == {}
    here.apply(published(device("c", 2), name="n2", generation=2, of=2))
    assert here.session.requests_of("team/w") == {"main": {"gpu-memory": 2}}


def backed(*amounts: int, starting: int = 0, fraction: str = "") -> Workload:
    """A pod that requests `vendor.example/gpu` as any resource, in some containers."""
    name = "vendor.example/gpu"
    fractions = {name: fraction} if fraction else {}
    containers = tuple(Container(requests={name: amount}, fractions=fractions) for amount in amounts)
    initial = (Container(requests={name: starting}),) if starting else ()
    template = PodTemplate(containers=containers, init_containers=initial)
    return workload("w", "q", pod_sets=[PodSet(count=2, template=template)])


def behind(name: str, created: int = 0) -> DeviceClass:
    return DeviceClass(name=name, created=created * SECOND, extended_resource="vendor.example/gpu")


class Backed(NamedTuple):
    classes: tuple[DeviceClass, ...]
    workload: Workload
    want: Mapping[str, int]


BACKED: dict[str, Backed] = {
    "a resource without a class stays what it is": Backed((), backed(1), {"vendor.example/gpu": 2}),
    "one with a class is paid for as its devices are": Backed((behind("whole"),), backed(1), {"gpus": 2}),
    "one with an unpaid class keeps its name": Backed((behind("unpaid"),), backed(1), {"vendor.example/gpu": 2}),
    "containers run together": Backed((behind("whole"),), backed(1, 2), {"gpus": 6}),
    "init containers run before them": Backed((behind("whole"),), backed(1, 2, starting=4), {"gpus": 8}),
    "of several classes the newest counts": Backed((behind("unpaid", 1), behind("whole", 2)), backed(1), {"gpus": 2}),
    "of equally old ones the first by name": Backed((behind("whole"), behind("big")), backed(1), {"gpus": 2}),
}


@pytest.mark.parametrize("case", BACKED.values(), ids=BACKED)
def test_resources_that_a_device_class_stands_behind(case: Backed) -> None:
    here = world(*case.classes)
    here.apply(case.workload)
    assert here.session.requests_of("team/w") == {"main": case.want}


FIRST = "spec.podSets[0].template.spec.containers[0]"
UNPAYABLE: dict[str, tuple[DeviceClass, Workload, str]] = {
    "half a device": (
        behind("whole"),
        backed(1, fraction="500m"),
        f'{FIRST}.resources.requests.vendor.example/gpu: Invalid value: "500m":'
        " extended resource quantity must be an integer",
    ),
    "a class that is paid for by counters": (
        behind("part"),
        backed(1),
        f'{FIRST}: Invalid value: "vendor.example/gpu": extended resource vendor.example/gpu resolves to DeviceClass'
        " part with counters configured; use ResourceClaimTemplates with CEL selectors for counter-based quota",
    ),
}


@pytest.mark.parametrize(("known", "asked", "message"), UNPAYABLE.values(), ids=UNPAYABLE)
def test_resources_that_cannot_be_paid_for_by_devices(known: DeviceClass, asked: Workload, message: str) -> None:
    here = world(known)
    here.apply(asked)
    assert here.session.rejected_claims() == [Refuse("team/w", message, "Inadmissible", requeued=message)]


def test_without_the_gate_a_class_stands_behind_nothing() -> None:
    here = world(behind("whole"), settings=config(IntegrationExtendedResource=False))
    here.apply(backed(1))
    assert here.session.requests_of("team/w") == {"main": {"vendor.example/gpu": 2}}


def test_a_class_that_appears_or_goes_changes_what_is_asked_for() -> None:
    here = world()
    here.apply(backed(1), behind("whole"))
    assert here.session.requests_of("team/w") == {"main": {"gpus": 2}}
    here.session.delete("device_classes", "whole", here.now)
    assert here.session.requests_of("team/w") == {"main": {"vendor.example/gpu": 2}}


def test_a_fork_is_told_of_its_own() -> None:
    here = world()
    here.apply(claiming())
    twin = here.session.fork()
    assert [refusal.workload for refusal in here.session.rejected_claims()] == ["team/w"]
    assert [refusal.workload for refusal in twin.rejected_claims()] == ["team/w"]
    twin.apply(claims(asks("whole")), here.now)
    assert twin.requests_of("team/w") == {"main": {"gpus": 1}}
    assert here.session.requests_of("team/w") == {}


def test_what_was_charged_stays_charged_while_it_runs() -> None:
    here = world(claims(asks("part")), published(device("a", 3)))
    here.run(claiming())
    here.apply(published(device("a", 7)))
    assert here.session.available("q", "f", "gpu-memory") == 5
    assert replace(here.workloads["w"]).admitted
