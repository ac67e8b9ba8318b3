"""The command line without a process: arguments in, status and texts out."""

from pathlib import Path

import pytest

from gpuconsole.cli import _status


class Result:
    """What a run of the command line came to."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Line:
    """The command line, with a state folder of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> Result:
        self._monkeypatch.setattr("sys.argv", ["gpuconsole", *map(str, arguments)])
        status = _status()
        out, err = self._capsys.readouterr()
        return Result(status, out, err)
