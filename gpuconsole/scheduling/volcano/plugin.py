"""Interface of plugins: a plugin reads the session when it opens and registers its functions."""

from typing import TYPE_CHECKING, ClassVar, Protocol

from msgspec import Struct

from gpuconsole.scheduling.volcano.arguments import VolcanoArguments

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class PodGroupStatusCondition(Struct, frozen=True):
    """A condition that a session writes to the status of a PodGroup."""

    type: str
    """`Unschedulable` or `Scheduled`."""
    reason: str
    message: str


class VolcanoPlugin(Protocol):
    """A scheduler plugin; one instance serves one session and keeps that session's state. Mutates."""

    name: ClassVar[str]
    """As volcano-scheduler.conf names it."""

    def __init__(self, arguments: VolcanoArguments) -> None:
        """Read the plugin's arguments; a missing or malformed one takes its default."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        """Register functions in `session.functions` under the plugin's name."""

    def on_session_close(self, session: "VolcanoSession") -> None:
        """Store results, such as PodGroup conditions, in the session."""
        return
