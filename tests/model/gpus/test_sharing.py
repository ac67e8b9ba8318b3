"""Time-slicing and MPS: what a node offers, how it is labelled, what a client gets, and who is refused."""

import pytest

from gpuconsole.model.gpus.sharing import (
    FAIL,
    Client,
    SharedResource,
    Sharing,
    SharingKind,
    client,
    device,
    labelled,
    refusal,
    shared,
)
from gpuconsole.model.prices import Prices

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
CAPACITY = {"cpu": 64_000, GPU: 2}
LABELS = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "16384"}
SLICED, MPS = SharingKind.TIME_SLICING, SharingKind.MPS


def sharing(kind: SharingKind = SLICED, name: str = GPU, rename: str = "", **more: bool) -> Sharing:
    return Sharing(kind=kind, resources=(SharedResource(name=name, replicas=4, rename=rename),), **more)


@pytest.mark.parametrize(
    ("said", "offered"),
    [
        (sharing(), {GPU: 8}),
        (sharing(rename_by_default=True), {"nvidia.com/gpu.shared": 8}),
        (sharing(rename="nvidia.com/t4"), {"nvidia.com/t4": 8}),
        (sharing(MPS), {GPU: 8}),
        (sharing(name=MIG), {GPU: 2}),
    ],
)
def test_each_device_is_offered_as_often_as_it_has_replicas(said: Sharing, offered: dict[str, int]) -> None:
    assert shared(CAPACITY, said) == {"cpu": 64_000, **offered}


@pytest.mark.parametrize(
    ("said", "product"), [(sharing(), "Tesla-T4-SHARED"), (sharing(rename_by_default=True), "Tesla-T4")]
)
def test_labels_tell_of_replicas_and_the_product_is_marked_unless_it_is_renamed(said: Sharing, product: str) -> None:
    assert labelled(LABELS, CAPACITY, said) == {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": "16384",
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }


def test_mps_pins_a_part_of_the_memory_and_of_the_threads() -> None:
    labels = labelled(LABELS, CAPACITY, sharing(MPS))
    assert (labels["nvidia.com/gpu.sharing-strategy"], labels["nvidia.com/mps.capable"]) == ("mps", "true")
    assert client(labels) == Client(memory=4096, threads=25)
    assert client(labelled(LABELS, CAPACITY, sharing())) is None
    assert client(labels | {"nvidia.com/gpu.memory": "much"}) is None


def test_replicas_go_round_all_gpus_before_one_is_shared_twice() -> None:
    labels = labelled(LABELS, CAPACITY, sharing())
    assert [device(index, 8, labels) for index in range(8)] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert [device(index, 2, LABELS) for index in range(2)] == [0, 1]


TEXT = (
    "Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu: 2' too large: "
    "maximum request size for shared resources is 1, which is unexpected"
)


@pytest.mark.parametrize(
    ("said", "requests", "text"),
    [
        (sharing(), {GPU: 2}, ""),
        (sharing(fail_requests_greater_than_one=True), {GPU: 1}, ""),
        (sharing(fail_requests_greater_than_one=True), {GPU: 2}, TEXT),
        (
            sharing(fail_requests_greater_than_one=True, rename_by_default=True),
            {"nvidia.com/gpu.shared": 3},
            TEXT.replace("gpu: 2", "gpu.shared: 3"),
        ),
        (sharing(fail_requests_greater_than_one=True), {"cpu": 2000}, ""),
        (sharing(MPS), {GPU: 2}, TEXT),
    ],
)
def test_a_node_refuses_more_than_one_shared_device_if_it_is_told_to(
    said: Sharing, requests: dict[str, int], text: str
) -> None:
    notes = {FAIL: "true"} if said.strict else {}
    assert refusal(requests, labelled(LABELS, CAPACITY, said), notes) == text


def test_a_turn_on_a_shared_gpu_costs_its_part_of_it() -> None:
    prices = Prices(other=2.0)
    assert prices.hourly(labelled(LABELS, CAPACITY, sharing())) == 0.5
    assert prices.hourly({**LABELS, "nvidia.com/gpu.replicas": "1"}) == 2.0
