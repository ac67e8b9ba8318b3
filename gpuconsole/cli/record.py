"""`gpuconsole record`: records the history of a cluster without a screen, and can serve Prometheus metrics.

The recorder is a console without a screen: the same backend, loop and history. It reads the cluster and never changes
it. `pull` copies the history of a recorder in the cluster.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from gpuconsole.cli.headless import ESTIMATES, Listener, ListenerType, run_headless, say
from gpuconsole.cli.options import BUDGETS, OpenRequest, budgets_of, clustered, configured
from gpuconsole.cli.run import ConsoleOptions, log_to, open_console
from gpuconsole.config import Config
from gpuconsole.errors import ClusterError, HistoryError, UsageError
from gpuconsole.insight.cost.report import Budget
from gpuconsole.model.text import clean
from gpuconsole.store.private import OWNER_ONLY_FILE, make_private_file, make_private_folder
from gpuconsole.store.schema import reading


@click.command()
@clustered
@click.option("--speed", type=click.FloatRange(1, 10_000), help="Simulated seconds per wall-clock second.")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to record to (default: the cluster's file in the state folder).",
)
@click.option("--metrics", type=ListenerType(), metavar="ADDRESS", help="Serve Prometheus metrics, such as on :9090.")
@ESTIMATES
@BUDGETS
@click.option("--install-service", is_flag=True, help="Write a systemd user unit that runs this command (--live).")
def command(
    request: OpenRequest,
    speed: float | None,
    history: Path | None,
    metrics: Listener | None,
    estimates: bool,
    budgets: tuple[Budget, ...],
    install_service: bool,
) -> int:
    """Record the history of a cluster, without a screen.

    Records events, decisions, time series, costs and changes until SIGTERM or Ctrl-C, and never changes the cluster.
    With FILES a simulation is recorded, for trying it out.
    """
    if install_service:
        return _install(request, history, metrics, estimates, budgets)
    request, settings = configured(request, speed=speed, read_only=True, worker=estimates)
    if problem := log_to(settings.log_file, settings.log_level):
        say(problem)
    console = open_console(request, settings, ConsoleOptions(has_screen=False, forecasts=estimates, history=history))
    recorded = console.history_path
    say(f"recording {console.status.source} to {recorded}")
    for notice in console.notices:
        say(notice)
    return run_headless(console, recorded, metrics, budgets_of(budgets, settings.cost))


UNIT = "gpuconsole-record"
"""Name of the systemd unit, before the name of the cluster."""
_CHECKSUM = "# Checksum: "
_UNIT = """\
[Unit]
Description=gpuconsole recorder of {context}
StartLimitIntervalSec=0

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=30
UMask=0077
NoNewPrivileges=yes
Nice=5

