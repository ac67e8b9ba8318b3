"""Selection of the cluster and user: a context of a kubeconfig, or the service account of the pod (in-cluster).

`kubernetes.config` does the work: exec plugins, client certificates, rotating tokens, proxies. It is imported only
here, and only for a live cluster. `PluginProcess` limits the time and output of an exec plugin, so that it cannot block
the console.
"""

import io
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

from gpuconsole.errors import ClusterError, UsageError
from gpuconsole.model.text import clean

LIMIT = 60.0
"""Timeout in seconds for a plugin that has no terminal for a prompt."""
MOST = 2**20
"""Most bytes of a plugin's output."""
_CHUNK = 65_536


class PluginProcess:
    """Replaces `subprocess.Popen` in kubernetes' exec_provider, with the interface that it uses."""

    def __init__(self, arguments: list[str], *, stdin: Any, stderr: Any, universal_newlines: bool, **more: Any) -> None:
        """`stdin` is None without a terminal; output is text whatever `universal_newlines` says."""
        self._alone = stdin is None
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL if self._alone else stdin,
            stderr=stderr,
            start_new_session=self._alone,
            **more,
        )

    def communicate(self) -> tuple[str, str]:
        """Return stdout and stderr. Raises ValueError for too much output, invalid text, or a timeout."""
        process = self._process
        deadline = time.monotonic() + LIMIT if self._alone else None
        pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        said = {pipe.fileno(): bytearray() for pipe in pipes}
        try:
            with selectors.DefaultSelector() as waiting:
                for pipe in pipes:
                    waiting.register(pipe, selectors.EVENT_READ)
                while waiting.get_map():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise ValueError(f"no output within {LIMIT:g} s")
                    for key, _ in waiting.select(left):
                        chunk = os.read(key.fd, _CHUNK)
                        said[key.fd] += chunk
                        if not chunk:
                            waiting.unregister(key.fileobj)
                        elif len(said[key.fd]) > MOST:
                            raise ValueError(f"its output exceeds {MOST // 2**20} MiB")
            answer, complaint = (
                bytes(said[pipe.fileno()]) if pipe else b"" for pipe in (process.stdout, process.stderr)
            )
            return answer.decode(), complaint.decode(errors="replace")
        except BaseException:
            self._kill()
            raise
        finally:
            for pipe in pipes:
                pipe.close()

    def wait(self) -> int:
        """Return the exit status. Raises ValueError on timeout."""
        try:
            return self._process.wait(LIMIT if self._alone else None)
        except subprocess.TimeoutExpired as error:
            self._kill()
            raise ValueError(f"it did not exit within {LIMIT:g} s") from error

    def _kill(self) -> None:
        """Kill the process, and its children if it has its own session."""
        with suppress(ProcessLookupError):
            if self._alone:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()


_UNREADABLE = (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError, OSError, RecursionError)
"""Errors, besides `ConfigException`, from reading a file that is not a kubeconfig."""
CONNECTIONS = 128
"""Most open connections: each watch needs one."""
IN_CLUSTER = "in-cluster"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SERVICE = "KUBERNETES_SERVICE_HOST"
PLUGIN_AGAIN = 5.0
"""Seconds for which a failed exec plugin is not run again, because each request would run it."""
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class PluginError(ClusterError):
    """The exec plugin of a kubeconfig returned no credentials."""


class RequestedCluster(Struct, frozen=True, kw_only=True):
    """The cluster and user that the command line requests; None stands for the kubeconfig's default."""

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty for all, as far as permitted."""
    insecure: bool = False
    """Accept a kubeconfig that disables the verification of the server's certificate."""


class ResolvedCluster(Struct, frozen=True, kw_only=True):
    """A cluster found in the kubeconfig or in-cluster configuration, with a client that has the credentials."""

    context: str
    server: str
    namespace: str
    """Namespace of the context, else `default`."""
    client: Any
    """kubernetes.client.ApiClient"""

    @property
    def name(self) -> str:
        """Name in errors: context and server."""
        return f"context {self.context} ({self.server})"


