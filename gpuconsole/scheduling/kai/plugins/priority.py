"""priority: jobs of higher priority come first (KAI 0.13 plugins/priority)."""

from gpuconsole.scheduling.kai.conf import Arguments
from gpuconsole.scheduling.kai.session import Session


class Priority:
    def __init__(self, arguments: Arguments) -> None:
        pass

    def open(self, session: Session) -> None:
        session.functions.job_order.append(lambda one, other: other.priority - one.priority)
