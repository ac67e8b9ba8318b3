"""GPUs of a live cluster are measured once its nodes are known; what is wrong is told like all that is unread."""

from collections.abc import Callable, Iterator

import pytest

from gpuconsole.backends.kube.backend import wall
from gpuconsole.backends.telemetry.feed import Feed, Scrape
from gpuconsole.errors import TelemetryError
from gpuconsole.model.clock import Span, Time
from gpuconsole.model.telemetry import MeasuredDevice, NodeTelemetry
from tests.backends.kube.conftest import Sight
from tests.support import api_documents
from tests.support.api_server import ApiServer


class Known:
    """A source that measures whichever of two nodes is known when it is asked."""

    address = "http://prometheus"
    trouble = ""

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        if self.trouble:
            raise TelemetryError(self.trouble)
        names = [name for name in ("n0", "n9") if known(name)]
        device = (MeasuredDevice(gpu=0),)
        return Scrape(
            tuple(
                NodeTelemetry(name=name, time=now, source=self.address, lasts=lasts, devices=device) for name in names
            )
        )

    def close(self) -> None:
        """Nothing is kept."""


@pytest.fixture
def see(api: ApiServer) -> Iterator[Sight]:
    for name in ("n0", "n1"):
        api.put("nodes", api_documents.node(name))
    sight = Sight(api)
    yield sight
    sight.backend.close()


def measure(see: Sight, source: Known) -> None:
    see.backend.telemetry = Feed(source, interval=0.05, wall=wall, known=see.backend.has_node)
    see.backend.open()


def test_the_first_look_knows_the_nodes(see: Sight) -> None:
    measure(see, Known())
    snapshot = see.until(lambda s: s.telemetry)
    assert list(snapshot.telemetry) == ["n0"]
    assert see.backend.gpu_nodes == ["n0", "n1"]
    first = snapshot.telemetry["n0"].time
    see.until(lambda s: s.telemetry["n0"].time > first)


def test_trouble_is_told_until_it_is_over(see: Sight) -> None:
    source = Known()
    source.trouble = "http://prometheus: connection refused"
    measure(see, source)
    see.until(lambda _: "No telemetry from http://prometheus: connection refused" in see.backend.health.unread)
    source.trouble = ""
    see.until(lambda s: s.telemetry and see.backend.health.unread == ())
