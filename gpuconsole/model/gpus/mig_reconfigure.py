"""MIG reconfiguration of a node: which instances are removed, and which pods must be evicted first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.gpus import mig_parted
from gpuconsole.model.gpus.changes import GeometryChange, change
from gpuconsole.model.gpus.instances import division_of
from gpuconsole.model.gpus.mig import Layout, MigGeometry, MigPlacement, mix, ordered
from gpuconsole.model.gpus.models import GpuModel
from gpuconsole.model.gpus.sharing import device, replicas


class MigGpuChange(Struct, frozen=True, kw_only=True):
    """GPU that a MIG reconfiguration would change."""

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
    node: Node, model: GpuModel, pods: tuple[Pod, ...], name: str, configs: Mapping[str, mig_parted.Config]
) -> MigNodeChange:
    """Return the changes by a mig-parted configuration on a node of this MIG-capable model with these pods."""
    assert model.mig is not None
    config = configs.get(name) or mig_parted.known(model, name)
    if config is None:
        return MigNodeChange(node=node.name, problem=f"{model.name} has no configuration {name}")
    if node.labels.get("nvidia.com/mig.strategy") == "single" and "-MIG-" in node.labels["nvidia.com/gpu.product"]:
        return MigNodeChange(node=node.name, problem="MIG strategy single does not show which GPU an instance is on")
    gpus = tuple(_gpus(node, pods))
    try:
        wanted = mig_parted.divided(config, model, len(gpus))
    except mig_parted.MigConfigError as error:
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
