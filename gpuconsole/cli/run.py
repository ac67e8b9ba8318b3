"""`gpuconsole run`: the console on the terminal. Builds the whole object graph, and takes it down again."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from gpuconsole import __version__
from gpuconsole.backends.base import Backend
from gpuconsole.cli.logs import log_to
from gpuconsole.cli.options import Request, clustered, configured
from gpuconsole.config import Config
from gpuconsole.errors import ConfigError, ConsoleError, HistoryError, UsageError
from gpuconsole.garbage import collect_seldom
from gpuconsole.model.clock import Time
from gpuconsole.model.prices import Prices
from gpuconsole.services.console import USUAL, Console
from gpuconsole.services.status import Status
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.sessions import Opening
from gpuconsole.workers.worker import Worker

if TYPE_CHECKING:
    from gpuconsole.ui.screens.contexts import Contexts

LOG = logging.getLogger(__name__)


@click.command()
@clustered
@click.option("--speed", type=click.FloatRange(1, 10_000), help="Virtual seconds a second.")
@click.option("--theme", help="Name of a theme.")
@click.option("--read-only", is_flag=True, default=None, help="Only look.")
@click.option(
    "--no-audit", is_flag=True, default=None, help="Change a live cluster even if changes cannot be recorded."
)
@click.option("--worker/--no-worker", default=None, help="Compute what-ifs in a process of their own (the default).")
def command(request: Request, speed: float | None, **options: Any) -> int:
    """Open the console.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; none opens the default fixture.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the console needs a terminal; `gpuconsole simulate` runs without one")
    request, settings = configured(request, speed=speed, **options)
    unlogged = log_to(settings.log_file, settings.log_level)
    _leave_on_signals()
    console = _live(request, settings) if request.live else _simulated(request, settings)
    console.notices += (unlogged,) if unlogged else ()
    contexts = _contexts(request, settings) if request.live else None
    try:
        return _show(console, settings, request.namespace, contexts)
    finally:
        console.stop()


def _leave_on_signals() -> None:
    """Take down what is built also if the process is ended before the app runs, which has handlers of its own."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), leave)


def _contexts(request: Request, settings: Config) -> "Contexts":
    from gpuconsole.cli.contexts import KubeContexts

    return KubeContexts(request, partial(_connected, settings))


def _simulated(request: Request, settings: Config) -> Console:
    """Wire backend, history and worker. The worker starts first: once the app runs, no process can be spawned."""
    from gpuconsole.backends.simulated import SimulatedBackend
    from gpuconsole.cli.sources import open_simulation

    worker = Worker(settings.log_file) if settings.worker else None
    try:
        opened = open_simulation(replace(request, tells_choices=True))
    except ConsoleError:
        if worker is not None:
            worker.close()
        raise
    LOG.info("gpuconsole %s opens %s", __version__, opened.about.source)
    simulation = opened.simulation
    if worker is not None:
        worker.introduce(simulation.save())
    backend = SimulatedBackend(simulation, speed=settings.simulation.speed, follower=worker, measure=True)
    return _console(
        backend, opened.about, settings, worker, opened.notices, seed=simulation.seed, prices=simulation.policy.prices
    )


def _live(request: Request, settings: Config) -> Console:
    """Wire a live cluster, and a worker for it."""
    worker = Worker(settings.log_file) if settings.worker else None
    try:
        return _connected(settings, request, worker)
    except ConsoleError:
        if worker is not None:
            worker.close()
        raise


def _import_screens() -> None:
    for module in ("app", "screens.dashboard"):
        import_module(f"gpuconsole.ui.{module}")


def _connected(settings: Config, request: Request, worker: Worker | None) -> Console:
    """Connect to a live cluster; what can be wrong with it is said before the screen is taken."""
    from gpuconsole.cli.live import open_live, protection

    opened = open_live(request, settings)
    # What draws is imported while the server is asked.
    threading.Thread(target=_import_screens, name="import", daemon=True).start()
    LOG.info("gpuconsole %s opens %s", __version__, opened.about.source)
    protected = protection(opened.context, settings)
    return _console(opened.backend, opened.about, settings, worker, opened.notices, protected=protected)


def _console(
    backend: Backend,
    about: Status,
    settings: Config,
    worker: Worker | None,
    notices: Iterable[str],
    *,
    seed: int = 0,
    protected: str = "",
    prices: Prices = USUAL,
) -> Console:
    """Put the console together, with a history where one can be kept."""
    notices, recorder = list(notices), None
    try:
        recorder = _recorder(about, seed, settings)
        notices += (str(recovered) for recovered in recorder.recovered if recovered.lines)
    except HistoryError as error:
        LOG.exception("No history is kept")
        about = replace(about, history=str(error))
        notices.append(f"No history is kept: {error}")
    for notice in notices:
        LOG.info("%s", notice)
    try:
        return Console(
            backend,
            about=about,
            read_only=settings.read_only,
            no_audit=settings.no_audit,
            protected=protected,
            recorder=recorder,
            worker=worker,
            notices=notices,
            prices=prices,
        )
    except ConsoleError:
        if recorder is not None:
            recorder.close()
        raise


def _recorder(about: Status, seed: int, settings: Config) -> Recorder:
    opening = Opening(version=__version__, mode=about.mode.value, source=about.source, seed=seed)
    return Recorder(settings.history_file, opening, wall=_wall)


def _wall() -> Time:
    return time.time_ns() // 1_000


def _show(console: Console, settings: Config, namespaces: Iterable[str], contexts: "Contexts | None") -> int:
    """Draw the console until the user leaves; what it cost to import is paid here only."""
    from gpuconsole.ui.app import ConsoleApp
    from gpuconsole.ui.theme import ThemeError

    try:
        app = ConsoleApp(console, contexts=contexts, warm=True)
    except ThemeError as error:
        raise ConfigError("themes", str(error)) from error
    if settings.theme:
        if settings.theme not in app.available_themes:
            named = ", ".join(theme.name for theme in app.themes)
            raise ConfigError("theme", f"there is no theme {settings.theme!r}; there are {named}")
        app.theme = settings.theme
    app.namespaces = frozenset(namespaces)
    _favour_keys()
    console.start()
    app.run()
    return app.return_code or 0


def _favour_keys() -> None:
    """Let the thread that answers keys wait less for the one that ticks, and neither for the garbage collector."""
    sys.setswitchinterval(0.0005)
    collect_seldom()
