"""Exporters that are asked themselves: their text, whichever of them answers, and what the others said instead."""

import httpx
import pytest

from gpuconsole.backends.telemetry.dcgm import Exporters
from gpuconsole.backends.telemetry.http import Http, HttpAccess, series
from gpuconsole.errors import TelemetryError, UsageError
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.telemetry import GpuMetric
from tests.support.prometheus_answers import NOW

TEXT = """\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100",Hostname="HOST"POD} 98
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA A100",Hostname="HOST"} NaN
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100",Hostname="HOST"} 4.0e4
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",Hostname="HOST"} 3
DCGM_FI_DEV_FB_USED{gpu="1
go_goroutines 12
""".replace("POD", ',pod="t-0",namespace="n"')


def exporters(*urls: str, up: tuple[str, ...] = ("a", "b"), nodes: tuple[str, ...] = ("a", "b")) -> Exporters:
    def answer(request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host not in up:
            raise httpx.ConnectError("connection refused")
        return httpx.Response(200, text=TEXT.replace("HOST", f"dcgm-{host}"))

    return Exporters(urls, lambda: nodes, open_http=lambda url, access: Http(url, access, httpx.MockTransport(answer)))


def test_one_address_for_all_nodes() -> None:
    look = exporters("http://{node}:9400/metrics").read(("a", "b").__contains__, NOW, MINUTE)
    assert [node.name for node in look.nodes] == ["a", "b"]
    (first, _) = look.nodes
    assert (first.time, first.source, first.lasts) == (NOW, "http://{node}:9400/metrics", MINUTE)
    assert first.columns == {GpuMetric.MEMORY_USED: (40000.0, None), GpuMetric.UTILISATION: (98.0, None)}
    assert [device.pod for device in first.devices] == ["n/t-0", ""]


def test_addresses_one_by_one_find_their_nodes_by_what_they_say() -> None:
    look = exporters("http://a:9400", "http://b:9400/").read(("dcgm-a", "dcgm-b").__contains__, NOW, MINUTE)
    assert [node.name for node in look.nodes] == ["dcgm-a", "dcgm-b"]


def test_a_node_that_does_not_answer_costs_itself_only() -> None:
    look = exporters("http://{node}:9400", up=("b",)).read(("a", "b").__contains__, NOW, MINUTE)
    assert [node.name for node in look.nodes] == ["b"]
    assert look.troubles == ("http://a:9400/metrics: connection refused",)


def test_none_that_answers_is_an_error_and_no_node_is_none() -> None:
    with pytest.raises(TelemetryError, match=r"^http://a:9400/metrics: connection refused, and 1 more$"):
        exporters("http://{node}:9400", up=()).read(("a", "b").__contains__, NOW, MINUTE)
    assert exporters("http://{node}:9400", nodes=()).read(("a",).__contains__, NOW, MINUTE).nodes == ()


@pytest.mark.parametrize("url", ["gpu-a:9400", "ftp://gpu-a", "http://", "http://[::1", "http://a:b"])
def test_an_address_that_is_none_is_said_at_once(url: str) -> None:
    with pytest.raises(UsageError, match="not a URL; write it as http://"):
        Exporters([url], lambda: ())


def test_a_token_is_read_anew_for_each_request(tmp_path_factory: pytest.TempPathFactory) -> None:
    file, seen = tmp_path_factory.mktemp("token") / "token", list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"] + " " + request.headers["X-Scope-OrgID"])
        return httpx.Response(200, text="")

    access = HttpAccess(token_file=str(file), headers={"X-Scope-OrgID": "gpu"})
    http = Http("https://thanos", access, httpx.MockTransport(answer))
    for token in ("one", "two"):
        file.write_text(token + "\n")
        http.get("/metrics", {})
    assert seen == ["Bearer one gpu", "Bearer two gpu"]
    file.unlink()
    with pytest.raises(TelemetryError, match="No such file"):
        http.get("/metrics", {})


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ('m{a="x",b="y"} 1', [("m", {"a": "x", "b": "y"}, 1.0)]),
        ('m{a="x",} 1 1760000000000', [("m", {"a": "x"}, 1.0)]),
        ("m 2.5e3", [("m", {}, 2500.0)]),
        ("m{} 3", [("m", {}, 3.0)]),
        ('m { a = "x" } 4', [("m", {"a": "x"}, 4.0)]),
        (r'm{a="q\"uo\\te\n}",b=","} 5', [("m", {"a": 'q"uo\\te\n}', "b": ","}, 5.0)]),
        ('m{a="x" 1', []),
        ('m{a="x"}', []),
        ('m{a="x"} one', []),
        ('m{a=x} 1', []),
        ('other{a="x"} 1', []),
        ("# m 1", []),
        ("m{" + "a" * 30_000, []),
    ],
)  # fmt: skip
def test_lines_of_the_exposition_format(line: str, read: list[tuple[str, dict[str, str], float]]) -> None:
    assert list(series(f"# TYPE m gauge\n{line}\n\n", ("m",))) == read
