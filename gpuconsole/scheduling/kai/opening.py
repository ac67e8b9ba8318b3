"""Opening and running of sessions: plugins by the configured tiers, then actions (KAI 0.13 framework)."""

from collections.abc import Collection

from gpuconsole.scheduling.kai.actions import ACTIONS
from gpuconsole.scheduling.kai.plugins import PLUGINS
from gpuconsole.scheduling.kai.session import Decided, KaiSession


def open_session(session: KaiSession, skipped: Collection[str] = ()) -> None:
    """Let every configured plugin, except skipped ones, register its functions."""
    for tier in session.configuration.tiers:
        for option in tier.plugins:
            make = PLUGINS.get(option.name)
            if make is not None and option.name not in skipped:
                make(option.read).open(session)


def run_actions(session: KaiSession) -> list[Decided]:
    """Run the configured actions in order; returns the decisions in order."""
    for name in session.configuration.actions:
        ACTIONS[name](session)
    return session.decided
