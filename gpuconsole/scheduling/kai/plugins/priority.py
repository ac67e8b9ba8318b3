"""priority plugin: jobs of higher priority come first (KAI 0.13 plugins/priority)."""

from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession


class Priority:
    """Registers the job order."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.job_order.append(lambda one, other: other.priority - one.priority)
