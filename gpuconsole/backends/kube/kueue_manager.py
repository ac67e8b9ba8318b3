"""Settings of Kueue's manager from its Deployment: feature gates, Configuration, version."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.errors import Forbidden, Refused
from gpuconsole.model.text import clean

NAMESPACE, NAME, CONFIG_MAP = "kueue-system", "kueue-controller-manager", "kueue-manager-config"
LABELS = "app.kubernetes.io/name=kueue,control-plane=controller-manager"
"""Labels of the Deployment in Kueue's manifests and in its chart."""
NOT_FOUND = 404
FORBIDDEN = f"reading Deployment {NAMESPACE}/{NAME} is forbidden"
NO_DEPLOYMENT = "its Deployment was not found"
_VERSION = re.compile(r":v?(\d+\.\d+)(?:\.\d+)?(?:[-@+]|$)")


class ConfigMapRef(Struct, frozen=True):
    """Reference to a key in a ConfigMap; without a key, to the whole ConfigMap."""

    namespace: str = NAMESPACE
    name: str = CONFIG_MAP
    key: str = ""


class KueueManager(Struct, frozen=True, kw_only=True):
    """Settings in the arguments of Kueue's manager, and its replicas."""

    name: str
    """`namespace/name` of its Deployment."""
    gates: str = ""
    """Value of --feature-gates."""
    config: ConfigMapRef | None = None
    """Where its Configuration is; None without the argument --config."""
    version: str = ""
    """Such as `0.19`, from its image; empty if the image does not have it."""
    wanted: int = 1
    """Replicas of its Deployment."""
    ready: int | None = None
    """Number of ready replicas; None before the status is set."""


class _ConfigMapVolume(Struct, frozen=True):
    name: str = ""


class _Volume(Struct, frozen=True, rename="camel"):
    name: str = ""
    config_map: _ConfigMapVolume | None = None


class _Mount(Struct, frozen=True, rename="camel"):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class _Container(Struct, frozen=True, rename="camel"):
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    volume_mounts: list[_Mount] | None = None


class _Pod(Struct, frozen=True):
    containers: list[_Container] = []
    volumes: list[_Volume] | None = None


class _Template(Struct, frozen=True):
    spec: _Pod = _Pod()


class _Spec(Struct, frozen=True):
    template: _Template = _Template()
    replicas: int = 1


class _DeploymentStatus(Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    """0 before a controller has handled it."""
    ready_replicas: int = 0


class _Meta(Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Deployment(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _DeploymentStatus = _DeploymentStatus()


class _Deployments(Struct, frozen=True):
    items: list[_Deployment] | None


def manager_of(connection: ApiServerConnection, known: str = "") -> tuple[KueueManager | None, str]:
    """Find the Deployment of Kueue's manager in any namespace, or say why it is unknown. Raises ClusterError if the
    server does not answer.

    `known` is the `namespace/name` of its Deployment if it was found before: as long as it exists, nothing is listed.
    """
    try:
        found = (_named(connection, *known.split("/", 1)) if known else ()) or _managers(connection)
    except Forbidden:
        return None, FORBIDDEN
    except Refused as error:
        return None, f"Deployment {NAMESPACE}/{NAME} could not be read: {clean(str(error), 200)}"
    managers = [manager for manager in map(_manager, found) if manager is not None]
    if not managers:
        return None, NO_DEPLOYMENT
    return min(managers, key=lambda manager: (not manager.name.startswith(f"{NAMESPACE}/"), manager.name)), ""


def _managers(connection: ApiServerConnection) -> Sequence[_Deployment]:
    """Find the Deployments by label in all namespaces, or the default one if listing all is forbidden."""
    try:
        return connection.get("/apis/apps/v1/deployments", {"labelSelector": LABELS}).decode(_Deployments).items or ()
    except Forbidden:
        return _named(connection, NAMESPACE, NAME)


def _named(connection: ApiServerConnection, namespace: str, name: str) -> Sequence[_Deployment]:
    """Return the Deployment of this name, if it exists."""
    try:
        path = f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments/{quote(name)}"
        return [connection.get(path).decode(_Deployment)]
    except Refused as error:
        if error.code == NOT_FOUND:
            return ()
        raise


def _manager(deployment: _Deployment) -> KueueManager | None:
    pod = deployment.spec.template.spec
    for container in pod.containers:
        options = dict(_options([*(container.command or ()), *(container.args or ())]))
        version = _VERSION.search(container.image)
        if version is None and not options.keys() & {"config", "feature-gates"}:
            continue
        return KueueManager(
            name=clean(f"{deployment.metadata.namespace}/{deployment.metadata.name}", 200),
            gates=options.get("feature-gates", ""),
            config=_place(options.get("config", ""), container, pod, deployment.metadata.namespace),
            version=version[1] if version is not None else "",
            wanted=deployment.spec.replicas,
            ready=deployment.status.ready_replicas if deployment.status.observed_generation else None,
        )
    return None


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the `--name=value` and `--name value` arguments; the last one of a name counts."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.lstrip("-").partition("=")
        if argument.startswith("-"):
            yield name, value if equals else following


def _place(file: str, container: _Container, pod: _Pod, namespace: str) -> ConfigMapRef | None:
    """Return the ConfigMap that is mounted at the path of the Configuration file."""
    if not file:
        return None
    maps: dict[str, Any] = {one.name: one.config_map.name for one in pod.volumes or () if one.config_map is not None}
    path = PurePosixPath(file)
    for mount in container.volume_mounts or ():
        if mount.name in maps and path.is_relative_to(mount.mount_path):
            return ConfigMapRef(namespace, maps[mount.name], mount.sub_path or path.name)
    return ConfigMapRef(namespace)
