"""The history: that it is not written is seen as long as it lasts; what repeats is one line with a count."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.run import ConsoleOptions, _console, _simulated
from gpuconsole.config import Config
from gpuconsole.errors import ReadOnlyError
from gpuconsole.model.clock import SECOND
from gpuconsole.model.commands import Cordon, SetStopPolicy
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.queues import StopPolicy
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.ui.paint import plain
from gpuconsole.ui.screens.history import unrecorded
from gpuconsole.ui.widgets.header_footer import fit_parts, left_parts
from tests.store.test_recorder import PREEMPTED, recorder_at
from tests.support.console_clusters import NOW, org_cohort, recorded, simulated
from tests.support.console_stage import SIZES, staged
from tests.support.live_console import FakeCluster, live
from tests.ui.test_shell import said

LOCKED = "/var/lib/someone/gpuconsole/history.db: file is not a database; move the file, or use another one"
REFUSED = f"Read-only: the audit of changes cannot be written ({LOCKED}); repair the history, or start with --no-audit"
HOLD = SetStopPolicy("cq-research", StopPolicy.HOLD)


@pytest.mark.parametrize("size", SIZES)
async def test_a_history_that_is_not_written_is_seen_on_every_screen_and_explained_on_its_own(
    size: tuple[int, int],
) -> None:
    async with staged(live(FakeCluster(), history=LOCKED), size) as stage:
        assert " NO HISTORY " in stage.lines[0]
        await stage.press("2")
        assert " NO HISTORY " in stage.lines[0]
        await stage.press("alt+0")
        assert " NO HISTORY " in stage.lines[0]
        told = " ".join(" ".join(stage.lines).split())
        assert f"The history is not recorded: {LOCKED}" in told


async def test_a_history_that_is_written_takes_no_room() -> None:
    async with staged(live(FakeCluster())) as stage:
        await stage.press("alt+0")
        assert "NO HISTORY" not in stage.text
        assert "Nothing is written" not in stage.text


async def test_a_live_cluster_is_not_changed_without_an_audit() -> None:
    cluster = FakeCluster()
    async with staged(live(cluster, history=LOCKED)) as stage:
        await stage.press("2", "j", "j", "s")
        assert "the audit of changes cannot be written" in said(stage.app)
        assert " RO " in stage.lines[0]
    assert cluster.sent == []


def test_every_write_is_refused_with_what_to_do() -> None:
    cluster = FakeCluster()
    console = live(cluster, history=LOCKED)
    with pytest.raises(ReadOnlyError) as refused:
        console.submit(HOLD)
    assert str(refused.value) == REFUSED
    with pytest.raises(ReadOnlyError):
        console.permit("shell in team/pod")
    assert cluster.sent == []


def test_no_audit_lets_a_live_cluster_be_changed_without_one() -> None:
    cluster = FakeCluster()
    console = live(cluster, history=LOCKED, no_audit=True)
    console.submit(HOLD)
    assert (cluster.sent, console.status.read_only, console.status.history) == ([HOLD], False, LOCKED)


def test_a_simulated_cluster_needs_no_audit() -> None:
    console = simulated(org_cohort())
    console._about = live(FakeCluster(), history=LOCKED)._about
    console.submit(HOLD)
    assert (console.status.history, console.status.read_only) == (LOCKED, False)


def test_a_write_that_fails_in_the_middle_refuses_changes_until_it_succeeds(tmp_path: Path) -> None:
    recorder, cluster = recorder_at(tmp_path / "history.db"), FakeCluster()
    console = live(cluster, recorder=recorder)
    blocker = sqlite3.connect(recorder.path, isolation_level=None)
    recorder._db.execute("pragma busy_timeout = 1")
    blocker.execute("begin immediate")
    recorder.flush()
    with pytest.raises(ReadOnlyError, match=r"cannot be written \(.*history.db: database is locked\)"):
        console.submit(Cordon("node-1", True))
    blocker.execute("rollback")
    blocker.close()
    recorder.flush()
    console.submit(Cordon("node-1", True))
    assert (cluster.sent, console.status.history) == ([Cordon("node-1", True)], "")
    console.stop()


def test_the_console_opens_without_the_history_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "history.db").mkdir()
    console = _simulated(OpenRequest(files=("default",)), Config(state_dir=str(tmp_path), worker=False))
    other = "move the file, or use another one (--history FILE, or GPUCONSOLE_STATE_DIR for another folder)"
    why = f"{tmp_path}/history.db: this is a directory; {other}"
    assert console.status.history == why
    assert console.notices[-1] == f"Cannot write the history: {why}"
    console.stop()


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_second_simulation_says_who_writes_the_history_and_what_to_do(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    settings = Config(state_dir=str(tmp_path), worker=False)
    first = _simulated(OpenRequest(files=("default",)), settings)
    second = _simulated(OpenRequest(files=("default",)), settings)
    second.tick(0.0)
    async with staged(second, size) as stage:
        assert f" NO HISTORY: PID {os.getpid()} writes it " in stage.lines[0]
        await stage.press("alt+0")
        told = " ".join(" ".join(stage.lines).split()).replace(" ", "")
        why = (
            f"The history is not recorded: {first.history_path}: process {os.getpid()} records to this file; end it, "
            "or record to another file (--history FILE)"
        )
        assert why.replace(" ", "") in told
    first.stop()


def live_beside(recorder: Recorder, source: str = "fake", *, no_audit: bool = False) -> Console:
    """A console on the live cluster `source`, whose file another recorder writes."""
    status = ConsoleStatus(mode=ConsoleMode.LIVE, source=source)
    options, settings = ConsoleOptions(history=recorder.path), Config(worker=False, no_audit=no_audit)
    return _console(FakeCluster(), status, settings, None, (), options=options)


def test_a_live_console_reads_the_history_that_another_process_records(tmp_path: Path) -> None:
    first = Recorder(tmp_path / "shared.db", Opening(version="1", mode="LIVE", source="fake"), wall=lambda: 0)
    first.record([PREEMPTED])
    first.flush()
    console, writer = live_beside(first), f"PID {os.getpid()}"
    assert (console.preemptions(), console.history_path, console.keeps_history) == ((PREEMPTED,), first.path, True)
    assert plain(fit_parts(left_parts(console.status, ()), 60)).startswith(f" LIVE   RO  · history by {writer} · fake")
    assert plain(unrecorded(console.status)) == (
        f"The history of this cluster is recorded by another process ({writer}), and read here. Read-only: {writer} "
        "writes the history, and so the audit of changes; end it, or start with --no-audit."
    )
    unaudited = live_beside(first, no_audit=True)
    assert plain(unrecorded(unaudited.status)) == (
        f"The history of this cluster is recorded by another process ({writer}), and read here."
    )
    other = live_beside(first, "other")
    assert (other.keeps_history, other.status.history_writer, other.status.reads_history) == (False, writer, False)
    for one in (console, unaudited, other):
        one.stop()
    first.close()


def test_a_console_with_a_history_of_its_own_leaves_the_usual_one_alone(tmp_path: Path) -> None:
    file, settings = tmp_path / "own" / "tuesday.db", Config(state_dir=str(tmp_path / "state"), worker=False)
    for sessions in (1, 2):
        console = _simulated(OpenRequest(files=("default",)), settings, ConsoleOptions(history=file))
        console.tick(0.25)
        assert (console.history_path, console.status.history) == (file, "")
        console.stop()
        with closing(sqlite3.connect(file)) as db:
            assert db.execute("select count(*), count(ended) from sessions").fetchone() == (sessions, sessions)
    assert not settings.history_file.exists()


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_what_repeats_is_one_line_with_a_count_on_the_history_screen_and_in_descriptions(
    size: tuple[int, int],
) -> None:
    refused = [
        HistoryEvent(
            time=NOW - (40 - 2 * number) * SECOND,
            what=HistoryEventKind.PENDING,
            workload="research/rlhf-2",
            reason="Pending",
            message="insufficient unused quota",
        )
        for number in range(20)
    ]
    async with staged(recorded(org_cohort(), refused), size) as stage:
        await stage.press("alt+0")
        lines = [line for line in stage.text.splitlines() if "rlhf-2" in line]
        assert len(lines) == 1
        assert "×20 in 38s" in lines[0]
        assert "09:14:18" in lines[0]
        await stage.press("3", "d")
        assert "2s ago  pending          ×20 in 38s · Pending · insufficient" in stage.text
