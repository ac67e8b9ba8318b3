"""Functions that open the what-if screen with a change."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gpuconsole.ui import plan
from gpuconsole.ui.plan import Change
from gpuconsole.ui.screens.asking import AskingScreen
from gpuconsole.ui.screens.views import load
from gpuconsole.ui.widgets.confirm import Option

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp
    from gpuconsole.ui.screens.whatif import WhatIfScreen


def try_out(app: "ConsoleApp", change: Change) -> None:
    """Open the what-if and add a change."""
    _open(app, lambda screen: screen.add(change))


def try_quota(app: "ConsoleApp", cluster_queue: str) -> None:
    """Open the what-if and ask for a new quota of a ClusterQueue."""
    _open(app, lambda screen: screen.call_after_refresh(screen.ask_quota, cluster_queue))


def what_if_with_queue(screen: AskingScreen, queue: str, refused: str = "") -> None:
    """Ask for a change of a queue; `refused` is why its quota cannot be changed."""
    app = cast("ConsoleApp", screen.app)
    options = (Option("hold", "hold queue", "s"), Option("quota", "change quota", "e", refused=refused))
    opens = {"hold": lambda: try_out(app, plan.hold(queue)), "quota": lambda: try_quota(app, queue)}
    screen.choose(f"What-if for {queue}", options, lambda kind: opens[kind]())


def _open(app: "ConsoleApp", then: "Callable[[WhatIfScreen], object]") -> None:
    app.go("whatif")
    kind: type[WhatIfScreen] = load("whatif").WhatIfScreen
    screen = next((screen for screen in app.screen_stack if isinstance(screen, kind)), None)
    if screen is not None:
        then(screen)
