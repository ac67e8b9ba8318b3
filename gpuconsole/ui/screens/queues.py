"""The tree of queues."""

from gpuconsole.ui.screens.base import ConsoleScreen


class QueuesScreen(ConsoleScreen):
    view = "queues"
