"""Handlers of the actions that every screen offers, and of the lines of the `:` prompt."""

from functools import partial
from typing import TYPE_CHECKING

from gpuconsole.ui.screens.contexts import ask_context, go_to
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.screens.forwards import ForwardsScreen
from gpuconsole.ui.screens.glossary import GlossaryScreen
from gpuconsole.ui.screens.help import HelpScreen
from gpuconsole.ui.screens.permissions import RightsScreen
from gpuconsole.ui.screens.settings import ask_namespaces, next_theme, set_theme, show_namespaces
from gpuconsole.ui.screens.submitting import ask_file, submit_file
from gpuconsole.ui.screens.time_control import driving_handlers, pause_or_resume, set_speed
from gpuconsole.ui.screens.views import ANSWERS, VIEWS, answer_screen, load
from gpuconsole.ui.widgets.command_line import CommandLineRead, namespaces
from gpuconsole.ui.widgets.confirm import Confirm, Question
from gpuconsole.ui.widgets.palette import Palette

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp


def handlers(app: "ConsoleApp") -> dict[str, Handler]:
    """Action id → handler."""
    screen = app.front
    return {
        "app.palette": partial(_open_palette, app),
        "app.help": lambda: app.open(HelpScreen()),
        "app.glossary": partial(_open_glossary, app),
        "app.back": partial(_back_or_quit, app),
        "app.quit": app.exit,
        "app.previous": partial(_step, app, -1),
        "app.next": partial(_step, app, 1),
        "app.last": partial(_last_view, app),
        "app.theme": partial(next_theme, app),
        "app.namespaces": partial(ask_namespaces, app),
        "app.context": partial(ask_context, app),
        "app.forwards": lambda: app.open(ForwardsScreen()),
        **{f"answer.{name}": partial(_show_answer, app, name) for name in ANSWERS},
        "app.rights": lambda: app.open(RightsScreen()),
        "app.apply": lambda: ask_file(screen) if screen is not None else None,
        "app.all-namespaces": partial(show_namespaces, app, frozenset()),
        "app.suspend": app.action_suspend_process,
        **{f"view.{name}": partial(app.go, name) for name in VIEWS},
        **(driving_handlers(screen) if screen is not None else {}),
    }


def run_command_line(app: "ConsoleApp", line: CommandLineRead) -> None:
    """Run a line of the `:` prompt."""
    screen = app.front
    if screen is None:
        return
    match line.action.id:
        case "app.namespaces" if line.argument:
            show_namespaces(app, namespaces(line.argument) or frozenset())
        case "app.glossary" if line.argument:
            screen.open(GlossaryScreen(line.argument, typed=True))
        case "app.context" if line.argument:
            go_to(app, line.argument)
        case "app.apply" if line.argument:
            submit_file(screen, line.argument)
        case "answer.drills" if line.argument:
            load("drills").play_drill(screen, line.argument)
        case "app.theme" if line.argument:
            set_theme(app, line.argument)
        case "sim.speed" if line.argument:
            set_speed(screen, line.argument)
        case "sim.pause":
            pause_or_resume(screen, line.alias)
        case _:
            screen.run(line.action)
    if line.namespaces is not None:
        show_namespaces(app, line.namespaces)
    if line.filter:
        app.go(app.view, filtered=line.filter)


def _open_glossary(app: "ConsoleApp") -> None:
    """Open the glossary at the picked column head of the table in front."""
    grid = app.front.grid if app.front is not None else None
    app.open(GlossaryScreen(grid.picked_head if grid is not None else ""))


def _open_palette(app: "ConsoleApp") -> None:
    screen = app.front
    if screen is not None:
        app.push_screen(Palette(screen.entries()), lambda id: screen.run_id(id) if id is not None else None)


def _show_answer(app: "ConsoleApp", name: str) -> None:
    """Open a report; if it is already active, refresh it."""
    wanted, front = answer_screen(name), app.front
    if front is not None and front.same(wanted):
        front.run_id("app.refresh")
    else:
        app.open(wanted)


def _back_or_quit(app: "ConsoleApp") -> None:
    if len(app.screen_stack) > 1:
        app.up()
        return
    live = app.cluster.status.sight is not None
    ends = "The cluster is not affected" if live else "The simulation ends"
    question = Question("Quit gpuconsole?", (f"{ends}; its history is kept.",), yes="Quit")
    app.push_screen(Confirm(question), lambda yes: app.exit() if yes else None)


def _step(app: "ConsoleApp", views: int) -> None:
    view = app.travel.step(views)
    if view is None:
        app.flash("No previous view" if views < 0 else "No next view")
    else:
        app.switch_mode(view)


def _last_view(app: "ConsoleApp") -> None:
    view = app.travel.last
    if view is None:
        app.flash("No other view visited yet")
    else:
        app.go(view)
