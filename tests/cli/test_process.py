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


SHORT_READS = {
    "lines while it runs": ("simulate default --until 2h -o jsonl", "head -1"),
    "one long answer": ("slots default -o json", "head -1"),
    "an answer that finds fault": ("lint default", "head -c 1"),
    "text": ("shares default", "head -1"),
    "keys": ("keys", "head -1"),
    "help": ("--help", "head -1"),
    "help of a command": ("simulate --help", "head -1"),
    "nothing is read": ("shares default", "true"),
    "an error that nobody reads": ("shares nowhere 2>&1", "true"),
}


@pytest.mark.parametrize("case", SHORT_READS)
def test_a_reader_that_has_seen_enough_is_no_trouble(tmp_path: Path, case: str) -> None:
    arguments, reader = SHORT_READS[case]
    # The reader is gone before the answer comes.
    script = f"(sleep 0.2; exec {sys.executable} -m gpuconsole {arguments}) | {reader}; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(tmp_path))
    assert done.stderr.splitlines()[-1] == ("2" if case == "an error that nobody reads" else "0")
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert len(done.stdout.splitlines()) <= 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [*COMMAND, "simulate", "default", "--until", "1m"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(tmp_path))
    assert (done.returncode, done.stderr) == (2, "gpuconsole: [Errno 28] No space left on device\n")