def find(target: RequestedCluster) -> ResolvedCluster:
    """Resolve the requested cluster, and get its credentials.

    Raises UsageError if the configuration names no cluster, PluginError if its exec plugin fails, or ClusterError if
    the connection would be unsafe.
    """
    if target.kubeconfig is None and target.context is None and _in_cluster():
        return _from_pod()
    return _from_file(target)


def disable_plugin_prompts() -> None:
    """Run exec plugins without a terminal: they would draw over the screens and take key presses."""
    from kubernetes.config import exec_provider

    vars(exec_provider)["sys"] = SimpleNamespace(stdout=io.StringIO(), platform=sys.platform)


def _bound_plugins() -> None:
    """Limit the time and output of exec plugins."""
    from kubernetes.config import exec_provider

    vars(exec_provider)["subprocess"] = SimpleNamespace(Popen=PluginProcess, PIPE=subprocess.PIPE)


def context_names(kubeconfig: str | None) -> tuple[str, ...]:
    """Return the contexts of a kubeconfig, in its order. Raises UsageError."""
    _, config = _modules()
    files = _files(kubeconfig)
    try:
        contexts, _ = _contexts(os.pathsep.join(files)) if files else ([], None)
    except (config.ConfigException, *_UNREADABLE) as error:
        raise UsageError(f"{os.pathsep.join(files)} cannot be used: {clean(str(error))}") from error
    return tuple(clean(str(context.get("name")), 200) for context in contexts)


def _modules() -> tuple[Any, Any]:
    """Import kubernetes.client and kubernetes.config on demand, because it takes a third of a second."""
    from kubernetes import client, config

    return client, config


def _in_cluster() -> bool:
    return _SERVICE in os.environ and not _files(None)


def _files(kubeconfig: str | None) -> list[str]:
    from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

    named = kubeconfig or os.environ.get("KUBECONFIG") or KUBE_CONFIG_DEFAULT_LOCATION
    paths = (os.path.expanduser(path) for path in named.split(os.pathsep) if path)
    return [path for path in paths if os.path.exists(path)]


def _from_pod() -> ResolvedCluster:
    client, config = _modules()
    configuration = client.Configuration()
    try:
        config.load_incluster_config(configuration)
    except config.ConfigException as error:
        problem = f"--live in a pod: {clean(str(error))}; mount a service account token, or use --kubeconfig"
        raise UsageError(problem) from error
    namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
    return _place(IN_CLUSTER, clean(namespace, 63), configuration)


def _from_file(target: RequestedCluster) -> ResolvedCluster:
    client, config = _modules()
    named = target.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not _files(target.kubeconfig):
        raise UsageError(f"--live: no kubeconfig at {named}; set --kubeconfig or KUBECONFIG")
    configuration = client.Configuration()
    path = os.pathsep.join(_files(target.kubeconfig))
    try:
        contexts, current = _contexts(path)
        name = target.context or (current or {}).get("name")
        chosen = next((context for context in contexts if context.get("name") == name), None)
        if chosen is None:
            offered = ", ".join(clean(str(context.get("name")), 100) for context in contexts[:12])
            raise UsageError(f"{path}: no context {clean(str(name), 100)}; choose one of {offered or 'none'}")
        _load(path, str(name), configuration)
    except (config.ConfigException, *_UNREADABLE) as error:
        raise UsageError(f"--live: {path} cannot be used: {clean(str(error))}") from error
    if not configuration.verify_ssl and not target.insecure:
        raise ClusterError(
            f"context {name}: its cluster has insecure-skip-tls-verify, so its identity is not verified;"
            " set certificate-authority, or accept it with --insecure-skip-tls-verify"
        )
    return _place(clean(str(name), 200), clean(str(chosen["context"].get("namespace") or "default"), 63), configuration)


