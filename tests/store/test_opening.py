"""A history that cannot be kept is an error that says why; nothing of what lies there is changed."""

import resource
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuconsole.errors import HistoryError
from gpuconsole.store.recorder import newest
from gpuconsole.store.schema import ELSEWHERE, earlier_sessions
from tests.store.test_recorder import SUBMITTED, recorder_at

PAGE = 4096


def a_directory(path: Path) -> None:
    path.mkdir()


def a_text(path: Path) -> None:
    path.write_text("not a database, but long enough to look like one" * 100)


def half_of_a_database(path: Path) -> None:
    kept(path)
    path.write_bytes(path.read_bytes()[: 3 * PAGE])


def damaged_pages(path: Path) -> None:
    kept(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:PAGE] + b"\x5a" * (len(whole) - PAGE))


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("create table sessions (cookie text)")
        db.execute("insert into sessions values ('theirs')")
    db.close()


def of_another_program_with_migrations(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("create table _sqlite_migrations (migration_set text, name text, applied_at text)")
        db.execute("insert into _sqlite_migrations values ('bookmarks', 'first', '2026')")
    db.close()


def of_a_later_version(path: Path) -> None:
    kept(path)
    with sqlite3.connect(path) as db:
        db.execute(
            "insert into _sqlite_migrations (migration_set, name, applied_at)"
            " values ('gpuconsole', 'colours', '2031-01-01')"
        )
    db.close()


def with_a_table_missing(path: Path) -> None:
    kept(path)
    with sqlite3.connect(path) as db:
        db.execute("drop table sessions")
    db.close()


def kept(path: Path) -> None:
    recorder = recorder_at(path)
    recorder.record([SUBMITTED])
    recorder.close()
    with sqlite3.connect(path) as db:
        db.execute("pragma journal_mode = delete")
    db.close()


UNUSABLE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a directory": (a_directory, "this is a directory"),
    "a text": (a_text, "file is not a database"),
    "half of it": (half_of_a_database, "database disk image is malformed"),
    "damaged": (damaged_pages, "database disk image is malformed"),
    "another program's": (of_another_program, "not a history of gpuconsole"),
    "another program's with migrations": (of_another_program_with_migrations, "not a history of gpuconsole"),
    "a later version's": (of_a_later_version, "written by a newer version of gpuconsole"),
    "a table is missing": (with_a_table_missing, "no such table: sessions"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_history_that_cannot_be_used_is_told_and_left_as_it_is(tmp_path: Path, case: str) -> None:
    path = tmp_path / "history.db"
    make, why = UNUSABLE[case]
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(HistoryError) as refused:
        recorder_at(path)
    assert str(refused.value) == f"{path}: {why}; {ELSEWHERE}"
    assert (path.read_bytes() if path.is_file() else None) == before
    assert [one.name for one in tmp_path.iterdir()] == ["history.db"], "nothing is left beside it"


def test_a_question_to_a_foreign_file_changes_nothing_either(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    of_another_program(path)
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="not a history of gpuconsole"), earlier_sessions(path):
        pass
    assert path.read_bytes() == before


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE, limits[1]))
    try:
        with pytest.raises(HistoryError, match=r"history\.db: .*; move the file, or use another one"):
            recorder_at(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_is_full_when_the_session_begins_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    kept(path)
    with sqlite3.connect(path) as db:
        db.execute("create trigger full before insert on sessions begin select raise(fail, 'disk is full'); end")
    db.close()
    with pytest.raises(HistoryError, match="disk is full; move the file, or use another one"):
        recorder_at(path)


def test_a_damaged_table_of_migrations_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    kept(path)
    with sqlite3.connect(path) as db:
        db.execute("alter table _sqlite_migrations rename column applied_at to other")
    db.close()
    with pytest.raises(HistoryError, match="damaged"):
        recorder_at(path)


DAMAGES = {
    "a time that is a text": "update sessions set last = 'soon'",
    "a time without end": "update sessions set last = 9e999",
    "a list that is none": "update sessions set unseen = '{'",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_values_that_no_console_wrote_are_an_error_that_says_what_to_do(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "history.db"
    kept(path)
    with sqlite3.connect(path) as db:
        db.execute(DAMAGES[damage])
    db.close()
    with pytest.raises(HistoryError, match="damaged"), earlier_sessions(path) as db:
        newest(db)


@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_or_missing_history_is_read_without_sessions_and_is_not_written(
    tmp_path: Path, is_there: bool
) -> None:
    path = tmp_path / "history.db"
    if is_there:
        path.touch()
    with earlier_sessions(path) as db:
        assert newest(db) is None
    assert [(file.name, file.stat().st_size) for file in tmp_path.iterdir()] == (
        [("history.db", 0)] if is_there else []
    )
