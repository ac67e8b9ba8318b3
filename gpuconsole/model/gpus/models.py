"""GPU models (memory, streaming multiprocessors, MIG profiles, NVLink), and the interconnect of a node's GPUs.

The memory of MIG instances on A100 and H100 (80 GB) is as `nvidia-smi mig -lgip` shows it; elsewhere it is the slices'
share of the model's memory. The multiprocessors of instances are 0 if NVIDIA's tables are not available.

The interconnect comes from an annotation, or is that of typical machines with this GPU model: two GPUs per PCIe switch,
half of them on each of two NUMA nodes. For an unknown model, the groups that the annotation omits contain all GPUs.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.gpus.mig import MigGeometry, MigProfile
from gpuconsole.model.prices import gpu_type

_EIGHTHS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, (0, 2, 4, 6)),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)
"""(compute slices, memory slices, starts) of the models with eight memory slices, which have the same placements."""
_QUARTERS: tuple[tuple[int, int, tuple[int, ...]], ...] = ((1, 1, (0, 1, 2, 3)), (2, 2, (0, 2)), (4, 4, (0,)))


class Links(StrEnum):
    """NVLink topology of a node's GPUs."""

    ALL = "all"
    PAIRS = "pairs"
    NONE = "none"


class GpuModel(Struct, frozen=True, kw_only=True):
    """One model of GPU."""

    name: str
    """Name of the model in price tables (`prices.gpu_type`), such as `a100-80gb`."""
    memory: int
    """Nominal MiB."""
    sms: int
    """Streaming multiprocessors of a whole GPU."""
    links: Links = Links.NONE
    """NVLink topology of most machines with this model."""
    nvlink: int = 0
    """GB/s of one GPU to the others of its NVLink domain, both directions together; 0 without NVLink."""
    mig: MigGeometry | None = None
    pci: tuple[int, ...] = ()
    """PCI device and vendor IDs, as in the device filters of mig-parted."""


def model_of(labels: Mapping[str, str]) -> GpuModel | None:
    """Return the GPU model that a node's labels name; None if unknown."""
    product = labels.get("nvidia.com/gpu.product", "").lower().replace("-", " ")
    if "rtx pro 6000" in product:
        return MODELS["rtx-pro-6000"]
    name = gpu_type(labels)
    if name == "h100-80gb" and "96gb" in product:
        name = "h100-96gb"
    return MODELS.get(_ALSO.get(name, name))


def _eighths(gigabytes: str, memory: tuple[int, ...] = (), sms: tuple[int, ...] = ()) -> Iterator[MigProfile]:
    """Yield the profiles of a model with eight memory slices; `gigabytes` are the six sizes in their names."""
    sizes = [int(size) for size in gigabytes.split()]
    for n, (compute, span, starts) in enumerate(_EIGHTHS):
        plain = MigProfile(
            name=f"{compute}g.{sizes[n]}gb",
            compute=compute,
            span=span,
            starts=starts,
            memory=memory[n] if memory else sizes[-1] * 1024 * span // 8,
            sms=sms[n] if sms else 0,
            doubled=(compute, span) == (1, 2),
        )
        yield plain
        if n == 0:
            yield MigProfile(
                name=plain.name + "+me", compute=1, span=1, starts=starts, memory=plain.memory, sms=plain.sms
            )


def _quarters(gigabytes: str, sms: tuple[int, ...] = (), media: tuple[int, ...] = ()) -> Iterator[MigProfile]:
    """Yield the profiles of a model with four memory slices; those with `media` compute slices also exist with media
    engines.
    """
    sizes = [int(size) for size in gigabytes.split()]
    for n, (compute, span, starts) in enumerate(_QUARTERS):
        name, size, units = f"{compute}g.{sizes[n]}gb", sizes[n] * 1024, sms[n] if sms else 0
        for suffix in ("", "+me") if compute in media else ("",):
            yield MigProfile(name=name + suffix, compute=compute, span=span, starts=starts, memory=size, sms=units)