[Install]
WantedBy=default.target
"""


def _install(
    request: OpenRequest,
    history: Path | None,
    metrics: Listener | None,
    estimates: bool,
    budgets: Sequence[Budget],
) -> int:
    """Write the systemd user unit for a live cluster. Raises UsageError, also for a unit that somebody has changed."""
    from gpuconsole.cli.live import open_live

    if not request.live:
        raise UsageError("--install-service needs --live: a simulation ends with its terminal")
    context = open_live(request).context
    _, settings = configured(request)
    arguments = [*_executable(), "record", *_arguments(request, context, history, metrics)]
    arguments += ["--estimates"] if estimates else []
    for budget in budgets:
        arguments += ["--budget", f"{budget.team}={budget.usd_per_month:g}"]
    body = _UNIT.format(context=clean(context).replace("%", "%%"), command=" ".join(map(quote_for_systemd, arguments)))
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    unit = folder / f"{UNIT}-{cluster_name(settings, context)}.service"
    _write_unit(unit, body)
    click.echo(f"{unit}\n\nsystemctl --user daemon-reload\nsystemctl --user enable --now {unit.name}")
    return 0


def _write_unit(unit: Path, body: str) -> None:
    """Write the unit with a checksum, by which a later call sees whether somebody has changed it."""
    try:
        if unit.exists():
            first, _, rest = unit.read_text(errors="replace").partition("\n")
            if first != _checksum(rest):
                raise UsageError(f"{unit} was changed by hand and is left as it is; delete it, then repeat the command")
        unit.parent.mkdir(parents=True, exist_ok=True)
        new = unit.with_name(f".{unit.name}.new")
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY_FILE), "w") as file:
            file.write(f"{_checksum(body)}\n{body}")
        new.replace(unit)
    except OSError as error:
        raise UsageError(f"cannot write {unit}: {error.strerror}") from error


def _checksum(body: str) -> str:
    return f"{_CHECKSUM}{hashlib.sha256(body.encode(errors='replace')).hexdigest()}"


def _executable() -> list[str]:
    """Return the command line that starts this program, with absolute paths."""
    program = Path(sys.argv[0])
    found = str(program) if program.name == "gpuconsole" and program.is_file() else shutil.which("gpuconsole")
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", "gpuconsole"]


def _arguments(request: OpenRequest, context: str, history: Path | None, metrics: Listener | None) -> list[str]:
    """Return the options of the unit: those given, with the context pinned and absolute paths; never a password."""
    for address in (request.prometheus, request.kueue_metrics, *request.dcgm):
        if address and "@" in urlsplit(address).netloc:
            raise UsageError("an address with a password is not written to a unit; configure live.telemetry instead")
    options = ["--live", "--context", context]
    if request.kubeconfig:
        options += ["--kubeconfig", str(Path(request.kubeconfig).absolute())]
    for namespace in request.namespace:
        options += ["--namespace", namespace]
    for name, value in (("--prometheus", request.prometheus), ("--kueue-metrics", request.kueue_metrics)):
        options += [name, value] if value else []
    for address in request.dcgm:
        options += ["--dcgm", address]
    for name, file in (("--prices", request.prices), ("--kueue-config", request.kueue_config), ("--history", history)):
        options += [name, str(file.absolute())] if file is not None else []
    if request.feature_gates:
        options += ["--feature-gates", request.feature_gates]
    if request.insecure_skip_tls_verify:
        options.append("--insecure-skip-tls-verify")
    if metrics is not None:
        host = f"[{metrics.host}]" if ":" in metrics.host else metrics.host
        options += ["--metrics", f"{host}:{metrics.port}"]
    return options


def quote_for_systemd(argument: str) -> str:
    """Quote an argument of ExecStart= (systemd.service, "Command lines"). Raises UsageError for control characters."""
    if not argument.isprintable():
        raise UsageError(f"{clean(argument)!r} has control characters and is not written to a unit")
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w@:,./=+%$-]+", escaped) else f'"{escaped}"'


def cluster_name(settings: Config, context: str) -> str:
    """Return a context as part of a file name, as the name of its history has it."""
    return settings.live_history_file(context).stem.removeprefix("history-")


POD, POD_NAMESPACE = "deploy/gpuconsole-recorder", "gpuconsole"
"""Where `deploy/recorder` runs the recorder."""
_CHUNK = 1 << 20
_MAGIC = b"SQLite format 3\x00"


@click.command("pull")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--kubeconfig", metavar="FILE", help="Path of the kubeconfig.")
@click.option("--namespace", "-n", default=POD_NAMESPACE, show_default=True, help="Namespace of the recorder.")
@click.option("--pod", default=POD, show_default=True, help="Pod of the recorder, or TYPE/NAME as kubectl accepts it.")
@click.option("--replace", "replaces", is_flag=True, help="Replace FILE if it exists.")
def pull(
    file: Path | None, context: str | None, kubeconfig: str | None, namespace: str, pod: str, replaces: bool
) -> int:
    """Copy the history of a recorder in the cluster to FILE.

    The recorder makes a consistent copy by SQLite's backup while it goes on; kubectl exec transfers it. Without FILE
    the copy is `history-CONTEXT-pulled.db` in the state folder, and replaces an earlier one.
    """
    from gpuconsole.backends.kube.object_access import kubectl_command
    from gpuconsole.cli.live import open_live

    request, settings = configured(OpenRequest(live=True, context=context, kubeconfig=kubeconfig))
    context = open_live(request, settings).context
    target = file if file is not None else settings.state / f"history-{cluster_name(settings, context)}-pulled.db"
    if file is not None and file.exists() and not replaces:
        raise UsageError(f"{file} exists; name another file, or add --replace")
    command = kubectl_command(kubeconfig or "", context, "--namespace", namespace, "exec", "-i=false", pod, "--")
    try:
        make_private_folder(target.parent)
        size = _transfer([*command, "gpuconsole", "history", "backup", "-"], target)
    except OSError as error:
        raise HistoryError(f"{target}: {error.strerror or error}") from error
    click.echo(f"{target}: {size / 1e6:.1f} MB")
    return 0


def _transfer(command: Sequence[str], target: Path) -> int:
    """Store what a command prints as the history `target`, if it is one. Returns its size in bytes."""
    new = target.with_name(f"{target.name}.pulling")
    try:
        new.unlink(missing_ok=True)
        make_private_file(new)
        with new.open("wb") as file:
            size = _copy(command, file)
        _check(new)
        for beside in ("-wal", "-shm"):
            Path(f"{target}{beside}").unlink(missing_ok=True)
        new.replace(target)
    finally:
        for name in ("", "-wal", "-shm"):
            Path(f"{new}{name}").unlink(missing_ok=True)
    return size


def _copy(command: Sequence[str], file: Any) -> int:
    """Write the output of a command to a file. Raises ClusterError if it fails."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise ClusterError(f"cannot run {command[0]}: {error.strerror}; install it to copy from a pod") from error
    complaint = bytearray()
    assert process.stdout is not None, "it was asked for"
    assert process.stderr is not None, "it was asked for"
    with process, process.stdout as output, process.stderr as errors:
        # Both pipes are read, as a full one would block the process.
        reader = threading.Thread(target=lambda: complaint.extend(errors.read(_CHUNK)), daemon=True)
        reader.start()
        try:
            size = 0
            while chunk := output.read(_CHUNK):
                file.write(chunk)
                size += len(chunk)
        except BaseException:
            process.kill()
            raise
        code = process.wait()
        reader.join(1)
    if code:
        lines = complaint.decode(errors="replace").strip().splitlines()
        raise ClusterError(f"kubectl exec failed ({code}): {clean(lines[-1] if lines else 'no output', 500)}")
    return size


def _check(file: Path) -> None:
    """Raise HistoryError if a file is not a whole history."""
    with file.open("rb") as head:
        if head.read(len(_MAGIC)) != _MAGIC:
            raise HistoryError("the recorder sent no SQLite database; is its gpuconsole as new as this one?")
    with reading(file) as db:
        (found,) = db.execute("pragma quick_check(1)").fetchone()
    if found != "ok":
        raise HistoryError(f"the copy is damaged, and was deleted: {found}")
