"""Permissions of the user, checked with SelfSubjectAccessReview before kinds are listed and watched."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import Struct

from gpuconsole.backends.base import Missing
from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.discovery import Served
from gpuconsole.backends.kube.errors import Cut, Refused

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE = 8
READING = "list"
"""Verb that is checked; a missing permission to watch is reported when the watch is refused."""


class _ReviewStatus(Struct, frozen=True):
    allowed: bool


class _access_Review(Struct, frozen=True):
    status: _ReviewStatus


_REVIEW = msgspec.json.Decoder(_access_Review)


class ReadAccess(Struct, frozen=True):
    """Namespaces in which a kind may be read (`""` is the whole cluster), and the permissions that are missing."""

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
        return answer.decode_with(_REVIEW).status.allowed
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
