"""Kueue on a live cluster, as far as RBAC allows reading it: its settings, its health, and its visibility API.

`policy_of` returns the scheduler settings for simulations: Kueue's feature gates, Configuration and version come from
the Deployment of its manager (`manager_of`) and its ConfigMap. `KueueHealth` polls the Deployment and the metrics.
`VisibilityClient` requests the pending workloads of the selected queue, in order.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.errors import Forbidden, Refused, Unreadable
from gpuconsole.backends.kube.writes import CLUSTER_QUEUE
from gpuconsole.backends.telemetry.kueue_metrics import KueueMetrics
from gpuconsole.errors import ClusterError
from gpuconsole.insight.health.engines import NONE, Engine, EnginesInForce, KueueProblem
from gpuconsole.insight.index.queues import QueuePosition, VisibilityPositions
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.manifests.kinds import KUEUE
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.config import gate_refusals as gate_refusals
from gpuconsole.scheduling.kueue.config import parse_gates as parse_gates
from gpuconsole.scheduling.kueue.config import resolve_gates as resolve_gates
from gpuconsole.scheduling.kueue.configuration.loading import load_text
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim import run_times
from gpuconsole.sim.policy import SimPolicy

NAMESPACE, NAME, CONFIG_MAP = "kueue-system", "kueue-controller-manager", "kueue-manager-config"
"""Default names of Kueue's namespace, Deployment and ConfigMap."""
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
    """Find the Deployment of Kueue's manager in any namespace, or say why it is unknown.

    `known` is the `namespace/name` of its Deployment if it was found before: as long as it exists, nothing is listed.
    Raises ClusterError if the server does not answer.
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


LOG = logging.getLogger(__name__)
_PLACING = (
    ("scheduling.volcano.sh", Engine("Volcano", "Volcano")),
    ("scheduling.run.ai", Engine("KAI", "KAI")),
)
"""API group → scheduler that installs it."""
VOLCANO_QUEUE = ("scheduling.volcano.sh", "Queue")
VOLCANO_ASSUMED = "Volcano's configuration is assumed to be what its Helm chart installs"
ENGINE = "0.19"
"""Version of Kueue whose rules the simulated Kueue implements."""


class _ConfigMap(Struct, frozen=True):
    data: dict[str, str] | None = None


def policy_of(
    connection: ApiServerConnection, served: Sequence[Served], given: KueueConfig | None = None
) -> tuple[SimPolicy, tuple[str, ...]]:
    """Return the settings for a simulation of this cluster, and the assumptions made, as sentences.

    Kueue's Configuration is `given`, else the cluster's own, else Kueue's defaults. If Volcano's queues are served,
    Volcano places the pods that name it.
    """
    policy, assumed = _admitting(connection, served, given)
    if not any(kind.source == VOLCANO_QUEUE for kind in served):
        return policy, assumed
    return replace(policy, second_scheduler=VolcanoPolicy(scheduler="volcano")), (*assumed, VOLCANO_ASSUMED)


def _admitting(
    connection: ApiServerConnection, served: Sequence[Served], given: KueueConfig | None
) -> tuple[SimPolicy, tuple[str, ...]]:
    """Return the settings with the cluster's Kueue, if it is installed."""
    if not any(kind.source == CLUSTER_QUEUE for kind in served):
        return SimPolicy(kueue=None, latencies=run_times.DEFAULT_LATENCIES), ()
    if given is not None:
        return SimPolicy(kueue=given, latencies=run_times.DEFAULT_LATENCIES), ()
    config, troubles = _kueue(connection)
    policy = SimPolicy(latencies=run_times.DEFAULT_LATENCIES)
    return (policy if config is None else replace(policy, kueue=config)), troubles


def engines_of(served: Sequence[Served]) -> EnginesInForce:
    """Return the schedulers in force by the served API kinds: an installed one is assumed to be in use."""
    groups = {kind.group for kind in served}
    placing = [Engine("kube-scheduler", "kube"), *(engine for group, engine in _PLACING if group in groups)]
    return EnginesInForce(
        admission=Engine("Kueue", "Kueue") if KUEUE in groups else NONE,
        placement=Engine(" + ".join(one.name for one in placing), "+".join(one.short for one in placing)),
        capacity=Engine("Karpenter", "Karp") if "karpenter.sh" in groups else NONE,
    )


def _kueue(connection: ApiServerConnection) -> tuple[KueueConfig | None, tuple[str, ...]]:
    """Return Kueue's Configuration from its manager, or the assumptions where it cannot be read or used."""
    try:
        manager, unknown = manager_of(connection)
    except ClusterError as error:
        LOG.info("Kueue's Deployment cannot be read: %s", error)
        manager, unknown = None, "its Deployment could not be read"
    if manager is None:
        config, trouble = _configuration(connection, ConfigMapRef())
        known = "its Configuration" if config is not None else "the defaults"
        gates = f"Kueue's feature gates are assumed from {known}: {unknown}"
        return config, tuple(filter(None, (trouble, gates)))
    config, trouble = (KueueConfig(), "") if manager.config is None else _configuration(connection, manager.config)
    gated, problem = _gated(config, manager)
    return gated, tuple(filter(None, (trouble, problem, _other_version(manager))))


