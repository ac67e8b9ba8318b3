"""The console opened for one drill."""

from gpuconsole.insight.drill import DrillSession
from gpuconsole.services.console import Console
from gpuconsole.ui.app import ConsoleApp, Preferences
from gpuconsole.ui.screens.drill import DrillScreen


class DrillApp(ConsoleApp):
    """The console app opened for one drill; the screens behind it show the drill's cluster before the first step."""

    def __init__(self, cluster: Console, play: DrillSession, preferences: Preferences | None = None) -> None:
        super().__init__(cluster, preferences=preferences)
        self._play = play

    def on_mount(self) -> None:
        # Before the first key; Textual calls the method of the parent, too.
        self.push_screen(DrillScreen(self._play))
