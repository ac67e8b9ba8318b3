"""Interface of plugins: a plugin is made with its arguments and registers functions when a session opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpuconsole.scheduling.kai.session import KaiSession


class KaiPlugin(Protocol):
    """A plugin of KAI."""

    def open(self, session: KaiSession) -> None:
        """Register the plugin's functions with the session."""
