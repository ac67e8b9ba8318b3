"""Switches the console between contexts of a kubeconfig."""

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from gpuconsole.backends.kube.target import context_names
from gpuconsole.cli.options import OpenRequest
from gpuconsole.services.console import Console
from gpuconsole.workers.client import Worker

Open = Callable[[OpenRequest, Worker | None], Console]


class KubeContexts:
    """Opens consoles in other contexts, with the options of the first one."""

    def __init__(self, request: OpenRequest, open: Open) -> None:
        self._request = request
        self._open = open
        self.namespaces: Collection[str] = request.namespace

    def names(self) -> Sequence[str]:
        return context_names(self._request.kubeconfig)

    def open(self, context: str, namespaces: Collection[str], leaving: Console) -> Console:
        """Open a console that takes over the worker process: once the screen is drawn, no process can be started."""
        request = replace(self._request, context=context, namespace=tuple(namespaces))
        console = self._open(request, leaving.answers.worker)
        self.namespaces = request.namespace
        leaving.hand_over()
        return console
