"""`gpuconsole record` and `gpuconsole metrics`: signals, errors, the systemd unit, and the copy from a pod."""

import http.client
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from gpuconsole.cli.headless import unhealthy, unready
from gpuconsole.cli.metrics import RecordedHistory
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.record import cluster_name, pull, quote_for_systemd
from gpuconsole.cli.sources import open_simulation
from gpuconsole.config import Config
from gpuconsole.errors import ConsoleError, UsageError
from gpuconsole.model.clock import MINUTE
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store.recorder import Opening, Recorder
from tests.support.command_line import Line
from tests.support.recorded_histories import record
from tests.tools.pty_console import PtyConsole

COMMAND = [sys.executable, "-m", "gpuconsole"]
PATIENCE = 60.0
NAME = cluster_name(Config(), "arn:aws:eks/prod")
"""The context of these tests as part of file names."""


def until(so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < deadline, f"not so within {PATIENCE:.0f} s: {what}"
        time.sleep(0.05)


@contextmanager
def running(state: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until the block ends."""
    environment = {**os.environ, "GPUCONSOLE_STATE_DIR": str(state), "XDG_CONFIG_HOME": str(state / "config")}
    with (state.parent / "stderr.txt").open("w") as errors:
        process = subprocess.Popen([*COMMAND, *arguments], env=environment, text=True, stderr=errors)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(state: Path) -> str:
    return (state.parent / "stderr.txt").read_text()


def events_in(file: Path) -> int:
    """Number of recorded events, as far as the file can be read yet."""
    if not file.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            return int(db.execute("select sum(ended is null) from sessions").fetchone()[0] or 0)
    except sqlite3.Error:
        return 0


def session_ends(file: Path) -> list[tuple[bool, bool]]:
    """For each session whether it ended, and whether it was closed by a later one."""
    with closing(sqlite3.connect(file)) as db:
        rows = db.execute("select ended is not null, recovered is not null from sessions order by id").fetchall()
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    return [(bool(ended), bool(recovered)) for ended, recovered in rows]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_a_recording_in_order(tmp_path: Path, number: signal.Signals) -> None:
    state, file = tmp_path / "state", tmp_path / "recorded.db"
    with running(state, "record", "default", "--speed", "600", "--history", str(file)) as process:
        until(lambda: events_in(file), "the session has begun")
        time.sleep(1)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
    assert session_ends(file) == [(True, False)]
    first, *_, last = said(state).splitlines()
    assert f"recording default to {file}" in first
    assert "stopping; " in last
    assert " nodes, " in last
    assert "Traceback" not in said(state)


def test_a_killed_recording_is_closed_by_the_next_one(tmp_path: Path) -> None:
    state, file = tmp_path / "state", tmp_path / "recorded.db"
    arguments = ("record", "default", "--speed", "600", "--history", str(file))
    with running(state, *arguments) as process:
        until(lambda: events_in(file), "the session has begun")
        time.sleep(2)
        process.kill()
        process.wait()
    assert session_ends(file) == [(False, False)]
    with running(state, *arguments) as process:
        until(lambda: len(session_ends(file)) == 2, "the next session has begun")
        until(lambda: "recording" in said(state), "it says so")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert session_ends(file) == [(True, True), (True, False)]


def test_a_second_recorder_of_a_file_says_so_and_ends(tmp_path: Path) -> None:
    state, file = tmp_path / "state", tmp_path / "recorded.db"
    arguments = ("record", "default", "--history", str(file))
    with running(state, *arguments):
        until(lambda: "recording" in said(state), "it records")
        second = subprocess.run(
            [*COMMAND, *arguments],
            env={**os.environ, "GPUCONSOLE_STATE_DIR": str(state)},
            capture_output=True,
            text=True,
        )
    assert second.returncode == 2
    assert str(file) in second.stderr
    assert "records to this file" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_console_on_the_file_of_a_recorder_names_it_and_leaves_the_file_to_it(tmp_path: Path) -> None:
    state, file = tmp_path / "state", tmp_path / "recorded.db"
    environment = {"GPUCONSOLE_STATE_DIR": str(state), "XDG_CONFIG_HOME": str(tmp_path)}
    with running(state, "record", "default", "--speed", "600", "--history", str(file)) as process:
        until(lambda: events_in(file), "the session has begun")
        with PtyConsole([*COMMAND, "run", "--history", str(file)], 160, 50, environment) as console:
            console.wait(f"NO HISTORY: PID {process.pid} writes it")
            os.kill(console.pid, signal.SIGTERM)
            assert console.end(PATIENCE)[1] == 0
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert session_ends(file) == [(True, False)]
    assert not (state / "history.db").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, gpuconsole: Line) -> None:
    folder = tmp_path / "fixed"
    folder.mkdir(mode=0o500)
    done = gpuconsole("record", "default", "--history", folder / "history.db")
    assert done.status == 2
    assert str(folder) in done.err


def test_a_history_that_cannot_be_written_is_an_error(tmp_path: Path, gpuconsole: Line) -> None:
    file = tmp_path / "history.db"
    file.write_text("no database")
    done = gpuconsole("record", "default", "--history", file)
    assert done.status == 2
    assert str(file) in done.err
    assert file.read_text() == "no database", "nothing is overwritten"


def answer(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def port_in(state: Path) -> int:
    """The port that the system has chosen for the metrics."""
    text = said(state)
    return int(text.partition("127.0.0.1:")[2].split("/")[0].split()[0]) if "127.0.0.1:" in text else 0


def test_metrics_of_files_are_served_with_probes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(state, "metrics", "three-nodes", "--listen", "127.0.0.1:0") as process:
        until(lambda: port_in(state), "it says its address")
        port = port_in(state)
        until(lambda: answer(port, "/-/ready")[0] == 200, "it is ready")
        status, text = answer(port, "/metrics")
        assert status == 200
        assert 'gpuconsole_build_info{mode="SIM"' in text
        assert answer(port, "/-/healthy") == (200, "ok\n")
        assert answer(port, "/etc/passwd") == (404, "Metrics are at /metrics, probes at /-/healthy and /-/ready\n")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_metrics_of_a_history_are_those_of_its_newest_state(tmp_path: Path) -> None:
    state, file = tmp_path / "state", tmp_path / "recorded.db"
    with running(state, "record", "default", "--speed", "600", "--history", str(file)) as process:
        until(lambda: events_in(file), "the session has begun")
        time.sleep(3)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    with running(state, "metrics", "--history", str(file), "--listen", "127.0.0.1:0") as process:
        until(lambda: port_in(state), "it says its address")
        status, text = answer(port_in(state), "/metrics")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert status == 200
    assert "training_job_cost_usd{" in text
    assert "gpuconsole_queue_nominal_gpus{" in text
    assert 'gpuconsole_scrape_errors_total{group="costs"} 0.0' in text


def test_a_history_that_nobody_writes_any_more_is_a_lost_connection(tmp_path: Path) -> None:
    file = tmp_path / "recorded.db"
    record(file, open_simulation(OpenRequest(files=("org-cohort",))).simulation, 2 * MINUTE)
    source = RecordedHistory(file)
    assert source.status.stalled == ""
    written = file.stat().st_mtime
    os.utime(file, (written - 600, written - 600))
    assert source.status.stalled == "nothing is recorded any more"
    assert source.status.age >= 600


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("9090", "use HOST:PORT"),
        ("localhost:http", "use HOST:PORT"),
        ("::1:9090", "in brackets"),
        (":70000", "HOST:PORT"),
    ],
)
def test_a_wrong_address_is_a_usage_error(gpuconsole: Line, address: str, problem: str) -> None:
    done = gpuconsole("metrics", "three-nodes", "--listen", address)
    assert done.status == 2
    assert problem in done.err


@pytest.mark.parametrize("budget", ["research", "=5", "research=much", "research=-1", "research=inf"])
def test_a_wrong_budget_is_a_usage_error(gpuconsole: Line, budget: str) -> None:
    done = gpuconsole("metrics", "three-nodes", "--budget", budget)
    assert done.status == 2
    assert "TEAM=USD" in done.err


def test_a_cluster_that_cannot_be_reached_needs_no_restart_and_a_stalled_loop_does() -> None:
    stalled = ConsoleStatus(mode=ConsoleMode.LIVE, stalled="RuntimeError: no", age=600)
    assert "RuntimeError: no" in unhealthy(stalled)
    assert unhealthy(ConsoleStatus(mode=ConsoleMode.LIVE, age=600)) == ""
    assert unready(ConsoleStatus(mode=ConsoleMode.LIVE, loading=True)) == "the cluster is being loaded"
    assert unready(ConsoleStatus(mode=ConsoleMode.LIVE, history="disk full")) == "the history is not written: disk full"
    assert unready(ConsoleStatus(mode=ConsoleMode.LIVE)) == ""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    file = tmp_path / "kube config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "hush-hush"}}],
        "contexts": [{"name": "arn:aws:eks/prod", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "arn:aws:eks/prod",
    }
    file.write_text(yaml.safe_dump(content))
    return file


def test_the_service_pins_context_and_paths_and_has_no_secret(
    gpuconsole: Line, kubeconfig: Path, tmp_path: Path
) -> None:
    arguments = ("record", "--live", "--kubeconfig", kubeconfig, "--metrics", ":9090", "--budget", "a b=5")
    done = gpuconsole(*arguments, "--history", "100%.db", "--install-service")
    unit = tmp_path / "config" / "systemd" / "user" / f"gpuconsole-record-{NAME}.service"
    assert (done.status, done.err) == (0, "")
    assert done.lines == [
        str(unit),
        "",
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now gpuconsole-record-{NAME}.service",
    ]
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    text = unit.read_text()
    assert "hush-hush" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    program, _, rest = line.removeprefix("ExecStart=").partition(" record ")
    assert Path(program.split()[0]).is_absolute()
    history = str(Path("100%.db").absolute()).replace("%", "%%")
    assert rest == (
        f'--live --context arn:aws:eks/prod --kubeconfig "{kubeconfig}"'
        f' --history {history} --metrics :9090 --budget "a b=5"'
    )
    assert "Restart=on-failure" in text
    again = gpuconsole(*arguments, "--install-service")
    assert again.status == 0, "our own unit is replaced"
    assert "100%%" not in unit.read_text()


def test_a_service_that_somebody_changed_is_left_as_it_is(gpuconsole: Line, kubeconfig: Path, tmp_path: Path) -> None:
    arguments = ("record", "--live", "--kubeconfig", kubeconfig, "--install-service")
    assert gpuconsole(*arguments).status == 0
    (unit,) = (tmp_path / "config" / "systemd" / "user").iterdir()
    changed = unit.read_text().replace("Nice=5", "Nice=19")
    unit.write_text(changed)
    done = gpuconsole(*arguments)
    assert done.status == 2
    assert f"{unit} was changed by hand" in done.err
    assert unit.read_text() == changed


def test_a_service_needs_a_live_cluster_and_no_password(gpuconsole: Line, kubeconfig: Path) -> None:
    assert "needs --live" in gpuconsole("record", "default", "--install-service").err
    address = "https://me:hush@prometheus.example.com"
    done = gpuconsole("record", "--live", "--kubeconfig", kubeconfig, "--prometheus", address, "--install-service")
    assert done.status == 2
    assert "hush" not in done.err


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_unit(gpuconsole: Line, kubeconfig: Path, tmp_path: Path) -> None:
    gpuconsole("record", "--live", "--kubeconfig", kubeconfig, "--install-service")
    (unit,) = (tmp_path / "config" / "systemd" / "user").iterdir()
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("argument", "quoted"),
    [
        ("--live", "--live"),
        ("a b", '"a b"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ("C:\\x", '"C:\\\\x"'),
        ("", '""'),
        ("a;b", '"a;b"'),
    ],
)
def test_arguments_are_quoted_for_systemd(argument: str, quoted: str) -> None:
    assert quote_for_systemd(argument) == quoted


def test_a_line_break_cannot_add_a_setting_to_the_unit() -> None:
    with pytest.raises(UsageError, match="control characters"):
        quote_for_systemd("x\nExecStartPre=/bin/sh")


def pulled(*arguments: str | Path) -> tuple[int, str]:
    """Run `gpuconsole history pull`; returns its exit status and its error."""
    try:
        pull.main(list(map(str, arguments)), standalone_mode=False)
    except ConsoleError as error:
        return error.status, str(error)
    return 0, ""


def fake_kubectl(folder: Path, script: str) -> None:
    """A kubectl that writes its arguments to a file, and does what the script says."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done >{folder}/arguments\n{script}\n')
    program.chmod(0o700)


@pytest.fixture
def state_folder(gpuconsole: Line) -> None:
    """The state folder of the command line in tests."""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def recorded(file: Path) -> Path:
    recorder = Recorder(file, Opening(version="test", mode="LIVE", source="prod"), wall=lambda: 5)
    recorder.close()
    return file


def test_a_history_is_pulled_by_kubectl_exec(
    state_folder: None, kubeconfig: Path, kubectl: Path, tmp_path: Path
) -> None:
    fake_kubectl(kubectl, f"cat {recorded(tmp_path / 'pod.db')}")
    target = tmp_path / "copy.db"
    done = pulled(target, "--kubeconfig", kubeconfig)
    assert done == (0, "")
    assert session_ends(target) == [(True, False)]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert (kubectl / "arguments").read_text().splitlines() == [
        *("--kubeconfig", str(kubeconfig), "--context", "arn:aws:eks/prod", "--namespace", "gpuconsole"),
        *("exec", "-i=false", "deploy/gpuconsole-recorder", "--", "gpuconsole", "history", "backup", "-"),
    ]
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("copy")] == ["copy.db"]


def test_without_a_name_the_copy_is_in_the_state_folder_and_replaced(
    state_folder: None, kubeconfig: Path, kubectl: Path, tmp_path: Path
) -> None:
    fake_kubectl(kubectl, f"cat {recorded(tmp_path / 'pod.db')}")
    for _ in range(2):
        assert pulled("--kubeconfig", kubeconfig) == (0, "")
    assert session_ends(tmp_path / "state" / f"history-{NAME}-pulled.db") == [(True, False)]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'Error from server (NotFound): deployments.apps not found' >&2; exit 1", "NotFound"),
        ("echo no database", "no SQLite database"),
        ("printf 'SQLite format 3\\000'; head -c 5000 /dev/zero", "copy.db.pulling"),
        ("exit 0", "no SQLite database"),
    ],
)
def test_a_copy_that_fails_leaves_the_old_one(
    state_folder: None, kubeconfig: Path, kubectl: Path, tmp_path: Path, script: str, problem: str
) -> None:
    target = recorded(tmp_path / "copy.db")
    before = target.read_bytes()
    fake_kubectl(kubectl, script)
    status, error = pulled(target, "--kubeconfig", kubeconfig, "--replace")
    assert status == 2
    assert problem in error
    assert target.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir() if "pulling" in entry.name] == []


def test_an_existing_file_is_not_replaced_by_accident(state_folder: None, kubeconfig: Path, tmp_path: Path) -> None:
    target = tmp_path / "letter.txt"
    target.write_text("dear")
    status, error = pulled(target, "--kubeconfig", kubeconfig)
    assert status == 2
    assert "--replace" in error
    assert target.read_text() == "dear"
