"""The dashboard."""

from gpuconsole.ui.screens.base import ConsoleScreen


class DashboardScreen(ConsoleScreen):
    view = "dashboard"
