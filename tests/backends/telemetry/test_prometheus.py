"""What a Prometheus says of DCGM's exporters becomes columns by node; what it does not say stays missing."""

from collections.abc import Callable

import httpx
import pytest

from gpuconsole.backends.telemetry.feed import Scrape
from gpuconsole.backends.telemetry.prometheus import LOOK_BACK, Prometheus
from gpuconsole.errors import TelemetryError
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from tests.support.prometheus_answers import NOW, SCRAPED, FakePrometheus, Series, series, vector

USED, UTIL, ACTIVE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
TRAIN = {"pod": "train-0", "namespace": "team-a", "container": "main"}


def looked(*known: Series, nodes: tuple[str, ...] = ("gpu-a", "gpu-b")) -> Scrape:
    return Prometheus(FakePrometheus(*known).http).read(nodes.__contains__, NOW, MINUTE)


def only(look: Scrape) -> NodeTelemetry:
    (node,) = look.nodes
    return node


def test_a_gpu_with_all_that_is_known_of_it() -> None:
    look = looked(
        series(USED, "60000", **TRAIN),
        series(UTIL, "97", **TRAIN),
        series("DCGM_FI_PROF_SM_ACTIVE", "0.81", **TRAIN),
        series("DCGM_FI_DEV_POWER_USAGE", "640.25", **TRAIN),
        series("DCGM_FI_DEV_XID_ERRORS", "0", **TRAIN),
    )
    assert only(look) == NodeTelemetry(
        name="gpu-a",
        time=SCRAPED * 1_000_000,
        source="http://prometheus:9090",
        lasts=MINUTE,
        devices=(
            MeasuredDevice(
                gpu=0, uuid="GPU-6f0c", model="NVIDIA H100 80GB HBM3", pod="team-a/train-0", container="main"
            ),
        ),
        columns={
            GpuMetric.MEMORY_USED: (60000.0,),
            GpuMetric.POWER: (640.25,),
            GpuMetric.SM: (0.81,),
            GpuMetric.UTILISATION: (97.0,),
            GpuMetric.XID: (0.0,),
        },
    )
    assert look.troubles == ()


def test_devices_stand_in_the_order_of_their_numbers_and_a_missing_series_is_no_zero() -> None:
    node = only(
        looked(
            series(USED, "1", gpu="10"),
            series(USED, "2", gpu="2"),
            series(UTIL, "50", gpu="10"),
        )
    )
    assert [device.gpu for device in node.devices] == [2, 10]
    assert node.columns == {GpuMetric.MEMORY_USED: (2.0, 1.0), GpuMetric.UTILISATION: (None, 50.0)}


def test_mig_instances_stand_beside_their_gpu_which_alone_has_a_utilisation() -> None:
    mig = {"GPU_I_ID": "3", "GPU_I_PROFILE": "1g.10gb"}
    node = only(looked(series(USED, "9000", **mig, **TRAIN), series(ACTIVE, "0.2", **mig), series(UTIL, "55")))
    assert [(one.place, one.profile, one.pod) for one in node.devices] == [
        ((0, -1), "", ""),
        ((0, 3), "1g.10gb", "team-a/train-0"),
    ]
    assert node.columns[GpuMetric.UTILISATION] == (55.0, None)
    assert node.columns[GpuMetric.ACTIVE] == (None, 0.2)


def test_pods_are_taken_from_the_exported_labels_where_the_scrape_renamed_them() -> None:
    scrape = {"pod": "nvidia-dcgm-exporter-x7", "namespace": "gpu-operator", "container": "exporter"}
    told = {"exported_pod": "train-0", "exported_namespace": "team-a", "exported_container": "main"}
    node = only(looked(series(USED, "1", **scrape, **told), series(USED, "2", gpu="1", **scrape)))
    assert [device.pod for device in node.devices] == ["team-a/train-0", ""]


