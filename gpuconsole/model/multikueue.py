"""MultiKueue's objects on the manager: which worker clusters there are, and which of them a check offers work to."""

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
    """The worker clusters of an admission check, in the order in which they are offered work."""

    name: str
    clusters: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name
