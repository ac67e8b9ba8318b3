"""Scheduler settings of a live cluster, as far as they can be read, for what-ifs."""

import logging
from collections.abc import Sequence
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.backends.kube.api_requests import CLUSTER_QUEUE
from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.errors import Refused, Unreadable
from gpuconsole.backends.kube.kueue_manager import NOT_FOUND, ConfigMapRef, KueueManager, manager_of
from gpuconsole.errors import ClusterError
from gpuconsole.insight.health.engines import NONE, Engine, EnginesInForce
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.manifests.kinds import KUEUE
from gpuconsole.model.text import clean
from gpuconsole.scheduling.kueue import gates
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.configuration.loading import load_text
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim import distributions as latencies
from gpuconsole.sim.policy import SimPolicy

LOG = logging.getLogger(__name__)
_PLACING = (
    ("scheduling.volcano.sh", Engine("Volcano", "Volcano")),
    ("scheduling.run.ai", Engine("KAI", "KAI")),
)
"""API group → scheduler that installs it."""
VOLCANO_QUEUE = ("scheduling.volcano.sh", "Queue")
VOLCANO_ASSUMED = "Volcano's configuration is assumed to be what its Helm chart installs"
ENGINE = "0.19"
"""Version of Kueue whose rules the engine implements."""


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
        return SimPolicy(kueue=None, latencies=latencies.DEFAULT_LATENCIES), ()
    if given is not None:
        return SimPolicy(kueue=given, latencies=latencies.DEFAULT_LATENCIES), ()
    config, troubles = _kueue(connection)
    policy = SimPolicy(latencies=latencies.DEFAULT_LATENCIES)
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
    """Return the Configuration with the feature gates of the manager's arguments; unknown gates are left out and
    reported.
    """
    if not manager.gates:
        return config, ""
    known = config or KueueConfig()
    try:
        named = gates.parse(manager.gates)
    except ValueError as error:
        return config, f"Kueue's feature gates are assumed: --feature-gates of {manager.name}: {clean(str(error), 200)}"
    refused = dict(gates.refusals(named))
    chosen = {name: on for name, on in named.items() if name not in refused}
    said = f"ignored feature gates of {manager.name}: {', '.join(refused.values())}" if refused else ""
    return replace(known, gates={**known.gates, **gates.resolve(chosen)}), clean(said, 400)


def _other_version(manager: KueueManager) -> str:
    other = manager.version not in ("", ENGINE)
    return (
        f"the cluster runs Kueue {manager.version} ({manager.name}); the simulator implements {ENGINE}" if other else ""
    )


def _assumed(why: str) -> str:
    return f"Kueue's Configuration is assumed to be the default: {why}; give it with --kueue-config FILE"
