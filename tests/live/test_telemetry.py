"""GPU telemetry as a real Prometheus tells it of a DCGM exporter that measures nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.api import until
from tests.live.telemetry import Exporter, Gpu, Prometheus, prometheus_binary

BINARY = prometheus_binary()
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(BINARY is None, reason="there is no Prometheus here (Debian: prometheus)"),
]
GPUS = [
    Gpu(
        node="h100-0000", index=0, namespace="team-a", pod="train-0", utilisation=97, sm=0.81, memory=60_000, power=640
    ),
    Gpu(node="h100-0000", index=1, utilisation=0, xid=79),
    Gpu(node="h100-0001", index=0, namespace="team-a", pod="notebook", profile="1g.10gb", instance=3, sm=0.2),
]


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    with Exporter(GPUS) as exporter:
        yield exporter


@pytest.mark.parametrize("as_pods", [False, True], ids=["labels as told", "labels renamed"])
def test_pods_are_named_by_whichever_label_the_scrape_left(exporter: Exporter, tmp_path: Path, as_pods: bool) -> None:
    assert BINARY is not None
    with Prometheus(BINARY, tmp_path, exporter, as_pods=as_pods) as prometheus:
        found = until(lambda: prometheus.query('DCGM_FI_DEV_GPU_UTIL{Hostname="h100-0000",gpu="0"}'))
        ((labels, value),) = found
        prefix = "exported_" if as_pods else ""
        assert (labels[f"{prefix}namespace"], labels[f"{prefix}pod"], value) == ("team-a", "train-0", 97)
        ((instance, active),) = until(lambda: prometheus.query('DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID="3"}'))
        assert (instance["GPU_I_PROFILE"], active) == ("1g.10gb", 0.2)
        exporter.change("h100-0000", 0, utilisation=3)
        until(lambda: prometheus.query('DCGM_FI_DEV_GPU_UTIL{Hostname="h100-0000",gpu="0"} == 3'))
        exporter.change("h100-0000", 0, utilisation=97)
