"""From files to a simulation: manifests, a scenario, a saved Snapshot, or a bundled fixture by name."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from gpuconsole import assets
from gpuconsole.cli.options import Request
from gpuconsole.cli.tables import counted
from gpuconsole.cli.validate import as_line
from gpuconsole.errors import ConsoleError, NotSupportedError, SourceError, UsageError
from gpuconsole.model.clock import Time, parse_time
from gpuconsole.model.manifests import Loaded, Severity, load
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, LocalQueue
from gpuconsole.model.snapshot import decode
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Job, Workload
from gpuconsole.services.status import Mode, Status
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy

DEFAULT = "default"
"""The fixture of a bare `gpuconsole`."""
FOLDERS = ("scenarios", "drills", "clusters")
START: Time = parse_time("2026-01-05T08:00:00Z")
"""When a simulation of plain manifests begins: a Monday morning, the same each time."""


class FindingsError(ConsoleError):
    """The input has errors; each is a line."""


class Opened(Struct, frozen=True, kw_only=True):
    """A simulation that is ready to run, and what there is to say about it."""

    simulation: Simulation
    about: Status
    notices: tuple[str, ...] = ()


def open_simulation(request: Request, *, seed: int, gpus_per_node: int) -> Opened:
    """Open what was asked for. Raises UsageError, or FindingsError where the input cannot be used as it stands."""
    asked = [bool(request.files), request.live, request.snapshot is not None]
    if sum(asked) > 1:
        raise UsageError("name FILES, --live or --snapshot, not several of them")
    if request.live:
        raise NotSupportedError("--live: this version simulates only; open manifests or a saved Snapshot instead")
    if request.snapshot is not None:
        return _from_snapshot(request.snapshot, seed)
    return _from_files(request, resolve(request.files or (DEFAULT,)), seed, gpus_per_node)


def resolve(files: Sequence[str]) -> list[str]:
    """Replace names of bundled fixtures by their paths; what exists as a path is that. Raises UsageError."""
    resolved = []
    for file in files:
        bundled = None if file == "-" or Path(file).exists() else fixtures().get(file)
        if bundled is None and file != "-" and not Path(file).exists():
            raise UsageError(
                f"{file}: there is no such file, folder or bundled fixture ({', '.join(sorted(fixtures()))})"
            )
        resolved.append(file if bundled is None else str(bundled))
    return resolved


def fixtures() -> dict[str, Path]:
    """Name → path of every bundled fixture."""
    root = assets.folder("fixtures")
    return {path.stem: path for folder in FOLDERS for path in sorted((root / folder).glob("*.yaml"))}


def read(files: Sequence[str], *, admit_all_namespaces: bool = False) -> Loaded:
    """Read files. Raises FindingsError if there are errors in them."""
    stdin = sys.stdin.read() if "-" in files else None
    loaded = load(files, stdin=stdin, now=START, admit_all_namespaces=admit_all_namespaces)
    errors = [finding for finding in loaded.findings if finding.severity == Severity.ERROR]
    if errors:
        raise FindingsError("\n".join(map(as_line, errors)))
    return loaded
