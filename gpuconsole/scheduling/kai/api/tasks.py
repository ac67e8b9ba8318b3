"""A pod in a session (KAI 0.13 api/pod_info)."""

from collections.abc import Hashable, Mapping
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.labels import NodeTerm, Toleration
from gpuconsole.scheduling.kai.api.claims import OfferedDevice
from gpuconsole.scheduling.kai.api.requests import ResourceRequirements
from gpuconsole.scheduling.kai.api.statuses import KaiPodStatus

DEFAULT_POD_SET = "default"
NO_OWNERS = Pod(name="")


class Sort(StrEnum):
    """How a task requests GPUs."""

    REGULAR = "Regular"
    FRACTION = "Fraction"
    MEMORY = "GpuMemory"
    MIG = "MigInstance"


class ClaimRef(Struct, frozen=True):
    """A resource claim that the pod names; `claim` is the object's name, empty while it does not exist."""

    name: str
    claim: str
    template: bool = False


class Spec(Struct, frozen=True, kw_only=True):
    """The immutable part of a pod."""

    pod: Pod = NO_OWNERS
    """The Pod object, for kube-scheduler's filters that KAI runs: pod affinity, volumes, host ports."""
    labels: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    affinity: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    claims: tuple[ClaimRef, ...] = ()
    nominated: str = ""
    scheduler: str = "kai-scheduler"
    priority_class: str = ""
    priority: int | None = None
    created: Time = 0


NOTHING = ResourceRequirements()
PLAIN = Spec()


class PodInfo:
    """One pod: its requests, its node, and its allocation. Mutates."""

    def __init__(
        self,
        uid: str,
        *,
        job: str = "",
        name: str = "",
        namespace: str = "",
        pod_set: str = "",
        request: ResourceRequirements = NOTHING,
        sort: Sort = Sort.REGULAR,
        status: KaiPodStatus = KaiPodStatus.PENDING,
        node: str = "",
        groups: tuple[str, ...] = (),
        legacy_mig: bool = False,
        spec: Spec = PLAIN,
    ) -> None:
        self.uid, self.job, self.name, self.namespace = uid, job, name or uid, namespace
        self.pod_set = pod_set
        """Empty: the default pod set."""
        self.request, self.sort, self.status, self.node, self.spec = request, sort, status, node, spec
        self.accepted = NOTHING
        """The request that its node accounts for it."""
        self.received: Sort | None = None
        self.groups = groups
        """Sharing groups (GPUs) that it uses, by name."""
        self.legacy_mig = legacy_mig
        self.virtual = False
        """True while its status comes from a statement that is not committed."""
        self.devices: Mapping[str, tuple[OfferedDevice, ...]] = {}
        """Devices of its claims: reference name → devices."""

    def clone(self) -> "PodInfo":
        """A copy."""
        twin = PodInfo.__new__(PodInfo)
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def set_name(self) -> str:
        return self.pod_set or DEFAULT_POD_SET

    @cached_property
    def shape(self) -> Hashable:
        """Equal for tasks that fit the same nodes, as far as the nodes' own resources and labels decide."""
        request, spec = self.request, self.spec
        return (
            *(request.cpu, request.memory, request.count, request.portion, request.gpu_memory),
            *(_items(request.scalars), _items(request.claims), _items(request.mig)),
            *(self.sort, self.legacy_mig, spec.nominated, _items(spec.node_selector), spec.affinity, spec.tolerations),
        )

    @property
    def choosy(self) -> bool:
        """True if it selects nodes by name or label."""
        return bool(self.spec.nominated or self.spec.node_selector) or self.spec.affinity is not None

    @property
    def shares(self) -> bool:
        """True if it requests a portion of a GPU."""
        return self.sort in (Sort.FRACTION, Sort.MEMORY)

    @property
    def needs_gpu(self) -> bool:
        return self.request.gpus > 0 or self.request.claimed > 0 or self.sort is Sort.MEMORY or self.sort is Sort.MIG

    def to_allocate(self, really: bool) -> bool:
        """True if the task has to be placed: it is pending or, without `really`, evicted by a trial."""
        return self.status is KaiPodStatus.PENDING or (
            not really and self.status is KaiPodStatus.RELEASING and self.virtual
        )


def _items(of: Mapping[str, int] | Mapping[str, str]) -> tuple[tuple[str, int | str], ...]:
    return tuple(sorted(of.items()))
