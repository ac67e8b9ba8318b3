"""`gpuconsole run`: opens the console on the terminal.

Starts the worker process, connects the backend and the history, runs the app, and closes everything. Logging goes to a
file only, as the terminal belongs to the console. `open_console` also opens consoles for commands without a screen.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from gpuconsole import __version__
from gpuconsole.backends.base import Backend
from gpuconsole.cli.keys import read_keymap
from gpuconsole.cli.options import OpenRequest, clustered, configured, cost_labels
from gpuconsole.config import WEB_DRIVER, Config, config_file, is_utf8
from gpuconsole.errors import ConfigError, ConsoleError, HistoryError, UsageError
from gpuconsole.garbage import collect_seldom
from gpuconsole.model.clock import Time
from gpuconsole.model.prices import Prices
from gpuconsole.services.console import INTERVAL, USUAL, Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store.private import make_private_file, make_private_folder
from gpuconsole.store.recorder import Opening, Recorder, SharedHistory, open_recorder
from gpuconsole.store.schema import HistoryInUseError
from gpuconsole.workers.client import Worker

if TYPE_CHECKING:
    from gpuconsole.ui.app import Preferences
    from gpuconsole.ui.screens.base import Contexts


TOUR = "Your first session? :tour shows the console in eight steps."
LARGEST = 5_000_000
"""Size in bytes at which the log file is rotated."""
KEPT = 2
"""Number of rotated log files that are kept."""


class PrivateLog(RotatingFileHandler):
    """A log file that only its owner may read, also after rotation."""

    def _open(self) -> TextIOWrapper:
        make_private_file(Path(self.baseFilename))
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore errors: the terminal belongs to the console, and a full disk stays full for the next line."""


def log_to(file: Path, level: str) -> str:
    """Send all logging from this level on to a file, which is rotated at 5 MB.

    Returns why no log can be written and what to do; empty on success.
    """
    problem = ""
    handler: logging.Handler = logging.NullHandler()
    try:
        make_private_folder(file.parent)
        handler = PrivateLog(file, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")
    except OSError as error:
        problem = f"Cannot write the log: {file}: {error.strerror}; set GPUCONSOLE_STATE_DIR to a writable folder"
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    return problem


LOG = logging.getLogger(__name__)


@click.command()
@clustered
@click.option("--speed", type=click.FloatRange(1, 10_000), help="Simulated seconds per wall-clock second.")
@click.option("--theme", help="Theme name.")
@click.option("--read-only", is_flag=True, default=None, help="Read-only mode.")
@click.option(
    "--no-audit", is_flag=True, default=None, help="Allow changes of a live cluster when the audit cannot be written."
)
@click.option("--worker/--no-worker", default=None, help="Compute what-ifs in a separate process (default).")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the history (default: one file for simulations and one for each live cluster).",
)
def command(request: OpenRequest, speed: float | None, history: Path | None, **options: Any) -> int:
    """Open the console.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; none opens the default fixture.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and WEB_DRIVER not in os.environ:
        raise UsageError("the console needs a terminal; use `gpuconsole simulate` without one")
    request, settings = configured(request, speed=speed, **options)
    read_keymap(settings)
    unlogged = log_to(settings.log_file, settings.log_level)
    _leave_on_signals()
    console = open_console(request, settings, ConsoleOptions(history=history))
    console.notices += (unlogged,) if unlogged else ()
    contexts = _contexts(request, settings) if request.live else None
    try:
        return _show(console, settings, request.namespace, contexts)
    finally:
        console.stop()


HEADLESS_INTERVAL = 0.5
"""Seconds between two polls of a live cluster without a screen; a simulation needs the usual interval for its speed."""


class ConsoleOptions(Struct, frozen=True, kw_only=True):
    """How a command uses its console."""

    has_screen: bool = True
    """Without a screen, a history that cannot be written is an error; with one, it is a notice."""
    history: Path | None = None
    """File of the history; None for the usual one."""
    forecasts: bool = True
    """Whether Kueue's decisions on a live cluster are forecast."""


WITH_SCREEN = ConsoleOptions()


def open_console(request: OpenRequest, settings: Config, options: ConsoleOptions = WITH_SCREEN) -> Console:
    """Open a console on the requested cluster; it is not started yet. Raises ConsoleError."""
    opening = _live if request.live else _simulated
    return opening(request, settings, options)


