"""MIG instances of a node, its resources and labels under each MIG_STRATEGY, and reconfiguration by mig-parted.

Configurations are read from YAML as by the MIG manager, or have a known name: all-disabled, all-enabled, all-balanced,
all-<profile>.

`division_of` reads the instances from a node's resources and annotations. If the node only states how many it offers,
they are distributed evenly if possible, else packed GPU by GPU, large instances first.

`offer` does the reverse: resources are counted as by NVIDIA's device plugin, labels are those of GPU feature discovery.
The layout of a GPU with MIG mode off is None.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.documents.findings import DocumentFindings, Finding
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.documents.yaml_json import FormError, read_yaml
from gpuconsole.model.gpus.mig import (
    GeometryChange,
    Layout,
    MigGeometry,
    MigInstance,
    MigPlacement,
    MigProfile,
    change,
    mix,
    ordered,
)
from gpuconsole.model.gpus.models import MODELS, GpuModel, model_of
from gpuconsole.model.gpus.sharing import device, replicas
from gpuconsole.model.resources import GPU, MIG_PREFIX, Resources
from gpuconsole.model.text import clean

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
    counts = _instance_counts(model, gpus)
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
    for profile, count in _instance_counts(model, gpus).items():
        resources[profile.resource] = count
        labels |= _described(profile.resource, product, profile, count)
    return MigStrategyResources(resources, labels)


def _instance_counts(model: GpuModel, gpus: Gpus) -> dict[MigProfile, int]:
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


_PROFILE = re.compile(r"[1-9]g\.[1-9][0-9]{0,2}gb(\+me)?")
_FILTER = re.compile(r"0x[0-9A-Fa-f]{8}")
_MOST_CONFIGS, _MOST_GPUS, _MOST_INSTANCES = 1000, 64, 8


class MigConfigSpec(Struct, frozen=True, kw_only=True):
    """One entry of a configuration: the MIG mode and instances of some of a node's GPUs."""

    enabled: bool
    instances: Mapping[str, int] = {}
    """Profile → number of instances."""
    devices: tuple[int, ...] | None = None
    """Indices of GPUs; None for all."""
    filters: tuple[int, ...] = ()
    """PCI device and vendor IDs; empty for any."""

    def concerns(self, model: GpuModel, index: int) -> bool:
        """True if the entry applies to the GPU with this model and index on a node."""
        fits = not self.filters or any(pci in self.filters for pci in model.pci)
        return fits and (self.devices is None or index in self.devices)


Config = tuple[MigConfigSpec, ...]
"""Entries of a configuration; the last one that applies to a GPU counts."""


class MigConfigError(ValueError):
    """A configuration does not fit a GPU; the text says which and why."""


def divided(config: Config, model: GpuModel, count: int) -> tuple[Layout | None, ...]:
    """Return the layouts of a node's GPUs under a configuration; None (MIG off) for GPUs it does not mention.

    Raises MigConfigError if a GPU does not support its layout. If several entries apply to a GPU, the last one counts.
    """
    return tuple(_divided(config, model, index) for index in range(count))


def _divided(config: Config, model: GpuModel, index: int) -> Layout | None:
    part = next((part for part in reversed(config) if part.concerns(model, index)), None)
    if part is None or not part.enabled:
        return None
    if model.mig is None:
        raise MigConfigError(f"GPU {index} ({model.name}) has no MIG")
    layout = model.mig.pack(Counter(part.instances).elements())
    if layout is None:
        wanted = " + ".join(f"{n} × {name}" for name, n in part.instances.items())
        raise MigConfigError(f"GPU {index} ({model.name}) cannot be divided into {wanted}")
    return layout