def _configuration(connection: ApiServerConnection, place: ConfigMapRef) -> tuple[KueueConfig | None, str]:
    """Return the Configuration in a ConfigMap, or why defaults are assumed."""
    where = clean(f"ConfigMap {place.namespace}/{place.name}", 200)
    path = f"/api/v1/namespaces/{quote(place.namespace)}/configmaps/{quote(place.name)}"
    try:
        answer = connection.get(path)
        data = answer.decode(_ConfigMap).data or {}
        text = data.get(place.key) if place.key else answer.body.decode()
    except Unreadable:
        return None, _assumed(f"{where} cannot be parsed")
    except ClusterError as error:
        LOG.info("Kueue's Configuration cannot be read: %s", error)
        why = "not found" if isinstance(error, Refused) and error.code == NOT_FOUND else "is forbidden"
        return None, _assumed(f"{where} {why if isinstance(error, Refused) else 'could not be read'}")
    if text is None:
        return None, _assumed(f"{where} has no {clean(place.key, 100)}")
    loaded = load_text(text, place.name)
    for finding in loaded.findings:
        LOG.info("Kueue's Configuration: %s: %s", finding.path, finding.problem)
    return loaded.config, "" if loaded.config is not None else _assumed(
        f"{where} has errors: {_first(loaded.findings)}"
    )


def _first(findings: Sequence[Finding]) -> str:
    """Return the first error with its position, and the number of further errors."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    first = errors[0]
    at = f"line {first.line}, {first.path}" if first.path else f"line {first.line}"
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return clean(f"{at}: {first.problem}", 200) + more


def _gated(config: KueueConfig | None, manager: KueueManager) -> tuple[KueueConfig | None, str]:
    """Return the Configuration with the feature gates of the manager's arguments, and what is assumed or ignored.

    Gates that are unknown or locked are left out.
    """
    if not manager.gates:
        return config, ""
    known = config or KueueConfig()
    try:
        named = parse_gates(manager.gates)
    except ValueError as error:
        return config, f"Kueue's feature gates are assumed: --feature-gates of {manager.name}: {clean(str(error), 200)}"
    refused = dict(gate_refusals(named))
    chosen = {name: on for name, on in named.items() if name not in refused}
    said = f"ignored feature gates of {manager.name}: {', '.join(refused.values())}" if refused else ""
    return replace(known, gates={**known.gates, **resolve_gates(chosen)}), clean(said, 400)


def _other_version(manager: KueueManager) -> str:
    other = manager.version not in ("", ENGINE)
    return (
        f"the cluster runs Kueue {manager.version} ({manager.name}); the simulator implements {ENGINE}" if other else ""
    )


def _assumed(why: str) -> str:
    return f"Kueue's Configuration is assumed to be the default: {why}; give it with --kueue-config FILE"


INTERVAL = 30.0
"""Seconds between two checks of Kueue's health: two requests a minute."""
SOON = 7.0
"""Seconds between two checks while there is a problem, so that its end is noticed within 10 s."""
AGAIN = 10
"""Number of checks that skip a Deployment which was never found or is forbidden."""
NO_METRICS = "Kueue's metrics are missing"


class KueueHealth:
    """Looks for problems of Kueue in its Deployment and metrics; `problems` has the last result.

    `look` is called by one thread, `problems` may be read by any.
    """

    def __init__(self, connection: ApiServerConnection, metrics: KueueMetrics | None, queue: Callable[[], str]) -> None:
        """`queue` names a ClusterQueue that Kueue's metrics must include; empty if there is none."""
        self._connection, self._metrics, self._queue = connection, metrics, queue
        self._known: KueueManager | None = None
        """The manager that was found last; one that was never found is not reported as deleted."""
        self._measured = ""
        """ClusterQueue whose metrics were found."""
        self._left_out = 0
        """Number of further checks that skip the Deployment."""
        self._stopped = threading.Event()
        self.problems: tuple[KueueProblem, ...] = ()

    def watch(self) -> None:
        """Check Kueue's health periodically until `stop`."""
        while not self._stopped.is_set():
            try:
                self.look()
            except Exception:
                LOG.exception("Kueue's health could not be read")
            self._stopped.wait(SOON if self.problems else INTERVAL)

    def stop(self) -> None:
        """Stop; does not wait for a check in progress."""
        self._stopped.set()

    def look(self) -> None:
        """Check Kueue's Deployment and metrics once, and update `problems`."""
        found = (self._deployment(), self._telemetry())
        self.problems = tuple(one for one in found if one is not None)

    def _deployment(self) -> KueueProblem | None:
        if self._left_out:
            self._left_out -= 1
            return None
        try:
            manager, why = manager_of(self._connection, self._known.name if self._known is not None else "")
        except ClusterError:
            # It is reported elsewhere that the API server does not respond.
            return None
        if manager is None:
            known = self._known
            self._left_out = AGAIN if known is None or why == FORBIDDEN else 0
            if known is None or why != NO_DEPLOYMENT:
                return None
            return KueueProblem("Kueue was deleted", f"Deployment {known.name} was deleted: no workloads are admitted")
        self._known = manager
        if manager.ready is None or manager.ready > 0:
            return None
        if not manager.wanted:
            return KueueProblem(
                "Kueue is scaled to 0",
                f"Deployment {manager.name} is scaled to 0 replicas: no workloads are admitted",
            )
        wanted = counted(manager.wanted, "replica")
        return KueueProblem(
            "Kueue is not ready",
            f"Deployment {manager.name} is not ready: 0 of {wanted}; no workloads are admitted",
        )

    def _telemetry(self) -> KueueProblem | None:
        queue = self._queue()
        if self._metrics is None or not queue:
            return None
        trouble = self._metrics.trouble(queue)
        if not trouble:
            self._measured = queue
        if not trouble or self._measured != queue:
            return None
        return KueueProblem(NO_METRICS, f"{NO_METRICS}: {trouble}")


