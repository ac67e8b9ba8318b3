"""MIG instances of a node, and its resources and labels under each MIG_STRATEGY.

`division_of` reads the instances from a node's resources and annotations. If the node only states how many it offers,
they are distributed evenly if possible, else packed GPU by GPU, large instances first.

`offer` does the reverse: resources are counted as by NVIDIA's device plugin, labels are those of GPU feature discovery.
The layout of a GPU with MIG mode off is None.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from gpuconsole.model.gpus.mig import Layout, MigGeometry, MigInstance, MigPlacement, MigProfile
from gpuconsole.model.gpus.models import MODELS, GpuModel, model_of
from gpuconsole.model.resources import GPU, MIG_PREFIX, Resources

LAYOUT = "gpuconsole.io/mig-layout"
"""Annotation: the instances of each GPU, GPUs separated by `|`, whole ones as `-`: `1g.10gb@0 3g.40gb@4 | -`."""
DYNAMIC = "gpuconsole.io/mig-dynamic"
"""Annotation: number of GPUs on which instances are created and removed on demand, on idle slices."""
_MOST = 512


class Division(Struct, frozen=True, eq=False):
    """Which MIG instances each GPU of a node has."""

    geometry: MigGeometry
    gpus: int
    """Number of its GPUs, including whole ones between partitioned ones; pods own whole ones by their index among
    these.
    """
    instances: tuple[MigInstance, ...] = ()
    """In the order of GPU and slice; empty if they are created on demand."""

    @property
    def dynamic(self) -> bool:
        """True if instances are created on demand."""
        return not self.instances

    def profile(self, resource: str) -> str:
        """Return the MIG profile that a resource name stands for; empty if this GPU model has none."""
        found = self.geometry.profile_of(resource)
        return "" if found is None else found.name


def division_of(allocatable: Resources, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Division | None:
    """Return the MIG layout of a node; None if it offers no MIG instances of a known GPU model."""
    offered = {
        name: min(amount, _MOST) for name, amount in allocatable.items() if name.startswith(MIG_PREFIX) and amount
    }
    if not offered:
        return None
    geometry = _geometry(offered, labels)
    if geometry is None:
        return None
    dynamic = annotations.get(DYNAMIC, "")
    if dynamic.isdecimal() and 0 < int(dynamic[:4]) <= _MOST:
        return Division(geometry, int(dynamic[:4]))
    text = annotations.get(LAYOUT, "")
    said = _said(geometry, text)
    if said and Counter(_resource(geometry, one.profile) for one in said) == offered:
        return Division(geometry, text.count("|") + 1, said)
    made = _laid(geometry, tuple(offered.items()), labels.get("nvidia.com/gpu.count", ""))
    return Division(geometry, made[-1].gpu + 1, made)


def part_of_gpu(resource: str, labels: Mapping[str, str]) -> float:
    """Return which fraction of a GPU a MIG instance of this resource is: 1/7 if seven fit on one; 1 if unknown."""
    geometry = _geometry({resource: 1}, labels)
    profile_found = geometry.profile_of(resource) if geometry is not None else None
    if geometry is None or profile_found is None:
        return 1.0
    fit = 1 if profile_found.media else min(len(profile_found.starts), geometry.compute // profile_found.compute)
    return 1.0 / max(1, fit)


def written(gpus: Iterable[Layout | None]) -> str:
    """Write the annotation `LAYOUT` for GPUs with these layouts; None stands for MIG mode off."""
    return " | ".join("-" if layout is None else " ".join(map(str, layout)) for layout in gpus)


def _geometry(offered: Mapping[str, int], labels: Mapping[str, str]) -> MigGeometry | None:
    named = model_of(labels)
    models = MODELS.values() if named is None else (named,)
    geometries = (model.mig for model in models if model.mig is not None)
    return next((mig for mig in geometries if all(mig.profile_of(name) is not None for name in offered)), None)


def _resource(geometry: MigGeometry, profile: str) -> str:
    return geometry.by_name[profile].resource


def _said(geometry: MigGeometry, text: str) -> tuple[MigInstance, ...]:
    """Parse the annotation; empty if it or one of its layouts is invalid."""
    instances: list[MigInstance] = []
    for gpu, part in enumerate(text.split("|")[:_MOST]):
        words = [word.partition("@") for word in part.split() if word != "-"]
        if not all(start.isdecimal() and len(start) == 1 for _, _, start in words):
            return ()
        layout = [MigPlacement(name, int(start)) for name, _, start in words]
        if geometry.objection(layout):
            return ()
        instances += sorted(MigInstance(gpu, one.profile, one.start) for one in layout)
    return tuple(instances)


@lru_cache(maxsize=256)
def _laid(geometry: MigGeometry, offered: tuple[tuple[str, int], ...], count: str) -> tuple[MigInstance, ...]:
    """Place the offered instances evenly on `count` GPUs, or else on as few GPUs as possible.

    Cached, because most nodes of a cluster have the same layout.
    """
    names = [_profile(geometry, name) for name, amount in offered for _ in range(amount)]
    return tuple(
        one
        for gpu, part in enumerate(_even(geometry, names, count) or _first_fit(geometry, names))
        for one in sorted(MigInstance(gpu, one.profile, one.start) for one in geometry.pack(part) or ())
    )


def _profile(geometry: MigGeometry, resource: str) -> str:
    found = geometry.profile_of(resource)
    assert found is not None
    return found.name


def _even(geometry: MigGeometry, names: list[str], count: str) -> list[list[str]]:
    gpus = int(count) if count.isdecimal() and len(count) < 4 else 0
    totals = Counter(names)
    if not gpus or any(total % gpus for total in totals.values()):
        return []
    part = [name for name, total in totals.items() for _ in range(total // gpus)]
    return [part] * gpus if geometry.pack(part) is not None else []


def _first_fit(geometry: MigGeometry, names: list[str]) -> list[list[str]]:
    parts: list[list[str]] = []
    for name in sorted(names, key=lambda name: (-geometry.by_name[name].span, -geometry.by_name[name].compute, name)):
        part = next((part for part in parts if geometry.pack([*part, name]) is not None), None)
        if part is None:
            parts.append([name])
        else:
            part.append(name)
    return parts


Gpus = Sequence[Layout | None]
"""Layouts of a node's GPUs; None for a GPU with MIG mode off."""


class MigStrategy(StrEnum):
    """MIG strategy of the device plugin (MIG_STRATEGY)."""

    NONE = "none"
    """GPUs are offered whole, regardless of their instances."""
    SINGLE = "single"
    """All GPUs of a node have the same instances; each instance is offered as a GPU."""
    MIXED = "mixed"
    """Instances are offered under the names of their profiles, GPUs without MIG as GPUs."""


class MigStrategyResources(Struct, frozen=True):
    """Resources and labels of a node under a MIG strategy; `problem` says why the strategy single offers nothing."""

    resources: dict[str, int]
    labels: dict[str, str]
    problem: str = ""


def offer(model: GpuModel, product: str, gpus: Gpus, strategy: MigStrategy) -> MigStrategyResources:
    """Return what a node with these GPUs offers; `product` is its full product name (`NVIDIA-A100-SXM4-80GB`)."""
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
