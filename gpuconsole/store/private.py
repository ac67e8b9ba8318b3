"""Files readable by their owner only, because they name workloads, teams and changes of a cluster."""

import os
from contextlib import suppress
from pathlib import Path

OWNER_ONLY_FILE = 0o600
OWNER_ONLY_FOLDER = 0o700
_OURS = ("history.db", "history-", "gpuconsole.log", "dashboard.json", "tables.json", "silences.json")
"""Prefixes of the names of our files: SQLite and the rotation of logs append to them."""


def make_private_folder(folder: Path) -> None:
    """Create a private folder, or restrict an existing one if it holds only our files. Raises OSError."""
    if not folder.exists():
        folder.mkdir(parents=True, mode=OWNER_ONLY_FOLDER, exist_ok=True)
    if all(entry.name.startswith(_OURS) for entry in folder.iterdir()):
        _restrict(folder, OWNER_ONLY_FOLDER)


def make_private_file(path: Path) -> None:
    """Create a private file, or restrict an existing one and files with its name as prefix. Raises OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, OWNER_ONLY_FILE))
    for entry in path.parent.iterdir():
        # `history.db-wal`, `gpuconsole.log.1`
        if entry.name == path.name or entry.name.startswith((f"{path.name}-", f"{path.name}.")):
            _restrict(entry, OWNER_ONLY_FILE)


def write_private(path: Path, content: bytes) -> None:
    """Write a whole file that its owner may read, or leave it as it was, also if the process ends. Raises OSError."""
    make_private_folder(path.parent)
    # Another process may write the same file.
    new = path.with_name(f"{path.name}.new-{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY_FILE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _restrict(path: Path, mode: int) -> None:
    # A file that belongs to another user is not changed.
    with suppress(PermissionError):
        if path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
