"""Logging to a file only, as the terminal belongs to the console."""

import logging
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from gpuconsole.store.private import make_private_file, make_private_folder

LARGEST = 5_000_000
KEPT = 2


class PrivateLog(RotatingFileHandler):
    """A log file that only its owner may read, also after rotation."""

    def _open(self) -> TextIOWrapper:
        make_private_file(Path(self.baseFilename))
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore errors: the terminal belongs to the console, and a full disk stays full for the next line."""


def log_to(file: Path, level: str) -> str:
    """Send all logging from a level on to a file, which is rotated at 5 MB.

    Returns why no log can be written and what to do; empty on success.
    """
    problem = ""
    handler: logging.Handler = logging.NullHandler()
    try:
        make_private_folder(file.parent)
        handler = PrivateLog(file, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")
    except OSError as error:
        problem = f"Cannot write the log: {file}: {error.strerror}; set GPUCONSOLE_STATE_DIR to a writable folder"
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    return problem
