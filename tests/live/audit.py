"""What the API server says was asked of it: the audit log, at the level Metadata."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.live.identities import EVERYBODY

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "None", "users": [who.user for who in EVERYBODY if who.agent]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "Metadata"},
    ],
}
"""Everything that persons do; what the programs of the control plane do would drown it."""
REVIEWS = frozenset(["selfsubjectaccessreviews", "selfsubjectrulesreviews"])
WRITES = frozenset(["create", "update", "patch", "delete", "deletecollection"])


class User(Struct, frozen=True):
    username: str = ""


class Reference(Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    group: str = msgspec.field(name="apiGroup", default="")


class Answer(Struct, frozen=True):
    code: int = 0


class Request(Struct, frozen=True, rename="camel"):
    """One line of the audit log."""

    verb: str
    user: User
    stage: str
    audit_id: str = msgspec.field(name="auditID")
    request_uri: str = msgspec.field(name="requestURI")
    user_agent: str = ""
    object_ref: Reference = Reference()
    response_status: Answer = Answer()

    @property
    def resource(self) -> str:
        """As `resource/subresource`."""
        return "/".join(filter(None, (self.object_ref.resource, self.object_ref.subresource)))

    @property
    def is_write(self) -> bool:
        """True for what may change something; asking for one's own rights is a `create` that stores nothing."""
        return self.verb in WRITES and self.object_ref.resource not in (
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
        )


_LINE = msgspec.json.Decoder(Request)


class AuditLog:
    """The log of one API server; reads what was written since the last `skip`. Mutates."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = 0

    def skip(self) -> "AuditLog":
        """Only what comes from now on counts, from the beginning of a line that is being written."""
        if self._path.exists():
            written = self._path.read_bytes()
            self._from = written.rfind(b"\n") + 1
        return self

    def requests(self, user: str | None = None) -> Iterator[Request]:
        """Requests in the order in which they were answered; a watch counts when it begins."""
        if not self._path.exists():
            return
        seen: set[str] = set()
        with self._path.open("rb") as lines:
            lines.seek(self._from)
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                request = _LINE.decode(line)
                if request.audit_id not in seen and user in (None, request.user.username):
                    seen.add(request.audit_id)
                    yield request

    def writes(self, user: str) -> list[Request]:
        """What a user tried to change."""
        return [request for request in self.requests(user) if request.is_write]

    def lists(self, user: str) -> list[Request]:
        """The LISTs of a user, each page of one by itself."""
        return [request for request in self.requests(user) if request.verb == "list"]