def known(model: GpuModel, name: str) -> Config | None:
    """Return a configuration that mig-parted ships for a GPU model; None if it has none of that name."""
    if name == "all-disabled":
        return (MigConfigSpec(enabled=False),)
    if name == "all-enabled":
        return (MigConfigSpec(enabled=True),)
    if model.mig is None:
        return None
    if name == "all-balanced":
        return (MigConfigSpec(enabled=True, instances=_balanced(model.mig)),)
    profile = next((p for p in model.mig.profiles if name == "all-" + p.name.replace("+", ".")), None)
    if profile is None:
        return None
    count = 1 if profile.media else min(len(profile.starts), model.mig.compute // profile.compute)
    return (MigConfigSpec(enabled=True, instances={profile.name: count}),)


def _balanced(mig: MigGeometry) -> Mapping[str, int]:
    """Return two instances of the smallest profile, one of the next and, if there is a 3g profile, one of that."""
    one, two, *more = mig.plain
    three = [profile.name for profile in more if profile.compute == 3]
    return {one.name: 2, two.name: 1, **dict.fromkeys(three, 1)}


def read(text: str, source: str = "mig-parted") -> tuple[dict[str, Config], list[Finding]]:
    """Return the named configurations in YAML, and findings about them."""
    try:
        tree = read_yaml(text)
    except FormError as error:
        trouble = error.problem
        report = DocumentFindings(source, line_of=lambda _: trouble.line)
        report.error((), trouble.problem, trouble.remedy, trouble.code)
        return {}, report.findings
    report = DocumentFindings(source, strict=True, line_of=tree.place.find)
    if not isinstance(tree.value, dict):
        report.error((), "a configuration is a mapping", "write version: v1 and mig-configs: {…}", "wrong-type")
        return {}, report.findings
    place = Reader(tree.value, report)
    place.only("version", "mig-configs")
    if place.required("version") not in ("", "v1"):
        report.error(("version",), f"{shown(place.raw('version'))} is not known", "write version: v1", "bad-value")
    configs = place.mapping("mig-configs")
    names = [str(name) for name in configs.value][:_MOST_CONFIGS]
    return {clean(name): tuple(map(_part, configs.items(name))) for name in names}, report.findings


def _part(place: Reader) -> MigConfigSpec:
    place.only("device-filter", "devices", "mig-enabled", "mig-devices")
    enabled = place.flag("mig-enabled")
    instances = _instances(place.mapping("mig-devices"))
    if "mig-enabled" not in place:
        place.report.error(place.at("mig-enabled"), "mig-enabled is missing", "write true or false", "required")
    if instances and not enabled:
        place.report.error(
            place.at("mig-devices"), "there are instances where MIG is off", "write mig-enabled: true", "contradiction"
        )
    part = MigConfigSpec(enabled=enabled, instances=instances, devices=_devices(place), filters=_filters(place))
    _check(part, place)
    return part


def _instances(place: Reader) -> dict[str, int]:
    found = {}
    for name in list(place.value)[:_MOST_INSTANCES]:
        if _PROFILE.fullmatch(str(name)):
            found[str(name)] = place.number(name, 0, low=0, high=_MOST_INSTANCES)
        else:
            place.report.error(
                place.at(str(name)), f"{shown(name)} is not a MIG profile", "write it as 1g.10gb", "bad-name"
            )
    return {name: count for name, count in found.items() if count}


def _devices(place: Reader) -> tuple[int, ...] | None:
    said = place.raw("devices")
    if said == "all":
        return None
    if isinstance(said, list) and all(type(index) is int and 0 <= index < _MOST_GPUS for index in said):
        return tuple(said)
    place.report.error(
        place.at("devices"), f"{shown(said)} names no GPUs", "write all, or indices such as [0, 1]", "bad-value"
    )
    return ()


def _filters(place: Reader) -> tuple[int, ...]:
    """Read one PCI ID or several, each as `0x20B210DE`."""
    said = place.raw("device-filter")
    texts = (said,) if isinstance(said, str) else place.texts("device-filter")
    wrong = [text for text in texts if text and not _FILTER.fullmatch(text)]
    for text in wrong:
        place.report.error(
            place.at("device-filter"), f"{shown(text)} is not a PCI ID", "write it as 0x20B210DE", "bad-value"
        )
    return tuple(int(text, 16) for text in texts if text and text not in wrong)


def _check(part: MigConfigSpec, place: Reader) -> None:
    """Report an entry that no GPU model it applies to supports."""
    models = [m for m in MODELS.values() if m.mig is not None and (not part.filters or set(part.filters) & set(m.pci))]
    wanted = tuple(Counter(part.instances).elements())
    if models and wanted and not any(m.mig is not None and m.mig.pack(wanted) is not None for m in models):
        text = " + ".join(f"{n} × {name}" for name, n in part.instances.items())
        place.report.error(
            place.at("mig-devices"), f"no GPU can be divided into {text}", "leave some instances out", "illegal-layout"
        )


class MigGpuChange(Struct, frozen=True, kw_only=True):
    """Change of one GPU by a MIG reconfiguration of its node."""

    gpu: int
    now: str
    then: str
    reset: bool
    """MIG mode is switched, which resets the GPU."""
    leavers: tuple[str, ...]
    """Pods that must be evicted from it first."""


class MigNodeChange(Struct, frozen=True, kw_only=True):
    """Changes of a node by a MIG reconfiguration; no GPUs if nothing changes."""

    node: str
    gpus: tuple[MigGpuChange, ...] = ()
    problem: str = ""
    """Why the reconfiguration is impossible; empty if it is possible."""


class _Gpu(Struct, frozen=True):
    """Current state of a GPU: its layout (None: MIG mode off), and the owners."""

    layout: Layout | None
    owners: Mapping[MigPlacement, str]
    whole: tuple[str, ...] = ()


def mig_node_changes(
    node: Node, model: GpuModel, pods: tuple[Pod, ...], name: str, configs: Mapping[str, Config]
) -> MigNodeChange:
    """Return what a mig-parted configuration would change on a node of this model, and which pods to evict first.

    `name` is a configuration in `configs`, or one that mig-parted ships.
    """
    assert model.mig is not None
    config = configs.get(name) or known(model, name)
    if config is None:
        return MigNodeChange(node=node.name, problem=f"{model.name} has no configuration {name}")
    if node.labels.get("nvidia.com/mig.strategy") == "single" and "-MIG-" in node.labels["nvidia.com/gpu.product"]:
        return MigNodeChange(node=node.name, problem="MIG strategy single does not show which GPU an instance is on")
    gpus = tuple(_gpus(node, pods))
    try:
        wanted = divided(config, model, len(gpus))
    except MigConfigError as error:
        return MigNodeChange(node=node.name, problem=str(error))
    return MigNodeChange(node=node.name, gpus=tuple(_differing(model.mig, gpus, wanted)))


def _differing(geometry: MigGeometry, gpus: Iterable[_Gpu], wanted: Iterable[Layout | None]) -> Iterator[MigGpuChange]:
    for index, (gpu, layout) in enumerate(zip(gpus, wanted, strict=True)):
        steps = change(geometry, gpu.layout, None if layout is None else mix(layout), gpu.owners)
        if steps is not None and _does_anything(steps):
            yield MigGpuChange(
                gpu=index,
                now=_words(gpu.layout),
                then=_words(layout),
                reset=steps.reset,
                leavers=steps.leavers(gpu.owners, gpu.whole),
            )


def _does_anything(steps: GeometryChange) -> bool:
    return steps.reset or bool(steps.removed or steps.created)


def _gpus(node: Node, pods: Iterable[Pod]) -> Iterator[_Gpu]:
    """Yield the GPUs of a node in order."""
    division = division_of(node.allocatable, node.labels, node.annotations)
    owners: dict[int, dict[MigPlacement, str]] = {}
    whole: dict[int, list[str]] = {}
    for pod in pods:
        for one in pod.slices:
            owners.setdefault(one.gpu, {})[MigPlacement(one.profile, one.start)] = pod.key
        for index in pod.gpus:
            whole.setdefault(device(index, node.gpus, node.labels), []).append(pod.key)
    layouts: dict[int, list[MigPlacement]] = {gpu: list(placed) for gpu, placed in owners.items()}
    for one in division.instances if division is not None else ():
        layouts[one.gpu] = [*layouts.get(one.gpu, ()), MigPlacement(one.profile, one.start)]
    plain = 0
    for gpu in range(division.gpus if division is not None else node.gpus // replicas(node.labels)):
        if division is not None and (division.dynamic or gpu in layouts):
            yield _Gpu(ordered(set(layouts.get(gpu, ()))), owners.get(gpu, {}))
        else:
            yield _Gpu(None, {}, tuple(whole.get(plain, ())))
            plain += 1


def _words(layout: Layout | None) -> str:
    """Describe a layout: `3g.40gb + 2 × 1g.10gb`, `whole` with MIG off, `nothing` without instances."""
    if layout is None:
        return "whole"
    counts = Counter(placement.profile for placement in layout)
    parts = [f"{count} × {name}" if count > 1 else name for name, count in sorted(counts.items(), reverse=True)]
    return " + ".join(parts) or "nothing"