def _load(path: str, context: str, configuration: Any) -> None:
    """Load a kubeconfig as `kubernetes.config.load_kube_config` does, but raise if an exec plugin fails.

    Raises PluginError, and the library's errors for a file that is not a kubeconfig.
    """
    library = _untyped()
    merged = library.KubeConfigMerger(path).config
    loader = library.KubeConfigLoader(config_dict=merged, active_context=context, config_base_path=None)
    loader._load_from_exec_plugin = _Plugin(loader, context)
    loader.load_and_set(configuration)


def _untyped() -> Any:
    """kubernetes.config.kube_config, which has no types."""
    from kubernetes.config import kube_config

    return kube_config


class _Plugin:
    """Runs the exec plugin of a context, one thread at a time. Mutable: remembers its last failure.

    Replaces `KubeConfigLoader._load_from_exec_plugin` of kubernetes 37, which logs a failure and returns None.
    """

    def __init__(self, loader: Any, context: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._loader = loader
        self._context = context
        self._clock = clock
        self._lock = threading.Lock()
        self._failure: PluginError | None = None
        self._failed_at = 0.0

    def __call__(self) -> bool | None:
        """Load the plugin's credentials; None if the user has no plugin. Raises PluginError."""
        if "exec" not in self._loader._user:
            return None
        with self._lock:
            if self._failure is not None and self._clock() - self._failed_at < PLUGIN_AGAIN:
                raise self._failure
            self._failure = None
            try:
                self._take(self._run())
            except Exception as error:
                self._failure, self._failed_at = self._error(error), self._clock()
                raise self._failure from error
        return True

    def _run(self) -> Any:
        _bound_plugins()
        base = self._loader._get_base_path(self._loader._cluster.path)
        return _untyped().ExecProvider(self._loader._user["exec"], base, self._loader._cluster).run()

    def _take(self, status: Any) -> None:
        """Read Kubernetes' ExecCredentialStatus. Raises ValueError if it has no credentials."""
        library = _untyped()
        if isinstance(status, dict) and status.get("token"):
            self._loader.token = f"Bearer {status['token']}"
        elif isinstance(status, dict) and status.get("clientCertificateData") and status.get("clientKeyData"):
            for name, key in (("cert_file", "clientCertificateData"), ("key_file", "clientKeyData")):
                made = library.FileOrData(status, None, data_key_name=key, file_base_path="", base64_file_content=False)
                setattr(self._loader, name, made.as_file())
        else:
            raise ValueError("its output has neither a token nor a client certificate with its key")
        if status.get("expirationTimestamp"):
            self._loader.expiry = library.parse_rfc3339(status["expirationTimestamp"])

    def _error(self, error: Exception) -> PluginError:
        settings = self._loader._user["exec"].value
        command = clean(str(settings.get("command") or "without a command"), 200)
        if isinstance(error, FileNotFoundError | PermissionError):
            why, help = f"it cannot be run: {error.strerror}", settings.get("installHint") or "install it"
        else:
            why, help = str(error).removeprefix("exec: "), "run it manually, or log in again"
        said = f"{why}; {help}"
        return PluginError(f"context {self._context}: the exec plugin {command} failed: {clean(said, 1000)}")


def _contexts(path: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return all contexts, and the current one if there is one."""
    _, config = _modules()
    try:
        contexts, current = config.list_kube_config_contexts(path)
    except config.ConfigException:
        # Without a current context, the others can still be listed.
        found = config.kube_config.KubeConfigMerger(path).config
        return [context.value for context in (found.safe_get("contexts") if found is not None else None) or ()], None
    return contexts, current


def _place(context: str, namespace: str, configuration: Any) -> ResolvedCluster:
    from kubernetes.utils.keepalive import tcp_keepalive_socket_options

    server = urlsplit(configuration.host)
    if server.scheme != "https" and server.hostname not in _LOOPBACK and configuration.api_key:
        raise ClusterError(
            f"context {context}: {configuration.host} is not https; the token would be sent in clear text"
        )
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.retries = False
    configuration.socket_options = tcp_keepalive_socket_options()
    api = _modules()[0].ApiClient(configuration)
    return ResolvedCluster(context=context, server=clean(configuration.host, 300), namespace=namespace, client=api)