def test_the_exporter_itself_owns_no_gpu() -> None:
    node = only(looked(series(USED, "1", pod="nvidia-dcgm-exporter-x7", namespace="gpu-operator")))
    assert node.devices[0].pod == ""


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        pytest.param({"Hostname": "gpu-a"}, "gpu-a", id="the exporter's host name"),
        pytest.param({"Hostname": "", "hostname": "gpu-b"}, "gpu-b", id="written small"),
        pytest.param({"Hostname": "dcgm-exporter-x7", "node": "gpu-b"}, "gpu-b", id="a label of the scrape"),
        pytest.param({"Hostname": "gpu-b.example.org"}, "gpu-b", id="a full name"),
        pytest.param({"Hostname": "", "instance": "gpu-b:9400"}, "gpu-b", id="the address"),
        pytest.param({"Hostname": "elsewhere", "node": "nowhere"}, "elsewhere", id="none of the cluster"),
    ],
)
def test_a_series_finds_its_node(labels: dict[str, str], node: str) -> None:
    assert only(looked(series(USED, "1", **labels))).name == node


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "2147483632", "9223372036854775794", "what"])
def test_what_is_no_value_is_missing(value: str) -> None:
    prometheus = FakePrometheus(series(USED, "100"))
    prometheus.instead = lambda query: vector([({"Hostname": "gpu-a", "gpu": "0"}, value)]) if UTIL in query else None
    node = only(Prometheus(prometheus.http).read(("gpu-a",).__contains__, NOW, MINUTE))
    assert node.columns == {GpuMetric.MEMORY_USED: (100.0,)}
    assert node.value(0, GpuMetric.UTILISATION) is None


def test_of_pods_that_share_a_gpu_the_largest_value_and_always_the_same_owner_are_kept() -> None:
    pods = [series(USED, value, pod=pod, namespace="n") for pod, value in (("b", "10"), ("a", "30"), ("c", "20"))]
    assert only(looked(*pods)) == only(looked(*reversed(pods)))
    assert (only(looked(*pods)).devices[0].pod, only(looked(*pods)).columns[GpuMetric.MEMORY_USED]) == ("n/a", (30.0,))


def test_hostile_labels_are_cleaned_and_nonsense_is_counted() -> None:
    look = looked(
        series(USED, "1", modelName="\x1b[2Jboo\u202e", UUID="U" * 5000, pod="p\x07", namespace="n"),
        series(USED, "1", gpu="zero", device="sda"),
        series(USED, "1", gpu="99999999999", device=""),
        series(USED, "1", GPU_I_ID="../etc"),
        series(USED, "1", Hostname="", instance=""),
    )
    (device,) = only(look).devices
    assert (device.model, len(device.uuid), device.pod) == ("�[2Jboo�", 96, "n/p�")
    assert look.unusable == 4


def test_each_metric_is_one_query_without_the_labels_that_nobody_needs() -> None:
    prometheus = FakePrometheus(series(USED, "1", **TRAIN), series(UTIL, "5", **TRAIN))
    taken: list[int] = []
    Prometheus(prometheus.http, budget=lambda: taken.append(1)).read(("gpu-a",).__contains__, NOW, MINUTE)
    assert len(taken) == len(prometheus.queries) == 21
    by_metric = {
        query.rpartition("(")[2].rstrip(")"): query for query in prometheus.queries if "timestamp" not in query
    }
    assert "exported_pod" in by_metric[USED]
    assert "pod" not in by_metric[UTIL]
    assert not any("DCGM_FI_DRIVER_VERSION" in query or "pci_bus_id" in query for query in prometheus.queries)


