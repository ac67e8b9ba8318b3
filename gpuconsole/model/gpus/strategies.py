"""Resources and labels of a MIG node under MIG_STRATEGY none, single and mixed.

They are counted as by NVIDIA's device plugin, and labelled as by GPU feature discovery. The layout of a GPU with MIG
mode off is None.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.gpus.mig import Layout, MigProfile
from gpuconsole.model.gpus.models import GpuModel
from gpuconsole.model.quantity import GPU

Gpus = Sequence[Layout | None]


class MigStrategy(StrEnum):
    """MIG strategy of the device plugin (MIG_STRATEGY)."""

    NONE = "none"
    """GPUs are offered whole, regardless of their instances."""
    SINGLE = "single"
    """All GPUs of a node have the same instances; each instance is offered as a GPU."""
    MIXED = "mixed"
    """Instances are offered under the names of their profiles, GPUs without MIG as GPUs."""


class MigStrategyResources(Struct, frozen=True):
    """Resources and labels of a node; `problem` says why the strategy single offers nothing."""

    resources: dict[str, int]
    labels: dict[str, str]
    problem: str = ""


def offer(model: GpuModel, product: str, gpus: Gpus, strategy: MigStrategy) -> MigStrategyResources:
    """Return what a node with these GPUs offers. `product` is the full product name (`NVIDIA-A100-SXM4-80GB`)."""
    labels = {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(len(gpus)),
        "nvidia.com/gpu.memory": str(model.memory),
        "nvidia.com/mig.capable": "true" if model.mig is not None else "false",
    }
    if strategy is MigStrategy.NONE or model.mig is None:
        return MigStrategyResources({GPU: len(gpus)}, labels)
    labels["nvidia.com/mig.strategy"] = strategy.value
    return (
        _single(model, product, gpus, labels)
        if strategy is MigStrategy.SINGLE
        else _mixed(model, product, gpus, labels)
    )


def _single(model: GpuModel, product: str, gpus: Gpus, labels: dict[str, str]) -> MigStrategyResources:
    if all(layout is None for layout in gpus):
        return MigStrategyResources({GPU: len(gpus)}, labels)
    problem = _objection(gpus)
    if problem:
        nothing = {"product": f"{product}-MIG-INVALID", "count": "0", "memory": "0"}
        return MigStrategyResources(
            {GPU: 0}, labels | {f"nvidia.com/gpu.{key}": value for key, value in nothing.items()}, problem
        )
    counts = _instances(model, gpus)
    (profile, count), *_ = counts.items()
    return MigStrategyResources({GPU: count}, labels | _described("nvidia.com/gpu", product, profile, count))


def _objection(gpus: Gpus) -> str:
    """Return why the strategy single does not support these GPUs (the device plugin's reasons)."""
    if any(layout is None for layout in gpus):
        return "all devices on the node must be configured with the same migEnabled value"
    if not all(gpus):
        return "at least one device with migEnabled=true was not configured correctly"
    kinds = {placement.profile for layout in gpus if layout for placement in layout}
    return "more than one MIG device type present on node" if len(kinds) > 1 else ""


def _mixed(model: GpuModel, product: str, gpus: Gpus, labels: dict[str, str]) -> MigStrategyResources:
    whole = sum(layout is None for layout in gpus)
    resources = {GPU: whole} if whole else {}
    for profile, count in _instances(model, gpus).items():
        resources[profile.resource] = count
        labels |= _described(profile.resource, product, profile, count)
    return MigStrategyResources(resources, labels)


def _instances(model: GpuModel, gpus: Gpus) -> dict[MigProfile, int]:
    """Count the instances of each profile, the smallest profiles first."""
    assert model.mig is not None
    counts = Counter(placement.profile for layout in gpus if layout for placement in layout)
    return {profile: counts[profile.name] for profile in model.mig.profiles if counts[profile.name]}


def _described(prefix: str, product: str, profile: MigProfile, count: int) -> dict[str, str]:
    """Return the labels for the instances of one profile."""
    labels = {
        f"{prefix}.product": f"{product}-MIG-{profile.name.replace('+', '.')}",
        f"{prefix}.count": str(count),
        f"{prefix}.memory": str(profile.memory),
        f"{prefix}.slices.gi": str(profile.compute),
        f"{prefix}.slices.ci": str(profile.compute),
    }
    return labels | ({f"{prefix}.multiprocessors": str(profile.sms)} if profile.sms else {})
