"""Replays of the paper's traces, beside what its authors published; and the random numbers that give the same runs."""

import gzip
from pathlib import Path

import pytest

from gpuconsole.scheduling.kube.packing.policies import PolicyName
from tests.support.shared_material import TRACES, needs_traces
from tests.tools import fgd
from tests.tools.go_random import GoRandom


def test_go_draws_the_numbers_that_it_is_known_for() -> None:
    """`rand.New(rand.NewSource(1)).Intn(100)`, as the Go tour prints them."""
    draws = GoRandom(1)
    assert [draws.randrange(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_a_permutation_and_a_shuffle_keep_everything() -> None:
    things = list(range(50))
    GoRandom(42).shuffle(things)
    assert things != list(range(50))
    assert sorted(things) == sorted(GoRandom(42).permutation(50)) == list(range(50))


PUBLISHED: dict[PolicyName, tuple[float, float]] = {"fgd": (95.14, 95.29), "best-fit": (92.94, 93.13)}
"""Allocated GPU % at 100 % and at 130 % arrived: the published run with seed 42, workload default."""


@pytest.fixture(scope="module")
def measured() -> list[fgd.Measured]:
    """The default workload through two policies, with three seeds."""
    assert TRACES is not None
    return [fgd.replay(TRACES, fgd.Run("default", policy, seed)) for policy in PUBLISHED for seed in fgd.SEEDS[:3]]


@needs_traces
def test_a_run_is_the_published_run_with_its_seed(measured: list[fgd.Measured]) -> None:
    first = {one.run.policy: one.values for one in measured if one.run.seed == 42}
    for policy, figures in PUBLISHED.items():
        ours = tuple(first[policy]["alloc_pct", arrived] for arrived in fgd.ARRIVED)
        assert ours == pytest.approx(figures, abs=0.005)


@needs_traces
def test_the_default_workload_is_within_the_bar(measured: list[fgd.Measured]) -> None:
    assert TRACES is not None
    cells = fgd.compare(measured, fgd.expected(TRACES))
    assert len(cells) == len(PUBLISHED) * len(fgd.ARRIVED) * len(fgd.METRICS)
    assert {key: cell for key, cell in cells.items() if abs(cell.difference) > fgd.BAR} == {}


@pytest.mark.parametrize(
    ("share", "pace", "asked", "want"),
    [(100.0, 0.0, 10, 10), (100.0, 10.0, 10, 10), (99.0, 10.0, 10, 9), (1.0, 10.0, 10, 3), (-5.0, 10.0, 2, 2)],
)
def test_seeds_beyond_the_third_are_left_out_where_time_is_short(
    share: float, pace: float, asked: int, want: int
) -> None:
    assert fgd.affordable(share, pace, asked) == want


def test_without_traces_the_report_says_that_it_was_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fgd, "TRACES", None)
    assert fgd.main([]) == 0
    assert "SKIPPED" in capsys.readouterr().out


def test_a_folder_without_traces_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fgd, "TRACES", tmp_path)
    assert fgd.main([]) == 2
    assert str(tmp_path / "fgd-expected" / "summary.csv.gz") in capsys.readouterr().err


def test_a_workload_without_a_list_of_pods_is_said_to_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fgd, "TRACES", tiny(tmp_path, 100.0))
    (tmp_path / "alibaba-gpu-v2023" / "openb_pod_list_tiny.csv").unlink()
    assert fgd.main([]) == 0
    assert "tiny SKIPPED" in capsys.readouterr().err


SUMMARY = """metric,workload,policy,arrived_pct,mean,std,min,max,n
alloc_pct,openb_pod_list_tiny,05-BestFit,100,{mean},0,0,0,10
"""


def tiny(folder: Path, mean: float) -> Path:
    """A folder of the same form: two nodes with a GPU each, one kind of pod."""
    (folder / "fgd-expected").mkdir()
    (folder / "alibaba-gpu-v2023").mkdir()
    with gzip.open(folder / "fgd-expected" / "summary.csv.gz", "wt") as text:
        text.write(SUMMARY.format(mean=mean))
    nodes, pods = (
        folder / "alibaba-gpu-v2023" / f"openb_{name}.csv" for name in ("node_list_gpu_node", "pod_list_tiny")
    )
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,9000,900,1,T4\nb,9000,900,1,T4\n")
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "p,1,1,1,20\n" * 100)
    return folder


@pytest.mark.parametrize(("mean", "status"), [(100.0, 0), (98.0, 1)])
def test_the_status_says_whether_all_is_within_the_bar(
    mean: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fgd, "TRACES", tiny(tmp_path, mean))
    monkeypatch.setattr(fgd, "PROCESSES", 1)
    assert fgd.main(["tiny", "--seeds", "1"]) == status
    assert f"{mean:8.2f}{100 - mean:+7.2f}" in capsys.readouterr().out
