"""What an operator does at a cluster beside commands: look at manifests and logs, try, and be told what is allowed.

Only a backend with an API server behind it offers this. A simulated pod prints nothing, and has no shell.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command


class PodOperation(StrEnum):
    """What can be done with a pod that is no command."""

    LOGS = "logs"
    SHELL = "shell"
    FORWARD = "port-forward"


class PodAccess(Struct, frozen=True):
    """One of these, asked for in a namespace."""

    what: PodOperation
    namespace: str


class Manifest(Struct, frozen=True):
    """An object as the API server has it, without its status and without what only servers write."""

    document: dict[str, Any]
    version: str


class KubeEvent(Struct, frozen=True, kw_only=True):
    """An Event that Kubernetes keeps about an object, for an hour or so."""

    time: Time
    warning: bool
    reason: str
    message: str
    count: int = 1
    about: str = ""
    """Kind and name of the object."""


class LogLine(NamedTuple):
    """A line of a pod's output, made safe. `ours` marks a line that the console says itself."""

    pod: str
    text: str
    ours: bool = False


class Logs(Protocol):
    """The output of some pods, as it comes. Kept: the newest lines."""

    @property
    def lines(self) -> Sequence[LogLine]: ...

    @property
    def count(self) -> int:
        """Lines that ever came: tells whether there are new ones, and how many older ones are gone."""

    def close(self) -> None:
        """End all reading."""


class ObjectAccess(Protocol):
    """Everything but `refusal` and `kubectl` blocks on the network, and raises ClusterError."""

    def refusal(self, asked: Command | PodAccess) -> str:
        """Why the user may not do it; empty where he may, or where nobody knows yet: it is asked for meanwhile."""

    def rehearse(self, documents: Sequence[str]) -> tuple[str, ...]:
        """What the server would do with manifests (JSON), a line for each; nothing is changed."""

    def manifest(self, table: str, key: str) -> Manifest: ...

    def events(self, table: str, key: str) -> tuple[KubeEvent, ...]:
        """What Kubernetes' Events say of an object, oldest first."""

    def logs(self, pods: Sequence[str], *, previous: bool) -> Logs:
        """Begin to read what pods (`ns/name`) print; with `previous`, what they did before their last restart."""

    def kubectl(self, *arguments: str) -> list[str]:
        """The command line of kubectl for this cluster, as this user."""


@runtime_checkable
class HasObjectAccess(Protocol):
    """A backend with a desk."""

    def object_access(self) -> ObjectAccess: ...
