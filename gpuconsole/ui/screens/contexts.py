"""Another context, or other namespaces, without leaving: a new console is opened, and the app goes over to it."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from gpuconsole.services.console import Console
from gpuconsole.services.status import Status
from gpuconsole.ui.screens.errands import errand
from gpuconsole.ui.widgets.confirm import Option

if TYPE_CHECKING:
    from gpuconsole.ui.app import ConsoleApp

NONE = "No kubeconfig: :ctx needs --live"


class Contexts(Protocol):
    """Where the console can go. Both methods may block and raise ConsoleError."""

    @property
    def namespaces(self) -> Collection[str]:
        """Those that the console in front was opened for; none = all that may be read."""

    def names(self) -> Sequence[str]:
        """The contexts of the kubeconfig."""

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        """A console there, not started; it takes over what `leaving` would otherwise close for good."""


def lies_elsewhere(contexts: Contexts, status: Status, names: Collection[str]) -> bool:
    """True if these namespaces (none = all) were not read, and might be if they were asked for by name."""
    limits, sight = contexts.namespaces, status.sight
    if not names:
        return bool(limits)
    partial = sight is not None and any(not right.namespace for right in sight.missing)
    return (bool(limits) or partial) and not set(names) <= set(limits)


def ask_context(app: "ConsoleApp") -> None:
    """Offer all contexts."""
    screen, contexts = app.front, app.contexts
    if screen is None or contexts is None:
        app.flash(NONE, "warning")
        return
    here = app.cluster.status.source

    def offer(names: Sequence[str]) -> None:
        options = [Option(name, name, refused="current context" if name == here else "") for name in names]
        screen.choose("Context", options, lambda name: go_to(app, name), chosen=here)

    errand(screen, contexts.names, offer)


def go_to(app: "ConsoleApp", context: str, namespaces: Collection[str] = ()) -> None:
    """Open a context in the background; what is shown stays until the new one is connected."""
    screen, contexts, leaving = app.front, app.contexts, app.cluster
    if screen is None or contexts is None:
        app.flash(NONE, "warning")
        return
    app.flash(f"Connecting to {context} …")
    errand(screen, lambda: contexts.open(context, namespaces, leaving), app.rebind)
