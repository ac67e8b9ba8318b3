"""What a plugin is: made with its arguments, it adds its functions when a session opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpuconsole.scheduling.kai.session import KaiSession


class KaiPlugin(Protocol):
    def open(self, session: KaiSession) -> None:
        """Add functions to the session."""
