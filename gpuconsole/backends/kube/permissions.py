"""Permissions of the user, checked with the API server (SelfSubjectAccessReview, SelfSubjectRulesReview).

`read_access` checks which kinds may be listed, and where, before they are watched. `Permissions` detects changed RBAC
rules with one small request, so that forbidden kinds are retried only when it may help. `Rights` checks the actions
that the console offers; it does not wait for the response: until it arrives an action is offered, and the server
refuses it if necessary.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import Struct

from gpuconsole.backends.base import Missing, PodAccess, PodOperation
from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.errors import Cut, Refused, Unreadable
from gpuconsole.backends.kube.writes import (
    CLUSTER_QUEUE,
    NODE,
    POD,
    WORKLOAD,
    KnownObjects,
    Source,
    api_requests,
    object_of,
)
from gpuconsole.errors import ClusterError
from gpuconsole.model.commands import Command, Drain, Edit, Requeue, SetQuota, SetTaint

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE = 8
"""Number of kinds whose permissions are checked at the same time."""
READING = "list"
"""Verb that is checked; a missing permission to watch is reported when the watch is refused."""


class _AccessReviewStatus(Struct, frozen=True):
    allowed: bool


class _AccessReview(Struct, frozen=True):
    """authorization.k8s.io/v1 SelfSubjectAccessReview"""

    status: _AccessReviewStatus


_ACCESS_REVIEW = msgspec.json.Decoder(_AccessReview)


class ReadAccess(Struct, frozen=True):
    """Where a kind may be read: its namespaces (`""` is the whole cluster), and the permissions that are missing."""

    served: Served
    namespaces: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()


def allowed(connection: ApiServerConnection, verb: str, served: Served, namespace: str = "", *, part: str = "") -> bool:
    """Check one permission with the API server. True if the check itself fails: the server refuses the request later.

    `part` is a subresource. Raises Unreachable.
    """
    attributes = {"verb": verb, "group": served.group, "resource": served.plural}
    if namespace and served.namespaced:
        attributes["namespace"] = namespace
    if part:
        attributes["subresource"] = part
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = connection.send("POST", REVIEWS, body=msgspec.json.encode(review))
        return answer.decode_with(_ACCESS_REVIEW).status.allowed
    except (Refused, Cut):
        return True


def read_access(
    connection: ApiServerConnection, kinds: Sequence[Served], namespaces: Sequence[str], home: str
) -> list[ReadAccess]:
    """Return where each kind may be read, in `namespaces` or, if that is empty, in the whole cluster.

    A namespaced kind that may not be read in the whole cluster is checked in `home`, the namespace of the context.
    Raises Unreachable.
    """
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="access") as pool:
        return list(pool.map(lambda served: _reach(connection, served, namespaces, home), kinds))


def _reach(connection: ApiServerConnection, served: Served, namespaces: Sequence[str], home: str) -> ReadAccess:
    if not served.namespaced:
        return _within(connection, served, ("",))
    if namespaces:
        return _within(connection, served, namespaces)
    everywhere = _within(connection, served, ("",))
    if everywhere.namespaces:
        return everywhere
    at_home = _within(connection, served, (home,))
    return ReadAccess(served, at_home.namespaces, everywhere.missing)


def _within(connection: ApiServerConnection, served: Served, namespaces: Sequence[str]) -> ReadAccess:
    found, missing = [], []
    for namespace in namespaces:
        if allowed(connection, READING, served, namespace):
            found.append(namespace)
        else:
            missing.append(Missing(READING, served.resource, namespace))
    return ReadAccess(served, tuple(found), tuple(missing))


RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
AT_MOST = 2.0
"""Most checks of single permissions per second, if the RBAC rules cannot be listed."""

Rules = frozenset[bytes]
"""The user's RBAC rules: each as its namespace followed by JSON."""


class _RulesReviewStatus(Struct, frozen=True, rename="camel"):
    resource_rules: list[dict[str, list[str] | None]] | None
    incomplete: bool = False
    """An authorizer cannot list its rules, such as a webhook."""


