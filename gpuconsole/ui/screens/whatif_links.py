"""Functions that open the what-if screen with a change."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gpuconsole.ui import whatif_changes
from gpuconsole.ui.screens.dialogs_mixin import AskingScreen
from gpuconsole.ui.screens.views import load
from gpuconsole.ui.whatif_changes import WhatIfChange
from gpuconsole.ui.widgets.confirm import ChoiceOption

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp
    from gpuconsole.ui.screens.whatif import WhatIfScreen


def try_out(app: "ConsoleApp", change: WhatIfChange) -> None:
    """Open the what-if and add a change."""
    _open(app, lambda screen: screen.add(change))


def try_quota(app: "ConsoleApp", cluster_queue: str) -> None:
    """Open the what-if and ask for a new quota of a ClusterQueue."""
    _open(app, lambda screen: screen.call_after_refresh(screen.ask_quota, cluster_queue))


def what_if_with_queue(screen: AskingScreen, queue: str, refused: str = "") -> None:
    """Ask for a change of a queue; `refused` is why its quota cannot be changed."""
    app = cast("ConsoleApp", screen.app)
    options = (ChoiceOption("hold", "hold queue", "s"), ChoiceOption("quota", "change quota", "e", refused=refused))
    opens = {"hold": lambda: try_out(app, whatif_changes.hold(queue)), "quota": lambda: try_quota(app, queue)}
    screen.choose(f"What-if for {queue}", options, lambda kind: opens[kind]())


def _open(app: "ConsoleApp", then: "Callable[[WhatIfScreen], object]") -> None:
    app.go("whatif")
    kind: type[WhatIfScreen] = load("whatif").WhatIfScreen
    screen = next((screen for screen in app.screen_stack if isinstance(screen, kind)), None)
    if screen is not None:
        then(screen)
