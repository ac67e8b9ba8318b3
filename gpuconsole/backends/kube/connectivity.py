"""Reachability of the API server: one probe on behalf of all watches, so that they do not flood a server that is
down.
"""

import logging
import random
import threading
import time
from collections.abc import Callable

from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.errors import Refused, Unauthorized, Unreachable, page_in
from gpuconsole.errors import ClusterError

LOG = logging.getLogger(__name__)
READY = "/readyz"
PATIENCE = 3.0
"""Seconds in which a healthy server answers the probe."""
PROBE_AFTER = 20.0
"""Seconds without a response to any request after which the server is probed."""
SHORTEST, LONGEST = 0.3, 3.0
"""Seconds between two probes of a server that does not answer."""
LOOK = 1.0
SOON = 2.0
"""Outage in seconds after which streams are reopened, because existing ones may be dead."""


class ConnectivityProbe:
    """Blocks watches while the server is unreachable. Mutable; one thread runs `watch_over`, any thread may wait or
    report.
    """

    def __init__(
        self,
        connection: ApiServerConnection,
        *,
        reopened: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        probe_after: float = PROBE_AFTER,
    ) -> None:
        """`reopened` is called when the server answers again after an outage."""
        self._connection = connection
        self._reopened = reopened
        self._clock = clock
        self._probe_after = probe_after
        self._open = threading.Event()
        self._open.set()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self.problem = ""
        """Why the server is unreachable; empty if it is reachable."""
        self._since = 0.0

    @property
    def shut(self) -> bool:
        """True while the server is unreachable."""
        return not self._open.is_set()

    def report(self, error: ClusterError) -> None:
        """Report that the server is unreachable: watches wait until the probe succeeds."""
        if self._open.is_set():
            LOG.warning("The API server is unreachable: %s", error)
            self._since = self._clock()
        self.problem = str(error)
        self._open.clear()
        self._wake.set()

    def wait(self) -> None:
        """Wait until the server responds or the probe is stopped."""
        while not self._stopped.is_set() and not self._open.wait(LOOK):
            pass

    def stop(self) -> None:
        """Stop the probe and release all waiting watches."""
        self._stopped.set()
        self._wake.set()
        self._open.set()

    def watch_over(self) -> None:
        """Probe while the server is unreachable or has been silent. Ends with `stop`."""
        while not self._stopped.is_set():
            self._wake.wait(LOOK)
            self._wake.clear()
            if self.shut:
                self._regain()
            elif self._clock() - self._connection.last_response_at > self._probe_after:
                self._probe()

    def _regain(self) -> None:
        wait = SHORTEST
        while not self._stopped.is_set() and not self._probe():
            # Jitter, so that many consoles do not retry at the same time.
            self._stopped.wait(wait * random.uniform(0.7, 1.3))
            wait = min(LONGEST, wait * 1.6)
        if self._stopped.is_set():
            return
        LOG.info("The API server is reachable again")
        lasted = self._clock() - self._since
        self.problem = ""
        if lasted > SOON:
            self._reopened()
        self._open.set()

    def _probe(self) -> bool:
        """Request the readiness endpoint. A refusal also shows that the server is up."""
        try:
            answer = self._connection.get(READY, read=PATIENCE)
            if page_in(answer.body):
                # A login page: this is not the API server.
                raise answer.unreadable("")
        except (Unreachable, Unauthorized) as error:
            self.report(error)
            return False
        except Refused as error:
            if error.code < 300 or error.code >= 500:
                self.report(error)
                return False
        return True
