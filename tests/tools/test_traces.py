"""Traces: what is read from CSV, what is refused with file and line, and the stream that is made of them."""

import gzip
from pathlib import Path
from random import Random

import pytest

from gpuconsole.errors import SourceError
from gpuconsole.scheduling.kube.packing.policies import FreeCapacity, PodDemand
from tests.tools import traces
from tests.tools.traces import TraceNode, TracePod, read_nodes, read_pods, stream

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
PLAIN = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "list.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_nodes_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, NODES + "a,64000,262144,2,P100\nb,32000,1024,0,\n")
    assert read_nodes(path) == (
        TraceNode("a", FreeCapacity(64000, 262144, (1000, 1000), "P100")),
        TraceNode("b", FreeCapacity(32000, 1024)),
    )


def test_pods_are_read_compressed_or_not(tmp_path: Path) -> None:
    text = PODS + "a,1000,16,1,460,V100M16||V100M32\nb,2000,0,8,1000,\nc,500,1,0,0,\n"
    want = (
        TracePod("a", PodDemand(cpu=1000, memory=16, gpus=1, milli=460, models=("V100M16", "V100M32"))),
        TracePod("b", PodDemand(cpu=2000, memory=0, gpus=8, milli=1000)),
        TracePod("c", PodDemand(cpu=500, memory=1)),
    )
    assert read_pods(write(tmp_path, text)) == want
    packed = tmp_path / "list.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_pods(packed) == want


def test_a_list_without_models_asks_for_none(tmp_path: Path) -> None:
    assert read_pods(write(tmp_path, PLAIN + "a,1,1,1,1000\n"))[0].demand.models == ()


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("name,cpu_milli\na,1\n", 1, "no column 'memory_mib'"),
        ("", 1, "no column 'name'"),
        (PLAIN + "a,1,1,1,1000\nb,1,1\n", 3, "it has not the header's 5 fields"),
        (PLAIN + "a,1,1,1,1000,9\n", 2, "it has not the header's 5 fields"),
        (PLAIN + "a,-1,1,1,1000\n", 2, "cpu_milli: '-1' is no number"),
        (PLAIN + "a,x,1,1,1000\n", 2, "cpu_milli: 'x' is no number"),
        (PLAIN + "a,١,1,1,1000\n", 2, "cpu_milli: '١' is no number"),
        (PLAIN + f"a,{'9' * 400},1,1,1000\n", 2, "is no number from 0 to"),
        (PLAIN + "a,1,1,65,1000\n", 2, "num_gpu: '65' is no number from 0 to 64"),
        (PLAIN + "a,1,1,1,1001\n", 2, "gpu_milli: '1001' is no number from 0 to 1000"),
        (PLAIN + "a,1,1,1,0\n", 2, "gpu_milli: 1 GPUs of 0 milli"),
        (PLAIN + "a,1,1,2,500\n", 2, "gpu_milli: 2 GPUs of 500 milli; only a pod with one GPU may share it"),
        (PLAIN + "a" * 5000 + "\n", 2, "the line is longer than 4096 characters"),
        (PLAIN + 'a,"1,1,1,1000\n', 1, "invalid CSV"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(text: str, line: int, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SourceError) as caught:
        read_pods(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08 cut off", b"no gzip at all", gzip.compress(b"\xff\xfe", mtime=0)])
def test_a_broken_archive_is_told(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "list.csv.gz"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"list\.csv\.gz"):
        read_pods(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.csv: it cannot be read: No such file"):
        read_pods(tmp_path / "none.csv")


def test_a_list_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_ROWS", 3)
    assert len(read_pods(write(tmp_path, PLAIN + "a,1,1,1,1000\n" * 3))) == 3
    with pytest.raises(SourceError, match="there are more than 3 rows"):
        read_pods(write(tmp_path, PLAIN + "a,1,1,1,1000\n" * 4))


def pod(gpus: int, cpu: int = 0) -> TracePod:
    return TracePod("p", PodDemand(cpu=cpu, gpus=gpus, milli=1000 if gpus else 0))


def test_a_stream_is_every_pod_in_random_order_and_copies_up_to_the_ratio() -> None:
    pods = [pod(1, cpu=number) for number in range(10)]
    demands = stream(pods, 20_000, 1.5, Random(1))
    assert sorted(demand.cpu for demand in demands[:10]) == list(range(10))
    assert [demand.cpu for demand in demands[:10]] != list(range(10))
    assert len(demands) == 30
    assert demands == stream(pods, 20_000, 1.5, Random(1))
    assert demands != stream(pods, 20_000, 1.5, Random(2))


def test_a_stream_stops_before_a_copy_that_would_exceed_the_ratio() -> None:
    assert len(stream([pod(1)], 2_500, 1.0, Random(1))) == 2


def test_of_a_copy_with_many_gpus_only_one_counts_for_the_end() -> None:
    assert sum(demand.total for demand in stream([pod(8)], 10_000, 1.0, Random(1))) == 16_000


def test_a_stream_that_asks_for_too_much_loses_pods() -> None:
    demands = stream([pod(1)] * 10, 4_000, 1.0, Random(1))
    assert [demand.total for demand in demands] == [1000] * 4


def test_a_stream_that_asks_for_just_as_much_stays() -> None:
    demands = stream([pod(1, cpu=number) for number in range(4)], 4_000, 1.0, Random(1))
    assert sorted(demand.cpu for demand in demands) == [0, 1, 2, 3]


def test_a_stream_without_gpus_gets_no_copies() -> None:
    assert len(stream([pod(0)] * 3, 4_000, 1.3, Random(1))) == 3
