"""Actions that every screen offers, and the lines of the `:` prompt: contexts, settings, time, permissions, files.

Switching to another context opens a new console, which the app then uses. Files are submitted after validation, a
server-side dry run on live clusters, and confirmation. A table or a screen is exported to a file.
"""

import os
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import yaml
from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.tables import Table, TableFormat, counted, table_file
from gpuconsole.model.commands import Submit
from gpuconsole.model.manifests import LoadedManifests
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.services.console import Console
from gpuconsole.services.status import ClusterHealth, ConsoleStatus, Missing
from gpuconsole.ui.actions import BY_ID, Handler, Scope
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.background import run_in_background
from gpuconsole.ui.screens.base import AppServices, ConsoleScreen, Contexts
from gpuconsole.ui.screens.columns import ask_columns, ask_copy, copy, run_view
from gpuconsole.ui.screens.help import GlossaryScreen, HelpScreen
from gpuconsole.ui.screens.messages import MessagesScreen
from gpuconsole.ui.screens.pods import ForwardsScreen
from gpuconsole.ui.screens.views import ANSWERS, LISTS, VIEWS, answer_screen, list_screen, load
from gpuconsole.ui.table_model import Column, table_of_rows
from gpuconsole.ui.theme import find_theme
from gpuconsole.ui.widgets.command_line import CommandLineRead, namespaces
from gpuconsole.ui.widgets.dialogs import ChoiceOption, Confirm, Palette, PromptField, Question
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.yaml_view import as_documents

NONE = "No kubeconfig: :ctx needs --live"


def lies_elsewhere(contexts: Contexts, status: ConsoleStatus, names: Collection[str]) -> bool:
    """Return whether showing the namespaces `names` (empty for all) needs a new connection, as they were not read."""
    limits, sight = contexts.namespaces, status.sight
    if not names:
        return bool(limits)
    partial = sight is not None and any(not right.namespace for right in sight.missing)
    return (bool(limits) or partial) and not set(names) <= set(limits)


def ask_context(app: AppServices) -> None:
    """Ask for a context."""
    screen, contexts = app.front, app.contexts
    if screen is None or contexts is None:
        app.flash(NONE, "warning")
        return
    here = app.cluster.status.source

    def offer(names: Sequence[str]) -> None:
        options = [ChoiceOption(name, name, refused="current context" if name == here else "") for name in names]
        screen.dialogs.choose("Context", options, lambda name: go_to(app, name), chosen=here)

    run_in_background(screen, contexts.names, offer)


def go_to(
    app: AppServices, context: str, namespaces: Collection[str] = (), then: Callable[[], object] = lambda: None
) -> None:
    """Connect to a context in the background; the app switches to it once it is connected, and calls `then`."""
    screen, contexts, leaving = app.front, app.contexts, app.cluster
    if screen is None or contexts is None:
        app.flash(NONE, "warning")
        return

    def switch(cluster: Console) -> None:
        app.rebind(cluster)
        then()

    app.flash(f"Connecting to {context} …")
    run_in_background(screen, lambda: contexts.open(context, namespaces, leaving), switch)


def show_namespaces(app: AppServices, names: frozenset[str]) -> None:
    """Show only these namespaces; empty for all. Reconnects to a live cluster if they were not read."""
    if app.contexts is not None and lies_elsewhere(app.contexts, app.cluster.status, names):
        go_to(app, app.cluster.status.source, sorted(names))
        return
    app.namespaces = names
    if app.front is not None:
        app.front.redraw()


def ask_namespaces(app: AppServices) -> None:
    """Ask which namespaces to show."""
    known = ", ".join(app.cluster.snapshot.namespaces) or "none yet"
    wanted = PromptField("Namespaces to show", ", ".join(sorted(app.namespaces)), (f"Known: {known}", "Empty = all."))
    if app.front is not None:
        app.front.dialogs.prompt(wanted, lambda text: show_namespaces(app, namespaces(text) or frozenset()))


def ask_theme(app: AppServices) -> None:
    """Ask for a theme."""
    if app.front is not None:
        options = [
            ChoiceOption(theme.name, theme.name, detail="dark" if theme.dark else "light") for theme in app.themes
        ]
        app.front.dialogs.choose("Theme", options, lambda name: set_theme(app, name), chosen=app.theme)


