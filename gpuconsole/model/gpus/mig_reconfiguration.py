"""MIG reconfiguration of a node by a configuration of NVIDIA's mig-parted: removed instances, and pods to evict first.

Configurations are read from YAML as by the MIG manager, or have a known name: all-disabled, all-enabled, all-balanced,
all-<profile>.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.documents.findings import DocumentFindings, Finding
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.documents.yaml_json import FormError, read_yaml
from gpuconsole.model.gpus.mig import GeometryChange, Layout, MigGeometry, MigPlacement, change, mix, ordered
from gpuconsole.model.gpus.mig_resources import division_of
from gpuconsole.model.gpus.models import MODELS, GpuModel
from gpuconsole.model.gpus.sharing import device, replicas
from gpuconsole.model.text import clean

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
