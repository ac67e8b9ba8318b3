"""A control plane for all live tests of a run, what stands in front of it and beside it, and who looks at it."""

from collections.abc import Iterator, Sequence

import pytest

from tests.controlplane import build
from tests.live import stock
from tests.live.api import Api, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import KUEUE, OPERATOR, READER
from tests.live.kueue.controllers import KueueStandIn
from tests.live.paths import JOBS
from tests.live.proxy import Proxy
from tests.live.seeing import Seeing

RESET = r"ignore:unclosed <ssl.SSLSocket [^>]*laddr=\('127.0.0.1', \d+\)>:ResourceWarning"
"""A server that dies between a connection and its handshake: Python 3.11 forgets to close the socket it gave up."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Servers are killed here: what Python itself leaves open then says nothing about the console."""
    for item in items:
        if item.get_closest_marker("live") is not None:
            item.add_marker(pytest.mark.filterwarnings(RESET))


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """An API server with eight nodes of eight H100; every test cleans up what it makes."""
    if not build.is_built():
        pytest.fail("The control plane is not built: `make controlplane` does that")
    with ControlPlane() as plane:
        stock.fill(plane.etcd_url, stock.gpu_nodes(8, kubelet=plane.kubelet))
        yield plane


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[Proxy]:
    """A proxy in front of the API server that does no harm yet."""
    with plane.proxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def queued(plane: ControlPlane) -> Iterator[Api]:
    """Two ClusterQueues of a cohort, cq-a with 16 GPUs and cq-b with 8, and Kueue at work."""
    with stock.queues(plane.api()) as api, KueueStandIn(plane.api(KUEUE)):
        yield api


@pytest.fixture(scope="module")
def busy(queued: Api) -> Api:
    """The same with a job that runs, and one that waits."""
    queued.create(stock.job("runs", "lq-a", gpus=8, pods=2))
    until(lambda: queued.get(f"{JOBS}/runs")["status"].get("ready") == 2)
    queued.create(stock.job("waits", "lq-b", gpus=8, pods=3))
    return queued


@pytest.fixture(scope="module")
def cluster(queued: Api) -> Api:
    """What `operator` and `reader` look at; modules that need more in it say so by a fixture of this name."""
    return queued


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, cluster: Api) -> Iterator[Seeing]:
    with Seeing(plane.kubeconfig(OPERATOR)) as seeing:
        seeing.complete()
        yield seeing


@pytest.fixture(scope="module")
def reader(plane: ControlPlane, cluster: Api) -> Iterator[Seeing]:
    with Seeing(plane.kubeconfig(READER)) as seeing:
        seeing.complete()
        yield seeing
