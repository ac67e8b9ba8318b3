"""The MultiKueue settings of a Configuration."""

from msgspec import Struct

from gpuconsole.scheduling.kueue.configuration.durations import Duration

ALL_AT_ONCE = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental"


class ExternalFramework(Struct, frozen=True, kw_only=True):
    """One entry of multiKueue.externalFrameworks."""

    name: str = ""


class EnvironmentVariable(Struct, frozen=True, kw_only=True):
    """An environment variable of the credentials command."""

    name: str = ""
    value: str = ""


class ExecConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """The command that returns credentials for a cluster (client-go ExecConfig)."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AccessProvider(Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of multiKueue.clusterProfile.accessProviders."""

    name: str = ""
    exec_config: ExecConfig = ExecConfig()


class ClusterProfile(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of multiKueue.clusterProfile."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()
    """The older name of `access_providers`."""


class IncrementalDispatcher(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of multiKueue.incrementalDispatcherConfig."""

    step_size: int | None = None


class MultiKueueForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of multiKueue."""

    gc_interval: Duration | None = None
    origin: str | None = None
    worker_lost_timeout: Duration | None = None
    dispatcher_name: str | None = None
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None
    incremental_dispatcher_config: IncrementalDispatcher | None = None
