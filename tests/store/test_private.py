"""What is kept of a cluster can be read by its owner only."""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuconsole.cli.run import log_to
from gpuconsole.store.schema import open_for_writing
from tests.store.test_recorder import SUBMITTED, recorder_at


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def modes(folder: Path) -> dict[str, str]:
    """The permissions of a folder, and of all that lies in it."""
    paths = [folder, *folder.iterdir()]
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in paths}


def test_a_new_history_is_private_with_all_that_sqlite_puts_beside_it(tmp_path: Path) -> None:
    recorder = recorder_at(tmp_path / "state" / "history.db")
    recorder.record([SUBMITTED])
    recorder.flush()
    assert modes(tmp_path / "state") == {
        "state": "0o700",
        "history.db": "0o600",
        "history.db-wal": "0o600",
        "history.db-shm": "0o600",
        "history.db-lock": "0o600",
    }
    recorder.close()


def test_what_earlier_versions_left_open_becomes_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(0o755)
    left = recorder_at(state / "history.db")
    left.record([SUBMITTED])
    left.flush()
    names = ["history.db", "history.db-wal", "history.db-shm", "history.db-lock", "gpuconsole.log", "gpuconsole.log.1"]
    for name in names:
        (state / name).touch()
        (state / name).chmod(0o644)
    state.chmod(0o755)
    with closing(open_for_writing(state / "history.db")):
        log_to(state / "gpuconsole.log", "info")
        assert modes(state) == {"state": "0o700"} | dict.fromkeys(names, "0o600")
    left.close()


def test_a_new_log_is_private_and_stays_so_when_it_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuconsole.cli.run.LARGEST", 200)
    log_to(tmp_path / "state" / "gpuconsole.log", "info")
    for n in range(8):
        logging.getLogger("test").info("a line that is long enough to rotate the log: %s", n)
    assert modes(tmp_path / "state") == {
        "state": "0o700",
        "gpuconsole.log": "0o600",
        "gpuconsole.log.1": "0o600",
        "gpuconsole.log.2": "0o600",
    }


def test_a_folder_that_holds_more_than_ours_is_left_as_it_is(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(0o755)
    (state / "theirs.txt").touch(0o644)
    recorder_at(state / "history.db").close()
    assert modes(state) == {"state": "0o755", "theirs.txt": "0o644", "history.db": "0o600"}
