"""Logging goes to a file and nowhere else: the terminal belongs to the console."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from gpuconsole.errors import ConsoleError

LARGEST = 5_000_000
KEPT = 2


def log_to(file: Path, level: str) -> None:
    """Send all logging from a level on to a file, which is rotated at 5 MB. Raises ConsoleError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(file, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")
    except OSError as error:
        raise ConsoleError(f"{file}: {error.strerror}; set GPUCONSOLE_STATE_DIR to a folder of yours") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
