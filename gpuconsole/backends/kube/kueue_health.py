"""Health of Kueue itself: polls its Deployment and its metrics, where RBAC allows it."""

import logging
import threading
from collections.abc import Callable

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.kueue_manager import FORBIDDEN, NO_DEPLOYMENT, KueueManager, manager_of
from gpuconsole.backends.telemetry.kueue_metrics import KueueMetrics
from gpuconsole.errors import ClusterError
from gpuconsole.insight.health.kueue_liveness import KueueProblem
from gpuconsole.insight.tables import counted

LOG = logging.getLogger(__name__)
INTERVAL = 30.0
"""Seconds between two checks: two requests a minute."""
SOON = 7.0
"""Seconds between two checks while there is a problem, so that its end is noticed within 10 s."""
AGAIN = 10
"""Number of checks after which a Deployment that may not be read, or was never found, is looked for again."""
NO_METRICS = "Kueue's metrics are missing"


class KueueHealth:
    """Checks Kueue's Deployment and metrics. Mutable; `look` is called from one thread, `problems` from any."""

    def __init__(self, connection: ApiServerConnection, metrics: KueueMetrics | None, queue: Callable[[], str]) -> None:
        """`queue` names a ClusterQueue that Kueue's metrics must include; empty if there is none."""
        self._connection, self._metrics, self._queue = connection, metrics, queue
        self._known: KueueManager | None = None
        """The manager that was found last; one that was never found is not reported as deleted."""
        self._measured = ""
        """ClusterQueue whose metrics were found."""
        self._left_out = 0
        """Number of checks that skip the Deployment."""
        self._stopped = threading.Event()
        self.problems: tuple[KueueProblem, ...] = ()

    def watch(self) -> None:
        """Check periodically until `stop`."""
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
        """Check once."""
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
