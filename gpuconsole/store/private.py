"""Files that only their owner may read, as they name workloads, teams and changes of a cluster."""

import os
from contextlib import suppress
from pathlib import Path

OWNER_ONLY_FILE = 0o600
OWNER_ONLY_FOLDER = 0o700
_OURS = ("history.db", "gpuconsole.log")
"""What the names of our files begin with: SQLite and the rotation of logs add to them."""


def make_private_folder(folder: Path) -> None:
    """Make a folder, or close an existing one, unless it holds more than our files. Raises OSError."""
    if not folder.exists():
        folder.mkdir(parents=True, mode=OWNER_ONLY_FOLDER, exist_ok=True)
    if all(entry.name.startswith(_OURS) for entry in folder.iterdir()):
        _restrict(folder, OWNER_ONLY_FOLDER)


def make_private_file(path: Path) -> None:
    """Make a file, or close an existing one and those whose names begin with its own. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, OWNER_ONLY_FILE))
    for entry in path.parent.iterdir():
        # `history.db-wal`, `gpuconsole.log.1`
        if entry.name == path.name or entry.name.startswith((f"{path.name}-", f"{path.name}.")):
            _restrict(entry, OWNER_ONLY_FILE)


def _restrict(path: Path, mode: int) -> None:
    # One that belongs to another user stays as that user has it.
    with suppress(PermissionError):
        if path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
