"""What a console foretold is there in its next session, with what became of it."""

from pathlib import Path

from gpuconsole.insight.calibration import Interval, Told
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.events import Applied
from gpuconsole.model.state import ClusterState
from gpuconsole.services.estimates import Estimates
from gpuconsole.store.recorder import Recorder
from gpuconsole.store.sessions import Opening
from tests.insight.world import START, running, waiting

FIRST, SECOND = (
    Told(workload=f"a/{name}", queue="a", asked=START, interval=Interval(START, START + HOUR))
    for name in ("first", "second")
)
SNAPSHOT = ClusterState(START + 2 * MINUTE)
SNAPSHOT.apply(Applied(START, running("first", "a/lq", 8, "a", minutes_ago=-1)))
SNAPSHOT.apply(Applied(START, waiting("second", "a/lq", 8)))
CAME = Told(workload="a/first", queue="a", asked=START, interval=Interval(START, START + HOUR), started=START + MINUTE)


def recorder_at(path: Path, source: str, mode: str = "live") -> Recorder:
    opening = Opening(version="0.1.0", mode=mode, source=source)
    return Recorder(path, opening, wall=lambda: 1_000_000, interval=1e6)


def session(path: Path, source: str = "prod", mode: str = "live") -> None:
    """A session that foretells two starts, sees one, and ends."""
    recorder = recorder_at(path, source, mode)
    estimates = Estimates(recorder, source)
    estimates.take((FIRST, SECOND))
    estimates.see(SNAPSHOT.freeze())
    recorder.close()


def remembered(path: Path, source: str) -> tuple[Told, ...]:
    recorder = recorder_at(path, source)
    found = Estimates(recorder, source).take(())
    recorder.close()
    return found


def test_the_next_session_on_a_live_cluster_knows_what_was_foretold_and_what_came(tmp_path: Path) -> None:
    session(tmp_path / "history.db")
    assert remembered(tmp_path / "history.db", "prod") == (CAME, SECOND)


def test_another_cluster_and_a_simulation_are_not_gone_by(tmp_path: Path) -> None:
    session(tmp_path / "history.db", "staging")
    session(tmp_path / "history.db", "prod", mode="sim")
    assert remembered(tmp_path / "history.db", "prod") == ()


def test_without_a_history_it_is_remembered_while_the_console_runs() -> None:
    estimates = Estimates()
    assert estimates.take((FIRST,)) == ()
    estimates.see(SNAPSHOT.freeze())
    assert estimates.take((SECOND,)) == (CAME,)


def test_what_has_started_is_looked_for_once_a_second() -> None:
    now = [10.0]
    estimates = Estimates(clock=lambda: now[0])
    estimates.take((SECOND,))
    estimates.see(SNAPSHOT.freeze())
    estimates.take((FIRST,))
    estimates.see(SNAPSHOT.freeze())
    assert estimates.take(()) == (SECOND, FIRST)
    now[0] += 1.0
    estimates.see(SNAPSHOT.freeze())
    assert estimates.take(()) == (SECOND, CAME)