def _leave_on_signals() -> None:
    """Close everything if the process is terminated before the app, with its own handlers, runs."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), leave)


def _contexts(request: OpenRequest, settings: Config) -> "Contexts":
    from gpuconsole.cli.live import KubeContexts

    return KubeContexts(request, partial(_connected, settings))


def _simulated(request: OpenRequest, settings: Config, options: ConsoleOptions = WITH_SCREEN) -> Console:
    """Open a simulation with its worker.

    The worker starts first: once the app runs, no process can be spawned.
    """
    from gpuconsole.backends.simulated import SimulatedBackend
    from gpuconsole.cli.sources import open_simulation

    worker = Worker(settings.log_file) if settings.worker else None
    try:
        opened = open_simulation(replace(request, traces_preemptions=True))
        LOG.info("gpuconsole %s opens %s", __version__, opened.about.source)
        simulation = opened.simulation
        is_first = options.has_screen and not settings.history_file.exists()
        if worker is not None:
            worker.introduce(simulation.save())
        backend = SimulatedBackend(simulation, speed=settings.simulation.speed, follower=worker, measure=True)
        return _console(
            backend,
            opened.about,
            settings,
            worker,
            (*opened.notices, *([TOUR] if is_first else [])),
            seed=simulation.seed,
            prices=simulation.policy.prices,
            options=options,
        )
    except ConsoleError:
        if worker is not None:
            worker.close()
        raise


def _live(request: OpenRequest, settings: Config, options: ConsoleOptions = WITH_SCREEN) -> Console:
    """Open a live cluster with its worker."""
    worker = Worker(settings.log_file) if settings.worker else None
    try:
        return _connected(settings, request, worker, options)
    except ConsoleError:
        if worker is not None:
            worker.close()
        raise


def _import_screens() -> None:
    """Import the screens ahead of `_show`, because it takes a while."""
    for module in ("app", "screens.dashboard"):
        import_module(f"gpuconsole.ui.{module}")


def _connected(
    settings: Config, request: OpenRequest, worker: Worker | None, options: ConsoleOptions = WITH_SCREEN
) -> Console:
    """Connect to a live cluster; errors are reported before the screen is drawn."""
    from gpuconsole.cli.live import open_live, protection
    from gpuconsole.cli.sources import price_table

    prices = price_table(request)
    opened = open_live(request, settings)
    if options.has_screen:
        # The screens are imported while the API server responds.
        threading.Thread(target=_import_screens, name="import", daemon=True).start()
    LOG.info("gpuconsole %s opens %s", __version__, opened.about.source)
    protected = protection(opened.context, settings)
    return _console(
        opened.backend,
        opened.about,
        settings,
        worker,
        opened.notices,
        protected=protected,
        prices=prices,
        options=options,
    )


def _console(
    backend: Backend,
    about: ConsoleStatus,
    settings: Config,
    worker: Worker | None,
    notices: Iterable[str],
    *,
    seed: int = 0,
    protected: str = "",
    prices: Prices = USUAL,
    options: ConsoleOptions,
) -> Console:
    """Create the console; without a history, and with a notice that says so, if it cannot be written."""
    notices, recorder = list(notices), None
    try:
        recorder = _recorder(about, seed, settings, options)
        if isinstance(recorder, SharedHistory):
            about = replace(about, history_writer=recorder.writer, reads_history=True)
        notices += (str(recovered) for recovered in recorder.recovered if recovered.lines)
    except HistoryError as error:
        if not options.has_screen:
            raise
        LOG.exception("Cannot write the history")
        writer = error.writer if isinstance(error, HistoryInUseError) else ""
        about = replace(about, history=str(error), history_writer=writer)
        notices.append(f"Cannot write the history: {error}")
    for notice in notices:
        LOG.info("%s", notice)
    try:
        console = Console(
            backend,
            about=about,
            read_only=settings.read_only,
            no_audit=settings.no_audit,
            protected=protected,
            recorder=recorder,
            worker=worker,
            notices=notices,
            prices=prices,
            interval=INTERVAL if options.has_screen or about.mode is ConsoleMode.SIM else HEADLESS_INTERVAL,
            forecasts=options.forecasts,
            cost_labels=cost_labels(settings.cost),
        )
        if settings.alerts.rules:
            from gpuconsole.cli.alerts import evaluate_rules

            try:
                evaluate_rules(console, settings)
            except ConsoleError:
                console.stop()
                raise
        return console
    except ConsoleError:
        if recorder is not None:
            recorder.close()
        raise


def _recorder(about: ConsoleStatus, seed: int, settings: Config, options: ConsoleOptions) -> Recorder:
    """Open the history of a cluster; where a screen shows it, another process may already record it."""
    opening = Opening(version=__version__, mode=about.mode.value, source=about.source, seed=seed)
    live = about.mode is ConsoleMode.LIVE
    file = options.history or (settings.live_history_file(about.source) if live else settings.history_file)
    opened = open_recorder if options.has_screen else Recorder
    return opened(file, opening, wall=_wall, retention=settings.history)


def _wall() -> Time:
    return time.time_ns() // 1_000


def preferences(settings: Config) -> "Preferences":
    """What the settings say about the look of the console and its keys. Raises ConfigError."""
    from gpuconsole.ui.app import Preferences

    # The viewers of a browser must not change the operator's own layout.
    in_browser = WEB_DRIVER in os.environ
    return Preferences(
        user_themes=config_file(os.environ).parent / "themes",
        ascii=settings.glyphs == "ascii" or (settings.glyphs == "auto" and not is_utf8(os.environ)),
        layout_file=None if in_browser else settings.state / "dashboard.json",
        tables_file=None if in_browser else settings.state / "tables.json",
        columns=settings.columns,
        reduced_motion=settings.motion == "reduced",
        keymap=read_keymap(settings),
    )


def _show(console: Console, settings: Config, namespaces: Iterable[str], contexts: "Contexts | None") -> int:
    """Run the app until the user quits; returns the exit status. Raises ConfigError for a bad theme."""
    from gpuconsole.ui.app import ConsoleApp
    from gpuconsole.ui.theme import ThemeError

    try:
        app = ConsoleApp(console, contexts=contexts, warm=True, preferences=preferences(settings))
    except ThemeError as error:
        raise ConfigError("themes", str(error)) from error
    if settings.theme:
        if settings.theme not in app.available_themes:
            named = ", ".join(theme.name for theme in app.themes)
            wrong = "".join(f"; {problem}" for problem in app.theme_problems)
            raise ConfigError("theme", f"unknown theme {settings.theme!r}; choose one of {named}{wrong}")
        app.theme = settings.theme
    app.namespaces = frozenset(namespaces)
    _favour_keys()
    console.start()
    app.run()
    return app.return_code or 0


def _favour_keys() -> None:
    """Reduce the time that key presses wait for the backend thread and the garbage collector."""
    sys.setswitchinterval(0.0005)
    collect_seldom()
