"""The command line as users have it: with real latencies, in an empty folder, on a screen of 120 columns."""

from pathlib import Path

import pytest

from gpuconsole.cli import risk
from tests.support.command_line import Line


@pytest.fixture
def gpuconsole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, measured_latencies: None
) -> Line:
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", "state")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "120")
    # What-ifs run again with other latencies as long as the CPU time allows: all of them, on every machine.
    monkeypatch.setattr("time.thread_time", lambda: 0.0)
    # It tells how far it is, if it takes long.
    monkeypatch.setattr(risk, "PATIENCE", float("inf"))
    monkeypatch.chdir(tmp_path)
    return Line(monkeypatch, capsys)
