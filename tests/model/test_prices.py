"""What a GPU costs, by the labels that real clouds and device plugins write."""

from pathlib import Path

import pytest

from gpuconsole.model.prices import Prices, PricesError, gpu_type, is_spot, load

ASSET = Path(__file__).resolve().parents[2] / "fixtures" / "prices.yaml"

TYPES = {
    "the device plugin's product": ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, "a100-80gb"),
    "a product in MIG mode": ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, "a100-40gb"),
    "a time-sliced product": ({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, "l4"),
    "an H100 with its memory's kind": ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "h100-80gb"),
    "an H100 SXM5": ({"nvidia.com/gpu.product": "NVIDIA-H100-SXM5-80GB"}, "h100-80gb"),
    "an L40S is no L4": ({"nvidia.com/gpu.product": "NVIDIA-L40S"}, "l40s"),
    "an A10G is no A100": ({"nvidia.com/gpu.product": "NVIDIA-A10G"}, "a10g"),
    "the label accelerator": ({"accelerator": "nvidia-a100-80gb"}, "a100-80gb"),
    "GKE's A100 with 40 GB, which its name leaves out": (
        {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"},
        "a100-40gb",
    ),
    "GKE's H100 mega": ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "h100-80gb"),
    "Karpenter's name with its memory in MiB": (
        {"karpenter.k8s.aws/instance-gpu-name": "a100", "karpenter.k8s.aws/instance-gpu-memory": "81920"},
        "a100-80gb",
    ),
    "the device plugin's memory, a little under 80 GB": (
        {"accelerator": "A100", "nvidia.com/gpu.memory": "81251"},
        "a100-80gb",
    ),
    "the product outranks the cloud's label": (
        {"cloud.google.com/gke-accelerator": "nvidia-l4", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "h100-80gb",
    ),
    "an AWS instance": ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, "h100-80gb"),
    "Karpenter's family of an AWS instance": ({"karpenter.k8s.aws/instance-family": "p5"}, "h100-80gb"),
    "EKS's own label": ({"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"}, "v100"),
    "p4d has 40 GB": ({"node.kubernetes.io/instance-type": "p4d.24xlarge"}, "a100-40gb"),
    "p4de has 80 GB": ({"node.kubernetes.io/instance-type": "p4de.24xlarge"}, "a100-80gb"),
    "a small L4 instance": ({"node.kubernetes.io/instance-type": "g6.xlarge"}, "l4"),
    "an Azure instance": ({"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"}, "h100-80gb"),
    "an unknown label value falls through to the instance": (
        {"accelerator": "yes", "node.kubernetes.io/instance-type": "g6.xlarge"},
        "l4",
    ),
    "no label at all": ({}, ""),
    "a CPU machine": ({"node.kubernetes.io/instance-type": "m5.large"}, ""),
}


@pytest.mark.parametrize(("labels", "want"), TYPES.values(), ids=TYPES.keys())
def test_the_type_is_read_from_labels(labels: dict[str, str], want: str) -> None:
    assert gpu_type(labels) == want


def test_a_flavor_name_is_the_last_resort() -> None:
    assert gpu_type({}, "spot-h100") == "h100-80gb"
    assert gpu_type({"accelerator": "nvidia-l4"}, "spot-h100") == "l4"
    assert gpu_type({}, "team-a1") == ""


SPOT = {
    "Karpenter": ({"karpenter.sh/capacity-type": "spot"}, True),
    "Karpenter on demand": ({"karpenter.sh/capacity-type": "on-demand"}, False),
    "GKE": ({"cloud.google.com/gke-spot": "true"}, True),
    "EKS writes it in capitals": ({"eks.amazonaws.com/capacityType": "SPOT"}, True),
    "EKS on demand": ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, False),
    "nothing says so": ({"accelerator": "spot"}, False),
}


@pytest.mark.parametrize(("labels", "want"), SPOT.values(), ids=SPOT.keys())
def test_spot_is_read_from_labels(labels: dict[str, str], want: bool) -> None:
    assert is_spot(labels) is want


def test_prices_are_by_type_and_a_spot_gpu_costs_a_part() -> None:
    prices = Prices()
    a100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}

    assert prices.hourly(a100) == 2.21
    assert prices.hourly({"accelerator": "nvidia-tesla-t4"}) == 2.00
    assert prices.hourly({}) == 2.00
    assert prices.hourly({}, "h100-80gb") == 3.75
    assert prices.hourly({**a100, "karpenter.sh/capacity-type": "spot"}) == pytest.approx(0.7735)
    assert prices.cost(2.9 * 3600, a100) == pytest.approx(6.409)


def test_the_bundled_table_is_the_default() -> None:
    assert load(ASSET.read_text(encoding="utf-8")) == Prices()


def test_a_table_replaces_the_types_and_keeps_what_it_leaves_out() -> None:
    assert load("gpu-hour: {b200: 6}\n") == Prices(gpu_hour={"b200": 6.0})
    assert load("spot: 0.5\nother: 1") == Prices(spot=0.5, other=1.0)
    assert load("") == Prices()


def test_everything_that_is_wrong_is_named_with_its_line() -> None:
    text = "gpu-hour:\n  l4: cheap\n  a100: [1]\n  l4: 0.8\nspot: 2\nfoo: 1\nother: -1\n"

    with pytest.raises(PricesError) as caught:
        load(text, "mine.yaml")

    assert str(caught.value).splitlines() == [
        "mine.yaml:2: gpu-hour.l4 is cheap; must be USD per GPU-hour, 0 or more",
        "mine.yaml:3: gpu-hour.a100 is not a single value; must be USD per GPU-hour, 0 or more",
        "mine.yaml:4: l4 is given twice",
        "mine.yaml:5: spot is 2; must be a number from 0 to 1",
        "mine.yaml:6: unknown key 'foo'; the keys are gpu-hour, other, spot",
        "mine.yaml:7: other is -1; must be USD per GPU-hour, 0 or more",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("gpu-hour: 5", ":1: gpu-hour is a mapping, such as `a100-80gb: 2.21`"),
        ("- a\n- b", ":1: a price table is a mapping"),
        ("other: .nan", "other is .nan"),
        ("other: .inf", "other is .inf"),
        ("a: [", "not readable as YAML"),
        ("a: \0", "not readable as YAML"),
        ("x" * 100_001, "at most 100000 characters"),
    ],
)
def test_a_text_that_is_no_table_is_refused(text: str, part: str) -> None:
    with pytest.raises(PricesError) as caught:
        load(text)
    assert part in str(caught.value)