def set_theme(app: AppServices, wanted: str) -> None:
    """Switch to the theme whose name is `wanted`, else to the one with the shortest name that contains it."""
    theme = find_theme(app.themes, wanted)
    if theme is not None:
        app.theme = theme.name
    else:
        app.flash(f"Unknown theme {wanted}; available: {', '.join(theme.name for theme in app.themes)}", "error")


SPEEDS = (1, 10, 60, 300, 1000, 3600, 10_000)
"""Simulation speeds through which the actions `faster` and `slower` step."""
SLOWEST, FASTEST = SPEEDS[0], SPEEDS[-1]


def driving_handlers(screen: ConsoleScreen) -> dict[str, Handler]:
    """Return the handlers of the actions that control simulated time; their toasts and dialogs appear on `screen`."""
    return {
        "sim.pause": lambda: pause_or_resume(screen),
        "sim.step": lambda: _drive(screen, screen.console.step),
        "sim.faster": lambda: _change_speed(screen, faster=True),
        "sim.slower": lambda: _change_speed(screen, faster=False),
        "sim.speed": lambda: _ask_speed(screen),
    }


def pause_or_resume(screen: ConsoleScreen, wanted: str = "") -> None:
    """Toggle pause; if `wanted` is `pause`, only pause; if it is another word, only resume."""
    console = screen.console
    paused = console.status.paused
    if wanted and paused == (wanted == "pause"):
        screen.flash("Already paused" if paused else "Already running")
    else:
        _drive(screen, console.resume if paused else console.pause)


def set_speed(screen: ConsoleScreen, text: str) -> None:
    """Set the speed from text such as `1000` or `×60`."""
    if wrong := wrong_speed(text):
        screen.flash(f"Speed {text}: {wrong}", "error")
    else:
        _drive(screen, lambda: screen.console.set_speed(_number(text)))


def wrong_speed(text: str) -> str:
    """Return the error in a typed speed; empty if it is valid."""
    try:
        speed = _number(text)
    except ValueError:
        return "enter a number"
    return "" if SLOWEST <= speed <= FASTEST else f"must be between {SLOWEST} and {FASTEST:,}"


def _number(text: str) -> float:
    return float(text.strip().lstrip("×x").replace(",", ""))


def _change_speed(screen: ConsoleScreen, *, faster: bool) -> None:
    speed = screen.console.status.speed or SLOWEST
    steps = [step for step in SPEEDS if step > speed] if faster else [step for step in SPEEDS[::-1] if step < speed]
    _drive(screen, lambda: screen.console.set_speed(float(steps[0] if steps else speed)))


def _ask_speed(screen: ConsoleScreen) -> None:
    speed = screen.console.status.speed
    lines = (f"From {SLOWEST} to {FASTEST:,}.",)
    wanted = PromptField("Simulated seconds per second", f"{speed:g}" if speed else "", lines, wrong_speed)
    screen.dialogs.prompt(wanted, lambda text: set_speed(screen, text))


def _drive(screen: ConsoleScreen, control: Callable[[], None]) -> None:
    try:
        control()
    except ConsoleError as error:
        screen.flash(str(error), "warning")
    screen.refresh_frame()


UNREAD = "unread"


def lacking(sight: ClusterHealth | None) -> list[Missing]:
    """Return the missing permissions as table rows, then a row per problem with reading what is permitted."""
    if sight is None:
        return []
    return [*sight.missing, *(Missing(UNREAD, sentence) for sentence in sight.unread)]


def _where(right: Missing) -> str:
    if right.verb == UNREAD:
        return ""
    return right.namespace or "the whole cluster"


COLUMNS: tuple[Column[Missing], ...] = (
    Column(
        "MISSING VERB", lambda right: ((right.verb, "fault"),), id="status", width=12, sort=lambda right: right.verb
    ),
    Column("RESOURCE", lambda right: right.resource, id="name", width=30, flex=3, sort=lambda right: right.resource),
    Column("NAMESPACE", _where, width=18, flex=1, sort=_where),
)


