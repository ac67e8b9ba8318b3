"""Switching to another context or other namespaces: a new console is opened, and the app uses it."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.widgets.confirm import ChoiceOption

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp

NONE = "No kubeconfig: :ctx needs --live"


class Contexts(Protocol):
    """The contexts that the console can switch to. Both methods may block and raise ConsoleError."""

    @property
    def namespaces(self) -> Collection[str]:
        """The namespaces that the current console reads; none = all that RBAC allows."""

    def names(self) -> Sequence[str]:
        """The contexts of the kubeconfig."""

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        """A console for that context, not started; it takes over the resources of `leaving`."""


def lies_elsewhere(contexts: Contexts, status: ConsoleStatus, names: Collection[str]) -> bool:
    """True if these namespaces (none = all) were not read, but could be readable one by one."""
    limits, sight = contexts.namespaces, status.sight
    if not names:
        return bool(limits)
    partial = sight is not None and any(not right.namespace for right in sight.missing)
    return (bool(limits) or partial) and not set(names) <= set(limits)


def ask_context(app: "ConsoleApp") -> None:
    """Ask for a context."""
    screen, contexts = app.front, app.contexts
    if screen is None or contexts is None:
        app.flash(NONE, "warning")
        return
    here = app.cluster.status.source

    def offer(names: Sequence[str]) -> None:
        options = [ChoiceOption(name, name, refused="current context" if name == here else "") for name in names]
        screen.choose("Context", options, lambda name: go_to(app, name), chosen=here)

    run_in_background(screen, contexts.names, offer)


def go_to(app: "ConsoleApp", context: str, namespaces: Collection[str] = ()) -> None:
    """Open a context in the background; the current one stays until the new one is connected."""
    screen, contexts, leaving = app.front, app.contexts, app.cluster
    if screen is None or contexts is None:
        app.flash(NONE, "warning")
        return
    app.flash(f"Connecting to {context} …")
    run_in_background(screen, lambda: contexts.open(context, namespaces, leaving), app.rebind)
