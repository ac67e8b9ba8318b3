"""How busy GPUs were outlives the console, within an hour and a bound."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from gpuconsole.insight.health.telemetry import UtilizationSample
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Time
from gpuconsole.store import recorder as gpus
from gpuconsole.store.schema import open_for_reading, open_for_writing
from tests.store.test_recorder import recorder_at

NOW = 1_760_000_000 * SECOND
PLACES = ((0, -1), (1, 5))


def sample(node: str, time: Time, *percents: int) -> UtilizationSample:
    return UtilizationSample(node, time, PLACES, bytes(percents))


def kept(path: Path, source: str, *nodes: str) -> list[UtilizationSample]:
    with closing(open_for_reading(path)) as db:
        return gpus.kept(db, source, nodes, NOW - HOUR)


def test_the_next_console_on_the_cluster_knows_them(tmp_path: Path) -> None:
    first, later = sample("a", NOW - MINUTE, 10, 255), sample("a", NOW, 90, 0)
    recorder = recorder_at(tmp_path / "history.db")
    recorder.measured("prod", [first, sample("b", NOW, 1, 2)])
    recorder.measured("prod", [later])
    recorder.measured("staging", [sample("a", NOW, 3, 4)])
    recorder.close()
    assert kept(recorder.path, "prod", "a") == [first, later]
    assert kept(recorder.path, "staging", "a", "b") == [sample("a", NOW, 3, 4)]
    assert kept(recorder.path, "elsewhere", "a") == []


def test_what_is_older_than_an_hour_is_forgotten(tmp_path: Path) -> None:
    recorder = recorder_at(tmp_path / "history.db")
    recorder.measured("prod", [sample("a", NOW - HOUR, 1, 1), sample("a", NOW - HOUR + 1, 2, 2)])
    recorder.flush()
    recorder.measured("prod", [sample("a", NOW, 3, 3)])
    recorder.close()
    with closing(open_for_reading(recorder.path)) as db:
        assert gpus.kept(db, "prod", ["a"], 0) == [sample("a", NOW - HOUR + 1, 2, 2), sample("a", NOW, 3, 3)]


def test_there_is_a_bound_to_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "MOST", 2)
    recorder = recorder_at(tmp_path / "history.db")
    recorder.measured("prod", [sample(name, NOW - ago, 1, 1) for name, ago in (("a", 3), ("b", 2), ("c", 1), ("d", 0))])
    recorder.close()
    assert [one.node for one in kept(recorder.path, "prod", *"abcd")] == ["c", "d"]


@pytest.mark.parametrize("places", [b"", b"\xff", b"\x91\xa1x", "text"])
def test_a_row_that_makes_no_sense_is_left_out(tmp_path: Path, places: object) -> None:
    path = tmp_path / "history.db"
    with closing(open_for_writing(path)) as db, db:
        rows: Iterable[tuple[object, ...]] = [("prod", "a", NOW, places, b"\x01")]
        db.executemany("insert into gpu_samples values (?, ?, ?, ?, ?)", rows)
        gpus.keep(db, "prod", [sample("b", NOW, 1, 1)])
    assert kept(path, "prod", "a", "b") == [sample("b", NOW, 1, 1)]
