"""Settings of all screens: displayed namespaces and theme."""

from typing import TYPE_CHECKING

from gpuconsole.ui.screens.contexts import go_to, lies_elsewhere
from gpuconsole.ui.widgets.command_line import namespaces
from gpuconsole.ui.widgets.confirm import PromptField

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp


def show_namespaces(app: "ConsoleApp", names: frozenset[str]) -> None:
    """Show only these namespaces; none = all. Reconnects to a live cluster if they were not read."""
    if app.contexts is not None and lies_elsewhere(app.contexts, app.cluster.status, names):
        go_to(app, app.cluster.status.source, sorted(names))
        return
    app.namespaces = names
    if app.front is not None:
        app.front.redraw()


def ask_namespaces(app: "ConsoleApp") -> None:
    """Ask which namespaces to show."""
    known = ", ".join(app.cluster.snapshot.namespaces) or "none yet"
    wanted = PromptField("Namespaces to show", ", ".join(sorted(app.namespaces)), (f"Known: {known}", "Empty = all."))
    if app.front is not None:
        app.front.prompt(wanted, lambda text: show_namespaces(app, namespaces(text) or frozenset()))


def next_theme(app: "ConsoleApp") -> None:
    """Switch to the next theme, cyclically."""
    names = [theme.name for theme in app.themes]
    at = names.index(app.theme) if app.theme in names else -1
    app.theme = names[(at + 1) % len(names)]


def set_theme(app: "ConsoleApp", wanted: str) -> None:
    """Switch to the first theme whose name contains `wanted`."""
    match = [theme.name for theme in app.themes if wanted in theme.name]
    if match:
        app.theme = match[0]
    else:
        app.flash(f"Unknown theme {wanted}; available: {', '.join(theme.name for theme in app.themes)}", "error")
