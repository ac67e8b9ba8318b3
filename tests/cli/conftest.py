"""The command line for every test of this folder."""

from pathlib import Path

import pytest

from tests.support.command_line import Line


@pytest.fixture
def gpuconsole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Line:
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Line(monkeypatch, capsys)
