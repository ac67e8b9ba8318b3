"""Storage for pods: PersistentVolumes, claims, StorageClasses, and volume limits of nodes."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.labels import NO_LABELS, LabelSelector, NodeTerm, Requirement

AVAILABLE = "Available"
BOUND = "Bound"
RELEASED = "Released"
"""Of a volume: its claim is gone, and an administrator has to see to it before it is given away again."""
LOST = "Lost"
FILESYSTEM = "Filesystem"
ONE_POD = "ReadWriteOncePod"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of classes whose volumes an administrator makes."""


class PersistentVolume(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A volume, bound to at most one claim at a time."""

    name: str
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    storage: int = 0
    """Bytes."""
    storage_class: str = ""
    access_modes: tuple[str, ...] = ()
    mode: str = FILESYSTEM
    node_affinity: tuple[NodeTerm, ...] | None = None
    """Nodes that reach it: any of the terms; None is all."""
    claim: str = ""
    """`namespace/name` of the claim that it is bound to, or kept for."""
    phase: str = AVAILABLE
    disposable: bool = False
    """It goes when its claim goes (reclaim policy Delete)."""
    driver: str = ""
    """The CSI driver that attaches it."""
    handle: str = ""
    """How that driver knows it."""
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
    """Empty is no class; None takes the default one."""
    storage: int = 0
    """Bytes that it asks for."""
    access_modes: tuple[str, ...] = ()
    mode: str = FILESYSTEM
    selector: LabelSelector | None = None
    """Which volumes; None is any."""
    volume: str = ""
    """The volume that it has, or wants and no other."""
    bound: bool = False
    """Claim and volume know each other."""
    phase: str = ""
    pod: str = ""
    """The pod that it was made for and goes with."""
    job: str = ""
    """The job that it was made for and goes with, `Kind/namespace/name`."""
    selected_node: str = ""
    """The node of the pod for which a volume is being made."""
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
    """True binds a claim once a pod that uses it has a node (WaitForFirstConsumer), False at once (Immediate)."""
    topologies: tuple[tuple[Requirement, ...], ...] = ()
    """Where volumes may be made (allowedTopologies): nodes to whose labels one of these applies; none is anywhere."""
    default: bool = False
    keeps: bool = False
    """Its volumes stay when their claims go (reclaimPolicy Retain)."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def provisions(self) -> bool:
        """True if volumes are provisioned dynamically."""
        return self.provisioner not in ("", NO_PROVISIONER)


class CSINode(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Volume limits of a node per CSI driver; a driver without a limit is unlimited."""

    name: str
    limits: Mapping[str, int] = {}

    @property
    def key(self) -> str:
        return self.name
