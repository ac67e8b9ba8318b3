"""Retries of requests at startup, when the server is busy or its response was cut off."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from gpuconsole.backends.kube.errors import Busy, Cut, Refused

LOG = logging.getLogger(__name__)
PATIENCE = 30.0
"""Seconds for which a busy server is retried."""
RESTS = (0.5, 1.5)
"""Seconds before each retry after other temporary errors."""
LONGEST = 8.0
"""Most seconds between two retries of a busy server without Retry-After."""

Found = TypeVar("Found")


def with_retries(work: Callable[[], Found]) -> Found:
    """Call `work`, and retry if that may help. Raises the last error."""
    deadline = time.monotonic() + PATIENCE
    busy, rests = RESTS[0], iter(RESTS)
    while True:
        try:
            return work()
        except Busy as error:
            wait = max(error.retry_after, busy)
            busy = min(LONGEST, 2 * busy)
            if time.monotonic() + wait > deadline:
                raise
            LOG.info("Retrying in %gs: %s", wait, error)
        except (Cut, Refused) as error:
            rest = next(rests, None) if _may_heal(error) else None
            if rest is None:
                raise
            wait = rest
            LOG.info("Retrying in %gs: %s", wait, error)
        time.sleep(wait)


def _may_heal(error: Cut | Refused) -> bool:
    """True for errors of a server or proxy that is starting or overloaded."""
    return isinstance(error, Cut) or error.code < 300 or error.code >= 500
