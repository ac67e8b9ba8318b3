"""Interface of plugins: a plugin reads the session when it opens and registers its functions."""

from typing import TYPE_CHECKING, ClassVar, Protocol

from msgspec import Struct

from gpuconsole.scheduling.volcano.arguments import VolcanoArguments

if TYPE_CHECKING:
    from gpuconsole.scheduling.volcano.session import VolcanoSession


class PodGroupStatusCondition(Struct, frozen=True):
    """What a session writes into the status of a PodGroup."""

    type: str
    """`Unschedulable` or `Scheduled`."""
    reason: str
    message: str


class VolcanoPlugin(Protocol):
    """One instance serves one session; its state lives from opening to closing. Mutates."""

    name: ClassVar[str]
    """As volcano-scheduler.conf names it."""

    def __init__(self, arguments: VolcanoArguments) -> None:
        """`arguments` as the configuration gives them; what is missing or malformed takes its default."""

    def on_session_open(self, session: "VolcanoSession") -> None:
        """Register functions in `session.functions` under the plugin's name."""

    def on_session_close(self, session: "VolcanoSession") -> None:
        """Tidy up, or write down what the session came to."""
        return
