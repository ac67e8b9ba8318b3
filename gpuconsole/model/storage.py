"""Storage for pods: PersistentVolumes, claims, StorageClasses, and volume limits of nodes."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS, LabelSelector, NodeTerm, Requirement

AVAILABLE = "Available"
BOUND = "Bound"
RELEASED = "Released"
"""Phase of a volume whose claim was deleted: an administrator must handle it before it can be bound again."""
LOST = "Lost"
FILESYSTEM = "Filesystem"
ONE_POD = "ReadWriteOncePod"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of classes whose volumes an administrator creates."""


class PersistentVolume(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A volume, bound to at most one claim at a time."""

    name: str
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    storage: int = 0
    """In bytes."""
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    mode: str = FILESYSTEM
    node_affinity: tuple[NodeTerm, ...] | None = None
    """Nodes that can use it: any of the terms; None for all nodes."""
    claim: str = ""
    """`namespace/name` of the claim to which it is bound, or for which it is reserved."""
    phase: str = AVAILABLE
    disposable: bool = False
    """True if the volume is deleted with its claim (reclaim policy Delete)."""
    driver: str = ""
    """CSI driver that attaches it."""
    handle: str = ""
    """ID of the volume in its CSI driver."""
    deleted: Time = 0

    @property
    def key(self) -> str:
        return self.name


class PersistentVolumeClaim(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A claim for storage; pods that name it share it."""

    namespace: str = "default"
    name: str
    uid: str = ""
    created: Time = 0
    storage_class: str | None = None
    """Empty for no class; None for the default class."""
    storage: int = 0
    """Requested bytes."""
    access_modes: tuple[str, ...] = ()
    mode: str = FILESYSTEM
    selector: LabelSelector | None = None
    """Selects volumes; None selects any."""
    volume: str = ""
    """Volume to which it is bound, or the only one to which it may be bound."""
    bound: bool = False
    """True if the claim and its volume refer to each other."""
    phase: str = ""
    pod: str = ""
    """Pod for which it was created, and with which it is deleted."""
    job: str = ""
    """Job for which it was created, and with which it is deleted, `Kind/namespace/name`."""
    selected_node: str = ""
    """Node of the pod for which a volume is being provisioned."""
    deleted: Time = 0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class StorageClass(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Class of storage: its provisioner and volume binding mode."""

    name: str
    created: Time = 0
    provisioner: str = ""
    waits: bool = False
    """True binds a claim once a pod that uses it has a node (WaitForFirstConsumer), False immediately (Immediate)."""
    topologies: tuple[tuple[Requirement, ...], ...] = ()
    """Label requirements of nodes for which volumes may be provisioned, one of which must match (allowedTopologies);
    empty for all nodes.
    """
    default: bool = False
    keeps: bool = False
    """Its volumes are kept when their claims are deleted (reclaimPolicy Retain)."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def provisions(self) -> bool:
        """True if volumes are provisioned dynamically."""
        return self.provisioner not in ("", NO_PROVISIONER)


class CSINode(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Volume limits of a node by CSI driver; a driver without a limit is unlimited."""

    name: str
    limits: Mapping[str, int] = {}

    @property
    def key(self) -> str:
        return self.name