class RightsScreen(ConsoleScreen):
    """Table of all missing permissions; the header shows how many kinds can be read."""

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key=str, empty="No missing permissions.")

    def crumb(self) -> str:
        return "permissions"

    def show(self, snapshot: Snapshot) -> None:
        self.query_one(Grid).show(lacking(self.console.status.sight))


MOST = 4_000_000
"""Maximum file size in bytes."""
NAMED = 12
"""Number of shown lines of the server's answer."""


def ask_file(screen: ConsoleScreen) -> None:
    """Ask for the path of a file with manifests, and submit the file."""
    wanted = PromptField("Submit manifests from file", "", ("A YAML or JSON file.",), wrong_file)
    screen.dialogs.prompt(wanted, lambda path: submit_file(screen, path))


def wrong_file(path: str) -> str:
    """Check the path of a file: return an error, or an empty text if the file can be read."""
    file = Path(path).expanduser()
    try:
        if not path or not file.is_file():
            return "no such file"
        return f"larger than {MOST:,} bytes" if file.stat().st_size > MOST else ""
    except (OSError, ValueError) as error:
        return str(error)


def submit_file(screen: ConsoleScreen, path: str) -> None:
    """Read a file, and ask whether to submit what is in it."""
    if refusal := screen.refusal(BY_ID["app.apply"]):
        screen.flash(refusal, "warning")
        return
    if wrong := wrong_file(path):
        screen.flash(f"{path}: {wrong}", "error")
        return
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        documents = as_documents(text)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        screen.flash(f"{path}: {' '.join(str(error).split())}", "error")
        return
    if not all(map(is_manifest, documents)):
        screen.flash(f"{path}: every document needs apiVersion, kind and metadata", "error")
        return
    loaded, desk = screen.console.check(text), screen.console.object_access
    if desk is not None:
        run_in_background(
            screen, lambda: desk.rehearse(documents), lambda said: _ask(screen, path, loaded, documents, said)
        )
    elif loaded.has_errors or not loaded.objects:
        found = next((finding for finding in loaded.findings), None)
        screen.flash(f"{path}: {f'{found.path}: {found.problem}' if found else 'no manifest in the file'}", "error")
    else:
        _ask(screen, path, loaded, documents, [obj.key for obj in loaded.objects])


def is_manifest(document: str) -> bool:
    """Return whether a JSON document has the fields of a manifest."""
    found = msgspec.json.decode(document)
    return isinstance(found, dict) and {"apiVersion", "kind", "metadata"} <= found.keys()


def _ask(
    screen: ConsoleScreen, path: str, loaded: LoadedManifests, documents: tuple[str, ...], answers: Sequence[str]
) -> None:
    title = f"Submit {len(answers)} object{'s' if len(answers) != 1 else ''} from {clean(path, 80)}?"
    objects = () if loaded.has_errors else loaded.objects
    said = f"Submitted {len(answers)} objects"
    screen.dialogs.ask(
        Question(title, answer_lines(answers), yes="Submit"),
        lambda: screen.send([Submit(objects, documents)], said),
    )


def answer_lines(answers: Sequence[str]) -> tuple[Cell, ...]:
    """Format the server's answers to a dry run, at most `NAMED` of them."""
    more = len(answers) - NAMED
    lines: list[Cell] = [(("✓ ", "good"), (clean(answer, 200), "")) for answer in answers[:NAMED]]
    return (*lines, *((f"… and {more} more",) if more > 0 else ()))


PICTURE = ".svg"
SUFFIXES = (*TableFormat, PICTURE)
"""The formats of exported files: of a table, and of the whole screen."""
LONGEST = 80
"""Maximum length of a proposed file name, without its suffix."""
ReadTable = Callable[[], Table]
"""Makes the cells of the table that was shown when the export began. It may run in a thread."""


def _read_table(screen: ConsoleScreen) -> ReadTable | None:
    """The visible columns and filtered rows of the table in front; None without rows."""
    grid = screen.grid
    return partial(table_of_rows, grid.visible_columns, grid.rows) if grid is not None and grid.rows else None


