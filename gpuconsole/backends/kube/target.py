"""Which cluster, as whom: a context of a kubeconfig, or the service account of the pod that this runs in.

`kubernetes.config` does the work: exec plugins, client certificates, tokens that rotate, proxies. It is imported here
only, and only when a live cluster is asked for.
"""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

from gpuconsole.errors import ClusterError, UsageError
from gpuconsole.model.text import clean

_UNREADABLE = (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, OSError)
"""What reading a file that is no kubeconfig comes to, beside `ConfigException`."""
CONNECTIONS = 128
"""Connections that are kept open: each watch holds one."""
IN_CLUSTER = "in-cluster"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SERVICE = "KUBERNETES_SERVICE_HOST"
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Target(Struct, frozen=True, kw_only=True):
    """The cluster that is asked for. None = what the kubeconfig says."""

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    """Where to look; none = everywhere, as far as that is allowed."""
    insecure: bool = False
    """Do not check the server's certificate, where the kubeconfig says so too: it was asked for by name."""


class Place(Struct, frozen=True, kw_only=True):
    """A cluster that was found in the configuration."""

    context: str
    server: str
    namespace: str
    """The one that the context names, else `default`."""
    client: Any
    """kubernetes.client.ApiClient"""

    @property
    def name(self) -> str:
        """For errors: context and server."""
        return f"context {self.context} ({self.server})"


def find(target: Target) -> Place:
    """Read the configuration. Raises UsageError where it does not name a cluster, ClusterError where it is unsafe."""
    if target.kubeconfig is None and target.context is None and _in_cluster():
        return _from_pod()
    return _from_file(target)


def ask_nobody() -> None:
    """From now on exec plugins get no terminal: they would draw over the screens, and take the keys."""
    from kubernetes.config import exec_provider

    vars(exec_provider)["sys"] = SimpleNamespace(stdout=io.StringIO(), platform=sys.platform)


def context_names(kubeconfig: str | None) -> tuple[str, ...]:
    """The contexts of a kubeconfig, in its order. Raises UsageError."""
    _, config = _modules()
    files = _files(kubeconfig)
    try:
        contexts, _ = _contexts(os.pathsep.join(files)) if files else ([], None)
    except (config.ConfigException, *_UNREADABLE) as error:
        raise UsageError(f"{os.pathsep.join(files)} cannot be used: {clean(str(error))}") from error
    return tuple(clean(str(context.get("name")), 200) for context in contexts)


def _modules() -> tuple[Any, Any]:
    """kubernetes.client and kubernetes.config: a third of a second, for who wants a live cluster only."""
    from kubernetes import client, config

    return client, config


def _in_cluster() -> bool:
    return _SERVICE in os.environ and not _files(None)


def _files(kubeconfig: str | None) -> list[str]:
    from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

    named = kubeconfig or os.environ.get("KUBECONFIG") or KUBE_CONFIG_DEFAULT_LOCATION
    paths = (os.path.expanduser(path) for path in named.split(os.pathsep) if path)
    return [path for path in paths if os.path.exists(path)]


def _from_pod() -> Place:
    client, config = _modules()
    configuration = client.Configuration()
    try:
        config.load_incluster_config(configuration)
    except config.ConfigException as error:
        problem = f"--live in a pod: {clean(str(error))}; mount a service account, or give --kubeconfig"
        raise UsageError(problem) from error
    namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
    return _place(IN_CLUSTER, clean(namespace, 63), configuration)


def _from_file(target: Target) -> Place:
    client, config = _modules()
    named = target.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not _files(target.kubeconfig):
        raise UsageError(f"--live: there is no kubeconfig {named}; name one with --kubeconfig or in KUBECONFIG")
    configuration = client.Configuration()
    path = os.pathsep.join(_files(target.kubeconfig))
    try:
        contexts, current = _contexts(path)
        name = target.context or (current or {}).get("name")
        chosen = next((context for context in contexts if context.get("name") == name), None)
        if chosen is None:
            offered = ", ".join(clean(str(context.get("name")), 100) for context in contexts[:12])
            raise UsageError(f"{path}: there is no context {clean(str(name), 100)}; there are {offered or 'none'}")
        config.load_kube_config(path, name, configuration, persist_config=False)
    except (config.ConfigException, *_UNREADABLE) as error:
        raise UsageError(f"--live: {path} cannot be used: {clean(str(error))}") from error
    if not configuration.verify_ssl and not target.insecure:
        raise ClusterError(
            f"context {name}: its cluster has insecure-skip-tls-verify, so anybody could pose as it; give its"
            " certificate-authority, or name --insecure-skip-tls-verify to accept that"
        )
    return _place(clean(str(name), 200), clean(str(chosen["context"].get("namespace") or "default"), 63), configuration)


def _contexts(path: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """All contexts, and the current one where there is one."""
    _, config = _modules()
    try:
        contexts, current = config.list_kube_config_contexts(path)
    except config.ConfigException:
        # Without a current context the others are there all the same.
        found = config.kube_config.KubeConfigMerger(path).config
        return [context.value for context in (found.safe_get("contexts") if found is not None else None) or ()], None
    return contexts, current


def _place(context: str, namespace: str, configuration: Any) -> Place:
    from kubernetes.utils.keepalive import tcp_keepalive_socket_options

    server = urlsplit(configuration.host)
    if server.scheme != "https" and server.hostname not in _LOOPBACK and configuration.api_key:
        raise ClusterError(f"context {context}: {configuration.host} is not https, so everybody would see the token")
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.retries = False
    configuration.socket_options = tcp_keepalive_socket_options()
    api = _modules()[0].ApiClient(configuration)
    return Place(context=context, server=clean(configuration.host, 300), namespace=namespace, client=api)
