"""Claims for devices: which devices they get on a node, and why they get none."""

from collections.abc import Sequence

import pytest

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.devices import (
    AllocatedDevice,
    Allocation,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from gpuconsole.model.labels import NodeTerm, Requirement, Taint, Toleration
from gpuconsole.model.pod_template import PodClaim, PodTemplate
from gpuconsole.scheduling.devices import allocator as claims
from gpuconsole.scheduling.devices.allocator import ClaimAllocations, DraInventory

GI = 1024**3
N1, N2 = Node(name="n1"), Node(name="n2", labels={"rack": "r2"})
ON_N1 = (NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),)


def device(name: str, **facts: object) -> Device:
    values = {"name": name, "attributes": {"model": "h100"}, "capacity": {"memory": DeviceCapacity(80 * GI)}, **facts}
    return Device(**values)  # type: ignore[arg-type]


def part(*devices: Device, node: str = "n1", **facts: object) -> ResourceSlice:
    named = {"name": f"s-{node}", "driver": "gpu.example.com", "pool": node, "node": node, "devices": devices, **facts}
    return ResourceSlice(**named)  # type: ignore[arg-type]


def request(name: str = "gpu", **facts: object) -> DeviceRequest:
    return DeviceRequest(**{"name": name, "device_class": "gpu", **facts})  # type: ignore[arg-type]


def claim(*requests: DeviceRequest, name: str = "c", **facts: object) -> ResourceClaim:
    return ResourceClaim(**{"namespace": "default", "name": name, "requests": requests, **facts})  # type: ignore[arg-type]


def stock(slices: Sequence[ResourceSlice], *made: ResourceClaim, selector: str = "") -> DraInventory:
    kind = DeviceClass(name="gpu", selectors=(selector,) if selector else ())
    return DraInventory(
        classes={"gpu": kind}, slices={one.key: one for one in slices}, claims={one.key: one for one in made}
    )


def pod(*names: str, name: str = "p") -> Pod:
    return Pod(name=name, template=PodTemplate(resource_claims=tuple(PodClaim(one, claim=one) for one in names)))


def given(found: ClaimAllocations, key: str = "default/c") -> list[str]:
    """The devices that a claim got, by name."""
    return [one.device for one in found.allocations[key].devices]


def test_the_first_free_devices_of_the_node_are_given() -> None:
    held = stock([part(device("a"), device("b"), device("c")), part(device("a"), node="n2")], claim(request(count=2)))
    assert claims.allocate_claims(pod("c"), N1, held) == ClaimAllocations(
        {
            "default/c": Allocation(
                (
                    AllocatedDevice("gpu", "gpu.example.com", "n1", "a"),
                    AllocatedDevice("gpu", "gpu.example.com", "n1", "b"),
                ),
                ON_N1,
            )
        }
    )
    assert claims.allocate_claims(pod("c"), N2, held).reason == claims.CANNOT_ALLOCATE


def test_no_device_is_given_twice_and_what_is_taken_back_is_free_again() -> None:
    held = stock([part(device("a"))], claim(request(), name="one"), claim(request(), name="two"))
    first = claims.allocate_claims(pod("one"), N1, held)
    held.assume("default/p", first.allocations, first.shared)
    assert claims.allocate_claims(pod("two", name="q"), N1, held).reason == claims.CANNOT_ALLOCATE
    assert claims.allocate_claims(pod("one", name="q"), N1, held) == ClaimAllocations({}, ("default/one",))
    assert claims.allocate_claims(pod("one", name="q"), N2, held).reason == claims.NOT_AVAILABLE_ON_NODE
    held.forget_assumed("default/p")
    assert given(claims.allocate_claims(pod("two", name="q"), N1, held), "default/two") == ["a"]


def test_classes_and_requests_select_by_attributes_and_capacity() -> None:
    large = "device.capacity['gpu.example.com'].memory.compareTo(quantity('100Gi')) >= 0"
    slices = [part(device("a"), device("b", capacity={"memory": DeviceCapacity(141 * GI)}))]
    held = stock(slices, claim(request(selectors=(large,))), selector="device.driver == 'gpu.example.com'")
    assert given(claims.allocate_claims(pod("c"), N1, held)) == ["b"]