def test_the_first_look_asks_who_did_nothing_for_long_and_later_ones_do_not() -> None:
    prometheus = FakePrometheus(series(USED, "3"), series(UTIL, "0"))
    prometheus.instead = lambda query: (
        vector([({"Hostname": "gpu-a", "gpu": "0"}, "0")]) if "max_over_time" in query else None
    )
    source = Prometheus(prometheus.http)
    assert source.read(("gpu-a",).__contains__, NOW, MINUTE).idle == {("gpu-a", 0, -1): NOW - LOOK_BACK}
    assert source.read(("gpu-a",).__contains__, NOW, MINUTE).idle == {}


def test_a_metric_that_fails_costs_that_metric_only() -> None:
    prometheus = FakePrometheus(series(USED, "3"), series(UTIL, "7"))
    prometheus.instead = lambda query: httpx.Response(503, text="overloaded") if "SM_ACTIVE" in query else None
    look = Prometheus(prometheus.http).read(("gpu-a",).__contains__, NOW, MINUTE)
    assert only(look).columns == {GpuMetric.MEMORY_USED: (3.0,), GpuMetric.UTILISATION: (7.0,)}
    assert look.troubles == ("http://prometheus:9090/api/v1/query: HTTP 503 overloaded",)


def _cut(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the connection was closed")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(
            lambda _: httpx.Response(200, content=b'{"status":"error","errorType":"bad_data","error":"too many"}'),
            "http://prometheus:9090/api/v1/query: too many",
            id="it says no",
        ),
        pytest.param(
            lambda _: httpx.Response(422, content=b'{"status":"error","error":"query timed out"}'),
            "http://prometheus:9090/api/v1/query: HTTP 422 query timed out",
            id="it refuses",
        ),
        pytest.param(
            lambda _: httpx.Response(401, text="Unauthorized"),
            "http://prometheus:9090/api/v1/query: HTTP 401 Unauthorized; "
            "set live.telemetry.token_file to a file with a bearer token",
            id="it wants credentials",
        ),
        pytest.param(
            lambda _: httpx.Response(302, headers={"Location": "https://me:pw@login/?next=x"}),
            "http://prometheus:9090/api/v1/query: HTTP 302 redirects to https://login/?next=x; use the "
            "URL behind the login page",
            id="a log-in",
        ),
        pytest.param(
            lambda _: httpx.Response(200, text="<html>Grafana</html>"),
            "http://prometheus:9090/api/v1/query: an HTML page; is this the URL of the Prometheus API?",
            id="a web page",
        ),
        pytest.param(
            lambda _: httpx.Response(200, content=b'{"status":"success","data":{"resultType":"vector","result":[]}}'),
            "http://prometheus:9090: no DCGM metrics (DCGM_FI_…); does this Prometheus scrape the DCGM exporter?",
            id="another Prometheus",
        ),
        pytest.param(
            lambda _: httpx.Response(200, content=b"[" * 200_000),
            "http://prometheus:9090/api/v1/query: not a response of Prometheus; is this the URL of the Prometheus API?",
            id="brackets without end",
        ),
        pytest.param(_cut, "http://prometheus:9090/api/v1/query: the connection was closed", id="it breaks off"),
    ],
)
def test_what_is_wrong_is_said_with_the_address_and_without_the_password(
    answer: Callable[[httpx.Request], httpx.Response], text: str
) -> None:
    prometheus = FakePrometheus()
    prometheus.answer = answer  # type: ignore[method-assign, assignment]
    with pytest.raises(TelemetryError) as raised:
        Prometheus(prometheus.http).read(("gpu-a",).__contains__, NOW, MINUTE)
    assert str(raised.value) == text


def test_forty_thousand_gpus_are_five_thousand_nodes() -> None:
    many = [
        series(metric, str(gpu), gpu=str(gpu), Hostname=f"n{node:04}", instance=f"n{node:04}:9400")
        for metric in (USED, UTIL)
        for node in range(5_000)
        for gpu in range(8)
    ]
    look = looked(*many)
    assert len(look.nodes) == 5_000
    assert all(node.columns[GpuMetric.UTILISATION] == tuple(map(float, range(8))) for node in look.nodes)
