"""A live cluster for the screens' tests: a backend with a desk that answers from memory and notes what it is asked."""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from gpuconsole.backends.base import KubeEvent, LogLine, Manifest, PodAccess
from gpuconsole.backends.guard import AuditEntry
from gpuconsole.errors import ClusterError
from gpuconsole.model.commands import Command
from gpuconsole.model.events import Applied, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store.recorder import Recorder
from gpuconsole.ui.app import ConsoleApp
from tests.support.console_clusters import KUEUE, NOW, org_cohort


class FakeLogs:
    """Lines that a test adds."""

    def __init__(self, pods: Sequence[str], previous: bool) -> None:
        self.pods = tuple(pods)
        self.previous = previous
        self.lines: list[LogLine] = [LogLine(pod, f"hello from {pod}") for pod in pods]
        self.count = len(self.lines)
        self.closed = False

    def close(self) -> None:
        self.closed = True


class FakeDesk:
    """See `Desk`."""

    def __init__(self) -> None:
        self.forbidden: Callable[[Command | PodAccess], str] = lambda asked: ""
        self.answers: tuple[str, ...] | ClusterError = ("Job team/x would be created",)
        self.rehearsed: list[Sequence[str]] = []
        self.document: dict[str, Any] = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "cq-research", "labels": {"team": "research", "old": "yes"}},
            "spec": {"cohortName": "org-cohort", "stopPolicy": "None"},
        }
        self.said = (KubeEvent(time=NOW, warning=True, reason="FailedScheduling", message="0/3 nodes", about="Pod x"),)
        self.opened: list[FakeLogs] = []

    def refusal(self, asked: Command | PodAccess) -> str:
        return self.forbidden(asked)

    def rehearse(self, documents: Sequence[str]) -> tuple[str, ...]:
        self.rehearsed.append(documents)
        if isinstance(self.answers, ClusterError):
            raise self.answers
        return self.answers

    def manifest(self, table: str, key: str) -> Manifest:
        return Manifest(self.document, "77")

    def events(self, table: str, key: str) -> tuple[KubeEvent, ...]:
        return self.said

    def logs(self, pods: Sequence[str], *, previous: bool) -> FakeLogs:
        self.opened.append(FakeLogs(pods, previous))
        return self.opened[-1]

    def kubectl(self, *arguments: str) -> list[str]:
        return ["kubectl", "--context", "here", *arguments]


class FakeCluster:
    """See `Backend`: tells its objects once, and says of each command that it is done, or `refusing`."""

    def __init__(self, name: str = "here") -> None:
        self.name = name
        self.at = FakeDesk()
        self.sent: list[Command] = []
        self.refusing = ""
        self.closed = threading.Event()
        self._events: list[Event] = [Applied(NOW, thing) for thing in org_cohort()]

    def open(self) -> None:
        """It is always open."""

    def put(self, thing: Object) -> None:
        self._events.append(Applied(NOW, thing))

    def poll(self, elapsed: float) -> Iterable[Event]:
        events, self._events = self._events, []
        return events

    def submit(self, command: Command) -> None:
        self.sent.append(command)
        what = HistoryEventKind.COMMAND_REFUSED if self.refusing else HistoryEventKind.COMMAND_DONE
        self._events.append(HistoryEvent(time=NOW, what=what, message=self.refusing or type(command).__name__))

    def object_access(self) -> FakeDesk:
        return self.at

    def close(self) -> None:
        self.closed.set()


class LiveConsole(Console):
    """A console whose audit lines can be read."""

    entries: list[AuditEntry]

    def _audited(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


def live(
    cluster: FakeCluster,
    *,
    read_only: bool = False,
    protected: str = "",
    no_audit: bool = False,
    history: str = "",
    recorder: Recorder | None = None,
) -> LiveConsole:
    """A console on it, ticked once; `history` says why none is kept."""
    LiveConsole.entries = []
    about = ConsoleStatus(mode=ConsoleMode.LIVE, source=cluster.name, engines=KUEUE, history=history)
    console = LiveConsole(
        cluster, about=about, read_only=read_only, protected=protected, no_audit=no_audit, recorder=recorder
    )
    console.entries = []
    console.tick(0.0)
    return console


class LendingApp(ConsoleApp):
    """An app on a terminal that can be lent, as the one of the tests cannot."""

    @contextmanager
    def suspend(self) -> Any:
        yield
