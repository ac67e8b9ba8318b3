"""GPU telemetry as a real Prometheus tells it of a DCGM exporter that measures nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuconsole.backends.kube.backend import wall
from gpuconsole.backends.telemetry.dcgm import Exporters
from gpuconsole.backends.telemetry.feed import TelemetrySource
from gpuconsole.backends.telemetry.http import Http
from gpuconsole.backends.telemetry.prometheus import Prometheus as PrometheusSource
from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.telemetry import GpuMetric, NodeTelemetry
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


NODES = ("h100-0000", "h100-0001")


def read(source: TelemetrySource) -> dict[str, NodeTelemetry]:
    try:
        return {node.name: node for node in source.read(NODES.__contains__, wall(), MINUTE).nodes}
    finally:
        source.close()


@pytest.mark.parametrize("as_pods", [False, True], ids=["labels as told", "labels renamed"])
def test_the_console_reads_it_as_it_is(exporter: Exporter, tmp_path: Path, as_pods: bool) -> None:
    assert BINARY is not None
    with Prometheus(BINARY, tmp_path, exporter, as_pods=as_pods) as prometheus:
        until(lambda: len(prometheus.query("DCGM_FI_PROF_SM_ACTIVE")) == len(GPUS))
        found = read(PrometheusSource(Http(prometheus.url)))
        whole, divided = found["h100-0000"], found["h100-0001"]
        assert [device.pod for device in whole.devices] == ["team-a/train-0", ""]
        assert whole.columns[GpuMetric.UTILISATION] == (97.0, 0.0)
        assert whole.columns[GpuMetric.SM] == (0.81, 0.0)
        assert whole.columns[GpuMetric.POWER] == (640.0, 90.0)
        assert whole.columns[GpuMetric.XID] == (0.0, 79.0)
        assert abs(wall() - whole.time) < MINUTE
        assert [(one.place, one.profile, one.pod) for one in divided.devices] == [
            ((0, 3), "1g.10gb", "team-a/notebook")
        ]
        assert divided.value(0, GpuMetric.UTILISATION) is None
        assert divided.value(0, GpuMetric.ACTIVE) == 0.2


def test_the_time_of_a_value_is_that_of_its_scrape_and_goes_on_with_it(exporter: Exporter, tmp_path: Path) -> None:
    assert BINARY is not None
    with Prometheus(BINARY, tmp_path, exporter) as prometheus:
        asked = 'timestamp(DCGM_FI_DEV_FB_USED{Hostname="h100-0000",gpu="0"})'
        until(lambda: len(prometheus.query("DCGM_FI_DEV_FB_USED")) == len(GPUS))
        source = PrometheusSource(Http(prometheus.url))
        ((_, before),) = prometheus.query(asked)
        told = read(source)["h100-0000"].time
        ((_, after),) = prometheus.query(asked)
        assert before <= told / SECOND <= after
        until(lambda: read(source)["h100-0000"].time > told)


def test_the_exporters_themselves_say_the_same(exporter: Exporter) -> None:
    source = Exporters([f"http://{exporter.address}/{{node}}"], lambda: NODES)
    found = read(source)
    assert [device.pod for device in found["h100-0000"].devices] == ["team-a/train-0", ""]
    assert found["h100-0000"].columns[GpuMetric.UTILISATION] == (97.0, 0.0)
    assert found["h100-0001"].devices[0].profile == "1g.10gb"
