"""MultiKueue's objects on the manager: worker clusters, and the lists of them in configurations of admission checks."""

from msgspec import Struct


class MultiKueueCluster(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A worker cluster, as the manager knows it."""

    name: str
    location: str = ""
    """Name of the Secret, or path, of its kubeconfig."""
    active: bool = True

    @property
    def key(self) -> str:
        return self.name


class MultiKueueConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Worker clusters of an admission check, in the order in which workloads are dispatched to them."""

    name: str
    clusters: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name