def test_a_selector_that_cannot_be_applied_stops_everything() -> None:
    held = stock([part(device("a"))], claim(request()), selector="device.attributes['other'].healthy")
    found = claims.allocate_claims(pod("c"), N1, held)
    assert found.is_error
    assert "CEL runtime error" in found.reason


def test_alternatives_are_tried_in_order() -> None:
    small = "device.attributes['gpu.example.com'].model == 'a10'"
    either = request(options=(request("big", count=3), request("small", selectors=(small,))))
    held = stock([part(device("a"), device("b", attributes={"model": "a10"}))], claim(either))
    assert [
        (one.request, one.device) for one in claims.allocate_claims(pod("c"), N1, held).allocations["default/c"].devices
    ] == [("gpu/small", "b")]


def test_a_choice_that_leads_nowhere_is_taken_back() -> None:
    only_a = "device.attributes['gpu.example.com'].model == 'h100'"
    slices = [part(device("a"), device("b", attributes={"model": "a10"}))]
    held = stock(slices, claim(request("any"), request("h100", selectors=(only_a,))))
    assert given(claims.allocate_claims(pod("c"), N1, held)) == ["b", "a"]


def test_constraints_hold_devices_together_or_apart() -> None:
    devices = [
        device(name, attributes={"model": model}) for name, model in zip("abcd", ("x", "y", "x", "y"), strict=True)
    ]
    same = claim(request(count=2), constraints=(DeviceConstraint(same="gpu.example.com/model"),))
    apart = claim(request(count=2), constraints=(DeviceConstraint(distinct="gpu.example.com/model"),))
    assert given(claims.allocate_claims(pod("c"), N1, stock([part(*devices)], same))) == ["a", "c"]
    assert given(claims.allocate_claims(pod("c"), N1, stock([part(*devices)], apart))) == ["a", "b"]


def test_parts_of_one_gpu_share_its_counters() -> None:
    counters = {"gpu-0": {"memory": 80}}
    parts = [
        device(name, counters=({"memory": size},), counter_sets=("gpu-0",))
        for name, size in (("whole", 80), ("half-1", 40), ("half-2", 40))
    ]
    half = claim(request(count=2), name="halves")
    held = stock([part(*parts, counter_sets=counters)], half, claim(request(), name="more"))
    first = claims.allocate_claims(pod("halves"), N1, held)
    assert given(first, "default/halves") == ["half-1", "half-2"]
    held.assume("default/p", first.allocations, first.shared)
    assert claims.allocate_claims(pod("more", name="q"), N1, held).reason == claims.CANNOT_ALLOCATE


def test_tainted_devices_are_for_those_that_tolerate_it() -> None:
    sick = device("a", taints=(Taint("sick", effect="NoSchedule"),))
    assert claims.allocate_claims(pod("c"), N1, stock([part(sick)], claim(request()))).reason == claims.CANNOT_ALLOCATE
    tolerant = request(tolerations=(Toleration("sick", "Exists"),))
    assert given(claims.allocate_claims(pod("c"), N1, stock([part(sick)], claim(tolerant)))) == ["a"]


def test_administrators_see_devices_that_others_have() -> None:
    held = stock(
        [part(device("a"))], claim(request(), name="one"), claim(request(mode="All", admin_access=True), name="watch")
    )
    first = claims.allocate_claims(pod("one"), N1, held)
    held.assume("default/p", first.allocations, first.shared)
    watched = claims.allocate_claims(pod("watch", name="q"), N1, held)
    assert watched.allocations["default/watch"].devices == (
        AllocatedDevice("gpu", "gpu.example.com", "n1", "a", shared=True),
    )


def test_a_pool_counts_when_all_its_slices_of_the_newest_generation_are_there() -> None:
    old = part(device("old"), name="s-1", generation=1)
    half = part(device("new"), name="s-2", generation=2, pool_slices=2)
    assert claims.allocate_claims(pod("c"), N1, stock([old, half], claim(request()))).reason == claims.CANNOT_ALLOCATE
    rest = part(device("newer"), name="s-3", generation=2, pool_slices=2)
    assert given(claims.allocate_claims(pod("c"), N1, stock([old, half, rest], claim(request())))) == ["new"]


