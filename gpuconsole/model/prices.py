"""GPU prices: GPU types by labels, and a price table in USD per GPU-hour."""

import math
import re
from collections.abc import Iterator, Mapping

import yaml
from msgspec import Struct, field

from gpuconsole.model.autoscaling import machine_hourly
from gpuconsole.model.cluster import Node
from gpuconsole.model.gpus.sharing import replicas
from gpuconsole.model.text import clean

_TYPE_LABELS = (
    "nvidia.com/gpu.product",
    "accelerator",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
_MEMORY_LABELS = ("nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory")
_INSTANCE_LABELS = (
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-family",
)
"""The last one has the part before the dot of the others: `p5` of `p5.48xlarge`."""
_SPOT_LABELS = {
    "karpenter.sh/capacity-type": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacitytype": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
_MODEL = re.compile(
    r"(?<![a-z0-9])(gb[23]00|gh200|b[123]00|h100|h200|h20|h800|a100|a800|a10g?|a16|a2|a30|a40|l40s?|l4|l20"
    r"|v100|p100|p40|p4|t4|mi\d{3}[a-z]?)(?![a-z0-9.])"
)
_MEMORY = re.compile(r"(?<![a-z0-9.])(\d{2,3})gb(?![a-z0-9])")
_MIG_PRODUCT = re.compile(r"-MIG-([1-9])g\.(\d{1,3})gb")
_FEW_SLICES = {"a30": 4}
"""Compute slices of the models that do not have seven."""
_SIZES = {"a100": (40, 80), "h100": (80, 94)}
"""GB of the models that are priced by size; the first is the default (GKE's `nvidia-tesla-a100` has 40)."""
_INSTANCES = (
    ("p4de.", "a100-80gb"),
    ("p4d.", "a100-40gb"),
    ("p5.", "h100-80gb"),
    ("p5e.", "h200"),
    ("p5en.", "h200"),
    ("g6.", "l4"),
    ("gr6.", "l4"),
    ("g6e.", "l40s"),
    ("g5.", "a10g"),
    ("g4dn.", "t4"),
    ("p3.", "v100"),
    ("a2-ultragpu-", "a100-80gb"),
    ("a2-highgpu-", "a100-40gb"),
    ("a2-megagpu-", "a100-40gb"),
    ("a3-highgpu-", "h100-80gb"),
    ("a3-megagpu-", "h100-80gb"),
    ("a3-ultragpu-", "h200"),
    ("g2-standard-", "l4"),
    ("standard_nd96asr_v4", "a100-40gb"),
    ("standard_nd96amsr_a100_v4", "a100-80gb"),
    ("standard_nc24ads_a100_v4", "a100-80gb"),
    ("standard_nc48ads_a100_v4", "a100-80gb"),
    ("standard_nc96ads_a100_v4", "a100-80gb"),
    ("standard_nd96isr_h100_v5", "h100-80gb"),
)
_GPU_HOUR = {"a100-80gb": 2.21, "a100-40gb": 1.65, "h100-80gb": 3.75, "l4": 0.81}
_MAX_TEXT = 100_000
_KEYS = ("gpu-hour", "other", "spot")


class PricesError(ValueError):
    """Invalid price table; the text has one line per problem."""


def gpu_type(labels: Mapping[str, str], name: str = "") -> str:
    """Name the GPU type that the labels of a node or flavor describe, such as `a100-80gb`; empty if unknown.

    Checked in this order: the device plugin's product, `accelerator`, the clouds' own labels, the instance type, and
    `name` (such as that of a flavor). MIG and time-slicing suffixes are ignored, because the type is that of the GPU.
    """
    texts = [labels[label] for label in _TYPE_LABELS if label in labels]
    for text in texts:
        found = _read_type(text, _labelled_memory(labels))
        if found:
            return found
    for label in filter(labels.__contains__, _INSTANCE_LABELS):
        instance = f"{labels[label].lower()}."
        for prefix, kind in _INSTANCES:
            if instance.startswith(prefix):
                return kind
    return _read_type(name, 0)


def _read_type(text: str, memory: float) -> str:
    lowered = text.lower().partition("-mig-")[0].removesuffix("-shared")
    model = _MODEL.search(lowered)
    if model is None:
        return ""
    sizes = _SIZES.get(model[1])
    if sizes is None:
        return model[1]
    written = _MEMORY.search(lowered)
    size = int(written[1]) if written else min(sizes, key=lambda known: abs(known - memory)) if memory else sizes[0]
    return f"{model[1]}-{size}gb"


def _labelled_memory(labels: Mapping[str, str]) -> float:
    """Return GB by the labels in MiB; 0 if there are none."""
    text = next((labels[label] for label in _MEMORY_LABELS if label in labels), "")
    return int(text) / 1024 if text.isascii() and text.isdigit() and len(text) < 9 else 0


def is_spot(labels: Mapping[str, str]) -> bool:
    """True for spot capacity (Karpenter's, GKE's, EKS's and AKS's labels)."""
    return any(labels[key].lower() == _SPOT_LABELS.get(key.lower()) for key in labels if key.lower() in _SPOT_LABELS)


def _mig_part(labels: Mapping[str, str]) -> float:
    """Fraction of a GPU that one `nvidia.com/gpu` is: a MIG instance under the strategy `single`, else 1."""
    if labels.get("nvidia.com/mig.strategy") != "single":
        return 1.0
    found = _MIG_PRODUCT.search(labels.get("nvidia.com/gpu.product", ""))
    if found is None:
        return 1.0
    kind = gpu_type(labels)
    memory = re.search(r"-(\d+)gb$", kind)
    fit = (_FEW_SLICES.get(kind, 7)) // max(1, int(found[1]))
    return 1.0 / max(1, min(fit, int(memory[1]) // max(1, int(found[2]))) if memory is not None else fit)


def part_offered(labels: Mapping[str, str]) -> float:
    """Fraction of a GPU that one `nvidia.com/gpu` of a node is: a time-slicing replica, a MIG instance, or 1."""
    return _mig_part(labels) / replicas(labels)


class Prices(Struct, frozen=True, kw_only=True):
    """Price table, in USD per GPU-hour."""

    gpu_hour: Mapping[str, float] = field(default_factory=_GPU_HOUR.copy)
    """GPU type of `gpu_type` → price."""
    other: float = 2.00
    """Price of every other type."""
    spot: float = 0.35
    """Price of a spot GPU as a fraction of the full price."""

    def hourly(self, labels: Mapping[str, str], name: str = "") -> float:
        """USD per GPU-hour on a node (or in a flavor `name`) with these labels; per replica of a shared GPU.

        On a node with the MIG strategy `single`, per MIG instance.
        """
        price = self.on_demand_hourly(labels, name)
        return price * self.spot if is_spot(labels) else price

    def on_demand_hourly(self, labels: Mapping[str, str], name: str = "") -> float:
        """USD per GPU-hour as `hourly`, but without the discount for spot."""
        return self.gpu_hour.get(gpu_type(labels, name), self.other) * part_offered(labels)

    def cost(self, gpu_seconds: float, labels: Mapping[str, str], name: str = "") -> float:
        """USD for this GPU time on such a node."""
        return gpu_seconds / 3600 * self.hourly(labels, name)


def gpu_hourly(node: Node | None, prices: Prices) -> float:
    """USD per GPU-hour on a node: its share of the node's own price, if it has one.

    None, for a node that no longer exists, has the default price.
    """
    if node is None:
        return prices.hourly({})
    machine = machine_hourly(node)
    return machine / node.gpus if machine is not None and node.gpus else prices.hourly(node.labels)


def load(text: str, source: str = "prices") -> Prices:
    """Read a price table from YAML.

    Keys: `gpu-hour` (type → USD), `other`, `spot`; missing keys keep their defaults, and `gpu-hour` replaces the whole
    list. Raises PricesError that names every invalid line of `source`.
    """
    if len(text) > _MAX_TEXT:
        raise PricesError(f"{source}: a price table has at most {_MAX_TEXT} characters, this one has {len(text)}")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PricesError(f"{source}: not readable as YAML: {clean(' '.join(str(error).split()), 300)}") from None
    problems: list[str] = []
    prices = _read(root, problems)
    if problems:
        raise PricesError("\n".join(f"{source}{problem}" for problem in problems))
    return prices


def _read(root: yaml.Node | None, problems: list[str]) -> Prices:
    prices = Prices()
    if root is None:
        return prices
    gpu_hour, other, spot = prices.gpu_hour, prices.other, prices.spot
    for key, value in _pairs(root, "a price table", problems):
        match key:
            case "gpu-hour":
                gpu_hour = {
                    kind: _number(price, f"gpu-hour.{kind}", problems)
                    for kind, price in _pairs(value, "gpu-hour", problems)
                }
            case "other":
                other = _number(value, key, problems)
            case "spot":
                spot = _number(value, key, problems, at_most=1.0)
            case _:
                problems.append(f"{_line(value)}: unknown key {key!r}; the keys are {', '.join(_KEYS)}")
    return Prices(gpu_hour=gpu_hour, other=other, spot=spot)


def _pairs(node: yaml.Node, what: str, problems: list[str]) -> Iterator[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        problems.append(f"{_line(node)}: {what} is a mapping, such as `a100-80gb: 2.21`")
        return
    seen: set[str] = set()
    for key, value in node.value:
        name = clean(key.value, 80) if isinstance(key, yaml.ScalarNode) else "?"
        if name in seen:
            problems.append(f"{_line(key)}: {name} is given twice")
        seen.add(name)
        yield name, value


def _number(node: yaml.Node, path: str, problems: list[str], at_most: float = math.inf) -> float:
    """Read a number from 0 to `at_most`; 0.0 and a problem if it is invalid."""
    text = clean(node.value, 40) if isinstance(node, yaml.ScalarNode) else "not a single value"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isfinite(number) and 0 <= number <= at_most:
        return number
    right = "USD per GPU-hour, 0 or more" if at_most == math.inf else f"a number from 0 to {at_most:g}"
    problems.append(f"{_line(node)}: {path} is {text}; must be {right}")
    return 0.0


def _line(node: yaml.Node) -> str:
    return f":{node.start_mark.line + 1}"