def _by_eight(
    name: str,
    gigabytes: str,
    whole: int,
    *,
    nvlink: int,
    links: Links = Links.ALL,
    memory: tuple[int, ...] = (),
    sms: tuple[int, ...] = (),
    pci: tuple[int, ...] = (),
) -> GpuModel:
    profiles = tuple(_eighths(gigabytes, memory, sms))
    total = int(gigabytes.split()[-1]) * 1024
    return GpuModel(
        name=name, memory=total, sms=whole, links=links, nvlink=nvlink, mig=MigGeometry(7, 8, profiles), pci=pci
    )


def _by_four(
    name: str, gigabytes: str, whole: int, nvlink: int, sms: tuple[int, ...], media: tuple[int, ...]
) -> GpuModel:
    total = int(gigabytes.split()[-1]) * 1024
    mig = MigGeometry(4, 4, tuple(_quarters(gigabytes, sms, media)))
    links = Links.PAIRS if nvlink else Links.NONE
    return GpuModel(name=name, memory=total, sms=whole, links=links, nvlink=nvlink, mig=mig)


_A100_SMS = (14, 14, 28, 42, 56, 98)
_HOPPER_SMS = (16, 26, 32, 60, 64, 132)
_HOPPER_MEMORY = (9984, 20096, 20096, 40448, 40448, 81152)

_MODELS = (
    _by_eight(
        "a100-40gb",
        "5 10 10 20 20 40",
        108,
        nvlink=600,
        memory=(4864, 9856, 9856, 19968, 19968, 40192),
        sms=_A100_SMS,
        pci=(0x20B010DE, 0x20B110DE, 0x20F110DE, 0x20F610DE),
    ),
    _by_eight(
        "a100-80gb",
        "10 20 20 40 40 80",
        108,
        nvlink=600,
        memory=(9856, 19968, 19968, 40192, 40192, 80384),
        sms=_A100_SMS,
        pci=(0x20B210DE, 0x20B510DE),
    ),
    _by_eight(
        "h100-80gb",
        "10 20 20 40 40 80",
        132,
        nvlink=900,
        memory=_HOPPER_MEMORY,
        sms=_HOPPER_SMS,
        pci=(0x233010DE, 0x233110DE),
    ),
    _by_eight("h100-96gb", "12 24 24 48 48 96", 132, nvlink=900, sms=_HOPPER_SMS),
    _by_eight("h100-94gb", "12 24 24 47 47 94", 132, nvlink=600, sms=_HOPPER_SMS, links=Links.PAIRS),
    _by_eight("h200", "18 35 35 71 71 141", 132, nvlink=900, sms=_HOPPER_SMS, pci=(0x233510DE, 0x233B10DE)),
    _by_eight("b200", "23 45 45 90 90 180", 148, nvlink=1800, pci=(0x290110DE,)),
    _by_eight("gb200", "23 47 47 93 93 186", 152, nvlink=1800),
    _by_eight("b300", "34 67 67 135 135 269", 148, nvlink=1800),
    _by_four("a30", "6 12 24", 56, 200, (14, 28, 56), (1, 2)),
    _by_four("rtx-pro-6000", "24 48 96", 188, 0, (), ()),
    GpuModel(name="v100", memory=16 * 1024, sms=80, links=Links.ALL, nvlink=300),
    GpuModel(name="t4", memory=16 * 1024, sms=40),
    GpuModel(name="a10g", memory=24 * 1024, sms=80),
    GpuModel(name="l4", memory=24 * 1024, sms=58),
    GpuModel(name="l40s", memory=48 * 1024, sms=142),
)
_BY_NAME = {model.name: model for model in _MODELS}
_SLOWER = tuple(
    replace(_BY_NAME[model], name=name, nvlink=400) for name, model in (("h800", "h100-80gb"), ("a800", "a100-80gb"))
)
MODELS: Mapping[str, GpuModel] = {**_BY_NAME, **{model.name: model for model in _SLOWER}}
_ALSO = {"gh200": "h100-96gb", "gb300": "b300"}
"""Models with the MIG geometry of another one."""


