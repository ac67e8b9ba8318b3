"""GPU sharing by time-slicing and MPS, as in NVIDIA's device plugin: each device is offered as several replicas.

A node's sharing is read from the labels of GPU feature discovery. Time-slicing isolates neither memory nor faults; MPS
limits each client's memory and threads.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.resources import GPU, Resources

STRATEGY = "nvidia.com/gpu.sharing-strategy"
FAIL = "gpuconsole.io/fail-requests-greater-than-one"
"""Annotation: pods that request more than one replica of a shared device are refused (failRequestsGreaterThanOne)."""
UNEXPECTED = "UnexpectedAdmissionError"
"""Reason of a pod that the kubelet rejects after it was bound."""


class SharingKind(StrEnum):
    """Way in which pods share a GPU."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"


class SharedResource(Struct, frozen=True, kw_only=True):
    """Resource whose devices are shared, and into how many replicas each is divided."""

    name: str
    replicas: int
    """Number of replicas per device."""
    rename: str = ""
    """Name under which it is offered; empty for the default."""


class Sharing(Struct, frozen=True, kw_only=True):
    """`sharing.timeSlicing` or `sharing.mps` of the device plugin's configuration."""

    kind: SharingKind
    resources: tuple[SharedResource, ...]
    rename_by_default: bool = False
    """Shared resources get the suffix `.shared`."""
    fail_requests_greater_than_one: bool = False
    """Pods that request more than one replica are refused; always so with MPS."""

    def offered_as(self, resource: SharedResource) -> str:
        """Return the name under which a shared resource is offered."""
        return resource.rename or (f"{resource.name}.shared" if self.rename_by_default else resource.name)

    @property
    def strict(self) -> bool:
        """True if a pod may request at most one replica."""
        return self.fail_requests_greater_than_one or self.kind is SharingKind.MPS


class Client(Struct, frozen=True):
    """Limits of one MPS client of a GPU."""

    memory: int
    """MiB, pinned."""
    threads: int
    """Percentage of the threads that may be active."""


def shared(capacity: Resources, sharing: Sharing) -> dict[str, int]:
    """Return a node's capacity with each shared device multiplied by its replicas."""
    found = dict(capacity)
    for resource in sharing.resources:
        count = found.pop(resource.name, 0)
        if count:
            found[sharing.offered_as(resource)] = count * resource.replicas
    return found


def labelled(labels: Mapping[str, str], capacity: Resources, sharing: Sharing) -> dict[str, str]:
    """Return a node's labels with those of this sharing: replicas, strategy, `-SHARED` product unless renamed."""
    found = dict(labels)
    for resource in sharing.resources:
        if capacity.get(resource.name, 0):
            found[f"{resource.name}.replicas"] = str(resource.replicas)
            found[f"{resource.name}.sharing-strategy"] = sharing.kind.value
            product = found.get(f"{resource.name}.product")
            if product and sharing.offered_as(resource) == resource.name:
                found[f"{resource.name}.product"] = f"{product}-SHARED"
    return found | ({"nvidia.com/mps.capable": "true"} if sharing.kind is SharingKind.MPS else {})


def replicas(labels: Mapping[str, str], resource: str = GPU) -> int:
    """Number of replicas per device of a resource on a node with these labels; 1 if not shared."""
    text = labels.get(f"{resource.removesuffix('.shared')}.replicas", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 6 else 1


def device(index: int, offered: int, labels: Mapping[str, str]) -> int:
    """Return the index of the GPU behind replica `index`; the `offered` replicas are spread over all GPUs in turn."""
    return index % max(1, offered // replicas(labels))


def client(labels: Mapping[str, str]) -> Client | None:
    """Return a pod's limits on a GPU shared by MPS; None if it has none."""
    memory = labels.get("nvidia.com/gpu.memory", "")
    if labels.get(STRATEGY) != SharingKind.MPS or not (memory.isascii() and memory.isdigit() and len(memory) < 12):
        return None
    among = replicas(labels)
    return Client(int(memory) // among, 100 // among)


def may_refuse(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """True if the node refuses pods that request more than one replica of a shared GPU."""
    return annotations.get(FAIL) == "true" or labels.get(STRATEGY) == SharingKind.MPS


def refusal(requests: Resources, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the kubelet's message for a pod that requests several shared devices; empty if it is accepted.

    Such a pod is bound already, and is not scheduled again (k8s-device-plugin, Allocate).
    """
    for name, count in requests.items():
        plain = name.removesuffix(".shared")
        strict = labels.get(f"{plain}.sharing-strategy") == SharingKind.MPS or annotations.get(FAIL) == "true"
        if count > 1 and strict and replicas(labels, plain) > 1:
            return (
                f"Allocate failed due to rpc error: code = Unknown desc = request for '{name}: {count}' too large: "
                "maximum request size for shared resources is 1, which is unexpected"
            )
    return ""