GROUP = "/apis/visibility.kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""Versions of Kueue's visibility API, newest first; Kueue serves one or both."""
RENEW = 15.0
"""Seconds for which a response is cached: four requests a minute while a queue is shown."""
VISIBILITY_AGAIN = 7.0
"""Seconds until an API that is missing or forbidden is retried, while a queue is shown."""
MOST = 1000
"""Most pending workloads that are requested, from the head of the queue."""
PATIENCE = 5.0
"""Timeout in seconds for the next bytes of a response."""
_GONE = (404, 503)
_ABSENT = "the visibility API is not served"


class _Metadata(Struct):
    name: str = ""
    namespace: str = ""


class _Pending(Struct, rename="camel"):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    position_in_cluster_queue: int = 0
    position_in_local_queue: int = 0


class _Summary(Struct):
    items: list[_Pending] = []


class VisibilityClient:
    """Requests pending workloads, and caches the response. Mutable; thread-safe; blocks on the server."""

    def __init__(
        self, connection: ApiServerConnection, wall: Callable[[], Time], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._wall = wall
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, VisibilityPositions]] = {}
        self._version = ""
        self._absent_until = 0.0

    def standings(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        """Return the pending workloads of a ClusterQueue or, if RBAC forbids that, of a LocalQueue.

        `local_queue` is its `namespace/name`.
        """
        key = (cluster_queue, local_queue)
        until, known = self._known.get(key, (0.0, VisibilityPositions(queue=cluster_queue)))
        now = self._clock()
        if now < until:
            return known
        if self._absent:
            return VisibilityPositions(queue=cluster_queue, trouble=_ABSENT)
        found = self._ask(cluster_queue, local_queue)
        self._known = {key: (now + (RENEW if found.source else VISIBILITY_AGAIN), found)}
        return found

    @property
    def _absent(self) -> bool:
        """True while the API is assumed not to be served."""
        return self._clock() < self._absent_until

    def _ask(self, cluster_queue: str, local_queue: str) -> VisibilityPositions:
        namespace, _, name = local_queue.partition("/")
        paths = [(cluster_queue, f"clusterqueues/{quote(cluster_queue)}")]
        if name:
            paths.append((local_queue, f"namespaces/{quote(namespace)}/localqueues/{quote(name)}"))
        trouble = ""
        for queue, path in paths:
            try:
                return self._read(queue, path)
            except Forbidden as error:
                trouble = clean(str(error))
            except ClusterError as error:
                LOG.info("Cannot read pending workloads of %s from the visibility API: %s", queue, error)
                return VisibilityPositions(queue=queue, trouble=_ABSENT if self._absent else clean(str(error)))
        return VisibilityPositions(queue=cluster_queue, trouble=trouble)

    def _read(self, queue: str, path: str) -> VisibilityPositions:
        refused: Refused | None = None
        for version in (self._version,) if self._version else VERSIONS:
            where = f"{GROUP}/{version}/{path}/pendingworkloads"
            try:
                answer = self._connection.get(where, {"limit": MOST}, read=PATIENCE)
            except Refused as error:
                if error.code not in _GONE:
                    raise
                refused = error
                continue
            self._version = version
            return self._understood(queue, version, answer.decode(_Summary).items)
        if not self._version:
            self._absent_until = self._clock() + VISIBILITY_AGAIN
        assert refused is not None, "one version at least was asked for"
        raise refused

    def _understood(self, queue: str, version: str, items: Sequence[_Pending]) -> VisibilityPositions:
        places = {
            clean(f"{one.metadata.namespace}/{one.metadata.name}"): QueuePosition(
                one.position_in_cluster_queue + 1, one.position_in_local_queue + 1
            )
            for one in items
        }
        return VisibilityPositions(queue=queue, source=f"visibility API {version}", time=self._wall(), places=places)
