"""Who is to blame where the control plane cannot be built: what is to be built, or the machine."""

from pathlib import Path

import pytest

from tests.controlplane import build

FAILS = "echo 'main.go:1: undefined: x' >&2; exit 1"
FULL = "echo 'write /tmp/x: no space left on device' >&2; exit 1"
OFFLINE = "echo 'dial tcp: lookup proxy.golang.org: no such host' >&2; exit 1"


@pytest.fixture(autouse=True)
def nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILDS", tmp_path / "builds")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def go(folder: Path, *, builds: str = "exit 0", downloads: str = "exit 0") -> None:
    """A Go that does this."""
    script = folder / "go"
    script.write_text(f'#!/bin/sh\ncase "$1" in build) {builds} ;; mod) {downloads} ;; esac\n')
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("builds", "downloads", "status"),
    [(FAILS, "exit 0", 1), (FULL, "exit 0", build.NOT_HERE), (OFFLINE, OFFLINE, build.NOT_HERE)],
    ids=["what is built is wrong", "the disk is full", "there is no network"],
)
def test_a_build_that_fails_tells_whose_fault_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], builds: str, downloads: str, status: int
) -> None:
    go(tmp_path, builds=builds, downloads=downloads)
    assert build.main([]) == status
    said = capfd.readouterr().err
    assert ("on this machine" in said) == (status == build.NOT_HERE)
    assert builds.split("'")[1] in said


def test_a_build_that_takes_too_long_is_the_machines(tmp_path: Path) -> None:
    go(tmp_path, builds="sleep 20")
    assert build.main(["--limit", "0.002"]) == build.NOT_HERE


def test_where_there_is_no_go_that_is_said(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert build.main([]) == build.NOT_HERE
    assert "There is no Go here" in capfd.readouterr().err
