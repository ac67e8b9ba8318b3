"""Interconnect of a node's GPUs: NVLink domains, PCIe switches, NUMA nodes.

It comes from an annotation, or is that of typical machines with this GPU model: two GPUs per switch, half of them on
each of two NUMA nodes. For an unknown model, the groups that the annotation omits contain all GPUs.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from gpuconsole.model.gpus.models import Links, model_of

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
"""Group number of each GPU."""


class Wiring(Struct, frozen=True):
    """Groups of a node's GPUs, from the closest to the most distant connection."""

    nvlink: Groups
    switch: Groups
    numa: Groups


def wiring_of(gpus: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Wiring | None:
    """Return the interconnect of `gpus` GPUs on a node with these labels; None if unknown."""
    model = model_of(labels)
    said = annotations.get(WIRING, "")
    if not 1 < gpus <= _MOST or (model is None and not said):
        return None
    return _wired(gpus, Links.ALL if model is None else model.links, model is not None, said[:1000])


def is_readable(text: str) -> bool:
    """True if the annotation is valid."""
    words = text.split()
    found = [_GROUPS.fullmatch(word) for word in words]
    return bool(words) and all(match is not None and _read(match[2], 2) for match in found)


def bandwidth(annotations: Mapping[str, str], name: str, usual: int) -> int:
    """Return GB/s by an annotation, or the default `usual`."""
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
