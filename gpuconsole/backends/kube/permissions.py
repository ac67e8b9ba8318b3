"""Detects changed permissions with one small request, so that forbidden kinds are retried only when it may help."""

import random
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.access import allowed
from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.errors import Cut, Refused, Unreadable

RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
AT_MOST = 2.0
"""Reviews of single permissions per second, if the rules cannot be listed."""

Rules = frozenset[bytes]


class _Status(Struct, frozen=True, rename="camel"):
    resource_rules: list[dict[str, list[str] | None]] | None
    incomplete: bool = False
    """An authorizer cannot list its rules, such as a webhook."""


class _Review(Struct, frozen=True):
    status: _Status


class Permissions:
    """Remembers denied permissions until the user's RBAC rules change. Mutable; for one thread."""

    def __init__(
        self,
        connection: ApiServerConnection,
        namespaces: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`namespaces` are those whose rules are requested; each response also includes cluster-wide rules."""
        self._connection = connection
        self._namespaces = namespaces
        self._clock = clock
        self._rules: Rules | None = None
        """The last known rules."""
        self._reviews_after = 0.0
        """Time at which single permissions may be reviewed again, if the rules cannot be listed."""
        self._verdicts: dict[Missing, bool] = {}

    def changed(self, denied: int) -> bool:
        """True if permissions may have been granted since the last call; `denied` is the number of missing ones.

        If the rules cannot be listed it is True periodically, within the rate of `AT_MOST`. Raises Unreachable.
        """
        rules = self._ask()
        if rules is not None:
            changed, self._rules = rules != self._rules, rules
            if changed:
                self._verdicts.clear()
            return changed
        now = self._clock()
        if now < self._reviews_after:
            return False
        self._reviews_after = now + denied / AT_MOST * random.uniform(0.9, 1.1)
        self._verdicts = {right: granted for right, granted in self._verdicts.items() if granted}
        return True

    def denies(self, right: Missing, served: Served) -> bool:
        """True if a permission is denied; uses the cached answer if there is one. Raises Unreachable."""
        if right not in self._verdicts:
            self._verdicts[right] = allowed(self._connection, right.verb, served, right.namespace)
        return not self._verdicts[right]

    def _ask(self) -> Rules | None:
        """Return the RBAC rules; None if the server cannot list all of them."""
        found: set[bytes] = set()
        for namespace in self._namespaces:
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectRulesReview",
                "spec": {"namespace": namespace},
            }
            try:
                answer = self._connection.send("POST", RULES, body=msgspec.json.encode(review))
                status = answer.decode(_Review).status
            except (Unreadable, Refused, Cut):
                return None
            if status.incomplete or status.resource_rules is None:
                return None
            # The API server lists them in no order.
            found |= {
                f"{namespace} ".encode() + msgspec.json.encode(rule, order="sorted") for rule in status.resource_rules
            }
        return frozenset(found)
