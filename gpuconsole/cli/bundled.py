"""Bundled fixtures by name: `simulate three-nodes` needs no path."""

from collections.abc import Sequence
from pathlib import Path

from gpuconsole import assets
from gpuconsole.errors import UsageError

DEFAULT = "default"
"""The fixture of a bare `gpuconsole`."""
FOLDERS = ("scenarios", "drills", "clusters")


def resolve(files: Sequence[str]) -> list[str]:
    """Replace names of bundled fixtures by their paths; an existing path has precedence. Raises UsageError."""
    resolved = []
    for file in files:
        there = file == "-" or (file and Path(file).exists())
        bundled = None if there else fixtures().get(file)
        if bundled is None and not there:
            known = ", ".join(sorted(fixtures()))
            raise UsageError(f"{file or 'an empty name'}: no such file, folder or bundled fixture ({known})")
        resolved.append(file if bundled is None else str(bundled))
    return resolved


def fixtures() -> dict[str, Path]:
    """Name → path of every bundled fixture."""
    root = assets.folder("fixtures")
    return {path.stem: path for folder in FOLDERS for path in sorted((root / folder).glob("*.yaml"))}