def ask_export(screen: ConsoleScreen) -> None:
    """Ask for the path of a file, and export the table in front or the screen to it."""
    read = _read_table(screen)
    lines = ("Format by suffix: .csv, .json or .md for the table, .svg for the screen.",)
    proposed = proposed_file(screen.crumb(), TableFormat.CSV if read is not None else PICTURE)
    wanted = PromptField("Export to file", proposed, lines, lambda path: wrong_export(path, read))
    screen.dialogs.prompt(wanted, lambda path: export(screen, path, read))


def proposed_file(name: str, suffix: str) -> str:
    """Return the name of a file that does not exist in the current directory, such as `workloads-2.csv`."""
    stem = re.sub(r"[^\w.-]+", "-", name)[:LONGEST].strip("-.") or "screen"
    names = (f"{stem}{suffix}", *(f"{stem}-{number}{suffix}" for number in range(2, 1000)))
    return next((one for one in names if not os.path.lexists(one)), names[0])


def wrong_export(path: str, read: ReadTable | None) -> str:
    """Check the path of a file to export to: return an error, or an empty text if it can be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        return f"the name must end in {', '.join(SUFFIXES[:-1])} or {PICTURE}"
    if read is None and suffix != PICTURE:
        return "this screen has no table with rows; .svg draws the screen"
    try:
        file = Path(path).expanduser()
        if not file.parent.is_dir():
            return f"no such directory: {file.parent}"
        return "is a directory" if file.is_dir() else ""
    except (OSError, ValueError, RuntimeError) as error:
        return str(error)


def export(screen: ConsoleScreen, path: str, read: ReadTable | None) -> None:
    """Write a table or the screen to a file; asks before an existing file is replaced."""
    if wrong := wrong_export(path, read):
        screen.flash(f"{path}: {wrong}", "error")
        return
    file = Path(path).expanduser()
    if not os.path.lexists(file):
        _export(screen, file, read, replace=False)
        return
    question = Question(f"Replace {clean(path, 80)}?", ("The file exists; its contents will be lost.",), yes="Replace")
    screen.dialogs.ask(question, lambda: _export(screen, file, read, replace=True))


def _export(screen: ConsoleScreen, file: Path, read: ReadTable | None, *, replace: bool) -> None:
    suffix = file.suffix.lower()

    def write_table(read: ReadTable) -> str:
        table = read()
        _save(file, table_file(table, TableFormat(suffix)), replace)
        return f"Exported {counted(len(table.rows), 'row')} to {file.absolute()}"

    def write_picture() -> None:
        picture = screen.app.export_screenshot(title=f"gpuconsole · {clean(screen.crumb())}")
        work = partial(_save, file, picture, replace)
        run_in_background(screen, work, lambda _: screen.flash(f"Exported the screen to {file.absolute()}"))

    if suffix == PICTURE:
        # The dialog must not be in the picture.
        screen.call_after_refresh(write_picture)
    elif read is not None:
        run_in_background(screen, partial(write_table, read), screen.flash)


def _save(file: Path, text: str, replace: bool) -> None:
    """Write a file that only its owner can read. Without `replace` it must not exist. Raises ConsoleError."""
    try:
        if replace:
            descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".gpuconsole-")
            written = Path(name)
        else:
            descriptor, written = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), file
        try:
            with open(descriptor, "w", encoding="utf-8", errors="replace", newline="") as opened:
                opened.write(text)
            written.replace(file)
        except BaseException:
            written.unlink()
            raise
    except OSError as error:
        raise ConsoleError(f"{file}: not exported: {error.strerror or error}") from error


def handlers(app: AppServices) -> dict[str, Handler]:
    """Return the actions that every screen offers: action id → function that runs it."""
    screen = app.front
    return {
        "app.palette": partial(_open_palette, app),
        "app.help": lambda: app.open(HelpScreen()),
        "app.glossary": partial(_open_glossary, app),
        "app.back": partial(_back_or_quit, app),
        "app.quit": app.exit,
        "app.previous": partial(app.step, -1),
        "app.next": partial(app.step, 1),
        "app.last": app.go_to_last_view,
        "app.theme": partial(ask_theme, app),
        "app.namespaces": partial(ask_namespaces, app),
        "app.context": partial(ask_context, app),
        "app.forwards": lambda: app.open(ForwardsScreen()),
        **{f"answer.{name}": partial(_show_answer, app, name) for name in ANSWERS},
        **{f"list.{name}": partial(_open_list, app, name) for name in LISTS},
        "app.view": partial(run_view, app, ""),
        "app.copy": partial(ask_copy, app),
        **(
            {"table.columns": partial(ask_columns, screen)}
            if screen is not None and screen.stands and screen.grid is not None
            else {}
        ),
        "app.rights": lambda: app.open(RightsScreen()),
        "app.messages": lambda: app.open(MessagesScreen()),
        "app.tour": lambda: app.open(load("tour").TourScreen()),
        "app.apply": lambda: ask_file(screen) if screen is not None else None,
        "app.export": lambda: ask_export(screen) if screen is not None else None,
        "app.all-namespaces": partial(show_namespaces, app, frozenset()),
        "app.suspend": app.action_suspend_process,
        **{f"view.{name}": partial(app.go, name) for name in VIEWS},
        **(driving_handlers(screen) if screen is not None else {}),
        **app.time_travel.handlers(),
    }


def run_command_line(app: AppServices, line: CommandLineRead) -> None:
    """Run a line of the `:` prompt."""
    screen = app.front
    if screen is None:
        return
    if refusal := _refusal(screen, line):
        screen.flash(refusal, "warning")
        return
    if line.context and line.context != app.cluster.status.source:
        there = replace(line, context="")
        go_to(app, line.context, then=lambda: run_command_line(app, there))
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
        case "app.export" if line.argument:
            export(screen, line.argument, _read_table(screen))
        case "answer.plot" if line.argument:
            load("plots").plot(screen, line.argument)
        case "answer.drills" if line.argument:
            load("drill").play_drill(screen, line.argument)
        case "time.open" if line.argument:
            app.time_travel.go_to(line.argument)
        case "app.copy" if line.argument:
            copy(app, line.argument)
        case "app.view" if line.argument:
            run_view(app, line.argument)
        case "app.theme" if line.argument:
            set_theme(app, line.argument)
        case "sim.speed" if line.argument:
            set_speed(screen, line.argument)
        case "sim.pause":
            pause_or_resume(screen, line.alias)
        case _:
            screen.actions.run(line.action)
    if line.namespaces is not None:
        show_namespaces(app, line.namespaces)
    if line.filter and line.action.scope is Scope.LISTS and app.front is not None:
        app.front.arrive(filtered=line.filter)
    elif line.filter:
        app.go(app.view, filtered=line.filter)


def _refusal(screen: ConsoleScreen, line: CommandLineRead) -> str:
    """Why a line with an argument or a context cannot be run; what has neither is refused as its key is."""
    if line.context and (refusal := screen.refusal(BY_ID["app.context"])):
        return refusal
    if not line.argument:
        return ""
    return screen.refusal(BY_ID["drill.file"] if line.action.id == "answer.drills" else line.action)


def _open_glossary(app: AppServices) -> None:
    """Open the glossary at the picked column head of the table in front."""
    app.open(GlossaryScreen(app.front.picked_head if app.front is not None else ""))


def _open_palette(app: AppServices) -> None:
    screen = app.front
    if screen is not None:
        app.push_screen(
            Palette(screen.actions.entries()), lambda id: screen.actions.run_id(id) if id is not None else None
        )


def _show_answer(app: AppServices, name: str) -> None:
    """Open a report; if it is already active, refresh it."""
    wanted, front = answer_screen(name), app.front
    if front is not None and front.same(wanted):
        front.actions.run_id("app.refresh")
    else:
        app.open(wanted)


def _open_list(app: AppServices, name: str) -> None:
    """Open a list of objects above the screen in front."""
    app.open(list_screen(name))


def _back_or_quit(app: AppServices) -> None:
    if len(app.screen_stack) > 1:
        app.up()
        return
    live = app.cluster.status.sight is not None
    ends = "The cluster is not affected" if live else "The simulation ends"
    question = Question("Quit gpuconsole?", (f"{ends}; its history is kept.",), yes="Quit")
    app.push_screen(Confirm(question), lambda yes: app.exit() if yes else None)
