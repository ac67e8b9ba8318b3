"""Permissions of the actions that the console offers, checked with the API server and cached.

SelfSubjectAccessReview decides. The console does not wait for it: until the response arrives an action is offered, and
the server refuses it if necessary.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.access import allowed
from gpuconsole.backends.kube.api_requests import (
    CLUSTER_QUEUE,
    NODE,
    POD,
    WORKLOAD,
    KnownObjects,
    Source,
    api_requests,
    object_of,
)
from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.object_access import PodAccess, PodOperation
from gpuconsole.errors import ClusterError
from gpuconsole.model.commands import Command, Drain, Edit, Requeue, SetQuota, SetTaint

VERBS = {"PATCH": "patch", "POST": "create", "DELETE": "delete"}
PARTS = {
    PodOperation.LOGS: ("get", "log"),
    PodOperation.SHELL: ("create", "exec"),
    PodOperation.FORWARD: ("create", "portforward"),
}
GRANTED, DENIED = 300.0, 30.0
"""Seconds for which an answer is cached; a missing permission may be granted soon."""
REVIEWS_AT_ONCE = 2


class Right(Struct, frozen=True):
    """A verb on a kind, in a namespace or (empty) in all of them; `part` is a subresource."""

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
    """Answers from a cache, and checks unknown permissions in a thread. Mutable; thread-safe."""

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