class _RulesReview(Struct, frozen=True):
    """authorization.k8s.io/v1 SelfSubjectRulesReview"""

    status: _RulesReviewStatus


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
                status = answer.decode(_RulesReview).status
            except (Unreadable, Refused, Cut):
                return None
            if status.incomplete or status.resource_rules is None:
                return None
            # The API server lists them in no order.
            found |= {
                f"{namespace} ".encode() + msgspec.json.encode(rule, order="sorted") for rule in status.resource_rules
            }
        return frozenset(found)


VERBS = {"PATCH": "patch", "POST": "create", "DELETE": "delete"}
"""HTTP method → RBAC verb."""
PARTS = {
    PodOperation.LOGS: ("get", "log"),
    PodOperation.SHELL: ("create", "exec"),
    PodOperation.FORWARD: ("create", "portforward"),
}
"""Pod operation → RBAC verb and subresource of pods."""
GRANTED, DENIED = 300.0, 30.0
"""Seconds for which an answer is cached; a missing permission may be granted soon."""
REVIEWS_AT_ONCE = 2
"""Permissions of actions that are checked at the same time."""


class Right(Struct, frozen=True):
    """A permission that an action needs: a verb on a kind, in a namespace (empty: in all); `part` is a subresource."""

    verb: str
    source: Source
    namespace: str = ""
    part: str = ""


def needed(asked: Command | PodAccess, known: KnownObjects) -> Iterator[Right]:
    """Yield the permissions that a command or pod operation needs. Raises UnsupportedCommand."""
    match asked:
        case PodAccess(what, namespace):
            verb, part = PARTS[what]
            yield Right(verb, POD, namespace, part)
        case Requeue(workload):
            yield Right("patch", WORKLOAD, workload.rpartition("/")[0])
        case SetQuota():
            yield Right("patch", CLUSTER_QUEUE)
        case SetTaint():
            yield Right("patch", NODE)
        case Drain(forced=forced):
            yield Right("patch", NODE)
            yield Right("delete", POD) if forced else Right("create", POD, "", "eviction")
        case Edit(table, key):
            source, namespace, _ = object_of(table, key)
            yield Right("patch", source, namespace)
        case _:
            for order in api_requests(asked, known):
                if order.rehearsed:
                    yield Right("create", order.source, order.namespace)
                yield Right(VERBS[order.method], order.source, order.namespace)


class Rights:
    """Tells whether the user may carry out an action, from a cache that threads fill. Mutable; thread-safe."""

    def __init__(
        self,
        connection: ApiServerConnection,
        served: Callable[[], Sequence[Served]],
        known: KnownObjects,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._served = served
        self._known = known
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[Right, tuple[bool, float]] = {}
        self._asking: set[Right] = set()
        self._pool = ThreadPoolExecutor(REVIEWS_AT_ONCE, thread_name_prefix="kube rights")
        self._closed = False

    def refusal(self, asked: Command | PodAccess) -> str:
        """Return why an action is not permitted; empty if it is, or if that is not known yet."""
        try:
            rights = list(needed(asked, self._known))
        except ClusterError as error:
            return str(error)
        return next((f"you {self._missing(right)}" for right in rights if self._denied(right)), "")

    def close(self) -> None:
        """Stop checking permissions."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _denied(self, right: Right) -> bool:
        now = self._clock()
        with self._lock:
            granted, until = self._answers.get(right, (True, 0.0))
            if now >= until and right not in self._asking and not self._closed:
                self._asking.add(right)
                self._pool.submit(self._ask, right)
        return not granted

    def _ask(self, right: Right) -> None:
        answer: tuple[bool, float] = (True, self._clock() + DENIED)
        try:
            served = self._kind(right)
            if served is not None:
                granted = allowed(self._connection, right.verb, served, right.namespace, part=right.part)
                answer = (granted, self._clock() + (GRANTED if granted else DENIED))
        except ClusterError:
            pass  # The server refuses the action if necessary.
        finally:
            with self._lock:
                self._answers[right] = answer
                self._asking.discard(right)

    def _missing(self, right: Right) -> str:
        served = self._kind(right)
        resource = served.resource if served is not None else right.source[1]
        return str(Missing(right.verb, f"{resource}/{right.part}" if right.part else resource, right.namespace))

    def _kind(self, right: Right) -> Served | None:
        return next((served for served in self._served() if served.source == right.source), None)
