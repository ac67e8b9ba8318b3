"""Builds the console for playing a drill, without a history or a worker process."""

from msgspec.structs import replace

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.cli.run import log_to
from gpuconsole.cli.sources import status_of
from gpuconsole.config import Config
from gpuconsole.insight.drill import DrillSession
from gpuconsole.services.console import Console
from gpuconsole.sim.scenario import Scenario, build
from gpuconsole.ui.drill_console import DrillApp


def show(scenario: Scenario, seed: int | None, settings: Config) -> int:
    """Play a drill until the user quits; returns the exit status.

    The console behind it shows the cluster before the first step, paused.
    """
    log_to(settings.log_file, settings.log_level)
    simulation = build(replace(scenario, steps=()), seed=seed)
    about = status_of(simulation, scenario.name)
    console = Console(SimulatedBackend(simulation, speed=1), about=about, prices=scenario.policy.prices)
    app = DrillApp(console, DrillSession(scenario, seed=seed))
    if settings.theme and settings.theme in app.available_themes:
        app.theme = settings.theme
    console.pause()
    console.start()
    try:
        app.run()
    finally:
        console.stop()
    return app.return_code or 0
