"""Switches the console to another context of the kubeconfig while it runs."""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from gpuconsole.backends.kube.target import context_names
from gpuconsole.cli.options import OpenRequest
from gpuconsole.services.console import Console
from gpuconsole.workers.client import Worker

Open = Callable[[OpenRequest, Worker | None], Console]
"""Connects to a live cluster, with this worker process."""


class KubeContexts:
    """Opens consoles in other contexts, with the options of the first one."""

    def __init__(self, request: OpenRequest, open: Open) -> None:
        self._request = request
        self._open = open
        self.namespaces: Collection[str] = request.namespace

    def names(self) -> Sequence[str]:
        """All contexts of the kubeconfig. Raises UsageError."""
        return context_names(self._request.kubeconfig)

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        """Open a console on another context; it takes over the worker process of the console that the user leaves.

        Once the screen is drawn, no process can be started.
        """
        request = replace(self._request, context=context, namespace=tuple(namespaces))
        console = self._open(request, leaving.answers.worker)
        self.namespaces = request.namespace
        leaving.hand_over()
        return console
