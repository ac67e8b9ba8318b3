"""How the worker process starts: without a second import where that is safe, and never longer than its parent lives."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuconsole.cli import run, sources
from gpuconsole.cli.options import OpenRequest
from gpuconsole.config import Config
from gpuconsole.errors import SourceError
from gpuconsole.workers import client as worker_client

PARENT = """
import os, signal
from gpuconsole.workers.client import Worker
print(Worker().process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("platform", "threads", "way"), [("linux", 1, "fork"), ("linux", 2, "spawn"), ("darwin", 1, "spawn")]
)
def test_a_process_is_forked_only_where_no_other_thread_can_be_in_the_middle_of_something(
    platform: str, threads: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    assert worker_client._process_context() == way


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_worker_whose_parent_was_killed_ends() -> None:
    # A process of its own, which takes a second: nobody else can be killed.
    told = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=False).stdout
    place = Path(f"/proc/{int(told)}")
    deadline = time.monotonic() + 30
    while place.exists() and "State:\tZ" not in (place / "status").read_text():
        assert time.monotonic() < deadline, "it waits for somebody who is gone"
        time.sleep(0.05)


def test_it_is_forked_before_there_is_a_cluster_which_it_would_keep_beside_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    class Started:
        def __init__(self, log_file: Path | None) -> None:
            order.append("worker")

        def close(self) -> None:
            order.append("closed")

    def broken(request: OpenRequest) -> None:
        order.append("cluster")
        raise SourceError("here", "there is none")

    monkeypatch.setattr(run, "Worker", Started)
    monkeypatch.setattr(sources, "open_simulation", broken)
    with pytest.raises(SourceError):
        run._simulated(OpenRequest(), Config())
    assert order == ["worker", "cluster", "closed"]
