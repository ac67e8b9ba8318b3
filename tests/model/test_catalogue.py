"""The catalogue of machines: what is read, what is for sale at which price, and what is wrong with a file."""

from pathlib import Path

import pytest

from gpuconsole.model.autoscaling import CatalogueError, InstanceType, InstanceTypeCatalogue, load

FILE = Path(__file__).resolve().parents[2] / "fixtures" / "instances.yaml"
GIB = 2**30
SMALL = """
zones: [a, b]
gpus: {x: {product: NVIDIA-X, memory: 24Gi}}
types:
  g.1: {cpu: 4, memory: 16Gi, gpus: 1, gpu: x, onDemand: 1.5, spot: {a: 0.5}, interrupted: 7}
  c.1: {cpu: 500m, memory: 1Gi, pods: 20, zones: [b], onDemand: 0.1, spot: 0.04}
"""


def test_a_catalogue_is_read() -> None:
    assert load(SMALL) == InstanceTypeCatalogue(
        {
            "g.1": InstanceType(
                name="g.1",
                cpu=4000,
                memory=16 * GIB,
                gpus=1,
                gpu="x",
                product="NVIDIA-X",
                gpu_memory=24 * GIB,
                on_demand=1.5,
                spot={"a": 0.5},
                zones=("a", "b"),
                interrupted=7.0,
            ),
            "c.1": InstanceType(
                name="c.1", cpu=500, memory=GIB, pods=20, on_demand=0.1, spot={"b": 0.04}, zones=("b",)
            ),
        }
    )


def test_what_is_for_sale_is_listed_by_price() -> None:
    assert [(one.key, one.price) for one in load(SMALL).offerings()] == [
        ("c.1/b/spot", 0.04),
        ("c.1/b/on-demand", 0.1),
        ("g.1/a/spot", 0.5),
        ("g.1/a/on-demand", 1.5),
        ("g.1/b/on-demand", 1.5),
    ]


def test_a_node_has_the_labels_of_its_type() -> None:
    kind = load(SMALL).types["g.1"]
    assert kind.labels("a", "spot") == {
        "node.kubernetes.io/instance-type": "g.1",
        "topology.kubernetes.io/zone": "a",
        "karpenter.sh/capacity-type": "spot",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "karpenter.k8s.aws/instance-family": "g",
        "karpenter.k8s.aws/instance-category": "g",
        "karpenter.k8s.aws/instance-size": "1",
        "karpenter.k8s.aws/instance-cpu": "4",
        "karpenter.k8s.aws/instance-memory": "16384",
        "karpenter.k8s.aws/instance-gpu-count": "1",
        "karpenter.k8s.aws/instance-gpu-name": "x",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.product": "NVIDIA-X",
        "nvidia.com/gpu.memory": "24576",
    }
    assert kind.capacity == {"cpu": 4000, "memory": 16 * GIB, "pods": 110, "nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("kind", "zone", "capacity", "price"),
    [
        ("g.1", "a", "spot", 0.5),
        ("g.1", "b", "spot", None),
        ("g.1", "b", "on-demand", 1.5),
        ("g.1", "", "", 1.5),
        ("h.1", "a", "spot", None),
    ],
)
def test_a_node_has_the_price_of_its_labels(kind: str, zone: str, capacity: str, price: float | None) -> None:
    labels = {
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": zone,
        "karpenter.sh/capacity-type": capacity,
    }
    assert load(SMALL).price(labels) == price


def test_the_catalogue_that_comes_along_is_sound() -> None:
    found = load(FILE.read_text(), FILE.name)
    families = {kind.family for kind in found.types.values()}
    assert families >= {"g4dn", "g5", "g6", "p4d", "p5"}
    for kind in found.types.values():
        assert kind.cpu > 0
        assert kind.memory > 0
        assert kind.on_demand is not None
        assert kind.spot
        assert all(0 < price < kind.on_demand for price in kind.spot.values())
        assert set(kind.spot) == set(kind.zones)
    assert len([kind for kind in found.types.values() if kind.gpus and len(kind.spot) == 3]) > 15


WRONG: dict[str, tuple[str, str]] = {
    "no mapping": ("[1]", "c:1: : a catalogue is a mapping; write zones: […] and types: {g5.xlarge: {…}}"),
    "no zone": ("types: {}", "c:1: zones: the catalogue names no zone; write zones: [us-east-1a]"),
    "an unknown key": (
        "zones: [a]\nkinds: {}\n",
        "c:2: kinds: unknown field 'kinds' is ignored; it takes zones, types, gpus",
    ),
    "a GPU that nobody describes": (
        "zones: [a]\ntypes:\n  g.1: {gpus: 1, gpu: z}\n",
        "c:3: types[g.1].gpu: 'z' is not described; write it under gpus: z: …",
    ),
    "a price below zero": (
        "zones: [a]\ntypes: {g.1: {onDemand: -1}}\n",
        "c:2: types[g.1].onDemand: -1 is not a valid number; write 0 or more",
    ),
    "a price that is none": (
        "zones: [a]\ntypes: {g.1: {spot: {a: much}}}\n",
        "c:2: types[g.1].spot.a: 'much' is not a valid number; write 0 or more",
    ),
    "an endless price": (
        "zones: [a]\ntypes: {g.1: {spot: .inf}}\n",
        "c:2: types[g.1].spot: '.inf' is not a valid number; write 0 or more",
    ),
    "an amount that is none": (
        "zones: [a]\ntypes: {g.1: {memory: lots}}\n",
        "c:2: types[g.1].memory: 'lots' is not a quantity; write it as 8 or 32Gi",
    ),
    "no YAML": ("zones: [a\n", "c:2: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_line(name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(CatalogueError) as caught:
        load(text, "c")
    assert str(caught.value).startswith(message)


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(CatalogueError) as caught:
        load("types: {g.1: {gpus: -1, onDemand: true}}", "c")
    assert len(str(caught.value).splitlines()) == 3


def test_a_catalogue_is_bounded() -> None:
    with pytest.raises(CatalogueError, match="at most 1000000 characters"):
        load("#" * 1_000_001)
    many = "".join(f"  t.{number}: {{cpu: 1}}\n" for number in range(2001))
    with pytest.raises(CatalogueError, match="more than 2000 types"):
        load(f"zones: [a]\ntypes:\n{many}")