WIRING = "gpuconsole.io/gpu-wiring"
"""Annotation: groups of GPUs by index: `nvlink=0-3,4-7 switch=0-1,2-3,4+6,5+7 numa=0-3,4-7`; omitted kinds of groups
have their defaults.
"""
NVLINK_BANDWIDTH = "gpuconsole.io/nvlink-bandwidth"
NETWORK_BANDWIDTH = "gpuconsole.io/network-bandwidth"
"""Annotations: GB/s of a GPU within its NVLink domain, and to GPUs of other nodes."""
NVLINK, PCIE, NETWORK = 600, 32, 25
"""Default GB/s, without an annotation or a value of the GPU model."""
_MOST = 64
_GROUPS = re.compile(r"(nvlink|switch|numa)=([0-9+,-]+)")
_NAMES = ("nvlink", "switch", "numa")

Groups = tuple[int, ...]
"""Number of the group to which each GPU belongs, by GPU index."""


class Wiring(Struct, frozen=True):
    """Interconnect of a node's GPUs: which of them share an NVLink domain, a PCIe switch and a NUMA node."""

    nvlink: Groups
    switch: Groups
    numa: Groups


def wiring_of(gpus: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Wiring | None:
    """Return the interconnect of the GPUs of a node with these labels and annotations.

    None for a single GPU, for more than 64, and for an unknown GPU model without the annotation `WIRING`.
    """
    model = model_of(labels)
    said = annotations.get(WIRING, "")
    if not 1 < gpus <= _MOST or (model is None and not said):
        return None
    return _wired(gpus, Links.ALL if model is None else model.links, model is not None, said[:1000])


def is_readable(text: str) -> bool:
    """True if a text is valid as the annotation `WIRING`."""
    words = text.split()
    found = [_GROUPS.fullmatch(word) for word in words]
    return bool(words) and all(match is not None and _read(match[2], 2) for match in found)


def bandwidth(annotations: Mapping[str, str], name: str, usual: int) -> int:
    """Return the GB/s that the annotation `name` states, or else the default `usual`."""
    text = annotations.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 and int(text) else usual


def nvlink_bandwidth(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    """Return GB/s of a GPU in its NVLink domain, by the node's annotation or its GPU model."""
    model = model_of(labels)
    return bandwidth(annotations, NVLINK_BANDWIDTH, model.nvlink if model is not None and model.nvlink else NVLINK)


@lru_cache(maxsize=1024)
def _wired(gpus: int, links: Links, built: bool, said: str) -> Wiring:
    alone, together = tuple(range(gpus)), (0,) * gpus
    nvlink = {Links.ALL: together, Links.PAIRS: tuple(i // 2 for i in alone), Links.NONE: alone}[links]
    switch = tuple(i // 2 for i in alone) if built else together
    numa = tuple(i * 2 // gpus for i in alone) if built and gpus > 2 else together
    groups = dict(zip(_NAMES, (nvlink, switch, numa), strict=True))
    for name, text in _GROUPS.findall(said):
        groups[name] = _read(text, gpus) or groups[name]
    return Wiring(groups["nvlink"], groups["switch"], groups["numa"])


def _read(text: str, gpus: int) -> Groups:
    """Parse `0-1,2+3` to the group number of each GPU; omitted GPUs are in groups of their own. Empty if invalid."""
    found: dict[int, int] = {}
    for number, part in enumerate(text.split(",")):
        for piece in part.split("+"):
            first, _, last = piece.partition("-")
            if not (first.isdigit() and (last or first).isdigit() and len(piece) < 6):
                return ()
            found.update(dict.fromkeys(range(int(first), int(last or first) + 1), number))
    return tuple(found.get(index, gpus + index) for index in range(gpus))
