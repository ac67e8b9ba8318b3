"""Direct access to a live cluster's objects: manifests, dry runs, logs, Events, kubectl and permissions.

Only a backend with an API server offers this. A simulated pod has no output and no shell.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from gpuconsole.model.clock import Time
from gpuconsole.model.commands import Command


class PodOperation(StrEnum):
    """An operation on a pod that is not a command, such as opening a shell."""

    LOGS = "logs"
    SHELL = "shell"
    FORWARD = "port-forward"


class PodAccess(Struct, frozen=True):
    """A request for a pod operation in a namespace, to check the permission for it."""

    what: PodOperation
    namespace: str


class Manifest(Struct, frozen=True):
    """An object from the API server, without status and server-managed metadata."""

    document: dict[str, Any]
    version: str


class KubeEvent(Struct, frozen=True, kw_only=True):
    """A Kubernetes Event about an object; Kubernetes keeps it for about an hour."""

    time: Time
    warning: bool
    reason: str
    message: str
    count: int = 1
    about: str = ""
    """Kind and name of the object."""


class LogLine(NamedTuple):
    """A line of a pod's output without control characters. `ours` marks a line that the console adds."""

    pod: str
    text: str
    ours: bool = False


class Logs(Protocol):
    """The output of some pods as it arrives; only the newest lines are kept."""

    @property
    def lines(self) -> Sequence[LogLine]:
        """The newest log lines, oldest first."""
        ...

    @property
    def count(self) -> int:
        """Number of lines received in total, which shows whether there are new ones and how many were dropped."""

    def close(self) -> None:
        """Stop reading."""


class ObjectAccess(Protocol):
    """Reads and dry runs of objects. All except `refusal` and `kubectl` block on the network and raise ClusterError."""

    def refusal(self, asked: Command | PodAccess) -> str:
        """Return why the user lacks permission; empty if it is allowed.

        Also empty if that is not known yet; then it is requested in the background.
        """

    def rehearse(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Dry-run manifests (JSON) on the server, and return a result line for each."""

    def manifest(self, table: str, key: str) -> Manifest:
        """Return an object without its status and server-managed metadata."""
        ...

    def events(self, table: str, key: str) -> tuple[KubeEvent, ...]:
        """Return the Kubernetes Events about an object, oldest first."""

    def logs(self, pods: Sequence[str], *, previous: bool) -> Logs:
        """Start reading the logs of pods (`ns/name`); with `previous`, those of the previous container instance."""

    def kubectl(self, *arguments: str) -> list[str]:
        """Return the kubectl command line for this cluster and user."""


@runtime_checkable
class HasObjectAccess(Protocol):
    """Backend that offers `ObjectAccess`."""

    def object_access(self) -> ObjectAccess:
        """Return the access to the cluster's objects. Raises ClusterError before the backend is open."""
        ...
