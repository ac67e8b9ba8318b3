"""What a console foretold is there in its next session, with what became of it."""

from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from gpuconsole.insight.forecast.estimates import ENOUGH, LOOKS, Calibration, CoverageRecord, Interval, PastEstimate
from gpuconsole.model.clock import DAY, HOUR, MINUTE
from gpuconsole.model.events import Applied
from gpuconsole.model.state import ClusterState
from gpuconsole.services.analysis import EstimateService
from gpuconsole.store import queries
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.schema import open_for_reading
from tests.support.snapshots import START, running, waiting

FIRST, SECOND = (
    PastEstimate(workload=f"a/{name}", asked_at=START, median=START + MINUTE, interval=Interval(START, START + HOUR))
    for name in ("first", "second")
)
SNAPSHOT = ClusterState(START + 2 * MINUTE)
SNAPSHOT.apply(Applied(START, running("first", "a/lq", 8, "a", minutes_ago=-1)))
SNAPSHOT.apply(Applied(START, waiting("second", "a/lq", 8)))
CAME = replace(FIRST, started=START + MINUTE)


MANY = [
    replace(FIRST, workload=f"a/{n}", asked_at=START + n % LOOKS, started=START + 2 * MINUTE) for n in range(ENOUGH)
]


def recorder_at(path: Path, source: str, mode: str = "LIVE") -> Recorder:
    opening = Opening(version="0.1.0", mode=mode, source=source)
    return Recorder(path, opening, wall=lambda: 1_000_000, interval=1e6)


def session(path: Path, source: str = "prod", mode: str = "LIVE") -> None:
    """A session that foretells two starts, sees one, and ends."""
    recorder = recorder_at(path, source, mode)
    estimates = EstimateService(recorder, source)
    estimates.take((FIRST, SECOND), START)
    estimates.see(SNAPSHOT.freeze())
    recorder.close()


def remembered(path: Path, source: str) -> list[PastEstimate]:
    with closing(open_for_reading(path)) as db:
        return queries.estimates(db, source, 10)


def test_what_was_foretold_of_a_live_cluster_and_what_came_is_in_the_history(tmp_path: Path) -> None:
    session(tmp_path / "history.db")
    assert remembered(tmp_path / "history.db", "prod") == [CAME, SECOND]


def test_another_cluster_and_a_simulation_are_not_gone_by(tmp_path: Path) -> None:
    session(tmp_path / "history.db", "staging")
    session(tmp_path / "history.db", "prod", mode="SIM")
    assert remembered(tmp_path / "history.db", "prod") == []


def test_the_next_session_learns_from_those_before(tmp_path: Path) -> None:
    recorder = recorder_at(tmp_path / "history.db", "prod")
    recorder.add_estimates(MANY)
    recorder.close()
    recorder = recorder_at(tmp_path / "history.db", "prod")
    assert EstimateService(recorder, "prod").take((), START + DAY).by == len(MANY)
    assert EstimateService(recorder, "").take((), START + DAY) == Calibration()
    recorder.close()


def test_how_good_earlier_estimates_were_is_known_as_soon_as_they_are_read() -> None:
    estimates = EstimateService()
    assert estimates.record(START + DAY) == CoverageRecord()
    estimates.take(MANY, START)
    assert estimates.record(START + DAY).judged == len(MANY)


def test_what_has_started_is_looked_for_once_a_second() -> None:
    now, foretold = [10.0], [replace(one, started=None) for one in MANY]
    running_all = ClusterState(START + 3 * MINUTE)
    for n in range(ENOUGH):
        running_all.apply(Applied(START, running(str(n), "a/lq", 8, "a", minutes_ago=-1)))
    snapshot = running_all.freeze()
    estimates = EstimateService(clock=lambda: now[0])
    estimates.take(foretold[1:], START)
    estimates.see(snapshot)
    estimates.take(foretold[:1], START)
    estimates.see(snapshot)
    assert estimates.take((), START + 3 * MINUTE) == Calibration()
    now[0] += 1.0
    estimates.see(snapshot)
    assert estimates.take((), START + 3 * MINUTE).by == ENOUGH
