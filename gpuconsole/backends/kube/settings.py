"""How the cluster's own schedulers are set up, as far as it lets itself be read: for what-ifs on it."""

import logging
from collections.abc import Sequence
from urllib.parse import quote

from gpuconsole.backends.kube.answers import Refused
from gpuconsole.backends.kube.client import Connection
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.orders import CLUSTER_QUEUE
from gpuconsole.errors import ClusterError
from gpuconsole.insight.engines import NONE, Engine, Engines
from gpuconsole.model.manifests.kinds import KUEUE
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.configuration.loading import load_text
from gpuconsole.sim.policy import SimPolicy

LOG = logging.getLogger(__name__)
_PLACING = (
    ("scheduling.volcano.sh", Engine("Volcano", "Volcano")),
    ("scheduling.run.ai", Engine("KAI", "KAI")),
)
"""API group → the scheduler that brings it."""
NOT_FOUND = 404
NAMESPACE, NAME = "kueue-system", "kueue-manager-config"


def policy_of(
    connection: Connection, served: Sequence[Served], given: KueueConfig | None = None
) -> tuple[SimPolicy, tuple[str, ...]]:
    """How a simulation of this cluster behaves, and what had to be assumed for it, in sentences.

    Kueue's Configuration is the one that is given, else the cluster's own, else Kueue's defaults.
    """
    if not any(kind.source == CLUSTER_QUEUE for kind in served):
        return SimPolicy(kueue=None), ()
    if given is not None:
        return SimPolicy(kueue=given), ()
    config, trouble = _kueue(connection)
    return (SimPolicy(), (trouble,)) if config is None else (SimPolicy(kueue=config), ())


def engines_of(served: Sequence[Served]) -> Engines:
    """Who decides, by the kinds that are served: what a cluster has installed, it is taken to use."""
    groups = {kind.group for kind in served}
    placing = [Engine("kube-scheduler", "kube"), *(engine for group, engine in _PLACING if group in groups)]
    return Engines(
        admission=Engine("Kueue", "Kueue") if KUEUE in groups else NONE,
        placement=Engine(" + ".join(one.name for one in placing), "+".join(one.short for one in placing)),
        capacity=Engine("Karpenter", "Karp") if "karpenter.sh" in groups else NONE,
    )


def _kueue(connection: Connection) -> tuple[KueueConfig | None, str]:
    """What the ConfigMap says that Kueue's manifests install; where it cannot be read or used, what is assumed."""
    path = f"/api/v1/namespaces/{quote(NAMESPACE)}/configmaps/{quote(NAME)}"
    try:
        body = connection.get(path).body
    except ClusterError as error:
        LOG.info("Kueue's Configuration cannot be read: %s", error)
        why = "is not there" if isinstance(error, Refused) and error.code == NOT_FOUND else "may not be read"
        return None, _assumed(why if isinstance(error, Refused) else "could not be read")
    loaded = load_text(body.decode(errors="replace"), NAME)
    for finding in loaded.findings:
        LOG.info("Kueue's Configuration: %s: %s", finding.path, finding.problem)
    return loaded.config, "" if loaded.config is not None else _assumed("has errors")


def _assumed(why: str) -> str:
    where = f"ConfigMap {NAMESPACE}/{NAME} {why}"
    return f"Kueue's Configuration is assumed to be the default: {where}; --kueue-config FILE names it"
