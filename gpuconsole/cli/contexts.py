"""Switches the console to another context of the kubeconfig while it runs."""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from gpuconsole.backends.kube.target import context_names
from gpuconsole.cli.options import OpenRequest
from gpuconsole.services.console import Console
from gpuconsole.workers.client import Worker

Open = Callable[[OpenRequest, Worker | None], Console]
"""Function that opens a console on a live cluster; it takes over the worker process, if given."""


class KubeContexts:
    """Opens consoles on other contexts of the kubeconfig, with the command-line options of the first one."""

    def __init__(self, request: OpenRequest, open: Open) -> None:
        self._request = request
        self._open = open
        self.namespaces: Collection[str] = request.namespace

    def names(self) -> Sequence[str]:
        """All contexts of the kubeconfig. Raises UsageError."""
        return context_names(self._request.kubeconfig)

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        """Open a console on another context, in which it reads these namespaces; empty for all.

        It takes over the worker process of the console `leaving`, as no process can be started once the screen is
        drawn.
        """
        request = replace(self._request, context=context, namespace=tuple(namespaces))
        console = self._open(request, leaving.answers.worker)
        self.namespaces = request.namespace
        leaving.hand_over()
        return console