def test_devices_of_a_network_are_within_reach_of_some_nodes() -> None:
    reach = (NodeTerm((Requirement("rack", "In", ("r2",)),)),)
    held = stock([part(device("a"), node="", nodes=reach)], claim(request()))
    assert claims.allocate_claims(pod("c"), N1, held).reason == claims.CANNOT_ALLOCATE
    assert claims.allocate_claims(pod("c"), N2, held).allocations["default/c"].nodes == reach


TROUBLES: dict[str, tuple[DraInventory, str]] = {
    "no such claim": (stock([]), 'resourceclaim.resource.k8s.io "c" not found'),
    "a claim that goes": (stock([], claim(request(), deleted=1)), 'resourceclaim "c" is being deleted'),
    "no such class": (
        stock([], claim(request(device_class="tpu"))),
        "request gpu: device class tpu does not exist",
    ),
    "too many users": (
        stock([], claim(request(), allocation=Allocation(), reserved=tuple(f"default/u{n}" for n in range(256)))),
        claims.IN_USE,
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_claims_keep_a_pod_from_every_node(name: str) -> None:
    held, text = TROUBLES[name]
    assert claims.prefilter_rejection(pod("c"), held) == text


def test_a_claim_from_a_template_has_to_be_made_first() -> None:
    waiting = Pod(name="p", template=PodTemplate(resource_claims=(PodClaim("gpu", template="one"),)))
    assert claims.prefilter_rejection(waiting, stock([])) == "ResourceClaim not created yet"


def test_a_claim_has_no_more_than_32_devices() -> None:
    many = part(*(device(f"d{number:02}") for number in range(40)))
    assert len(given(claims.allocate_claims(pod("c"), N1, stock([many], claim(request(count=32)))))) == 32
    refused = claims.allocate_claims(pod("c"), N1, stock([many], claim(request(count=20), request("more", count=13))))
    text = "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    assert refused == ClaimAllocations(reason=text, is_error=True)
    every = claims.allocate_claims(pod("c"), N1, stock([many], claim(request(mode="All"))))
    assert every.reason == "claim default/c: number of requested devices 40 exceeds the claim limit of 32"


def test_a_search_that_leads_nowhere_ends() -> None:
    pairs = part(*(device(f"d{number:02}", attributes={"pair": number // 4}) for number in range(40)))
    hopeless = claim(request(count=15), constraints=(DeviceConstraint(distinct="gpu.example.com/pair"),))
    assert claims.allocate_claims(pod("c"), N1, stock([pairs], hopeless)) == ClaimAllocations(
        reason="timed out trying to allocate devices"
    )


def test_devices_of_several_nodes_keep_their_order_beside_those_of_one() -> None:
    far = part(device("far"), node="", name="a", pool="a", everywhere=True)
    last = part(device("last"), node="", name="z", pool="z", everywhere=True)
    held = stock([last, part(device("near")), far], claim(request(count=3)))
    assert given(claims.allocate_claims(pod("c"), N1, held)) == ["far", "near", "last"]
    assert claims.allocate_claims(pod("c"), N2, held).reason == claims.CANNOT_ALLOCATE


def test_counters_are_shared_by_the_slices_of_a_pool_wherever_they_are() -> None:
    counters = {"board": {"memory": 80}}
    half = {"counter_sets": ("board",), "counters": ({"memory": 50},)}
    slices = [
        part(device("a", **half), pool="p", pool_slices=2, counter_sets=counters),
        part(device("b", **half), node="n2", pool="p", pool_slices=2),
    ]
    held = stock(slices, claim(request(), name="one"), claim(request(), name="two"))
    first = claims.allocate_claims(pod("one"), N1, held)
    held.assume("default/p", first.allocations, first.shared)
    assert claims.allocate_claims(pod("two", name="q"), N2, held).reason == claims.CANNOT_ALLOCATE
    held.forget_assumed("default/p")
    assert given(claims.allocate_claims(pod("two", name="q"), N2, held), "default/two") == ["b"]
