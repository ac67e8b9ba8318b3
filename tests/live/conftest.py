"""A control plane for all live tests of a run, and what stands in front of it and beside it."""

from collections.abc import Iterator

import pytest

from tests.controlplane import build
from tests.live import stock
from tests.live.controlplane import ControlPlane
from tests.live.proxy import Proxy


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
