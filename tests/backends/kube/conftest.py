"""An API server of our own on loopback, a backend on it, and patience."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.kube.backend import KubeBackend
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.backends.kube.watch import WatchTimings
from gpuconsole.model.events import Event, HistoryEvent
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from tests.support.api_server import ApiServer

EAGER = WatchTimings(
    page=2, lasting=60, silence=30, shortest=0.02, longest=0.1, proof=0.2, doubt=0.5, recheck=0.2, again=0.3
)
LONGEST = 20.0


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path)
    yield server
    server.close()


class Sight:
    """A backend, and what came of its events so far."""

    def __init__(self, api: ApiServer, *namespaces: str, quiet: float = 20.0, pace: WatchTimings = EAGER) -> None:
        target = RequestedCluster(kubeconfig=str(api.kubeconfig), namespaces=namespaces)
        self.backend = KubeBackend(target, pace=pace, probe_after=quiet)
        self.state = ClusterState()
        self.lines: list[HistoryEvent] = []

    def look(self) -> Snapshot:
        """Take in what came since the last time."""
        for event in self.backend.poll(0.04):
            self._take(event)
        return self.state.freeze()

    def _take(self, event: Event) -> None:
        self.state.apply(event)
        if isinstance(event, HistoryEvent):
            self.lines.append(event)

    def until(self, wanted: Callable[[Snapshot], object]) -> Snapshot:
        """Look until something is so."""
        deadline = time.monotonic() + LONGEST
        while True:
            snapshot = self.look()
            if wanted(snapshot):
                return snapshot
            assert time.monotonic() < deadline, f"it never came: {self.backend.health}"
            time.sleep(0.01)

    def loaded(self) -> Snapshot:
        """Everything was read once."""
        return self.until(lambda _: not self.backend.health.loading)


@pytest.fixture
def sight(api: ApiServer) -> Iterator[Callable[..., Sight]]:
    """Makes backends that are open, and closes them."""
    made: list[Sight] = []

    def make(*namespaces: str, quiet: float = 20.0, pace: WatchTimings = EAGER) -> Sight:
        made.append(Sight(api, *namespaces, quiet=quiet, pace=pace))
        made[-1].backend.open()
        return made[-1]

    yield make
    for one in made:
        one.backend.close()
