"""The command as a process: signals, pipes, full disks."""

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "gpuconsole"]


def environment(state: Path) -> dict[str, str]:
    return {**os.environ, "GPUCONSOLE_STATE_DIR": str(state)}


def test_ctrl_c_ends_a_simulation_without_a_traceback(tmp_path: Path) -> None:
    # The first line of the bare mode comes when the process is up; then it waits for more.
    command = [*COMMAND, "simulate", "--cycles", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Who runs the tests in the background ignores Ctrl-C, and children inherit that.
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, text=True, env=environment(tmp_path), preexec_fn=heard, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write('{"name": "x", "start": "2026-01-05T08:00:00Z", "objects": [], "steps": []}\n')
        process.stdin.flush()
        assert process.stdout.readline() != ""
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read().strip() == ""


def test_a_reader_that_has_seen_enough_is_no_trouble(tmp_path: Path) -> None:
    command = f"{sys.executable} -m gpuconsole simulate default --until 2h -o jsonl | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment(tmp_path), check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [*COMMAND, "simulate", "default", "--until", "1m"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(tmp_path))
    assert (done.returncode, done.stderr) == (2, "gpuconsole: [Errno 28] No space left on device\n")
